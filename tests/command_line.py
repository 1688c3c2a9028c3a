"""What the tests of the command line share."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge import cli


#: What no command but ``demo`` may import.
HEAVY = {"jax", "jaxlib", "torch", "purestate", "equinox", "optax"}


def done(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    """Run a command in this process; return what it printed."""
    found = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert found == status, captured
    assert captured.err == ""
    return captured.out


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> Any:
    """Run a command with ``--json``; return the value it printed."""

    def fail(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    return json.loads(done(capsys, *arguments, "--json", status=status), parse_constant=fail)


def failed(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 1) -> str:
    """Run a command that fails; return the one line that it says why."""
    assert cli.main([str(argument) for argument in arguments]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("purestate: ")
    assert captured.err[:-1].isprintable()
    return captured.err


def modules_after(code: str) -> set[str]:
    """The top-level modules that are loaded after running ``code`` in a new process."""
    code = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def modules_after_command(*arguments: object) -> set[str]:
    """The modules that are loaded after a command."""
    texts = [str(argument) for argument in arguments]
    return modules_after(f"from bridge.cli import main; main({texts!r})")


def peak_of_command(*arguments: object) -> int:
    """How many bytes of memory a command had at most, with the pages of files that it looked at."""
    texts = [str(argument) for argument in arguments]
    code = (
        f"from bridge.cli import main; main({texts!r});"
        "import sys; print(open('/proc/self/status').read(), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = re.search(r"^VmHWM:\s*(\d+) kB$", run.stderr, re.MULTILINE)
    assert found
    return int(found[1]) << 10


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux's /proc to see a process's memory"
)
