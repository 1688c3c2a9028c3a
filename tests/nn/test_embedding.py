"""EmbeddingBag, and the write of ``max_norm``: a parameter that a call changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from purestate.nn import functional as F
from tests.nn.both import check_same, check_same_error
from tests.oracles.module_db import compare_call, compare_state
from tests.parity import assert_close, to_jax, to_numpy


INDEX, OFFSETS = torch.tensor([[0, 1, 1], [4, 0, 5]]), torch.tensor([0, 2, 2])


def pair(name, *args, training=True, **kwargs):
    """Both sides' layer with the same weights."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs).train(training)
    values = {key: to_numpy(value) for key, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(getattr(nn, name)(*args, **kwargs), values)
    return bridge.train(ours, training), theirs


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.EmbeddingBag(5, 3),
        lambda nn: nn.EmbeddingBag(5, 3, 1.5, 1.0, True, "sum", True, None, True, -2),
        lambda nn: nn.EmbeddingBag(5, 3, mode="max", padding_idx=0),
    ],
    ids=range(3),
)
def test_built_as_torch(build):
    check_same(build)


@pytest.mark.parametrize("padding_idx", [5, -6])
def test_padding_outside_of_the_table(padding_idx):
    check_same_error(lambda nn: nn.EmbeddingBag(5, 3, padding_idx=padding_idx))


@pytest.mark.parametrize("sizes", [(-2, 3), (3, -2)])
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag", "Linear"])
def test_negative_sizes(name, sizes):
    check_same_error(lambda nn: getattr(nn, name)(*sizes))


def test_tables():
    model = ps.init(nn.EmbeddingBag(5, 400, padding_idx=-2), 0)
    np.testing.assert_array_equal((model.weight == 0).all(1), [False, False, False, True, False])
    np.testing.assert_allclose(model.weight[:3].std(), 1, atol=0.1)
    table = jnp.ones((3, 2))
    frozen = nn.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=1)
    theirs = torch.nn.EmbeddingBag.from_pretrained(torch.ones(3, 2), mode="sum", padding_idx=1)
    assert repr(frozen) == repr(theirs)
    assert list(ps.split(frozen)[1]) == []
    assert list(ps.split(nn.EmbeddingBag.from_pretrained(table, freeze=False))[1]) == ["weight"]
    assert list(ps.split(nn.EmbeddingBag(3, 2, _weight=table))[1]) == ["weight"]
    with pytest.raises(AssertionError, match="expected to be 2-dimensional"):
        nn.EmbeddingBag.from_pretrained(jnp.ones(3))
    with pytest.raises(AssertionError, match="does not match num_embeddings"):
        nn.EmbeddingBag(3, 3, _weight=table)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    ours, theirs = pair("EmbeddingBag", 6, 3, mode=mode, padding_idx=1)
    compare_call(ours, theirs, (INDEX,))
    compare_call(ours, theirs, (INDEX.reshape(-1), OFFSETS))
    if mode == "sum":
        weights = torch.arange(6.0).reshape(2, 3).requires_grad_()
        compare_call(ours, theirs, (INDEX,), {"per_sample_weights": weights})


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Embedding", {}),
        ("Embedding", {"padding_idx": 1, "norm_type": 1.0}),
        ("Embedding", {"scale_grad_by_freq": True}),
        ("EmbeddingBag", {"mode": "max"}),
        ("EmbeddingBag", {"mode": "mean", "padding_idx": 0}),
    ],
    ids=str,
)
def test_max_norm_writes_the_weight(name, options, training):
    """Output, gradient and the weight afterwards; and again, from there."""
    ours, theirs = pair(name, 7, 3, max_norm=1.0, training=training, **options)
    after = compare_call(ours, theirs, (INDEX,))
    assert not np.allclose(after.weight, ours.weight)
    np.testing.assert_array_equal(after.weight[2:4], ours.weight[2:4])
    compare_call(after, theirs, (INDEX + 1,))


