"""Sequences of different lengths: packed, padded, and the way between the two.

A packed sequence holds the steps of all sequences without padding: first all first steps, then all
second steps, with the longest sequence first. How many rows each step has decides shapes, so
``batch_sizes`` is a tuple of Python ints, part of the pytree's structure: a packed sequence goes into a
jitted function as it is, and one with other lengths compiles again. The two permutations that sorting
made are leaves. They start as numpy arrays, so that under ``jit`` the lengths of what was packed inside
are still known when it is padded again.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purestate.nn.functional import _packed
from purestate.nn.functional._packed import BatchSizes


__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Any
    batch_sizes: BatchSizes
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_Fields):
    """Sequences of different lengths in one array. Torch's name: ``torch.nn.utils.rnn.PackedSequence``.

    Made by :func:`pack_padded_sequence` and :func:`pack_sequence`; taken and returned by the recurrent
    layers. A pytree with the leaves ``data``, ``sorted_indices`` and ``unsorted_indices``, and a named
    tuple of all four fields.

    Args:
        data: ``(sum(batch_sizes), *)``; or the pair of it and ``batch_sizes``.
        batch_sizes: How many sequences have each step, not increasing; kept as a tuple of ints.
        sorted_indices: ``(N,)``, which sequence is the longest, the next, and so on; None if they
            came in that order.
        unsorted_indices: ``(N,)``, its inverse; computed if None.

    Raises:
        AssertionError: Without ``batch_sizes``, when ``data`` is not a pair.
        TypeError: When ``batch_sizes`` is not known, under ``jit``.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ):
        """Take what torch's constructor takes."""
        if batch_sizes is None:
            if not (isinstance(data, list | tuple) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        sizes = tuple(_known("batch_sizes", batch_sizes).tolist())
        return super().__new__(cls, data, sizes, sorted_indices, unsorted_indices)

    def to(self, dtype: Any) -> "PackedSequence":
        """With the data in another dtype."""
        return self._replace(data=self.data.astype(dtype))

    def double(self) -> "PackedSequence":
        """With the data in float64, where JAX has it."""
        return self.to(jax.dtypes.canonicalize_dtype(np.float64))

    def float(self) -> "PackedSequence":
        """With the data in float32."""
        return self.to(jnp.float32)

    def half(self) -> "PackedSequence":
        """With the data in float16."""
        return self.to(jnp.float16)

    def long(self) -> "PackedSequence":
        """With the data in int64, where JAX has it."""
        return self.to(jax.dtypes.canonicalize_dtype(np.int64))

    def int(self) -> "PackedSequence":
        """With the data in int32."""
        return self.to(jnp.int32)

    def short(self) -> "PackedSequence":
        """With the data in int16."""
        return self.to(jnp.int16)

    def char(self) -> "PackedSequence":
        """With the data in int8."""
        return self.to(jnp.int8)

    def byte(self) -> "PackedSequence":
        """With the data in uint8."""
        return self.to(jnp.uint8)


def _flatten(packed: PackedSequence) -> tuple[tuple[Any, ...], BatchSizes]:
    data, batch_sizes, sorted_indices, unsorted_indices = packed
    return (data, sorted_indices, unsorted_indices), batch_sizes


def _flatten_with_keys(packed: PackedSequence) -> tuple[tuple[Any, ...], BatchSizes]:
    children, batch_sizes = _flatten(packed)
    names = ("data", "sorted_indices", "unsorted_indices")
    keys = map(jax.tree_util.GetAttrKey, names)
    return tuple(zip(keys, children, strict=True)), batch_sizes


def _unflatten(batch_sizes: BatchSizes, children: Iterable[Any]) -> PackedSequence:
    data, sorted_indices, unsorted_indices = children
    # Past the constructor: a leaf may be whatever a transformation puts there.
    return PackedSequence._make((data, batch_sizes, sorted_indices, unsorted_indices))


jax.tree_util.register_pytree_with_keys(PackedSequence, _flatten_with_keys, _unflatten, _flatten)


def _known(name: str, values: Any) -> np.ndarray:
    """Integers that decide shapes, as int64."""
    if isinstance(values, Tracer):
        raise TypeError(
            f"{name} decides the shape of the result, and under jit it is not known.\n"
            "    write: pack outside of the jitted function and pass the PackedSequence in, or make "
            f"{name} a static argument (a tuple of ints)"
        )
    return np.asarray(values).astype(np.int64)


def invert_permutation(permutation: Any) -> Any:
    """The inverse of a permutation (``torch.nn.utils.rnn.invert_permutation``).

    Args:
        permutation: ``(N,)`` of integers, or None.

    Returns:
        The same shape and dtype, a numpy array for a numpy array; None for None.
    """
    if permutation is None:
        return None
    if isinstance(permutation, np.ndarray):
        return np.argsort(permutation).astype(permutation.dtype)
    return jnp.argsort(permutation).astype(permutation.dtype)


def pack_padded_sequence(
    input: jax.Array, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch (``torch.nn.utils.rnn.pack_padded_sequence``).

    Args:
        input: ``(L, N, *)``, or ``(N, L, *)`` with ``batch_first``.
        lengths: ``(N,)`` of positive integers, at most ``L``: a list, a numpy array, an array. They
            must be known when this is traced.
        batch_first: Whether the batch is the first axis.
        enforce_sorted: Whether lengths must come in decreasing order; False sorts.

    Raises:
        RuntimeError: For lengths that are out of order, not positive, too long, of another shape or
            number than the batch; for an empty input.
        IndexError: For an input without a batch.
        TypeError: When the lengths are not known.
    """
    sizes, order = _known("lengths", lengths), None
    if sizes.ndim != 1:
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {sizes.ndim}D cpu Long tensor"
        )
    if input.ndim < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
    if batch_first:
        input = input.swapaxes(0, 1)
    if not enforce_sorted and len(sizes) <= input.shape[1]:
        order = np.argsort(-sizes, kind="stable")
        sizes, input = sizes[order], input[:, order]
    if input.size == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != input.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={input.shape[1]})"
        )
    if sizes[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that "
            "is <= 0"
        )
    if np.any(sizes[1:] > sizes[:-1]):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
            "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
            "requirement if you do not need ONNX exportability."
        )
    if sizes[0] > input.shape[0]:
        raise RuntimeError(
            f"Expected lengths of at most {input.shape[0]}, the padded length, but got {sizes[0]}"
        )
    steps = np.arange(sizes[0])
    batch_sizes = tuple(np.sum(sizes > steps[:, None], axis=1).tolist())
    return PackedSequence(_packed.packed(input, batch_sizes), batch_sizes, order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[jax.Array, Any]:
    """Undo :func:`pack_padded_sequence` (``torch.nn.utils.rnn.pad_packed_sequence``).

    Args:
        sequence: What to pad.
        batch_first: Whether the batch becomes the first axis.
        padding_value: What to put after the end of a sequence.
        total_length: The padded length; that of the longest sequence if None.

    Returns:
        ``(L, N, *)``, or ``(N, L, *)``, in the order from before sorting, and the lengths, ``(N,)``:
        int64 in numpy where the order is known.

    Raises:
        ValueError: When ``total_length`` is less than the longest sequence.
    """
    longest = len(sequence.batch_sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    padded = _packed.padded(sequence.data, sequence.batch_sizes, padding_value, total_length)
    lengths: Any = _packed.lengths(sequence.batch_sizes)
    order = sequence.unsorted_indices
    if order is not None:
        padded = padded[:, order]
        lengths = jnp.asarray(lengths)[order] if isinstance(order, Tracer) else lengths[order]
    return padded.swapaxes(0, 1) if batch_first else padded, lengths


def pad_sequence(
    sequences: Iterable[jax.Array] | jax.Array,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> jax.Array:
    """Pad sequences to the longest and stack them (``torch.nn.utils.rnn.pad_sequence``).

    Args:
        sequences: ``N`` arrays of ``(L_i, *)`` with the same trailing axes.
        batch_first: Whether the batch becomes the first axis.
        padding_value: What to put in the places left over.
        padding_side: ``"right"`` to pad after a sequence, ``"left"`` before it.

    Returns:
        ``(L, N, *)``, or ``(N, L, *)``, in the dtype of the first.

    Raises:
        RuntimeError: For something else than sequences, for none, for trailing axes that do not fit,
            for another side.
        TypeError: For an element that is not an array.
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    arrays = tuple(sequences)
    if not arrays:
        raise RuntimeError("received an empty list of sequences")
    for place, array in enumerate(arrays):
        if not isinstance(array, jax.Array | np.ndarray):
            raise TypeError(
                f"expected Tensor as element {place} in argument 0, but got {type(array).__name__}"
            )
    if not arrays[0].ndim:
        raise RuntimeError("ArrayRef: invalid slice, N = 1; size = 0")
    if not all(array.ndim for array in arrays):
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    return _padded_stack(arrays, batch_first, padding_value, padding_side == "left")


@functools.partial(jax.jit, static_argnames=("batch_first", "padding_value", "is_left"))
def _padded_stack(
    arrays: tuple[jax.Array, ...], batch_first: bool, padding_value: float, is_left: bool
) -> jax.Array:
    first = arrays[0]
    longest = max(len(array) for array in arrays)
    filler = jnp.asarray(padding_value).astype(first.dtype)
    rows = []
    for array in arrays:
        row = jnp.broadcast_to(array.astype(first.dtype), (len(array), *_fitting(array, first)))
        missing = longest - len(array)
        ends = (missing, 0) if is_left else (0, missing)
        rows.append(jnp.pad(row, (ends, *((0, 0),) * (row.ndim - 1)), constant_values=filler))
    return jnp.stack(rows, axis=0 if batch_first else 1)


def _fitting(array: jax.Array, first: jax.Array) -> tuple[int, ...]:
    """The trailing axes of the first array, which those of another must equal."""
    for axis, (wanted, got) in enumerate(zip(first.shape[::-1][:-1], array.shape[::-1], strict=False)):
        if got not in (wanted, 1):
            raise RuntimeError(
                f"The size of tensor a ({wanted}) must match the size of tensor b ({got}) at "
                f"non-singleton dimension {first.ndim - 1 - axis}"
            )
    return first.shape[1:]


def unpad_sequence(
    padded_sequences: jax.Array, lengths: Any, batch_first: bool = False
) -> list[jax.Array]:
    """Undo :func:`pad_sequence` (``torch.nn.utils.rnn.unpad_sequence``).

    Args:
        padded_sequences: ``(L, N, *)``, or ``(N, L, *)`` with ``batch_first``.
        lengths: ``(N,)`` of integers, known when this is traced.
        batch_first: Whether the batch is the first axis.

    Returns:
        ``N`` arrays of ``(length, *)``.

    Raises:
        ValueError: When there are more or fewer lengths than sequences.
        TypeError: When the lengths are not known.
    """
    if not batch_first:
        padded_sequences = padded_sequences.swapaxes(0, 1)
    ends = _known("lengths", lengths).tolist()
    places = range(padded_sequences.shape[0])
    return [padded_sequences[i, : max(end, 0)] for i, end in zip(places, ends, strict=True)]


def pack_sequence(sequences: Sequence[jax.Array], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths (``torch.nn.utils.rnn.pack_sequence``).

    Args:
        sequences: ``N`` arrays of ``(L_i, *)``.
        enforce_sorted: Whether they must come longest first; False sorts.

    Raises:
        RuntimeError: As :func:`pad_sequence` and :func:`pack_padded_sequence`.
    """
    lengths = [len(sequence) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[jax.Array]:
    """Undo :func:`pack_sequence` (``torch.nn.utils.rnn.unpack_sequence``)."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
