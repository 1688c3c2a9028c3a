"""Check the notebooks, or write them anew: ``python -m tests.notebooks [--write]``.

Each study is a pair: ``NN_title.py`` is edited and reviewed, ``NN_title.ipynb`` is opened and read.
The check compares the sources of the two, sees that the outputs are there, and executes each study
in a copy of the folder, so that nothing is written into the tree. ``--write`` executes them and
writes every ``.ipynb`` from its ``.py``.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config


ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
# What would differ from one run or one machine to the next.
VOLATILE = re.compile(r"\bat 0x[0-9a-f]+|/(?:home|root|tmp|work|Users|opt|private)/[\w./-]+")


def main() -> int:
    """Check or write every pair; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="execute and write every .ipynb")
    parser.add_argument("names", nargs="*", help="only the studies whose name contains one of these")
    options = parser.parse_args()
    studies = sorted(
        {path.stem for path in FOLDER.iterdir() if re.match(r"\d\d_.*\.(py|ipynb)$", path.name)}
    )
    chosen = [s for s in studies if not options.names or any(name in s for name in options.names)]
    if not chosen:
        print(f"no study in {FOLDER.name}/ matches {options.names}", file=sys.stderr)
        return 1
    problems = []
    for study in chosen:
        found = write(study) if options.write else check(study)
        print(f"{study}: {'; '.join(found) or 'ok'}", flush=True)
        problems += found
    return 1 if problems else 0


def check(study: str) -> list[str]:
    """What is wrong with one pair."""
    script, notebook = FOLDER / f"{study}.py", FOLDER / f"{study}.ipynb"
    for path in (script, notebook):
        if not path.exists():
            return [f"{path.name} is missing (python -m tests.notebooks --write makes the .ipynb)"]
    source, stored = jupytext.read(script), nbformat.read(notebook, as_version=4)
    problems = [*pair(source, stored), *complete(stored)]
    try:
        execute(source)
    except CellExecutionError as error:
        problems.append(failure(error))
    return problems


def write(study: str) -> list[str]:
    """Execute one study and write its ``.ipynb``; what kept it from being written."""
    notebook = jupytext.read(FOLDER / f"{study}.py")
    try:
        execute(notebook)
    except CellExecutionError as error:
        return [failure(error)]
    normalise(notebook)
    problems = volatile(notebook)
    if not problems:
        nbformat.write(notebook, FOLDER / f"{study}.ipynb")
    return problems


def pair(source: Any, stored: Any) -> list[str]:
    """Where the cells of the ``.py`` and the ``.ipynb`` differ."""
    ours = [(cell.cell_type, cell.source) for cell in source.cells]
    theirs = [(cell.cell_type, cell.source) for cell in stored.cells]
    remedy = "(python -m tests.notebooks --write)"
    if len(ours) != len(theirs):
        return [f"the .py has {len(ours)} cells, the .ipynb {len(theirs)} {remedy}"]
    return [
        f"cell {index} of the .ipynb is not the one of the .py {remedy}"
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True))
        if left != right
    ]


def complete(stored: Any) -> list[str]:
    """Code cells without a stored execution, and stored errors."""
    code = [(index, cell) for index, cell in enumerate(stored.cells) if cell.cell_type == "code"]
    missing = [str(index) for index, cell in code if cell.execution_count is None]
    failed = [str(i) for i, cell in code if any(out.output_type == "error" for out in cell.outputs)]
    return [
        *([f"not executed in the .ipynb: cells {', '.join(missing)}"] if missing else []),
        *([f"errors stored in the .ipynb: cells {', '.join(failed)}"] if failed else []),
    ]


def failure(error: CellExecutionError) -> str:
    """What failed, without the colours of a terminal."""
    return "a cell fails:\n" + re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def execute(notebook: Any) -> None:
    """Run every cell, in place, in a copy of the folder and with this Python."""
    import matplotlib.font_manager  # noqa: F401  A first import builds a cache, and says so.

    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / FOLDER.name
        shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
        # The studies compare with torch on the CPU.
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "JAX_PLATFORMS": "cpu",
            "PYTHONDONTWRITEBYTECODE": "1",
            "IPYTHONDIR": temporary,
        }
        sockets = {"transport": "ipc", "connection_file": str(Path(temporary) / "kernel.json")}
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
            config=Config(KernelManager=sockets),
        )
        client.execute(env=environment)


def normalise(notebook: Any) -> None:
    """Keep what a reader sees; drop what changes from run to run."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", ()):
            output.pop("metadata", None)
            if output.output_type != "stream":
                output.metadata = nbformat.from_dict({})


def volatile(notebook: Any) -> list[str]:
    """Outputs that name an address or a path of this machine, or went to standard error."""
    problems = []
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            shown = [output.get("text", ""), *output.get("data", {}).values()]
            text = "\n".join(str(part) for part in shown if "iVBOR" not in str(part)[:5])
            match = VOLATILE.search(text)
            if match:
                problems.append(f"cell {index} shows {match.group()!r}")
            if output.get("name") == "stderr":
                problems.append(f"cell {index} writes to standard error: {text.strip()!r}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
