"""Every file that was made to hurt is refused, and nothing runs meanwhile."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.pickles import forgeries, read_all


KINDS = list(dict.fromkeys(forgery.kind for forgery in forgeries()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_forgery_is_refused(kind: str, tmp_path: Path) -> None:
    cases = [forgery for forgery in forgeries() if forgery.kind == kind]
    verdicts = read_all(cases, tmp_path)
    assert verdicts.failures == []
    assert verdicts.refused[kind] + verdicts.inert[kind] == len(cases)
    assert verdicts.refused[kind] >= sum(not forgery.inert for forgery in cases)


def test_there_are_more_than_two_hundred_pickles_that_must_be_refused() -> None:
    tables = ("archives", "safetensors headers", "index files")
    assert sum(not f.inert and f.kind not in tables for f in forgeries()) > 200


def test_the_jail_hears_what_pickle_does(tmp_path: Path) -> None:
    """The same file, opened by Python's own unpickler, is heard: the check can fail."""
    code = """if True:
        import encodings.cp437  # by zipfile, late
        import io, pickle, sys, zipfile
        from pathlib import Path
        from tests.hostile.jail import Listener
        listener = Listener()
        sys.addaudithook(listener)
        path = Path(sys.argv[1]).resolve()
        listener.allowed = path
        with open(path, "rb") as file:
            data = zipfile.ZipFile(io.BytesIO(file.read())).read("m/data.pkl")
        assert listener.events == [], listener.events
        pickle.loads(data)
        listener.allowed = None
        print(" ".join(event.partition("(")[0] for event in listener.events))
    """
    (evil,) = (f for f in forgeries() if f.id == "code by opcode: REDUCE")
    path = evil.write(tmp_path)
    command = [sys.executable, "-c", code, str(path)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    heard = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    ).stdout
    assert "os.system" in heard
    assert "pickle.find_class" in heard
    assert (tmp_path / "canary").exists()
