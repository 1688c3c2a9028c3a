"""Recurrent layers beyond the module database: names, states, refusals, dropout, packed sequences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from purestate.nn.utils.rnn import pack_padded_sequence
from tests import tolerances
from tests.nn.both import check_same, check_same_error
from tests.oracles import module_db
from tests.oracles.module_db import compare_call
from tests.parity import assert_close, check_error, cotangent, raised, to_jax, to_numpy


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"bias": False, "proj_size": 2, "bidirectional": True},
    {"num_layers": 3, "proj_size": 1, "batch_first": True},
    {"num_layers": 2, "dropout": 0.5, "bias": False},
]


KINDS = ["GRU", "LSTM", "RNN"]


def pair(kind="LSTM", **options):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(3, 4, **options)
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    return bridge.load_state_dict(getattr(nn, kind)(3, 4, **options), values)[0], theirs


def state(kind, ones, *shape):
    return (ones(*shape), ones(*shape)) if kind == "LSTM" else ones(*shape)


@pytest.mark.parametrize("options", OPTIONS)
def test_built_as_torch(options):
    check_same(lambda nn: nn.LSTM(3, 4, **options))


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.GRU(3, 4, 2, False, True, 0.5, True),
        lambda nn: nn.RNN(3, 4, 2, "relu", False, True, 0.5, True),
        lambda nn: nn.RNN(3, 4, nonlinearity="tanh"),
        lambda nn: nn.RNNBase("GRU", 3, 4, bidirectional=True),
        lambda nn: nn.RNNBase("RNN_TANH", 3, 4, proj_size=2),
    ],
    ids=["gru", "relu", "tanh", "base", "base with a projection"],
)
def test_the_others_built_as_torch(build):
    check_same(build)


def test_a_base_runs_nothing():
    check_error(
        lambda: nn.RNNBase("GRU", 3, 4).forward(jnp.ones((5, 2, 3))),
        lambda: torch.nn.RNNBase("GRU", 3, 4)(torch.ones(5, 2, 3)),
    )


def test_flattening_parameters_does_nothing():
    assert pair()[0].flatten_parameters() is None


@pytest.mark.parametrize("options", OPTIONS[1:4])
@pytest.mark.parametrize("batched", [True, False])
def test_given_states(options, batched):
    ours, theirs = pair(**options)
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    batch = (2,) if batched else ()
    width = options.get("proj_size") or 4
    x = (2, 5, 3) if options.get("batch_first") and batched else (5, *batch, 3)
    states = (torch.randn(rows, *batch, width), torch.randn(rows, *batch, 4))
    for state in states:
        state.requires_grad_()
    compare_call(ours, theirs, [torch.randn(x, requires_grad=True), states])


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.LSTM(3, 4, dropout=1.5),
        lambda nn: nn.LSTM(3, 4, dropout=True),
        lambda nn: nn.LSTM(3, 4, bias=1),
        lambda nn: nn.LSTM(3, 4, batch_first=0),
        lambda nn: nn.LSTM(3.0, 4),
        lambda nn: nn.LSTM(0, 4),
        lambda nn: nn.LSTM(3, "4"),
        lambda nn: nn.LSTM(3, -1),
        lambda nn: nn.LSTM(3, 4, num_layers=0),
        lambda nn: nn.LSTM(3, 4, proj_size=-1),
        lambda nn: nn.LSTM(3, 4, proj_size=4),
        lambda nn: nn.GRU(3, 4, proj_size=0),
        lambda nn: nn.RNN(3, 4, proj_size=2),
        lambda nn: nn.GRU(3, 0),
        lambda nn: nn.RNN(3, 4, nonlinearity="sigmoid"),
        lambda nn: nn.RNNBase("LSTN", 3, 4),
    ],
)
def test_refused_as_torch(build):
    check_same_error(build)


CALLS = {
    "1-D": lambda m, ones, kind: m(ones(3)),
    "4-D": lambda m, ones, kind: m(ones(5, 2, 3, 1)),
    "input size": lambda m, ones, kind: m(ones(5, 2, 4)),
    "no steps": lambda m, ones, kind: m(ones(0, 2, 3)),
    "batched state axes": lambda m, ones, kind: m(ones(5, 2, 3), state(kind, ones, 1, 4)),
    "unbatched state axes": lambda m, ones, kind: m(ones(5, 3), state(kind, ones, 1, 1, 4)),
    "state size": lambda m, ones, kind: m(ones(5, 2, 3), state(kind, ones, 1, 2, 5)),
    "state batch": lambda m, ones, kind: m(ones(5, 2, 3), state(kind, ones, 1, 3, 4)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_refused_as_torch(call, kind):
    ours, theirs = pair(kind)
    check_error(
        lambda: call(ours, lambda *shape: jnp.ones(shape), kind),
        lambda: call(theirs, lambda *shape: torch.ones(shape), kind),
    )


@pytest.mark.parametrize(
    "hx",
    [
        lambda ones: (ones(1, 2, 4), ones(1, 3, 4)),
        lambda ones: (ones(1, 2, 4), ones(1, 2, 5)),
        lambda ones: (ones(1, 2, 4),) * 3,
    ],
    ids=["cell batch", "cell size", "three"],
)
def test_cell_states_refused_as_torch(hx):
    ours, theirs = pair()
    check_error(
        lambda: ours(jnp.ones((5, 2, 3)), hx(lambda *shape: jnp.ones(shape))),
        lambda: theirs(torch.ones(5, 2, 3), hx(torch.ones)),
    )


def test_one_array_is_no_state_of_an_lstm():
    ours, theirs = pair()
    assert isinstance(raised(lambda: theirs(torch.ones(5, 2, 3), torch.ones(2, 1, 2, 4))), TypeError)
    with pytest.raises(TypeError, match=r"the tuple \(h, c\)"):
        ours(jnp.ones((5, 2, 3)), jnp.ones((2, 1, 2, 4)))


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_a_state_of_another_dtype_is_refused_as_torch_does(kind):
    ours, theirs = pair(kind)
    check_error(
        lambda: ours(jnp.ones((5, 2, 3)), jnp.ones((1, 2, 4), jnp.float16)),
        lambda: theirs(torch.ones(5, 2, 3), torch.ones(1, 2, 4).half()),
    )


@pytest.mark.parametrize("name", [*KINDS, *(f"{kind}Cell" for kind in KINDS)])
def test_the_errors_of_the_database(name):
    from torch.testing._internal.common_modules import ModuleErrorEnum

    entry = module_db.table()[name]
    cases = entry.module_error_inputs_func(
        entry, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    assert cases
    for case in cases:
        given = case.module_error_input.constructor_input
        # There is no device here, and the dtype is the default one.
        options = {key: value for key, value in given.kwargs.items() if key not in ("device", "dtype")}
        if case.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
            check_same_error(lambda nn, a=given.args, o=options: getattr(nn, name)(*a, **o))
            continue
        theirs = getattr(torch.nn, name)(*given.args, **options)
        values = {key: to_numpy(value) for key, value in theirs.state_dict().items()}
        ours, _ = bridge.load_state_dict(getattr(nn, name)(*given.args, **options), values)
        args = case.module_error_input.forward_input.args
        if "does not match weight dtype" in str(raised(lambda m=theirs, a=args: m(*a))):
            continue  # Our text names our functions: the next test.
        check_error(lambda m=ours, a=args: m(*to_jax(list(a))), lambda m=theirs, a=args: m(*a))


def test_another_dtype_is_refused():
    """Torch's error, with the lines to write here."""
    with pytest.raises(ValueError, match=r"does not match weight dtype.*input\.astype\(\"float32\"\)"):
        pair()[0](jnp.ones((5, 3), jnp.bfloat16))


