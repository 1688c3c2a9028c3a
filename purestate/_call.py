"""Calling a model: arguments in, output and new state out.

``call`` takes and returns a model; ``apply`` takes and returns its parts. Both run the same
:class:`purestate._running.Call`; a model whose call wrote nothing comes back as the same object.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

from purestate._base import Base
from purestate._definition import Definition
from purestate._errors import did_not_run, stateful_call
from purestate._keys import as_key
from purestate._lives import flatten, unflatten
from purestate._running import Call
from purestate._select import select
from purestate._split import assemble, take_buffers


def call(model: Any, /, *args: Any, rng: Any = None, **kwargs: Any) -> tuple[Any, Any]:
    """Run a model; return its output and the model with its new state.

    Args:
        model: A model, a submodule inside ``forward``, or a bound method of one
            (``purestate.call(model.encode, x)``).
        *args: Positional arguments of ``forward``.
        rng: A JAX key or an int seed, for the layers that draw random numbers.
        **kwargs: Keyword arguments of ``forward``.

    Returns:
        ``(output, model)``. The very same model when the call wrote no state.

    Raises:
        UninitializedError: When an array that is read has no value.
        MissingRngError: When a layer needs a random key and ``rng`` is None.
    """
    model, method = receiver(model)
    leaves, definition = flatten(model)
    # A part of a model that runs is watched here as it is there.
    life: Any = model._life
    running = Call(definition, leaves, as_key(rng), *(() if life is None else life.watched()))
    output = run(running, method, args, kwargs)
    if life is not None:
        life.take(running.records)
    if not running.written:
        return output, model if life is None else unflatten(definition, leaves)
    return output, unflatten(definition, tuple(running.cells))


def call_stateless(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``model(x)``: the output of a call that may not write state."""
    leaves, definition = flatten(model)
    running = Call(definition, leaves)
    # An overridden __call__ has been entered already; this is its super().__call__.
    output = run(running, Base.__call__, args, kwargs)
    if running.written:
        names = [definition.names[leaf] for leaf in sorted(running.written)]
        kinds = {entry.kind for entry in definition.entries if entry.name in names}
        raise stateful_call(definition.cls, names, kinds)
    return output


def apply(
    definition: Definition,
    params: Mapping[str, Any],
    buffers: Mapping[str, Any],
    /,
    *args: Any,
    rng: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Run a model given as its three parts (``purestate.split``).

    What a call writes is state, and state is in ``buffers``. The one write that is not is that of
    an embedding with ``max_norm`` to a weight that trains: the lookups see the scaled rows, and
    ``params`` stays as it is, since the optimizer changes it next. ``purestate.call`` returns it.

    Args:
        definition: The structure.
        params: The trainable arrays by dotted name; any mapping.
        buffers: Every other array by dotted name; any mapping.
        *args: Positional arguments of ``forward``.
        rng: A JAX key or an int seed.
        **kwargs: Keyword arguments of ``forward``.

    Returns:
        ``(output, buffers)``, the buffers in the type that was given.

    Raises:
        KeyError: When names are missing or unknown.
    """
    running = Call(definition, assemble(definition, params, buffers), as_key(rng))
    output = run(running, None, args, kwargs)
    if not running.written:
        return output, buffers
    return output, take_buffers(definition, running.cells, buffers)


def capture(
    model: Any, /, *args: Any, at: Any = "**", rng: Any = None, **kwargs: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Run a model and return the outputs of the selected submodules too.

    Args:
        model: A model, or a bound method of one.
        *args: Positional arguments of ``forward``.
        at: A selector; by default every submodule.
        rng: A JAX key or an int seed.
        **kwargs: Keyword arguments of ``forward``.

    Returns:
        ``(output, model, {path: output})`` in the order the modules finished. A module that is
        called more than once appears as ``path``, ``path#2``, ``path#3``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        LeakedWriteError: When a selected module runs inside a JAX transform within ``forward``.
        RuntimeError: When nothing that a selector matches ran, or it ran as a value that was passed
            through a transform.
    """
    model, method = receiver(model)
    leaves, definition = flatten(model)
    selectors = [at] if isinstance(at, str | type) or not isinstance(at, Sequence) else at
    groups = [select(definition, selector, leaves) for selector in selectors]
    chosen = select(definition, at, leaves)
    running = Call(definition, leaves, as_key(rng), chosen)
    output = run(running, method, args, kwargs)
    ran = {node for node, _ in running.records}
    for group in groups:
        if ran.isdisjoint(group):
            raise did_not_run(list(group.values()), "captured")
    if running.written or model._life is not None:
        model = unflatten(definition, tuple(running.cells))
    outputs: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    for node, value in running.records:
        path = definition.path_of[node]
        counts[path] += 1
        outputs[path if counts[path] == 1 else f"{path}#{counts[path]}"] = value
    return output, model, outputs


def receiver(model: Any) -> tuple[Any, Any]:
    """The model of a bound method and its function; ``(model, None)`` for a model."""
    if isinstance(model, MethodType) and isinstance(model.__self__, Base):
        return model.__self__, model.__func__
    if not isinstance(model, Base):
        raise TypeError(f"expected a model (purestate.Module), got {type(model).__name__}")
    return model, None


def run(running: Call, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The output of a call of the root, or of a method of it."""
    try:
        return (method or type(running.view(0)).__call__)(running.view(0), *args, **kwargs)
    finally:
        running.end()
