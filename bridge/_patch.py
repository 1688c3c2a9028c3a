"""Activations replaced by name: what most hooks are written for, as arguments of a call."""

import functools
from collections.abc import Mapping
from typing import Any

from purestate._call import receiver, run
from purestate._errors import did_not_run
from purestate._keys import as_key
from purestate._lives import flatten, unflatten
from purestate._running import Call
from purestate._select import select


def patch(
    model: Any,
    patches: Mapping[Any, Any],
    /,
    *args: Any,
    rng: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a model with the outputs of some submodules replaced, by name.

    Activation steering and caching, as values: under ``jax.jit`` a replacement may be a traced
    array, and another one compiles nothing anew. The submodule runs all the same (its state, its
    hooks), and XLA drops what nobody uses.

    Args:
        model: A model, or a bound method of one.
        patches: ``{selector: replacement}``. A function gets the output and returns the one to use;
            anything else is used as it is. Of two selectors that name one module the later comes
            after the earlier.
        *args: Positional arguments of ``forward``.
        rng: A JAX key or an int seed.
        **kwargs: Keyword arguments of ``forward``.

    Returns:
        ``(output, model)``, as ``purestate.call``.

    Raises:
        SelectorError: When a selector matches nothing.
        RuntimeError: When a module did not run, or as a value that was passed through a transform.
    """
    model, method = receiver(model)
    leaves, definition = flatten(model)
    found: dict[int, list[Any]] = {}
    for selector, replacement in patches.items():
        for node in select(definition, selector, leaves):
            found.setdefault(node, []).append(replacement)
    ran: set[int] = set()
    replaced = {
        node: functools.partial(_patched, tuple(values), ran, node) for node, values in found.items()
    }
    running = Call(definition, leaves, as_key(rng), patches=replaced)
    output = run(running, method, args, kwargs)
    missed = [definition.path_of[node] for node in found if node not in ran]
    if missed:
        raise did_not_run(missed, "patched")
    if not running.written:
        return output, model if model._life is None else unflatten(definition, leaves)
    return output, unflatten(definition, tuple(running.cells))


def _patched(replacements: tuple[Any, ...], ran: set[int], node: int, output: Any) -> Any:
    ran.add(node)
    for replacement in replacements:
        output = replacement(output) if callable(replacement) else replacement
    return output
