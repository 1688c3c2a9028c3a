"""Layers in turn: a loop over the children of a container, compiled as one layer.

A stack of equal layers that is traced one by one is compiled one by one, in a time that is quadratic
in the depth. Traced once and run by ``lax.scan`` it is compiled once. What PyTorch's users would have
to change for that in other libraries stays as it is here: each layer keeps its own arrays and names,
and the stacking happens inside of the traced program (``scan``).

Layers may share one trace when their definitions are one object, which says that they differ in the
values of their arrays only. The body runs one of them as a call of its own, a :class:`_Turn`, in
which a node draws the keys that it would draw in the whole model; what the turns wrote, recorded and
drew is put back, layer by layer, as a loop would have left it.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from purestate._abstract import is_undrawn
from purestate._base import Base
from purestate._definition import Definition
from purestate._errors import leaked_write, stateful_call
from purestate._lives import flatten
from purestate._running import Call, Running


DEEP = 12
"""From how many equal layers on the containers scan by themselves; below, the loop runs faster."""


def scan(container: Iterable[Any], x: Any, /, *shared: Any, **kwargs: Any) -> Any:
    """Run modules one after the other: ``for layer in container: x = layer(x, *shared, **kwargs)``.

    Under ``jax.jit``, consecutive modules of one definition that keep the structure, shapes and
    dtypes of ``x`` are traced and compiled once, and run as a ``lax.scan`` over their arrays, stacked
    within the program. Everything else, and every call outside of ``jit``, is the plain loop. Both
    give the same results: outputs, written buffers, random draws, captured outputs, gradients.

    Args:
        container: A ``ModuleList``, a ``Sequential``, a slice of one, or another iterable of modules.
        x: What the first module gets first, and each hands on to the next: arrays in any pytree.
        *shared: Further arguments, the same for every module.
        **kwargs: Keyword arguments, likewise.

    Returns:
        What the last module returned; ``x`` without modules.

    Raises:
        StatefulCallError: When modules outside of a call write buffers.
        LeakedWriteError: When modules write buffers under another JAX trace than their call's.
    """
    return in_turn(list(container), x, shared, kwargs, least=2)


def in_turn(
    modules: Sequence[Any], x: Any, shared: tuple[Any, ...], kwargs: dict[str, Any], least: int
) -> Any:
    """``scan``, for runs of at least ``least`` equal modules."""
    if len(modules) < least or not _is_staged(x, modules):
        return _looped(modules, x, shared, kwargs)
    for group in _groups(modules):
        scanned = None
        if len(group) >= least and isinstance(group[0], _Layer):
            scanned = _scanned(group, x, shared, kwargs)
        if scanned is None:
            plain = [layer.module if isinstance(layer, _Layer) else layer for layer in group]
            x = _looped(plain, x, shared, kwargs)
        else:
            (x,) = scanned
    return x


def _looped(modules: Sequence[Any], x: Any, shared: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for module in modules:
        x = module(x, *shared, **kwargs)
    return x


class _Layer(NamedTuple):
    """A module as what a scan needs of it.

    Attributes:
        module: The module.
        definition: Its own definition.
        arrays: Its arrays, in the order of the definition's leaves.
        call: The call it runs in; None for a value.
        nodes: Where its nodes are in the call's definition.
        cells: Where its arrays are in the call.
    """

    module: Any
    definition: Definition
    arrays: tuple[Any, ...]
    call: Call | None
    nodes: tuple[int, ...]
    cells: tuple[int, ...]


def _layer(module: Any) -> Any:
    """The module as a layer, or as it is where it cannot be one."""
    if not isinstance(module, Base) or not (module._life is None or type(module._life) is Running):
        return module
    arrays, definition = flatten(module)
    if module._life is None:
        numbers = tuple(range(len(arrays)))
        layer = _Layer(module, definition, arrays, None, tuple(range(len(definition.nodes))), numbers)
    else:
        part = module._life.call.definition.submodule(module._life.index)
        layer = _Layer(module, definition, arrays, module._life.call, part.nodes, part.leaves)
    patches = () if layer.call is None else layer.call.patches
    if definition.is_hooked or any(node in patches for node in layer.nodes):
        return module
    return layer if definition.is_closed and not any(map(is_undrawn, arrays)) else module


def _groups(modules: Sequence[Any]) -> list[list[Any]]:
    """Runs of modules that may share a trace; others by themselves."""
    groups = itertools.groupby(map(_layer, modules), _kind)
    return [part for _, group in groups for part in _untied(list(group))]


def _kind(layer: Any) -> Any:
    if not isinstance(layer, _Layer):
        return id(layer)
    return id(layer.definition), id(layer.call), tuple(map(_type, layer.arrays))


def _type(array: Any) -> Any:
    """What a carry must keep: with the shape and dtype, the mapped axes over which an array varies."""
    return jax.typeof(array).strip_weak_type()


def _untied(group: list[Any]) -> list[list[Any]]:
    """One group, or where its layers share arrays, each layer by itself."""
    if not isinstance(group[0], _Layer) or group[0].call is None:
        return [group]
    cells = [cell for layer in group for cell in layer.cells]
    return [group] if len(set(cells)) == len(cells) else [[layer] for layer in group]


def _is_staged(x: Any, modules: Sequence[Any]) -> bool:
    """Whether a program is being recorded; outside of ``jit`` a scan would be compiled every time."""
    leaves = jax.tree.leaves(x)
    if not leaves or not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves):
        return False
    known = [*leaves, *(flatten(modules[0])[0] if isinstance(modules[0], Base) else ())]
    # While a program is recorded even a constant is a tracer.
    return any(isinstance(leaf, Tracer) for leaf in known) and isinstance(jnp.zeros(()), Tracer)


class _Turn(Call):
    """The call of one layer in the body of a scan.

    Attributes:
        outer: The call that the layers belong to; None for values.
        nodes: Where the nodes of the first layer are in it.
        words: The hash of each node's name, for this turn.
        counts: How many keys each node has drawn before.
    """

    __slots__ = ("counts", "nodes", "outer", "words")

    def __init__(self, layer: _Layer, arrays: tuple[Any, ...], words: Any, counts: Any):
        self.outer, self.nodes = layer.call, layer.nodes
        self.words, self.counts = words, counts
        rng, chosen = (None, ()) if self.outer is None else (self.outer.rng, self.outer.chosen)
        kept = {inner for inner, node in enumerate(layer.nodes) if node in chosen}
        super().__init__(layer.definition, arrays, rng, kept)

    def path_of(self, index: int) -> str:
        """Where the first layer's node is in the model; for errors."""
        return super().path_of(index) if self.outer is None else self.outer.path_of(self.nodes[index])

    def words_of(self, index: int) -> Any:
        """The words of this turn's layer."""
        return self.words[index]

    def drawn(self, index: int) -> Any:
        """The draws before this turn, and those within."""
        return self.counts[index] + self.draws.get(index, 0)


