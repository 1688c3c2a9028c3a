"""Torch's own operator database as an oracle: every sample input it tests an operator with.

``torch.testing._internal`` ships sample inputs (and inputs that must raise) for every functional.
``samples`` yields them, ``check`` runs them through our function and torch's and compares outputs
and gradients, naming every sample that fails. The import takes seconds, so it happens on first use.

JAX compiles once per shape and set of options, and some families have over a thousand samples: by
default at most ``LIMIT`` of them are run, a fixed random choice. ``PURESTATE_ALL_SAMPLES=1`` in the
environment runs all.
"""

import functools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import torch

from tests.parity import check_function, raised


LIMIT = 24
PREFIX = "nn.functional."


class Report(NamedTuple):
    """What a walk over the samples found; ``failures`` holds one text per failed sample."""

    name: str
    passed: int
    total: int
    failures: list[str]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.passed} / {self.total}", *self.failures]
        return "\n".join(lines)


@functools.cache
def _table() -> dict[tuple[str, str], Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {(op.name, op.variant_test_name): op for op in op_db}


def operator(name: str, variant: str = "") -> Any:
    """The database entry of ``nn.functional.<name>``, or of a plain operator like ``softmax``."""
    table = _table()
    return table.get((PREFIX + name, variant)) or table[name, variant]


def variants(name: str) -> list[str]:
    """The variants that the database has of a functional; ``[""]`` for most, none for some."""
    table = _table()
    found = [variant for op, variant in table if op == PREFIX + name]
    return found or [variant for op, variant in table if op == name]


def _chosen(items: list[Any]) -> list[tuple[int, Any]]:
    """The samples to run with their index in the database: all, or a fixed choice of LIMIT."""
    numbered = list(enumerate(items))
    if len(numbered) <= LIMIT or os.environ.get("PURESTATE_ALL_SAMPLES") == "1":
        return numbered
    return sorted(random.Random(0).sample(numbered, LIMIT), key=lambda pair: pair[0])


def _dtype(name: str) -> torch.dtype:
    """What the samples are made in: float64 where JAX has it switched on, integers for ``one_hot``."""
    if name == "one_hot":
        return torch.int64
    return torch.float64 if jax.config.read("jax_enable_x64") else torch.float32


def _numbered(name: str, variant: str) -> list[tuple[int, tuple[Any, ...], dict[str, Any]]]:
    torch.manual_seed(0)
    found = list(operator(name, variant).sample_inputs("cpu", _dtype(name), requires_grad=False))
    return [(i, (s.input, *s.args), dict(s.kwargs)) for i, s in _chosen(found)]


def samples(name: str, variant: str = "") -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The ``(args, kwargs)`` of the samples of one operator, float32 on the CPU."""
    for _, args, kwargs in _numbered(name, variant):
        yield args, kwargs


def errors(name: str, variant: str = "") -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The ``(args, kwargs)`` that torch says must raise."""
    entry = operator(name, variant)
    if entry.error_inputs_func is not None:
        torch.manual_seed(0)
        for error in entry.error_inputs("cpu"):
            sample = error.sample_input
            yield (sample.input, *sample.args), dict(sample.kwargs)


def described(case: str, error: Exception) -> str:
    """One line for a failure: the case and the reason."""
    return f"{case}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def describe(value: Any) -> str:
    """A short name of an argument: a tensor by dtype and sizes. Good for the ids of tests."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(describe, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={describe(item)}" for key, item in value.items()) + "}"
    return repr(value)


def run(
    name: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None = None,
    *,
    variant: str = "",
    gradient: bool = True,
    where: Callable[[tuple[Any, ...], dict[str, Any]], bool] = lambda args, kwargs: True,
) -> Report:
    """Compare ``ours`` with ``theirs`` (the database's own operator by default) on every sample.

    Args:
        name: The operator, ``conv2d`` or ``softmax``.
        ours: The JAX function; called with the sample's arguments as JAX arrays.
        theirs: The torch function; called with the sample's tensors.
        variant: The database's name of the variant (``pad`` has ``constant``, ``reflect``, ...).
        gradient: Compare gradients too.
        where: Which samples to run, given ``(args, kwargs)``; for options refused on purpose.
    """
    reference: Callable[..., Any] = theirs or operator(name, variant).op
    chosen = [entry for entry in _numbered(name, variant) if where(*entry[1:])]
    failures = []
    for index, args, kwargs in chosen:
        call = functools.partial(check_function, ours, reference, args, kwargs, gradient=gradient)
        error = raised(call)
        if error is not None:
            failures.append(described(f"{name} #{index} {describe(args)} {describe(kwargs)}", error))
    title = f"{name} {variant}".strip()
    return Report(title, len(chosen) - len(failures), len(chosen), failures)


def check(name: str, ours: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """``run``, and fail with the report unless every sample passed."""
    report = run(name, ours, *args, **kwargs)
    assert report.total > 0, f"{name}: the database has no samples"
    assert report.passed == report.total, str(report)
    return report
