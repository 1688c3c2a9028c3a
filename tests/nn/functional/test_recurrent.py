"""The recurrent functions against torch's layers with the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

from purestate.nn.functional._recurrent import gru, lstm, rnn_relu, rnn_tanh
from tests.parity import assert_close, check_function, raised, to_jax


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "proj_size": 2},
    {"num_layers": 2, "bidirectional": True, "proj_size": 2, "bias": False, "batch_first": True},
]


def case(is_batched=True, dtype=torch.float32, **options):
    """``(ours, theirs, args)``: functions of input, h, c and the weights."""
    torch.manual_seed(0)
    module = torch.nn.LSTM(3, 4, dtype=dtype, **options)
    names = module._flat_weights_names
    rows = module.num_layers * (2 if module.bidirectional else 1)
    batch = (2,) if is_batched else ()
    input = torch.randn(2, 5, 3) if is_batched and module.batch_first else torch.randn(5, *batch, 3)
    h = torch.randn(rows, *batch, module.proj_size or 4)
    c = torch.randn(rows, *batch, 4)

    def theirs(input, h, c, *weights):
        call = torch.func.functional_call
        output, (h, c) = call(module, dict(zip(names, weights, strict=True)), (input, (h, c)))
        return output, h, c

    def ours(input, h, c, *weights, **more):
        output, (h, c) = lstm(input, (h, c), weights, **options, **more)
        return output, h, c

    weights = [getattr(module, name).detach() for name in names]
    return ours, theirs, (input.to(dtype), h.to(dtype), c.to(dtype), *weights)


@pytest.mark.parametrize("is_batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_output_states_and_gradients(options, is_batched):
    check_function(*case(is_batched, **options))


def test_float64():
    with jax.enable_x64(True):
        check_function(*case(dtype=torch.float64, num_layers=2, bidirectional=True, proj_size=2))


@pytest.mark.parametrize("is_batched", [True, False], ids=["batched", "unbatched"])
def test_no_state_is_zeros(is_batched):
    options = {"num_layers": 2, "bidirectional": True, "proj_size": 2}
    ours, _, (x, h, c, *weights) = case(is_batched, **options)
    zeros = ours(*to_jax([x, torch.zeros_like(h), torch.zeros_like(c), *weights]))
    output, (h, c) = lstm(to_jax(x), None, to_jax(weights), **options)
    assert_close((output, h, c), zeros)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_stay_half(dtype):
    ours, _, args = case(dtype=dtype)
    _, theirs, _ = case()
    outputs = ours(*to_jax(list(args)))
    assert {out.dtype for out in outputs} == {to_jax(dtype)}
    for out, wide in zip(outputs, theirs(*(value.float() for value in args)), strict=True):
        np.testing.assert_allclose(np.float32(out), wide.detach().numpy(), atol=0.03)


def test_derivatives_of_both_orders_in_both_modes():
    ours, _, args = case(dtype=torch.float64, proj_size=2)
    with jax.enable_x64(True):
        check_grads(ours, to_jax(list(args)), order=2, modes=("fwd", "rev"))


OTHERS = {
    "gru": (gru, torch.nn.GRU, {}),
    "rnn_relu": (rnn_relu, torch.nn.RNN, {"nonlinearity": "relu"}),
    "rnn_tanh": (rnn_tanh, torch.nn.RNN, {}),
}


def other_case(name, is_batched=True, dtype=torch.float32, **options):
    """As :func:`case`, of input, h and the weights."""
    torch.manual_seed(0)
    function, layer, more = OTHERS[name]
    module = layer(3, 4, dtype=dtype, **options, **more)
    names = module._flat_weights_names
    rows = module.num_layers * (2 if module.bidirectional else 1)
    batch = (2,) if is_batched else ()
    input = torch.randn(2, 5, 3) if is_batched and module.batch_first else torch.randn(5, *batch, 3)

    def theirs(input, h, *weights):
        call = torch.func.functional_call
        return call(module, dict(zip(names, weights, strict=True)), (input, h))

    def ours(input, h, *weights, **kwargs):
        return function(input, h, weights, **options, **kwargs)

    weights = [getattr(module, name).detach() for name in names]
    return ours, theirs, (input.to(dtype), torch.randn(rows, *batch, 4, dtype=dtype), *weights)


OTHER_OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True},
]


@pytest.mark.parametrize("is_batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("options", OTHER_OPTIONS, ids=str)
@pytest.mark.parametrize("name", OTHERS)
def test_the_others(name, options, is_batched):
    check_function(*other_case(name, is_batched, **options))


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_in_float64(name):
    with jax.enable_x64(True):
        check_function(*other_case(name, dtype=torch.float64, num_layers=2))


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_in_bfloat16(name):
    ours, _, args = other_case(name, dtype=torch.bfloat16)
    _, theirs, _ = other_case(name)
    for out, wide in zip(ours(*to_jax(list(args))), theirs(*(a.float() for a in args)), strict=True):
        assert out.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.float32(out), wide.detach().numpy(), atol=0.03)


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_over_models(name):
    ours, theirs, args = other_case(name)
    actual = jax.vmap(ours)(*(jnp.stack([value, value * 0.5]) for value in to_jax(list(args))))
    for place, scale in enumerate((1.0, 0.5)):
        expected = [out.detach() for out in theirs(*(value * scale for value in args))]
        assert_close([out[place] for out in actual], expected)


@pytest.mark.parametrize("name", OTHERS)
def test_the_others_drop_between_layers(name):
    ours, _, args = other_case(name, num_layers=2)
    arrays = to_jax(list(args))
    dropped = [ours(*arrays, dropout=0.5, training=True, rng=jax.random.key(k))[0] for k in (0, 0, 1)]
    assert_close(dropped[0], dropped[1])
    assert not np.allclose(dropped[0], dropped[2])


def test_relu_at_its_kink_and_of_nan():
    """The derivative at zero is torch's, zero, and NaN comes through."""
    ours, theirs, args = other_case("rnn_relu")
    zeros = [torch.zeros_like(value) for value in args]
    check_function(ours, theirs, zeros)
    args[0][1, 0, 0] = torch.nan
    check_function(ours, theirs, args, gradient=False)