class _Recorded(NamedTuple):
    """An output that was recorded, without its arrays: the tracers of a body may not outlive it.

    Attributes:
        node: The node, in the first layer.
        leaves: What is no array, the same in each turn; None where an array was.
        structure: Of the output.
    """

    node: int
    leaves: list[Any]
    structure: Any


class _Left(NamedTuple):
    """What a turn left besides arrays: how many keys each node drew, and its outputs."""

    draws: dict[int, int]
    records: list[_Recorded]


def _parted(records: list[tuple[int, Any]]) -> tuple[list[_Recorded], list[list[Any]]]:
    """The recorded outputs without their arrays, and the arrays."""
    rest, arrays = [], []
    for node, output in records:
        leaves, structure = jax.tree.flatten(output)
        arrays.append([leaf for leaf in leaves if isinstance(leaf, jax.Array)])
        others = [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
        rest.append(_Recorded(node, others, structure))
    return rest, arrays


def _joined(recorded: _Recorded, arrays: list[Any]) -> Any:
    """The recorded output with its arrays; ``None`` is never a leaf of its own."""
    array = iter(arrays)
    leaves = [next(array) if leaf is None else leaf for leaf in recorded.leaves]
    return jax.tree.unflatten(recorded.structure, leaves)


class _OtherOutput(Exception):
    """The layers do not hand on what they take; the loop it is."""


def _scanned(
    layers: list[_Layer], x: Any, shared: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any] | None:
    """The output of the layers as one scan, their writes done; None where it must be a loop."""
    first, outer = layers[0], layers[0].call
    left: list[_Left] = []

    def body(x: Any, arrays: tuple[Any, ...], words: Any, counts: Any) -> Any:
        turn = _Turn(first, arrays, words, counts)
        output = turn.view(0)(x, *shared, **kwargs)
        turn.end()
        if not _alike(output, x):
            raise _OtherOutput
        written = {leaf: turn.cells[leaf] for leaf in sorted(turn.written)}
        rest, records = _parted(turn.records)
        left.append(_Left(turn.draws, rest))
        return output, written, records

    columns = (
        tuple(jnp.stack(column) for column in zip(*(layer.arrays for layer in layers), strict=True)),
        None if outer is None or outer.rng is None else _words(layers, outer),
        None if outer is None or outer.rng is None else _counts(layers, outer, {}),
    )
    try:
        # Traced here, once, so that the layers can still run as a loop if they turn out to differ.
        traced, shapes = jax.make_jaxpr(body, return_shape=True)(
            x, *jax.tree.map(lambda column: column[0], columns)
        )
    except _OtherOutput:
        return None
    structure = jax.tree.structure(shapes)
    if outer is not None and outer.rng is not None:
        columns = *columns[:2], _counts(layers, outer, left[0].draws)

    def step(x: Any, row: Any) -> tuple[Any, Any]:
        flat = jaxpr_as_fun(traced)(*jax.tree.leaves((x, *row)))
        output, *rest = jax.tree.unflatten(structure, flat)
        return output, rest

    x, (written, records) = lax.scan(step, x, columns, length=len(layers))
    _put_back(layers, left[0], written, records)
    return (x,)


def _words(layers: list[_Layer], outer: Call) -> jax.Array:
    """The hash of each node's name: one row a layer, one entry a node."""
    return _stacked([[outer.words_of(node) for node in layer.nodes] for layer in layers])


def _counts(layers: list[_Layer], outer: Call, draws: dict[int, int]) -> jax.Array:
    """How many keys each node has drawn before its turn, which a node of several layers has before.

    Args:
        layers: One row each.
        outer: The call they run in.
        draws: How many keys each node of a layer draws in a turn.
    """
    rows, earlier = [], Counter[int]()
    for layer in layers:
        rows.append([outer.drawn(node) + earlier[node] for node in layer.nodes])
        earlier.update({layer.nodes[inner]: count for inner, count in draws.items()})
    return _stacked(rows)


def _stacked(rows: list[list[Any]]) -> jax.Array:
    """One array of all rows: a constant, except within a turn, whose words and counts are traced."""
    if any(isinstance(entry, jax.Array) for row in rows for entry in row):
        return jnp.stack([jnp.stack([jnp.asarray(entry) for entry in row]) for row in rows])
    return jnp.asarray(np.array(rows))


def _alike(output: Any, x: Any) -> bool:
    """Whether a layer gave what the next can take in its place."""
    ours, theirs = jax.tree.flatten(output), jax.tree.flatten(x)
    return ours[1] == theirs[1] and all(
        isinstance(a, jax.Array) and _type(a) == _type(b)
        for a, b in zip(ours[0], theirs[0], strict=True)
    )


def _put_back(layers: list[_Layer], left: _Left, written: dict[int, Any], records: list[Any]) -> None:
    """What the turns left, in the call of the layers: new arrays, counts of draws, outputs."""
    outer, definition = layers[0].call, layers[0].definition
    changed = {e.name: e.kind for e in definition.entries if e.leaf in written}
    if outer is None:
        if changed:
            raise stateful_call(definition.cls, list(changed), set(changed.values()))
        return
    if changed and not outer.is_outer():
        raise leaked_write(outer.path_of(layers[0].nodes[0]), *next(iter(changed.items())))
    for position, layer in enumerate(layers):
        at = functools.partial(jax.tree.map, lambda column, row=position: column[row])
        for leaf, column in written.items():
            outer.write(layer.cells[leaf], at(column))
        for inner, count in left.draws.items():
            node = layer.nodes[inner]
            outer.draws[node] = outer.draws.get(node, 0) + count
        for recorded, columns in zip(left.records, records, strict=True):
            node = layer.nodes[recorded.node]
            if node in outer.chosen:
                outer.record(node, _joined(recorded, at(columns)))
