"""What a model costs at the door of ``jax.jit``: flattening, and a cached call.

The model is a list of ``Linear(2, 2)`` + ``LayerNorm(2)`` pairs, four small arrays each, in the same
sizes for every library; the step multiplies every array, N in and N out. The floor is ``jax.jit`` on
a flat tuple of the same arrays.
"""

import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import purestate as ps
from purestate import nn
from tests.benchmarks.timing import interleaved


class Pair(nn.Module):
    """Four arrays of the kind real layers have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(jnp.ones((2, 2)))
        self.bias = nn.Parameter(jnp.ones(2))
        self.scale = nn.Parameter(jnp.ones(2))
        self.shift = nn.Parameter(jnp.ones(2))


class Stack(nn.Module):
    """``pairs`` pairs and a head of two arrays."""

    def __init__(self, pairs: int) -> None:
        super().__init__()
        for index in range(pairs):
            self.register_module(str(index), Pair())
        self.head_weight = nn.Parameter(jnp.ones((2, 2)))
        self.head_bias = nn.Parameter(jnp.ones(2))


class EquinoxPair(eqx.Module):
    """The same four arrays, Equinox's way."""

    weight: jax.Array
    bias: jax.Array
    scale: jax.Array
    shift: jax.Array

    def __init__(self) -> None:
        self.weight = jnp.ones((2, 2))
        self.bias, self.scale, self.shift = jnp.ones(2), jnp.ones(2), jnp.ones(2)


class EquinoxStack(eqx.Module):
    """The same stack, Equinox's way."""

    pairs: list[EquinoxPair]
    head_weight: jax.Array
    head_bias: jax.Array

    def __init__(self, pairs: int) -> None:
        self.pairs = [EquinoxPair() for _ in range(pairs)]
        self.head_weight, self.head_bias = jnp.ones((2, 2)), jnp.ones(2)


def step(tree: Any) -> Any:
    """The work: every array times a number."""
    return jax.tree.map(lambda a: a * 0.999, tree)


def split_step(definition: Any, params: Any, buffers: Any) -> tuple[Any, Any]:
    """The same in split form; it returns only what it changed."""
    del definition, buffers
    return step(params), None


class Carry:
    """A donated call feeds its result to the next one."""

    def __init__(self, function: Callable[..., Any], state: Any, *others: Any):
        self.function = function
        self.state = jax.tree.map(jnp.copy, state)
        self.others = others

    def __call__(self) -> None:
        """One call; the old state's memory is reused."""
        self.state = self.function(self.state, *self.others)


def forms(pairs: int) -> dict[str, Any]:
    """The same arrays in every form."""
    model = Stack(pairs)
    arrays = jax.tree.leaves(model)
    definition, params, buffers = ps.split(model)
    return {
        "flat tuple": tuple(arrays),
        "model": model,
        "split": (definition, params, buffers),
        "flat dict": dict(zip(definition.names, arrays, strict=True)),
        "equinox": EquinoxStack(pairs),
    }


def flatten_calls(form: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """``jax.tree.flatten`` of each form."""
    return {name: (lambda tree=tree: jax.tree.flatten(tree)) for name, tree in form.items()}


def jit_calls(form: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """A cached jitted call of each form, plain and donated."""
    jitted, donated = jax.jit(step), jax.jit(step, donate_argnums=0)
    split = jax.jit(split_step)
    split_donated = jax.jit(lambda params, d, b: step(params), donate_argnums=0)
    definition, params, buffers = form["split"]
    closed = jax.jit(lambda params, buffers: split_step(definition, params, buffers))
    filtered = eqx.filter_jit(step)
    arrays, static = eqx.partition(form["equinox"], eqx.is_array)

    def recombined() -> Any:
        return eqx.combine(jitted(arrays), static)

    return {
        "flat tuple": lambda: jitted(form["flat tuple"]),
        "model": lambda: jitted(form["model"]),
        "split": lambda: split(definition, params, buffers),
        "split, definition closed over": lambda: closed(params, buffers),
        "flat dict": lambda: jitted(form["flat dict"]),
        "equinox filter_jit": lambda: filtered(form["equinox"]),
        "equinox partition": recombined,
        "flat tuple, donated": Carry(donated, form["flat tuple"]),
        "model, donated": Carry(donated, form["model"]),
        "split, donated": Carry(split_donated, params, definition, buffers),
    }


def frames(call: Callable[[], Any]) -> int:
    """Python frames that a call enters, its own lambda apart."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    call()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 1


def traces(steps: int = 1000) -> int:
    """How often a training-like loop of new arrays traces its step."""
    count = 0

    @jax.jit
    def counted(model: Any) -> Any:
        nonlocal count
        count += 1
        return step(model)

    model: Any = Stack(2)
    for _ in range(steps):
        model = counted(model)
    return count


def main(arguments: list[str]) -> None:
    """Print the tables; there are no arguments."""
    del arguments
    console = Console()
    console.print(f"jax {jax.__version__}, equinox {eqx.__version__}; CPU microseconds per call and ")
    console.print("median [quartiles] of paired ratios to the flat tuple, one interleaved run a table")
    for pairs in (2, 25, 250, 1250):
        form = forms(pairs)
        leaves = len(form["flat tuple"])
        _print(console, f"flatten, {leaves} arrays", interleaved(flatten_calls(form), "flat tuple"))
        calls = jit_calls(form)
        plain = {name: call for name, call in calls.items() if "donated" not in name}
        donated = {name: call for name, call in calls.items() if "donated" in name}
        _print(console, f"cached jitted call, {leaves} arrays", interleaved(plain, "flat tuple"))
        _print(
            console,
            f"cached jitted call with donation, {leaves} arrays",
            interleaved(donated, "flat tuple, donated"),
        )
    form = forms(25)
    calls = jit_calls(form)
    for name in ("flat tuple", "model", "split", "equinox filter_jit"):
        console.print(f"python frames in a cached call, 102 arrays: {name}: {frames(calls[name])}")
    console.print(f"traces in 1,000 steps: {traces()}")


def _print(console: Console, title: str, figures: dict[str, Any]) -> None:
    table = Table("form", "us", "ratio", "quartiles", title=title)
    for name, figure in figures.items():
        table.add_row(
            name,
            f"{figure.seconds * 1e6:.1f}",
            f"{figure.ratio:.3f}",
            f"{figure.low:.3f} - {figure.high:.3f}",
        )
    console.print(table)