@pytest.mark.parametrize(
    ("index", "expected"), [([2, -1], [0, 0, 1]), ([0, 0, 3, -3, 1], [1, 1, 0])], ids=str
)
def test_an_index_outside_of_the_table_counts_for_no_row(index, expected):
    @jax.jit
    def gradient(weight, index):
        return jax.grad(lambda w: jnp.nansum(F.embedding(index, w, scale_grad_by_freq=True)))(weight)

    rows = gradient(jnp.ones((3, 1)), jnp.asarray(index))
    np.testing.assert_array_equal(rows[:, 0], expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_frequencies_that_a_half_type_cannot_count(dtype):
    """Not to 300, or not to 70,000: but each share is one over the count."""
    count = {"bfloat16": 1024, "float16": 70_000}[dtype]

    def total(weight):
        rows = F.embedding(jnp.zeros(count, jnp.int32), weight, scale_grad_by_freq=True)
        return (rows.astype(jnp.float32) * jnp.eye(count, 1)).sum()

    # One of the lookups has a cotangent: what comes back is its share.
    gradient = jax.grad(total)(jnp.ones((2, 1), dtype))
    np.testing.assert_allclose(gradient.astype(jnp.float32), [[1 / count], [0]], rtol=1e-2)


class Tied(nn.Module):
    """The table is also the decoder, and is looked up twice."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4, max_norm=1.0)
        self.decode = nn.Linear(4, 6, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, x, y):
        return self.decode(self.embed(x) * self.embed(y))


def tied():
    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(6, 4, max_norm=1.0)
            self.decode = torch.nn.Linear(4, 6, bias=False)
            self.decode.weight = self.embed.weight

        forward = Tied.forward

    torch.manual_seed(0)
    theirs = Theirs()
    values = {key: to_numpy(value) for key, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(Tied(), values)
    return ours, theirs


def test_a_tie_stays_one_array():
    ours, theirs = tied()
    after = compare_call(ours, theirs, (INDEX[0], INDEX[1]))
    assert after.embed.weight is after.decode.weight


@pytest.mark.parametrize("freeze", [True, False])
def test_apply_returns_what_is_in_the_buffers(freeze):
    table = jnp.full((6, 2), 3.0)
    layer = nn.Embedding.from_pretrained(table, freeze, max_norm=1.0)
    definition, params, buffers = ps.split(layer)
    index = jnp.array([0, 1])
    output, after = ps.apply(definition, params, buffers, index)
    np.testing.assert_allclose(jnp.linalg.norm(output, axis=1), 1, rtol=1e-6)
    assert list(after) == (["weight"] if freeze else [])
    if freeze:
        np.testing.assert_array_equal(after["weight"][:2], output)
        np.testing.assert_array_equal(after["weight"][2:], table[2:])


def test_a_call_that_would_lose_the_weight_is_refused():
    ours, _ = tied()
    for model in (ours, bridge.eval(ours)):
        with pytest.raises(ps.StatefulCallError) as caught:
            model(*to_jax((INDEX[0], INDEX[1])))
        assert "1 parameter(s): 'embed.weight'" in str(caught.value)
        assert "y, model = purestate.call(model, x)" in str(caught.value)
        assert "eval" not in str(caught.value)
    with pytest.raises(ps.FrozenModelError, match=r"cannot assign Embedding\.weight"):
        ours.embed.forward(jnp.array([0]))
    mixed = ps.init(nn.Sequential(nn.Embedding(6, 3, max_norm=1.0), nn.BatchNorm1d(3)), 0)
    with pytest.raises(ps.StatefulCallError, match=r"4 buffer\(s\) and parameter\(s\): '0.weight'"):
        mixed(jnp.array([0, 1]))


def test_transforms():
    ours, theirs = tied()
    x, y = to_jax((INDEX[0], INDEX[1]))
    output, after = ps.call(ours, x, y)
    jitted = jax.jit(ps.call)(ours, x, y)
    assert_close(jitted[0], output)
    assert_close(jitted[1].embed.weight, after.embed.weight)
    batched = jax.vmap(ps.call, (None, 0, None))(ours, x[:, None], y[:1])
    assert batched[1].embed.weight.shape == (3, 6, 4)

    def step(model, pair):
        output, model = ps.call(model, *pair)
        return model, output

    pairs = jnp.stack([x, y]), jnp.stack([y, x])
    last, outputs = jax.lax.scan(step, ours, pairs)
    for output, a, b in zip(outputs, *pairs, strict=True):
        assert_close(output, theirs(*map(torch.tensor, map(np.array, (a, b)))))
    compare_state(last, theirs)


class Checkpointed(nn.Module):
    def __init__(self, carries):
        super().__init__()
        self.embed = nn.Embedding(6, 4, max_norm=1.0)
        self.carries = carries

    def forward(self, x):
        if not self.carries:
            return jax.checkpoint(lambda x: self.embed(x))(x)
        y, self.embed = jax.checkpoint(ps.call)(self.embed, x)
        return y


def test_a_write_inside_a_transform():
    x = jnp.array([0, 1])
    with pytest.raises(ps.LeakedWriteError, match=r"parameter 'embed\.weight' was written"):
        ps.call(ps.init(Checkpointed(False), 0), x)
    model = ps.init(Checkpointed(True), 0)
    output, after = ps.call(model, x)
    np.testing.assert_array_equal(after.embed.weight[:2], output)


def test_training_from_the_new_weight():
    """A step of gradient descent, as torch's: from the weight that the call has written."""
    ours, theirs = pair("Embedding", 7, 3, max_norm=1.0)
    definition, params, buffers = ps.split(ours)

    def loss(params):
        output, model = ps.call(ps.merge(definition, params, buffers), to_jax(INDEX))
        return (output**3).sum(), model

    gradients, model = jax.grad(loss, has_aux=True)(params)
    _, params, buffers = ps.split(model)
    params = jax.tree.map(lambda value, slope: value - 0.1 * slope, params, gradients)
    (theirs(INDEX) ** 3).sum().backward()
    torch.optim.SGD(theirs.parameters(), 0.1).step()
    compare_state(ps.merge(definition, params, buffers), theirs)