def test_useless_dropout_warns():
    with pytest.warns(UserWarning, match="expects num_layers greater than 1") as record:
        nn.LSTM(3, 4, dropout=0.5)
    assert record[0].filename == __file__


def test_dropout_draws_in_training_only():
    ours, theirs = pair(num_layers=2, dropout=0.5)
    x = torch.randn(5, 2, 3)
    assert_close(bridge.eval(ours)(to_jax(x)), theirs.eval()(x))
    with pytest.raises(ps.MissingRngError):
        ours(to_jax(x))
    first = ps.call(ours, to_jax(x), rng=0)[0][0]
    assert np.array_equal(first, ps.call(ours, to_jax(x), rng=0)[0][0])
    assert not np.array_equal(first, ps.call(ours, to_jax(x), rng=1)[0][0])


def test_under_transforms():
    ours, theirs = pair(bidirectional=True)
    x = torch.randn(5, 2, 3)
    expected = theirs(x)
    assert_close(jax.jit(lambda m, x: m(x))(ours, to_jax(x)), expected)
    mapped = jax.vmap(lambda x: ours(x)[0], in_axes=1, out_axes=1)(to_jax(x))
    assert_close(mapped, expected[0])


def test_all_weights():
    ours, theirs = pair(num_layers=2)
    shapes = [[tuple(weight.shape) for weight in layer] for layer in ours.all_weights]
    assert shapes == [[tuple(weight.shape) for weight in layer] for layer in theirs.all_weights]


def test_drawn_within_the_hidden_size():
    for values in ps.init(nn.LSTM(100, 100), 0).parameters():
        assert 0.09 < np.abs(np.asarray(values)).max() <= 0.1


def packed(lengths, **options):
    """The same packed sequence on both sides."""
    torch.manual_seed(1)
    padded = torch.randn(max(lengths), len(lengths), 3)
    sides = pack_padded_sequence(to_jax(padded), lengths, **options)
    return sides, torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, **options)


