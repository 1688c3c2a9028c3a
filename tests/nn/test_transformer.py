"""Attention and transformer layers beyond the module database: batches, stacks, masks, dropout."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from purestate.nn.transformer import _is_causal
from tests.nn.both import check_same, check_same_error
from tests.oracles.module_db import compare_call
from tests.parity import assert_close, check_error, raised, to_jax, to_numpy


pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")


def loaded(ours, theirs):
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(ours, values)
    return bridge.train(ours, theirs.training), theirs


def pair(build, training=True):
    """What a builder makes of our ``nn`` and of torch's, with torch's numbers."""
    torch.manual_seed(0)
    return loaded(build(nn), build(torch.nn).train(training))


def r(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).requires_grad_()


CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(3)
PADDING = torch.tensor([[False, False, True], [False, True, True]])
PADDED = torch.where(PADDING, -torch.inf, 0.0)


# MultiheadAttention.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False, "add_bias_kv": True},
        {"kdim": 3, "add_zero_attn": True, "batch_first": True},
        {"vdim": 5, "bias": False},
    ],
    ids=str,
)
def test_attention_is_built_as_torchs(options):
    check_same(lambda nn: nn.MultiheadAttention(4, 2, **options))


@pytest.mark.parametrize("args", [(0, 1), (4, 0), (-4, 2), (4, 3)], ids=str)
def test_attention_refuses_as_torch_does(args):
    check_same_error(lambda nn: nn.MultiheadAttention(*args))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"batch_first": True}, {"attn_mask": CAUSAL, "average_attn_weights": False}),
        ({"add_bias_kv": True}, {"attn_mask": CAUSAL, "key_padding_mask": PADDED}),
        ({"kdim": 3, "vdim": 5, "batch_first": True}, {"key_padding_mask": PADDING}),
        ({"add_zero_attn": True}, {"attn_mask": CAUSAL.repeat(4, 1, 1), "need_weights": False}),
        ({"bias": False}, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
    ],
    ids=str,
)
def test_attention_over_a_batch(options, call, training):
    ours, theirs = pair(lambda nn: nn.MultiheadAttention(4, 2, **options), training)
    shape = (2, 3) if options.get("batch_first") else (3, 2)
    inputs = [
        r(*shape, options.get(name, 4), seed=i) for i, name in enumerate(("edim", "kdim", "vdim"))
    ]
    compare_call(ours, theirs, inputs, call)


def test_self_attention():
    ours, theirs = pair(lambda nn: nn.MultiheadAttention(4, 2, batch_first=True))
    x = r(2, 3, 4)
    expected = theirs(x, x, x)
    array = to_jax(x)
    assert_close(ours(array, array, array), expected)
    assert_close(jax.jit(lambda model, x: model(x, x, x))(ours, array), expected)


def test_old_and_new_names_of_the_projections_do_not_mix():
    """The packed weight and the three separate ones are two layouts, in torch too."""
    ours, theirs = (n.MultiheadAttention(4, 2, kdim=3) for n in (nn, torch.nn))
    values = torch.nn.MultiheadAttention(4, 2).state_dict()
    check_error(
        lambda: bridge.load_state_dict(ours, {k: to_numpy(v) for k, v in values.items()}),
        lambda: theirs.load_state_dict(values),
    )


def test_dropout_is_of_the_weights_and_only_in_training():
    ours, _ = pair(lambda nn: nn.MultiheadAttention(4, 2, dropout=0.5))
    x = to_jax(r(3, 2, 4))
    assert isinstance(raised(lambda: ours(x, x, x)), ps.MissingRngError)
    _, exact = bridge.eval(ours)(x, x, x, average_attn_weights=False)
    (output, weights), _ = ps.call(ours, x, x, x, average_attn_weights=False, rng=1)
    dropped = weights == 0
    assert 0 < dropped.sum() < dropped.size
    np.testing.assert_allclose(weights, jnp.where(dropped, 0, 2 * exact), rtol=1e-5)
    (again, none), _ = ps.call(ours, x, x, x, need_weights=False, rng=1)
    assert none is None
    assert not np.allclose(again, bridge.eval(ours)(x, x, x)[0])
    np.testing.assert_allclose(again, output, atol=1e-6)  # The same key, the same mask.


# Layers.


def activated(nn, name):
    """An activation as it may be given: a name, a function or a module."""
    functions = {"relu": "relu", "gelu": "gelu", "function": torch.tanh, "module": nn.GELU}
    found = functions[name]
    if name == "function":
        return jnp.tanh if nn is not torch.nn else found
    return found() if name == "module" else found


@pytest.mark.parametrize("name", ["relu", "gelu", "function", "module"])
@pytest.mark.parametrize("layer", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_layers(layer, name):
    def build(nn):
        first = name in ("gelu", "module")
        options = {"activation": activated(nn, name), "norm_first": first, "batch_first": first}
        return getattr(nn, layer)(4, 2, 8, 0.0, layer_norm_eps=1e-3, **options)

    check_same(build)
    ours, theirs = pair(build)
    shape = (2, 3, 4) if theirs.self_attn.batch_first else (3, 2, 4)
    if layer == "TransformerEncoderLayer":
        assert ours.activation_relu_or_gelu == theirs.activation_relu_or_gelu
        compare_call(ours, theirs, [r(*shape), CAUSAL, PADDED])
    else:
        inputs = [r(*shape), r(*shape, seed=1), CAUSAL, CAUSAL.T, PADDED, PADDED]
        compare_call(ours, theirs, inputs)
    assert pickle.loads(pickle.dumps(ours))._definition is ours._definition


def test_an_unknown_activation_is_refused():
    for layer in ("TransformerEncoderLayer", "TransformerDecoderLayer"):
        check_same_error(lambda nn, layer=layer: getattr(nn, layer)(4, 2, activation="tanh"))


def test_the_values_of_torchs_fast_path():
    """Torch takes another path in evaluation without gradients; where it is finite it agrees."""
    ours, theirs = pair(lambda nn: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), False)
    x = r(2, 3, 4).detach()
    hidden = torch.tensor([[False, False, False], [True, True, True]])
    with torch.inference_mode():
        expected = theirs(x, src_key_padding_mask=PADDING)
        lost = theirs(x, src_key_padding_mask=hidden)
    output = ours(to_jax(x), src_key_padding_mask=to_jax(PADDING))
    assert_close(output, expected)
    assert torch.isnan(lost[1]).all()
    finite = ours(to_jax(x), src_key_padding_mask=to_jax(hidden))
    assert_close(finite, theirs(x, src_key_padding_mask=hidden))


# Stacks.


def encoder(nn, **options):
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(4), **options)


def decoder(nn, **options):
    layer = nn.TransformerDecoderLayer(4, 2, 8, 0.0, **options)
    return nn.TransformerDecoder(layer, 2, nn.LayerNorm(4))


@pytest.mark.parametrize("build", [encoder, decoder])
def test_stacks_are_built_as_torchs(build):
    check_same(build)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"batch_first": True}], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_decoder(options, training):
    ours, theirs = pair(lambda nn: decoder(nn, **options), training)
    assert repr(ours) == repr(theirs)
    shape = (2, 3, 4) if "batch_first" in options else (3, 2, 4)
    for masks in ([], [CAUSAL, None, PADDED], [CAUSAL, CAUSAL.T, None, PADDED]):
        compare_call(ours, theirs, [r(*shape), r(*shape, seed=1), *masks])
    compare_call(ours, theirs, [r(3, 4), r(3, 4, seed=1)], {"tgt_mask": CAUSAL, "tgt_is_causal": True})


def test_decoder_without_norm():
    ours, theirs = pair(lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, 0.0), 1))
    compare_call(ours, theirs, [r(3, 2, 4), r(3, 2, 4, seed=1)])


def test_encoder_masks():
    ours, theirs = pair(lambda nn: encoder(nn))
    for masks in ({"mask": CAUSAL}, {"mask": CAUSAL < 0, "src_key_padding_mask": PADDING}):
        compare_call(ours, theirs, [r(2, 3, 4)], masks)


def test_a_causal_mask_is_recognised_where_it_is_known():
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert_close(mask, CAUSAL)
    assert _is_causal(mask, None, 3)
    assert _is_causal(mask < 0, None, 3)
    assert not _is_causal(mask, False, 3)
    assert not _is_causal(mask.T, None, 3)
    assert not _is_causal(mask[None], None, 3)
    assert not _is_causal(None, None, 3)
    assert nn.Transformer.generate_square_subsequent_mask(2, dtype="bfloat16").dtype == jnp.bfloat16
    model = ps.init(encoder(nn), 0)
    x = to_jax(r(2, 3, 4))
    expected = model(x, mask)
    inside = jax.jit(lambda x: model(x, nn.Transformer.generate_square_subsequent_mask(3)))(x)
    np.testing.assert_allclose(inside, expected, atol=1e-6)
    np.testing.assert_allclose(jax.jit(model.forward)(x, mask), expected, atol=1e-6)
    np.testing.assert_allclose(jax.jit(model)(x, mask), expected, atol=1e-6)


def test_copies_of_a_layer():
    """They start equal if the layer has values, and are drawn apart if not; they are never tied."""
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    name = "layers.{}.linear1.weight"
    for given, equal in ((layer, False), (ps.init(layer, 0), True)):
        model = ps.init(nn.TransformerEncoder(given, 2, enable_nested_tensor=False), 1)
        params = ps.split(model)[1]
        assert len(params) == 24
        first, second = (params[name.format(i)] for i in range(2))
        assert np.array_equal(first, second) == equal
        changed = ps.replace(model, {name.format(0): jnp.zeros_like(first)})
        assert ps.split(changed)[1][name.format(1)].any()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_first": True},
        {"batch_first": True, "bias": False},
        {"batch_first": True, "activation": "gelu"},
        {"batch_first": True, "nhead": 1},
    ],
    ids=str,
)
def test_nested_tensors_are_declined_as_in_torch(options):
    texts, flags = [], []
    for side in (nn, torch.nn):
        layer = side.TransformerEncoderLayer(**({"d_model": 4, "nhead": 2} | options))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stack = side.TransformerEncoder(layer, 1)
        texts.append([str(warning.message) for warning in caught])
        flags.append((stack.enable_nested_tensor, stack.use_nested_tensor, stack.mask_check))
    assert texts[0] == texts[1]
    assert flags[0] == flags[1]


# Transformer.


def transformer(nn, **options):
    return nn.Transformer(4, 2, 1, 1, 8, 0.0, **options)


def test_transformer():
    check_same(transformer)
    ours, theirs = pair(lambda nn: transformer(nn, activation="gelu"))
    inputs = [r(3, 2, 4), r(3, 2, 4, seed=1)]
    masks = {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDED, "memory_key_padding_mask": PADDED}
    compare_call(ours, theirs, inputs, masks)


def test_custom_parts():
    class Double(nn.Module):
        def forward(self, x, *args, **kwargs):
            return 2 * x

    model = transformer(nn, custom_encoder=Double(), custom_decoder=Double())
    assert_close(model(jnp.ones((3, 2, 4)), jnp.ones((3, 2, 4))), np.full((3, 2, 4), 2.0))
    assert not bridge.state_dict(model)


@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (8,)], ids=str)
def test_the_wrong_input_is_the_error_also_without_a_key(shape):
    for layer, args in (
        ("TransformerEncoderLayer", (8, 2, 16)),
        ("TransformerDecoderLayer", (8, 2, 16)),
        ("MultiheadAttention", (8, 2, 0.5)),
    ):
        ours, theirs = ps.init(getattr(nn, layer)(*args), 0), getattr(torch.nn, layer)(*args)
        count = {"TransformerDecoderLayer": 2, "MultiheadAttention": 3}.get(layer, 1)
        inputs = [torch.ones(shape)] * count
        check_error(
            lambda ours=ours, inputs=inputs: ours(*to_jax(inputs)),
            lambda theirs=theirs, inputs=inputs: theirs(*inputs),
        )


def test_dropout_in_all_places():
    model = ps.init(nn.Transformer(4, 2, 1, 1, 8), 0)
    x = jnp.ones((3, 2, 4))
    assert isinstance(raised(lambda: model(x, x)), ps.MissingRngError)
    outputs = [ps.call(model, x, x, rng=seed)[0] for seed in (1, 1, 2)]
    assert np.array_equal(outputs[0], outputs[1])
    assert not np.allclose(outputs[0], outputs[2])


@pytest.mark.parametrize(
    "shapes",
    [((3, 2, 4), (3, 1, 4)), ((3, 2, 4), (3, 2, 3)), ((3, 2, 3), (3, 2, 4)), ((3, 3), (3, 4))],
    ids=str,
)
def test_transformer_refuses_as_torch_does(shapes):
    ours, theirs = pair(transformer)
    inputs = [r(*shape) for shape in shapes]
    check_error(lambda: ours(*to_jax(inputs)), lambda: theirs(*inputs))


def test_float64_half_and_derivatives():
    ours, theirs = pair(lambda nn: nn.TransformerEncoderLayer(4, 2, 8, 0.0, activation="gelu"))
    x = r(3, 2, 4).detach()
    half = bridge.to(ours, jnp.bfloat16)(to_jax(x.bfloat16()))
    assert half.dtype == jnp.bfloat16
    assert_close(half, theirs.bfloat16()(x.bfloat16()).float().bfloat16())
    hessian = jax.hessian(lambda x: (ours(x) ** 2).sum())(to_jax(x))
    assert np.isfinite(hessian).all()
    mapped = jax.vmap(lambda x: ours(x))(to_jax(torch.stack([x, 2 * x])))
    np.testing.assert_allclose(mapped[1], ours(to_jax(2 * x)), atol=1e-5)
    with jax.enable_x64(True):
        wide, theirs = loaded(
            nn.TransformerEncoderLayer(4, 2, 8, 0.0, dtype="float64"),
            torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, dtype=torch.float64),
        )
        compare_call(wide, theirs, [x.double().requires_grad_()])


def test_a_deep_encoder_is_compiled_as_one_layer():
    def encoder(nn):
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)

    theirs = encoder(torch.nn)
    ours, _ = bridge.load_state_dict(
        encoder(nn), {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    )
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    call = jax.jit(lambda model, x, padding: model(x, src_key_padding_mask=padding))
    inputs = (ours, to_jax(x), to_jax(padding))
    assert "scan[" in str(jax.make_jaxpr(call)(*inputs))
    assert_close(call(*inputs), theirs(x, src_key_padding_mask=padding))