def test_vmap_over_models():
    ours, theirs, args = case(num_layers=2)
    stacked = [jnp.stack([value, value * 0.5]) for value in to_jax(list(args))]
    actual = jax.vmap(ours)(*stacked)
    for place, scale in enumerate((1.0, 0.5)):
        expected = [out.detach() for out in theirs(*(value * scale for value in args))]
        assert_close([out[place] for out in actual], expected)


def test_a_batch_of_none():
    ours, theirs, (_, _, _, *weights) = case(num_layers=2)
    empty = (torch.zeros(5, 0, 3), torch.zeros(2, 0, 4), torch.zeros(2, 0, 4))
    check_function(ours, theirs, (*empty, *weights), gradient=False)


@pytest.mark.parametrize("length", [3, 4, 9])
@pytest.mark.parametrize("name", OTHERS)
def test_a_batch_of_none_in_both_directions(name, length):
    ours, theirs, (_, _, *weights) = other_case(name, bidirectional=True, batch_first=True)
    empty = (torch.zeros(0, length, 3), torch.zeros(2, 0, 4))
    check_function(ours, theirs, (*empty, *weights))


def test_dropout_is_between_layers_and_is_the_keys():
    ours, _, args = case(num_layers=2)
    arrays = to_jax(list(args))
    key = jax.random.key(0)
    plain = ours(*arrays)
    for p, training in ((0.5, False), (0.0, True)):
        assert_close(ours(*arrays, dropout=p, training=training), plain)
    first, again = (ours(*arrays, dropout=0.5, training=True, rng=key) for _ in range(2))
    assert_close(first, again)
    np.testing.assert_array_equal(first[1][0], plain[1][0])  # The first layer reads all of its input.
    assert not np.allclose(first[0], plain[0])
    other = ours(*arrays, dropout=0.5, training=True, rng=jax.random.key(1))
    assert not np.allclose(first[0], other[0])


def test_dropping_everything_between_layers_is_torchs():
    torch.manual_seed(0)
    module = torch.nn.LSTM(3, 4, num_layers=2, dropout=1.0)
    input, state = torch.randn(5, 2, 3), torch.zeros(2, 2, 4)
    expected, _ = module(input)
    weights = to_jax([weight.detach() for weight in module.parameters()])
    state = to_jax(state)
    output, _ = lstm(to_jax(input), (state, state), weights, num_layers=2, dropout=1.0, training=True)
    assert_close(output, expected)


def test_a_single_layer_needs_no_key():
    ours, _, args = case()
    arrays = to_jax(list(args))
    assert_close(ours(*arrays, dropout=0.5, training=True), ours(*arrays))


def text(call):
    error = raised(call)
    return f"{type(error).__name__}: {error}"


def test_errors():
    ours, theirs, args = case(num_layers=2)
    x, h, c, *weights = to_jax(list(args))
    assert "needs a random key" in text(lambda: ours(x, h, c, *weights, dropout=0.5, training=True))
    assert "expected 8 weights" in text(lambda: ours(x, h, c, *weights[:4]))
    assert text(lambda: ours(x[0, 0], h, c, *weights)) == text(lambda: theirs(args[0][0, 0], *args[1:]))
    assert text(lambda: ours(x[:0], h, c, *weights)) == text(lambda: theirs(args[0][:0], *args[1:]))
    for place in (1, 2):
        wrong, wrong_ours = list(args), [x, h, c, *weights]
        wrong[place], wrong_ours[place] = args[place][:, :1], wrong_ours[place][:, :1]
        assert text(lambda args=wrong_ours: ours(*args)) == text(lambda args=wrong: theirs(*args))


def replaced(values, place, value):
    return [*values[:place], value, *values[place + 1 :]]


def test_sizes_and_dtypes_that_do_not_fit():
    ours, _, args = case()
    arrays = to_jax(list(args))
    x, h, c, w_ih, w_hh, *_ = arrays
    refusals = [
        (0, x[..., :2], "input.size(-1) must be equal to input_size. Expected 3, got 2"),
        (4, w_hh[:, :3], "lstm: expected weights[1] of size [16, 4], got [16, 3]"),
        (5, w_ih, "lstm: expected weights[2] of size [16], got [16, 3]"),
        (1, h[0], "For batched 3-D input, hx and cx should also be 3-D but got (2-D, 3-D) tensors"),
        (
            0,
            x[:, 0],
            "For unbatched 2-D input, hx and cx should also be 2-D but got (3-D, 3-D) tensors",
        ),
        (0, x.astype("float16"), "mat1 and mat2 must have the same dtype, but got Half and Float"),
        (
            2,
            c.astype("float16"),
            "Input and hidden tensors are not the same dtype, found input tensor with Float and "
            "hidden tensor with Half",
        ),
    ]
    for place, value, expected in refusals:
        wrong = replaced(arrays, place, value)
        assert text(lambda wrong=wrong: ours(*wrong)) == f"RuntimeError: {expected}"