PACKED = {
    "GRU": ("GRU", {"num_layers": 2, "bidirectional": True}),
    "LSTM": ("LSTM", {"num_layers": 2, "bidirectional": True}),
    "projection": ("LSTM", {"proj_size": 2, "bidirectional": True, "bias": False}),
    "RNN": ("RNN", {"bidirectional": True, "batch_first": True}),
    "relu": ("RNN", {"nonlinearity": "relu", "bias": False}),
}


@pytest.mark.parametrize("with_state", [False, True], ids=["zeros", "given"])
@pytest.mark.parametrize(("kind", "options"), PACKED.values(), ids=PACKED)
def test_packed_sequences(kind, options, with_state):
    ours, theirs = pair(kind, **options)
    sequence, expected = packed([2, 5, 3, 5], enforce_sorted=False)
    hx = ()
    if with_state:
        rows = theirs.num_layers * (2 if theirs.bidirectional else 1)
        h = torch.randn(rows, 4, theirs.proj_size or 4)
        hx = ((h, torch.randn(rows, 4, 4)),) if kind == "LSTM" else (h,)

    data = expected.data.requires_grad_()
    wanted, last = theirs(expected, *hx)
    leaves = [wanted.data, *(last if kind == "LSTM" else [last])]
    weights = [torch.from_numpy(cotangent(leaf.shape)).float() for leaf in leaves]
    inputs = [data, *theirs.parameters()]
    gradients = torch.autograd.grad(leaves, inputs, weights)

    definition, params, buffers = ps.split(ours)

    def run(data, params):
        model = ps.merge(definition, params, buffers)
        output, hidden = model(sequence._replace(data=data), *to_jax(hx))
        found = [output.data, *jax.tree.leaves(hidden)]
        total = sum(jnp.sum(a * jnp.asarray(to_jax(b))) for a, b in zip(found, weights, strict=True))
        return total, (output, hidden)

    found, (output, hidden) = jax.grad(run, argnums=(0, 1), has_aux=True)(sequence.data, params)
    assert output.batch_sizes == tuple(wanted.batch_sizes.tolist())
    assert np.array_equal(output.sorted_indices, wanted.sorted_indices)
    assert_close((output.data, hidden), (wanted.data, last))
    for actual, gradient in zip(jax.tree.leaves(found), gradients, strict=True):
        assert_close(actual, gradient, table=tolerances.GRADIENT)


def test_packed_sequences_under_jit():
    """The lengths are structure: they come through, and equal ones do not compile again."""
    ours, theirs = pair("GRU")
    sequence, expected = packed([5, 3])
    run = jax.jit(lambda model, sequence: model(sequence))
    output, last = run(ours, sequence)
    wanted, wanted_last = theirs(expected)
    assert_close((output.data, last), (wanted.data, wanted_last))
    run(ours, sequence)
    assert run._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_packed_and_padded_inside_one_jitted_function():
    ours, theirs = pair("RNN")
    x = torch.randn(5, 3, 3)

    def run(model, x, utils):
        sequence = utils.pack_padded_sequence(x, [3, 5, 2], enforce_sorted=False)
        padded, lengths = utils.pad_packed_sequence(model(sequence)[0], padding_value=-1.0)
        return utils.pad_packed_sequence(
            utils.pack_padded_sequence(padded, lengths, enforce_sorted=False), batch_first=True
        )[0]

    actual = jax.jit(lambda model, x: run(model, x, nn.utils.rnn))(ours, to_jax(x))
    assert_close(actual, run(theirs, x, torch.nn.utils.rnn))


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_packed_sequences_refused_as_torch(kind):
    ours, theirs = pair(kind)

    def calls(model, utils, ones):
        pack = utils.pack_padded_sequence
        return [
            lambda: model(pack(ones(5, 2, 4), [5, 3])),
            lambda: model(pack(ones(5, 2), [5, 3])),
            lambda: model(pack(ones(5, 2, 3, 1), [5, 3])),
            lambda: model(pack(ones(5, 2, 3), [5, 3]), ones(1, 3, 4)),
        ]

    sides = (
        calls(ours, nn.utils.rnn, lambda *shape: jnp.ones(shape)),
        calls(theirs, torch.nn.utils.rnn, lambda *shape: torch.ones(shape)),
    )
    for ours_call, theirs_call in zip(*sides, strict=True):
        check_error(ours_call, theirs_call)


def test_a_state_that_does_not_fit_a_sorted_batch_is_refused():
    """Torch picks what is there; a missing sequence must not become NaN."""
    sequence, _ = packed([3, 5], enforce_sorted=False)
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 2, 4\), got \[1, 1, 4\]"):
        pair("GRU")[0](sequence, jnp.ones((1, 1, 4)))
