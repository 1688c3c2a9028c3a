"""The story that the demo tells, step by step."""

import sys
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import bridge
import purestate
from bridge.demo._data import CHECKPOINT, Part, read_checkpoint, read_digits
from bridge.demo._errors import Mismatch
from bridge.demo._files import write_and_compare
from bridge.demo._network import Digits
from bridge.demo._optimizer import from_torch, to_torch
from bridge.demo._training import batches, batches_per_epoch, correct, train_step


# Wide enough for the table of tensors on one line each.
PLAIN_WIDTH = 110


def run(out: Path | None = None, epochs: int = 2) -> int:
    """Continue PyTorch's training from its file, and write files that PyTorch reads.

    Args:
        out: The folder for ``digits.pt`` and ``digits.safetensors``; the current one when None. It
            is made if it is not there.
        epochs: How many epochs to train.

    Returns:
        0, or 1 after a line on stderr that says what does not match.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    try:
        _tell(console, Path() if out is None else out, epochs)
    except Mismatch as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"purestate demo: {error}", style="red", markup=False
        )
        return 1
    return 0


def _tell(console: Console, out: Path, epochs: int) -> None:
    had_torch = "torch" in sys.modules
    checkpoint = read_checkpoint()
    train, test = read_digits()
    model = _loaded(console, checkpoint)

    definition, params, buffers = purestate.split(model)
    evaluation = bridge.eval(definition)
    before = int(correct(evaluation, params, buffers, test))
    if before != checkpoint["test_correct"]:
        raise Mismatch(f"PyTorch got {checkpoint['test_correct']} test digits right, JAX {before}")
    _say(console, f"Accuracy before: {_accuracy(before, test)} test digits, as PyTorch counted.")

    optimizer, state = from_torch(checkpoint["optimizer"], params)
    key = jax.random.key(0)
    with _progress(console) as progress:
        for epoch in range(checkpoint["epoch"], checkpoint["epoch"] + epochs):
            bar = progress.add_task(f"Epoch {epoch + 1}", total=batches_per_epoch(train), loss="")
            total = 0.0
            for number, batch in enumerate(batches(train, epoch), start=1):
                key, step_key = jax.random.split(key)
                params, buffers, state, loss = train_step(
                    optimizer, definition, params, buffers, state, *batch, step_key
                )
                total += float(loss)
                progress.update(bar, completed=number, loss=f"mean loss {total / number:.4f}")
    after = int(correct(evaluation, params, buffers, test))
    _say(console, f"Accuracy after:  {_accuracy(after, test)} test digits.")

    trained = {
        "model": bridge.state_dict(purestate.merge(definition, params, buffers)),
        "optimizer": to_torch(state, checkpoint["optimizer"]),
        "epoch": checkpoint["epoch"] + epochs,
        "test_correct": after,
    }
    out.mkdir(parents=True, exist_ok=True)
    # A safetensors file has names and arrays, and no place for the versions of modules.
    arrays = bridge.StateDict(trained["model"], metadata={})
    for name, value in (("digits.pt", trained), ("digits.safetensors", arrays)):
        count = write_and_compare(value, out / name)
        _say(console, f"Wrote {out / name}: all {count} tensors came back bit for bit.")
    _say(console, _about_torch(had_torch))


def _loaded(console: Console, checkpoint: dict[str, Any]) -> Any:
    """The model with the arrays of the file, after saying where each belongs."""
    _say(console, f"Reading {CHECKPOINT}: written by torch.save after {checkpoint['epoch']} epochs.")
    try:
        model, report = bridge.load_state_dict(Digits(), checkpoint["model"])
    except RuntimeError as error:
        raise Mismatch(str(error)) from error
    console.print(bridge.audit(model).table("Where each tensor belongs"))
    _say(console, f"Strict load: {report}")
    return model


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        console=console,
    )


def _accuracy(right: int, part: Part) -> str:
    return f"{right / len(part.labels):.1%}, {right} of {len(part.labels)}"


def _about_torch(had_torch: bool) -> str:
    """The line about PyTorch in this process."""
    if had_torch:
        return "PyTorch was imported before the demo began; the demo did not use it."
    if "torch" in sys.modules:
        raise Mismatch("the demo is to run without PyTorch, and something imported it")
    return "PyTorch was never imported."
