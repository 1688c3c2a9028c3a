"""Packing and padding: torch.nn.utils.rnn on both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.utils.rnn as theirs

from purestate.nn.utils import rnn as ours
from tests.parity import assert_close, check_error, to_jax


def check_packed(actual, expected):
    assert_close(actual.data, expected.data)
    assert actual.batch_sizes == tuple(expected.batch_sizes.tolist())
    assert_close(actual.sorted_indices, expected.sorted_indices)
    assert_close(actual.unsorted_indices, expected.unsorted_indices)


PACKS = {
    "sorted": ((5, 3, 2), [5, 3, 1], {}),
    "unsorted": ((5, 3, 2), [3, 5, 1], {"enforce_sorted": False}),
    "ties": ((4, 4), [2, 4, 2, 4], {"enforce_sorted": False}),
    "batch first": ((3, 5, 2), [5, 5, 1], {"batch_first": True}),
    "batch first, unsorted": ((3, 5), [1, 2, 5], {"batch_first": True, "enforce_sorted": False}),
    "shorter than padded": ((5, 2, 2, 2), [3, 2], {}),
    "fewer, unsorted": ((5, 3, 2), [2, 3], {"enforce_sorted": False}),
    "floats": ((5, 2), [5.7, 4.2], {}),
}


@pytest.mark.parametrize(("shape", "lengths", "options"), PACKS.values(), ids=PACKS)
def test_pack_and_pad(shape, lengths, options):
    x = torch.randn(shape)
    actual = ours.pack_padded_sequence(to_jax(x), lengths, **options)
    expected = theirs.pack_padded_sequence(x, lengths, **options)
    check_packed(actual, expected)
    for more in ({}, {"batch_first": True, "padding_value": -2.5, "total_length": 7}):
        padded, sizes = ours.pad_packed_sequence(actual, **more)
        wanted, wanted_sizes = theirs.pad_packed_sequence(expected, **more)
        assert_close((padded, sizes), (wanted, wanted_sizes))
        assert isinstance(sizes, np.ndarray)
        assert sizes.dtype == np.int64
    unpacked = ours.unpack_sequence(actual)
    assert_close(unpacked, theirs.unpack_sequence(expected))


@pytest.mark.parametrize("given", [tuple, np.asarray, jnp.asarray], ids=["tuple", "numpy", "jax"])
def test_lengths_may_be(given):
    x = torch.randn(5, 3)
    expected = theirs.pack_padded_sequence(x, [4, 2, 1])
    check_packed(ours.pack_padded_sequence(to_jax(x), given([4, 2, 1])), expected)


def test_integers_and_their_padding():
    x = torch.tensor([[1, 2], [3, 4]])
    padded, _ = ours.pad_packed_sequence(
        ours.pack_padded_sequence(to_jax(x), [2, 1]), padding_value=1.5
    )
    wanted, _ = theirs.pad_packed_sequence(theirs.pack_padded_sequence(x, [2, 1]), padding_value=1.5)
    assert_close(padded, wanted)


def calls(rnn, ones, array):
    x = ones(5, 2, 3)
    return {
        "number": lambda: rnn.pack_padded_sequence(x, [5]),
        "zero": lambda: rnn.pack_padded_sequence(x, [5, 0]),
        "negative": lambda: rnn.pack_padded_sequence(x, [5, -1]),
        "order": lambda: rnn.pack_padded_sequence(x, [3, 5]),
        "order before zero": lambda: rnn.pack_padded_sequence(x, [0, 5]),
        "1-D input": lambda: rnn.pack_padded_sequence(ones(5), [5]),
        "2-D lengths": lambda: rnn.pack_padded_sequence(x, array([[5, 4]])),
        "0-D lengths": lambda: rnn.pack_padded_sequence(x, array(5)),
        "no batch": lambda: rnn.pack_padded_sequence(ones(5, 0, 3), []),
        "no features": lambda: rnn.pack_padded_sequence(ones(5, 2, 0), [5, 4]),
        "total length": lambda: rnn.pad_packed_sequence(
            rnn.pack_padded_sequence(x, [5, 3]), total_length=4
        ),
        "not a sequence": lambda: rnn.pad_sequence(5),
        "no sequences": lambda: rnn.pad_sequence([]),
        "not arrays": lambda: rnn.pad_sequence([1, 2]),
        "trailing axes": lambda: rnn.pad_sequence([ones(3, 2), ones(2, 3)]),
        "a scalar first": lambda: rnn.pad_sequence([ones(), ones(2)]),
        "a scalar later": lambda: rnn.pad_sequence([ones(2), ones()]),
        "side": lambda: rnn.pad_sequence([ones(3, 2), ones(2, 2)], padding_side="x"),
        "nothing to pack": lambda: rnn.pack_sequence([]),
        "sequences out of order": lambda: rnn.pack_sequence([ones(2), ones(3)]),
        "fewer lengths": lambda: rnn.unpad_sequence(ones(5, 2, 3), array([5])),
        "more lengths": lambda: rnn.unpad_sequence(ones(5, 2, 3), array([5, 4, 3])),
        "no batch sizes": lambda: rnn.PackedSequence(ones(3)),
    }


OURS = calls(ours, lambda *shape: jnp.ones(shape), np.asarray)
THEIRS = calls(theirs, lambda *shape: torch.ones(shape), torch.tensor)


@pytest.mark.parametrize("name", OURS)
def test_refused_as_torch(name):
    check_error(OURS[name], THEIRS[name])


def test_lengths_beyond_the_padding_are_refused():
    """Torch makes a packed sequence that does not fit its own batch sizes."""
    with pytest.raises(RuntimeError, match="at most 5"):
        ours.pack_padded_sequence(jnp.ones((5, 2)), [6, 5])
    with pytest.raises(RuntimeError, match=r"got 3 \(batch_size=2\)"):
        ours.pack_padded_sequence(jnp.ones((5, 2)), [5, 4, 3], enforce_sorted=False)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["batch second", "batch first"])
def test_pad_and_unpad(batch_first, side):
    sequences = [torch.randn(size, 2) for size in (2, 4, 3)]
    options = {"batch_first": batch_first, "padding_value": 0.5, "padding_side": side}
    padded = ours.pad_sequence(to_jax(sequences), **options)
    assert_close(padded, theirs.pad_sequence(sequences, **options))
    wanted = theirs.pad_sequence(sequences, **options)
    actual = ours.unpad_sequence(padded, [2, 4, 3], batch_first)
    assert_close(actual, theirs.unpad_sequence(wanted, torch.tensor([2, 4, 3]), batch_first))


def test_pad_of_what_does_not_match():
    """The first decides dtype and axes."""
    mixed = [torch.ones(3, 2), torch.arange(2)]
    assert_close(ours.pad_sequence(to_jax(mixed)), theirs.pad_sequence(mixed))
    whole = [torch.tensor([1, 2]), torch.tensor([3])]
    actual = ours.pad_sequence(to_jax(whole), padding_value=1.5)
    assert_close(actual, theirs.pad_sequence(whole, padding_value=1.5))
    rows = torch.randn(3, 2)
    assert_close(ours.pad_sequence(to_jax(rows)), theirs.pad_sequence(rows))


@pytest.mark.parametrize("sizes", [(3, 2, 2), (2, 3, 1)], ids=["sorted", "unsorted"])
def test_pack_sequences(sizes):
    sequences = [torch.randn(size, 2) for size in sizes]
    is_sorted = sizes[0] == 3
    actual = ours.pack_sequence(to_jax(sequences), is_sorted)
    check_packed(actual, theirs.pack_sequence(sequences, is_sorted))
    assert_close(ours.unpack_sequence(actual), sequences)


def test_invert_permutation():
    order = torch.tensor([2, 0, 1])
    expected = theirs.invert_permutation(order)
    assert_close(ours.invert_permutation(to_jax(order)), expected)
    assert_close(ours.invert_permutation(order.numpy()), expected)
    assert ours.invert_permutation(None) is None


def test_a_packed_sequence_is_a_named_tuple_and_a_pytree():
    packed = ours.pack_sequence([jnp.ones(2), jnp.ones(3)], enforce_sorted=False)
    data, batch_sizes, _, _ = packed
    assert data is packed.data
    assert batch_sizes == (2, 2, 1)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(packed)]
    assert paths == [".data", ".sorted_indices", ".unsorted_indices"]
    doubled = jax.tree.map(lambda leaf: leaf * 2, packed)
    assert isinstance(doubled, ours.PackedSequence)
    assert doubled.batch_sizes == batch_sizes
    hash(jax.tree.structure(packed))


def test_constructors_of_a_packed_sequence():
    data = jnp.arange(5.0)
    plain = ours.PackedSequence(data, jnp.array([2, 2, 1]))
    assert plain.batch_sizes == (2, 2, 1)
    assert ours.PackedSequence((data, [2, 2, 1])).batch_sizes == (2, 2, 1)
    assert ours.PackedSequence(data, [2, 2, 1], np.array([1, 0])).unsorted_indices.tolist() == [1, 0]


def test_conversions():
    packed = ours.pack_sequence([jnp.ones(3), jnp.ones(2)])
    mine = {name: str(getattr(packed, name)().data.dtype) for name in CONVERSIONS}
    assert mine == CONVERSIONS
    assert packed.to(jnp.bfloat16).data.dtype == jnp.bfloat16
    with jax.enable_x64(True):
        assert packed.double().data.dtype == jnp.float64


CONVERSIONS = {
    "float": "float32",
    "double": "float32",
    "half": "float16",
    "long": "int32",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
}


def test_gradients_reach_the_padded_input():
    x = jnp.ones((4, 2))
    total = lambda x: jnp.sum(ours.pack_padded_sequence(x, [4, 1]).data * jnp.arange(5.0))  # noqa: E731
    assert np.asarray(jax.grad(total)(x)).tolist() == [[0, 1], [2, 0], [3, 0], [4, 0]]


def test_unknown_lengths_are_refused_with_what_to_write():
    with pytest.raises(TypeError, match="pack outside of the jitted function"):
        jax.jit(ours.pack_padded_sequence)(jnp.ones((4, 2)), jnp.array([4, 1]))


def test_an_order_that_is_not_known_gives_lengths_that_are_not():
    packed = ours.pack_sequence([jnp.ones(2), jnp.ones(3)], enforce_sorted=False)
    padded, lengths = jax.jit(ours.pad_packed_sequence)(packed)
    assert_close((padded, lengths), ours.pad_packed_sequence(packed))
