"""A batch that is spread over devices stays spread: each computes its share, and none gathers."""

import json
import os
import subprocess
import sys


def test_every_device_computes_its_share():
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.nn.spread_layers_job"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report) == 10
    wrong = {
        name: found
        for name, found in report.items()
        if found["gathers"]
        or not found["kept"]
        or found["share"] > 0.4
        or not found.get("explicit", True)
    }
    assert not wrong
