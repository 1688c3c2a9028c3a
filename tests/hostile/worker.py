"""The process that reads damaged files: small, with a cap on its memory, and expendable.

It is told which files by number, over a pipe, and answers a line of JSON for each. A process that
dies or hangs is the finding; the parent then starts another.
"""

import json
import resource
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.hostile.cases import Corpus
from tests.hostile.observe import WAYS, observe


#: How far a reader may grow beyond the size of the file.
ALLOWANCE = 64 << 20


def cap_address_space(more: int) -> None:
    """Forbid this process more than ``more`` bytes of address space beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def answer(corpus: Corpus, key: str, work: Path) -> dict[str, Any]:
    """Read the case ``key`` in every way; "original N" is the seed N itself."""
    if key.startswith("original "):
        case = corpus.original(int(key.removeprefix("original ")))
    else:
        case = corpus.case(key)
    folder = Path(tempfile.mkdtemp(dir=work))
    try:
        path = case.write(folder)
        ways = {way: asdict(observe(path, way)) for way in WAYS}
    finally:
        shutil.rmtree(folder)
    return {"key": key, "seed": case.seed, "size": case.size, "ways": ways}


def main() -> None:
    """Answer for one key a line, until the pipe closes."""
    setup = json.loads(sys.stdin.readline())
    corpus = Corpus(Path(setup["folder"]), setup["seeds"])
    with tempfile.TemporaryDirectory(dir=setup["work"]) as work:
        # Once without the cap: what is imported late is imported now.
        for number, *_ in corpus.seeds:
            answer(corpus, f"original {number}", Path(work))
        cap_address_space(2 * ALLOWANCE)
        for line in sys.stdin:
            print(json.dumps(answer(corpus, json.loads(line), Path(work))), flush=True)


if __name__ == "__main__":
    main()
