"""torch.nn.utils on values, against torch's in-place functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import utils as theirs_utils

import bridge
import purestate as ps
from purestate import nn
from purestate.nn import utils
from tests.nn.both import check_same_error
from tests.parity import assert_close, check_error, raised, to_jax, to_numpy


def r(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def parameters(grads):
    """Torch parameters with these gradients."""
    made = []
    for grad in grads:
        parameter = torch.nn.Parameter(torch.zeros_like(grad))
        parameter.grad = grad.clone()
        made.append(parameter)
    return made


GRADS = [r(3, 4), r(5) * 10, r(()), r(0)]
ORDERS = [0, 0.5, 1, 2, 3, 2.5]


@pytest.mark.parametrize("order", ORDERS)
def test_norm_and_clip(order):
    made = parameters(GRADS)
    norm = theirs_utils.clip_grad_norm_(made, 1.5, order)
    ours, ours_norm = utils.clip_grad_norm_(to_jax(GRADS), 1.5, order)
    assert_close(ours_norm, norm)
    assert_close(ours, [parameter.grad for parameter in made])
    assert_close(utils.get_total_norm(to_jax(GRADS), order), theirs_utils.get_total_norm(GRADS, order))


@pytest.mark.parametrize("order", [float("inf"), -float("inf"), "inf", -1], ids=str)
def test_orders_that_an_empty_array_lacks(order):
    grads = GRADS[:3]
    assert_close(utils.get_total_norm(to_jax(grads), order), theirs_utils.get_total_norm(grads, order))
    check_error(
        lambda: utils.get_total_norm(to_jax(GRADS), order),
        lambda: theirs_utils.get_total_norm(GRADS, order),
    )


@pytest.mark.parametrize(
    "grads",
    [
        [r(400, dtype=torch.bfloat16)],
        [r(400, dtype=torch.bfloat16), r(3)],
        [r(400, dtype=torch.float16), r(3, dtype=torch.bfloat16)],
        [r(3, dtype=torch.complex64), r(3)],
        [],
        r(3),
    ],
    ids=["bf16", "bf16 f32", "f16 bf16", "complex", "none", "one"],
)
def test_dtypes_of_norms(grads):
    ours = utils.get_total_norm(to_jax(grads))
    expected = theirs_utils.get_total_norm(grads)
    assert str(ours.dtype) == str(expected.dtype).removeprefix("torch.")
    assert_close(ours, expected)
    made = parameters(grads if isinstance(grads, list) else [grads])
    theirs_utils.clip_grad_norm_(made, 1.0)
    clipped, _ = utils.clip_grad_norm_(to_jax(grads), 1.0)
    for leaf, parameter in zip(jax.tree.leaves(clipped), made, strict=True):
        assert str(leaf.dtype) == str(parameter.dtype).removeprefix("torch.")
        assert_close(leaf, parameter.grad)


def test_double():
    with jax.enable_x64(True):
        grads = [r(3, 4, dtype=torch.float64), r(2, dtype=torch.float64)]
        made = parameters(grads)
        norm = theirs_utils.clip_grad_norm_(made, 0.1)
        ours, ours_norm = utils.clip_grad_norm_(to_jax(grads), 0.1)
        assert_close(ours_norm, norm)
        assert_close(ours, [parameter.grad for parameter in made])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("order", [2, float("inf")])
def test_what_is_not_finite(value, order):
    grads = [torch.tensor([1.0, value])]
    made = parameters(grads)
    norm = theirs_utils.clip_grad_norm_(made, 1.0, order)
    ours, ours_norm = utils.clip_grad_norm_(to_jax(grads), 1.0, order)
    assert_close(ours_norm, norm)
    assert_close(ours, [parameter.grad for parameter in made])
    check_error(
        lambda: utils.clip_grad_norm_(to_jax(grads), 1.0, order, error_if_nonfinite=True),
        lambda: theirs_utils.clip_grad_norm_(made, 1.0, order, error_if_nonfinite=True),
    )
    # Under jit the value is not known.
    clip = jax.jit(lambda grads: utils.clip_grad_norm_(grads, 1.0, order, True))
    assert_close(clip(to_jax(grads))[1], norm)


def test_norms_refused_as_torch():
    check_error(
        lambda: utils.get_total_norm([jnp.ones(2, int)]),
        lambda: theirs_utils.get_total_norm([torch.ones(2).int()]),
    )


@pytest.mark.parametrize("bound", [2, 0.5, -2])
def test_clip_by_value(bound):
    grads = [torch.tensor([1.0, float("nan"), 5.0, -3.0]), r(3, dtype=torch.bfloat16)]
    made = parameters(grads)
    theirs_utils.clip_grad_value_(made, bound)
    ours = utils.clip_grad_value_(to_jax(grads), bound)
    assert_close(ours, [parameter.grad for parameter in made])
    assert [leaf.dtype for leaf in ours] == [jnp.float32, jnp.bfloat16]


def test_with_a_norm_from_elsewhere():
    made = parameters(GRADS)
    theirs_utils.clip_grads_with_norm_(made, 1.0, torch.tensor(7.0))
    ours = utils.clip_grads_with_norm_(to_jax(GRADS), 1.0, jnp.asarray(7.0))
    assert_close(ours, [parameter.grad for parameter in made])


def test_any_tree_and_no_change_of_the_argument():
    model = ps.init(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), 0)
    definition, params, buffers = ps.split(model)
    x = jnp.ones((4, 2))
    grads = jax.grad(lambda p: jnp.sum(ps.apply(definition, p, buffers, x)[0] ** 2))(params)
    before = {name: np.array(value) for name, value in grads.items()}
    clipped, norm = jax.jit(lambda grads: utils.clip_grad_norm_(grads, 0.1))(grads)
    assert isinstance(clipped, ps.NamedArrays)
    assert float(norm) > 0.1
    assert_close(utils.get_total_norm(clipped), np.float32(0.1))
    for name, value in grads.items():
        np.testing.assert_array_equal(value, before[name])
    by_model = jax.grad(lambda m: jnp.sum(m(x) ** 2))(model)
    clipped_model, _ = utils.clip_grad_norm_(by_model, 0.1)
    assert isinstance(clipped_model, nn.Sequential)
    assert_close(clipped_model[0].weight, np.asarray(clipped["0.weight"]))
    as_dict, _ = utils.clip_grad_norm_({"a": grads["0.bias"], "b": None}, 0.1)
    assert as_dict["b"] is None
    generated, _ = utils.clip_grad_norm_((grads[name] for name in grads), 0.1)
    assert_close(generated[0], np.asarray(clipped["0.weight"]))


def test_warnings_as_torch():
    with pytest.warns(UserWarning, match="`parameters` is an empty generator"):
        assert utils.clip_grad_norm_(iter([]), 1.0)[0] == []
    with pytest.warns(FutureWarning, match="`torch.nn.utils.clip_grad_norm` is now deprecated"):
        assert_close(utils.clip_grad_norm(jnp.ones(4), 1.0)[1], np.float32(2))


# One vector.


def test_vectors():
    tensors = [r(2, 3), r(()), r(4)]
    vector = utils.parameters_to_vector(to_jax(tensors))
    assert_close(vector, theirs_utils.parameters_to_vector(tensors))
    back = utils.vector_to_parameters(vector * 2, to_jax(tensors))
    assert_close(back, [tensor * 2 for tensor in tensors])
    longer = jnp.concatenate([vector, jnp.ones(3)])
    assert_close(utils.vector_to_parameters(longer, iter(to_jax(tensors))), tensors)


def test_vector_of_a_model():
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), values)
    vector = utils.parameters_to_vector(ours)
    expected = theirs_utils.parameters_to_vector(theirs.parameters())
    assert_close(vector, expected)
    assert_close(utils.parameters_to_vector(ours.parameters()), expected)
    assert_close(utils.parameters_to_vector(ps.split(ours)[1]), expected)
    moved = utils.vector_to_parameters(vector + 1, ours)
    theirs_utils.vector_to_parameters(expected + 1, theirs.parameters())
    assert_close(moved[0].weight, theirs[0].weight)
    assert moved[1].running_mean is ours[1].running_mean
    params = utils.vector_to_parameters(vector, ps.split(ours)[1])
    assert isinstance(params, ps.NamedArrays)


@pytest.mark.parametrize("vec", [r(5), r(3), [1.0], r(0)], ids=["short", "shorter", "list", "empty"])
def test_vectors_refused_as_torch(vec):
    tensors = [torch.nn.Parameter(r(2, 2)), torch.nn.Parameter(r(2))]
    check_error(
        lambda: utils.vector_to_parameters(to_jax(vec), [jnp.ones((2, 2)), jnp.ones(2)]),
        lambda: theirs_utils.vector_to_parameters(vec, tensors),
    )


def test_no_parameters():
    check_error(lambda: utils.parameters_to_vector([]), lambda: theirs_utils.parameters_to_vector([]))


# Fusion.


def fill(theirs):
    """Running statistics and parameters that are not those of the start."""
    generator = torch.Generator().manual_seed(1)
    for value in theirs.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return theirs.eval()


def carried(ours, theirs):
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    return bridge.eval(bridge.load_state_dict(ours, values)[0])


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_conv_fusion(affine, bias):
    def build(nn):
        return nn.Conv2d(4, 6, 3, groups=2, bias=bias), nn.BatchNorm2d(6, affine=affine)

    conv, norm = map(fill, build(torch.nn))
    expected = theirs_utils.fuse_conv_bn_eval(conv, norm)
    ours = [carried(o, t) for o, t in zip(build(nn), (conv, norm), strict=True)]
    fused = jax.jit(utils.fuse_conv_bn_eval)(*ours)
    assert repr(fused) == repr(expected)
    assert_close(fused.weight, expected.weight)
    assert_close(fused.bias, expected.bias)
    x = r(2, 4, 5, 5)
    assert_close(fused(to_jax(x)), norm(conv(x)))
    trained = [name for name, value in expected.named_parameters() if value.requires_grad]
    assert list(ps.split(fused)[1]) == trained
    assert repr(ours[0]) == repr(conv)


def test_transposed_fusion_of_weights():
    arrays = [r(3, 5, 2, 2), r(5), r(5), r(5).abs(), r(5, seed=2), r(5, seed=3)]
    w, b, mean, var, scale, shift = arrays
    for options in ((b, mean, var, 1e-5, scale, shift), (None, mean, var, 1e-3, None, None)):
        expected = theirs_utils.fuse_conv_bn_weights(w, *options, transpose=True)
        ours = utils.fuse_conv_bn_weights(to_jax(w), *to_jax(list(options)), transpose=True)
        assert_close(ours, [value.detach() for value in expected])


@pytest.mark.parametrize(("features", "bias"), [(3, True), (3, False), (1, True), (1, False)])
def test_linear_fusion(features, bias):
    def build(nn):
        return nn.Linear(2, 3, bias=bias), nn.BatchNorm1d(features)

    linear, norm = map(fill, build(torch.nn))
    expected = theirs_utils.fuse_linear_bn_eval(linear, norm)
    ours = [carried(o, t) for o, t in zip(build(nn), (linear, norm), strict=True)]
    fused = utils.fuse_linear_bn_eval(*ours)
    assert repr(fused) == repr(expected)
    assert_close(fused.weight, expected.weight)
    assert_close(fused.bias, expected.bias)
    trained = [name for name, value in expected.named_parameters() if value.requires_grad]
    assert list(ps.split(fused)[1]) == trained


def test_linear_fusion_without_affine():
    linear, norm = ps.init(nn.Linear(2, 3), 0), ps.init(nn.BatchNorm1d(3, affine=False), 0)
    linear, norm = bridge.eval(linear), bridge.eval(norm)
    x = jnp.ones((4, 2))
    assert_close(utils.fuse_linear_bn_eval(linear, norm)(x), np.asarray(norm(linear(x))))


def test_fusion_keeps_the_dtype_of_the_convolution():
    conv = bridge.half(bridge.eval(ps.init(nn.Conv1d(2, 3, 1), 0)))
    fused = utils.fuse_conv_bn_eval(conv, bridge.eval(ps.init(nn.BatchNorm1d(3), 0)))
    assert {leaf.dtype for leaf in jax.tree.leaves(fused)} == {jnp.dtype("float16")}


@pytest.mark.parametrize(
    ("name", "layer", "norm", "options", "training"),
    [
        ("fuse_conv_bn_eval", (2, 3, 1), 3, {}, True),
        ("fuse_conv_bn_eval", (2, 3, 1), 3, {"track_running_stats": False}, False),
        ("fuse_linear_bn_eval", (2, 3), 3, {}, True),
        ("fuse_linear_bn_eval", (2, 3), 4, {}, False),
        ("fuse_linear_bn_eval", (2, 3), 3, {"track_running_stats": False}, False),
    ],
)
def test_fusion_refused_as_torch(name, layer, norm, options, training):
    def run(nn, utils, ready):
        cls = nn.Linear if "linear" in name else nn.Conv1d
        return getattr(utils, name)(ready(cls(*layer)), ready(nn.BatchNorm1d(norm, **options)))

    check_error(
        lambda: run(nn, utils, lambda m: bridge.train(ps.init(m, 0), training)),
        lambda: run(torch.nn, theirs_utils, lambda m: m.train(training)),
    )


def test_fusion_of_a_transposed_convolution_in_groups_is_refused_as_torch():
    check_error(
        lambda: utils.fuse_conv_bn_eval(
            *(
                bridge.eval(ps.init(layer, 0))
                for layer in (nn.ConvTranspose2d(4, 4, 2, groups=2), nn.BatchNorm2d(4))
            ),
            transpose=True,
        ),
        lambda: theirs_utils.fuse_conv_bn_eval(
            torch.nn.ConvTranspose2d(4, 4, 2, groups=2).eval(),
            torch.nn.BatchNorm2d(4).eval(),
            transpose=True,
        ),
    )


def test_skip_init():
    model = utils.skip_init(nn.Sequential, nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert all(isinstance(leaf, ps.AbstractArray) for leaf in jax.tree.leaves(model))
    assert repr(model[0]) == repr(theirs_utils.skip_init(torch.nn.Linear, 2, 3))
    assert ps.init(model, 0)[0].weight.shape == (2, 3)[::-1]
    error = raised(lambda: utils.skip_init(torch.Tensor))
    assert str(error) == str(raised(lambda: theirs_utils.skip_init(torch.Tensor)))
    assert isinstance(error, RuntimeError)


# Two rules of construction that torch's mixins and names rely on.


def test_call_super_init():
    def build(nn):
        class Other:
            def __init__(self, first, second=None):
                self.kept = (first, second)

        class Cooperative(nn.Module, Other):
            call_super_init = True

            def __init__(self):
                super().__init__(1, second=2)
                self.bias = nn.Parameter(nn.init.zeros_(nn.Linear(1, 1).bias))

        return Cooperative()

    assert build(nn).kept == build(torch.nn).kept == (1, 2)


def test_a_parameter_named_training():
    def build(nn):
        class Wrong(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_parameter("training", None)

        return Wrong()

    check_same_error(build)
    for value in (nn.Parameter(jnp.ones(2)), nn.Linear(2, 2)):

        class Assigns(nn.Module):
            def __init__(self, value=value):
                super().__init__()
                setattr(self, "training", value)  # noqa: B010

        with pytest.raises(KeyError, match="attribute 'training' already exists"):
            Assigns()
