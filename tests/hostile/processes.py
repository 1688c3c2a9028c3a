"""A helper process that may die: asked over a pipe, watched by a clock, started again."""

import json
import queue
import subprocess
import sys
import threading
from typing import IO, Any


class Died(Exception):
    """The process crashed, or did not answer in time; its text says which."""


class Helper:
    """A process that answers a line of JSON to a line of JSON.

    Args:
        module: What it runs, as ``python -m module``.
        setup: Its first line.
    """

    def __init__(self, module: str, setup: dict[str, Any]) -> None:
        self._module = module
        self._setup = setup
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def ask(self, question: Any, seconds: float) -> Any:
        """Return the answer; raise ``Died`` when there is none within ``seconds``."""
        process = self._process
        if process is None:
            # A fresh process has imports to do before it can answer.
            process, seconds = self._start(), seconds + 60
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise Died(f"no answer within {seconds:g} s") from None
        except BrokenPipeError:
            line = ""
        if not line:
            code = process.wait()
            self.close()
            raise Died(f"the process ended with status {code}")
        return json.loads(line)

    def _start(self) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._answers = process, queue.Queue()
        threading.Thread(target=_pump, args=(process.stdout, self._answers), daemon=True).start()
        process.stdin.write(json.dumps(self._setup) + "\n")
        process.stdin.flush()
        return process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def __enter__(self) -> "Helper":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _pump(lines: IO[str], answers: "queue.Queue[str]") -> None:
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")
