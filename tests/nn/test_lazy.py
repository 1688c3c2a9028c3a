"""Lazy layers: ours become what torch's become, from the same inputs, wherever they are called."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.modules.lazy import LazyModuleMixin as TorchLazy
from torch.nn.parameter import UninitializedParameter as TorchUninitialized

import bridge
import purestate as ps
from bridge.checkpoint import Placeholder, Unsafe
from purestate import nn
from purestate.nn.lazy import LazyModuleMixin
from tests.oracles.module_db import compare_call
from tests.parity import check_error, raised, to_jax, to_numpy


CASES = {
    "LazyLinear": ((3,), {}, (2, 5)),
    "LazyConv1d": ((4, 3), {}, (2, 4, 6)),
    "LazyConv2d": ((4, 3), {"groups": 2, "bias": False}, (4, 6, 6)),
    "LazyConv3d": ((4, 2), {"padding": 1}, (2, 2, 3, 3, 3)),
    "LazyConvTranspose1d": ((4, 3), {"stride": 2, "output_padding": 1}, (2, 4, 6)),
    "LazyConvTranspose2d": ((4, 3), {"groups": 2, "bias": False}, (4, 5, 5)),
    "LazyConvTranspose3d": ((4, 2, 1, 1), {"dilation": 2}, (2, 2, 3, 3, 3)),
    "LazyBatchNorm1d": ((), {}, (4, 3)),
    "LazyBatchNorm2d": ((), {"affine": False}, (2, 3, 2, 2)),
    "LazyBatchNorm3d": ((1e-3, None), {"bias": False}, (2, 3, 2, 2, 2)),
    "LazyInstanceNorm1d": ((), {}, (2, 3, 4)),
    "LazyInstanceNorm2d": ((), {"track_running_stats": False}, (2, 3, 4, 2)),
    "LazyInstanceNorm3d": ((), {"affine": False, "momentum": 0.3}, (2, 3, 2, 2, 2)),
}


def x(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def loaded(ours, theirs):
    """Our model with the values of theirs."""
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    return bridge.load_state_dict(ours, values)[0]


@pytest.mark.parametrize("name", CASES)
def test_each_becomes_its_eager_class(name):
    args, kwargs, shape = CASES[name]
    theirs, ours = getattr(torch.nn, name)(*args, **kwargs), getattr(nn, name)(*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert ours.has_uninitialized_params() == theirs.has_uninitialized_params()
    inputs = x(*shape)
    theirs.eval()(inputs)
    ready = ps.init(bridge.eval(ours), 0, to_jax(inputs))
    assert type(ready).__name__ == type(theirs).__name__ == name.removeprefix("Lazy")
    assert repr(ready) == repr(theirs)
    compare_call(bridge.train(loaded(ready, theirs)), theirs.train(), [inputs.requires_grad_()])
    assert type(ours).__name__ == name


def network(nn):
    return nn.Sequential(
        nn.LazyConv2d(4, 3),
        nn.LazyBatchNorm2d(),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )


IMAGE = jnp.ones((2, 3, 5, 5))


def eager(nn):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(36, 2),
    )


def test_a_network_is_then_the_one_written_with_sizes():
    """The same definition, and the same draws: keys come from names."""
    ready, written = ps.init(network(nn), 0, IMAGE), ps.init(eager(nn), 0)
    assert ps.split(ready)[0] is ps.split(written)[0]
    for ours, theirs in zip(jax.tree.leaves(ready), jax.tree.leaves(written), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_init_under_jit_and_from_shapes_alone():
    ready = jax.jit(lambda key, x: ps.init(network(nn), key, x))(jax.random.key(0), IMAGE)
    assert ready[5].weight.shape == (2, 36)
    shapes = ps.init(network(nn), 0, jax.ShapeDtypeStruct(IMAGE.shape, IMAGE.dtype))
    np.testing.assert_allclose(shapes[5].weight, ready[5].weight, rtol=1e-5)
    abstract = jax.eval_shape(lambda x: ps.init(network(nn), 0, x), IMAGE)
    assert abstract[0].weight.shape == (4, 3, 3, 3)


class Everywhere(nn.Module):
    """Calls its lazy layers through the transforms, by closure and as values."""

    def __init__(self):
        super().__init__()
        self.block = nn.LazyLinear(5)
        self.norm = nn.LazyBatchNorm1d()
        self.layers = nn.ModuleList([nn.LazyLinear(5) for _ in range(4)])
        self.unused = nn.Linear(1, 1)

    def forward(self, x, scale, *, extra):
        def body(carry, _):
            h, norm = carry
            h, norm = ps.call(norm, self.block(h))
            return (h, norm), None

        (x, self.norm), _ = jax.lax.scan(body, (x, self.norm), None, length=3)
        x = jax.checkpoint(lambda layer, h: ps.call(layer, h)[0])(self.layers[0], x)
        x = jax.jit(lambda layer, h: layer(h))(self.layers[1], x)
        x = jax.vmap(self.layers[2])(x)
        x = self.layers[3](x)
        # What a layer has is there for the rest of the call.
        penalty = self.layers[3].weight @ jnp.ones(self.layers[3].weight.shape[1])
        return x * scale + penalty + extra["bias"]


def test_wherever_a_layer_is_called():
    inputs = jnp.arange(10.0).reshape(2, 5), 2.0
    extra = {"bias": np.ones(5, np.float32), "name": "static"}
    model = ps.init(Everywhere(), 0, *inputs, extra=extra)
    assert not any(isinstance(module, LazyModuleMixin) for module in model.modules())
    y, after = ps.call(model, *inputs, extra=extra)
    assert y.shape == (2, 5)
    assert int(model.norm.num_batches_tracked) == 0
    assert int(after.norm.num_batches_tracked) == 3


def test_a_shared_layer_is_one():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.LazyLinear(5)
            self.b = nn.Sequential(self.a, self.a)

        def forward(self, x):
            return self.b(self.a(x))

    model = ps.init(Shared(), 0, jnp.ones((2, 5)))
    assert list(ps.split(model)[1]) == ["a.weight", "a.bias"]
    assert model.a is model.b[1]
    assert type(model.a) is nn.Linear


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.LazyLinear(5, bias=False)
            self.b = nn.LazyLinear(5, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = ps.init(Tied(), 0, jnp.ones((2, 5)))
    assert list(ps.split(model)[1]) == ["a.weight"]
    assert repr(model.b) == "Linear(in_features=5, out_features=5, bias=False)"


def test_what_has_values_keeps_them():
    first = ps.init(nn.Linear(3, 3), 1)
    model = ps.init(nn.Sequential(first, nn.LazyLinear(2)), 0, jnp.ones((1, 3)))
    np.testing.assert_array_equal(model[0].weight, first.weight)


def test_a_call_without_init_names_the_layers():
    for call in (lambda: network(nn)(IMAGE), lambda: ps.call(network(nn), IMAGE)):
        error = raised(call)
        assert isinstance(error, ps.UninitializedError)
        assert "layer(s) '0', '1', '5' need an example input" in str(error)
        assert "purestate.init(model, rng, *example_inputs)" in str(error)


def test_a_layer_that_the_call_does_not_reach_is_named():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = nn.LazyLinear(2)
            self.unused = nn.LazyLinear(2)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(ps.UninitializedError, match=r"'unused.weight' has no shape"):
        ps.init(Half(), 0, jnp.ones((1, 2)))
    with pytest.raises(ps.UninitializedError, match=r"'used.weight' has no shape"):
        ps.init(Half(), 0)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda nn: nn.LazyConv2d(4, 3), (2, 2)),
        (lambda nn: nn.LazyConv2d(4, 3, groups=3), (2, 2, 4, 4)),
        (lambda nn: nn.LazyBatchNorm2d(), (2, 2)),
        (lambda nn: nn.LazyInstanceNorm2d(), (3, 2, 2)),
    ],
    ids=["axes", "groups", "batch norm", "instance norm"],
)
def test_refused_as_torch(build, shape):
    check_error(
        lambda: ps.init(build(nn), 0, jnp.ones(shape)), lambda: build(torch.nn)(torch.ones(shape))
    )


def test_constructors_refuse_as_torch():
    check_error(lambda: nn.LazyConv2d(4, 3, groups=0), lambda: torch.nn.LazyConv2d(4, 3, groups=0))


def test_the_shape_of_a_placeholder():
    expected = str(raised(lambda: TorchUninitialized().shape))
    for look in (lambda: nn.LazyLinear(3).weight.shape, lambda: nn.UninitializedParameter().shape):
        error = raised(look)
        assert isinstance(error, RuntimeError)
        assert str(error).splitlines()[0] == expected
    assert isinstance(raised(lambda: nn.UninitializedParameter() + 1), ValueError)
    assert repr(nn.UninitializedParameter()) == repr(TorchUninitialized())
    assert nn.UninitializedParameter(dtype=jnp.float16).dtype == jnp.float16


# Files.


def test_a_checkpoint_gives_the_arrays_and_the_first_input_the_class():
    source, inputs = torch.nn.Linear(2, 5), x(1, 2)
    theirs = torch.nn.LazyLinear(3)
    theirs.load_state_dict(source.state_dict())
    ours = loaded(nn.LazyLinear(3), source)
    assert repr(ours) == repr(theirs)
    assert not ours.has_uninitialized_params()
    np.testing.assert_allclose(ours(to_jax(inputs)), to_numpy(theirs(inputs)), rtol=1e-5, atol=1e-6)
    ready = ps.init(ours, 0, to_jax(inputs))
    assert repr(ready) == repr(theirs)
    np.testing.assert_array_equal(ready.weight, ours.weight)
    theirs = torch.nn.LazyLinear(3)
    theirs.load_state_dict(source.state_dict())
    check_error(lambda: ps.init(ours, 0, jnp.ones((1, 4))), lambda: theirs(torch.ones(1, 4)))


def test_a_checkpoint_of_convolutions_and_norms():
    source = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    theirs = torch.nn.Sequential(torch.nn.LazyConv2d(4, 3), torch.nn.LazyBatchNorm2d())
    theirs.load_state_dict(source.state_dict())
    ours = loaded(nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d()), source)
    assert bridge.state_dict(ours)["1.num_batches_tracked"].dtype == np.int64
    inputs = x(2, 3, 5, 5)
    ours = ps.init(ours, 0, to_jax(inputs))
    theirs(inputs)  # The channels that they print stay 0, as torch's do.
    assert repr(ours) == repr(theirs)


def test_placeholders_load_into_placeholders_only():
    sd = bridge.state_dict(nn.LazyLinear(3))
    assert list(sd) == list(torch.nn.LazyLinear(3).state_dict())
    model, report = bridge.load_state_dict(nn.LazyLinear(3), sd)
    assert model.has_uninitialized_params()
    assert report.missing_keys == []
    theirs = raised(lambda: torch.nn.Linear(3, 3).load_state_dict(torch.nn.LazyLinear(3).state_dict()))
    ours = raised(lambda: bridge.load_state_dict(nn.Linear(3, 3), sd))
    assert type(ours) is type(theirs)
    assert str(ours).splitlines()[0] == str(theirs)


def test_placeholders_in_a_file_of_torch(tmp_path):
    """They come as inert records, which load into placeholders only."""
    path = tmp_path / "m.pt"
    for name in ("LazyLinear", "LazyBatchNorm1d"):
        args = CASES[name][0][:1]
        source = getattr(torch.nn, name)(*args).state_dict()
        torch.save({"lazy": source, "w": torch.ones(1)}, path)
        ours = bridge.load(path)
        assert ours["w"].tolist() == [1]
        assert list(ours["lazy"]) == list(source)
        for key, value in source.items():
            if torch.nn.parameter.is_lazy(value):
                assert isinstance(ours["lazy"][key], Placeholder)
                assert ours["lazy"][key].path == f"torch.nn.parameter.{type(value).__name__}"
            else:
                assert ours["lazy"][key].tolist() == value.tolist()
        torch.save(source, path)
        for model in (
            bridge.load_state_dict(getattr(nn, name)(*args), bridge.load(path))[0],
            bridge.load_checkpoint(getattr(nn, name)(*args), path)[0],
        ):
            assert model.has_uninitialized_params()
    torch.save(torch.nn.LazyLinear(3).state_dict(), path)
    theirs = raised(lambda: torch.nn.Linear(3, 3).load_state_dict(torch.load(path, weights_only=False)))
    for ours in (
        raised(lambda: bridge.load_state_dict(nn.Linear(3, 3), bridge.load(path))),
        raised(lambda: bridge.load_checkpoint(nn.Linear(3, 3), path)),
    ):
        assert type(ours) is type(theirs)
        assert str(ours).splitlines()[0] == str(theirs)


class Waiting(torch.nn.Module):
    """A module of one's own that has no shape yet."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.UninitializedParameter()
        self.register_buffer("buffer", torch.nn.UninitializedBuffer())


def test_whole_modules_with_placeholders(tmp_path):
    torch.save(Waiting(), tmp_path / "m.pt")
    ours = bridge.load(tmp_path / "m.pt")
    paths = {name: value.path for name, value in ours.items()}
    kinds = {"weight": "UninitializedParameter", "buffer": "UninitializedBuffer"}
    assert paths == {name: f"torch.nn.parameter.{kind}" for name, kind in kinds.items()}
    # Torch's lazy layers have methods of their own as hooks, and a pickle gets a method by getattr.
    torch.save(torch.nn.LazyLinear(3), tmp_path / "m.pt")
    with pytest.raises(Unsafe, match="getattr"):
        bridge.load(tmp_path / "m.pt")


def test_placeholders_are_not_saved(tmp_path):
    with pytest.raises(TypeError, match="UninitializedArray cannot be saved"):
        bridge.save(bridge.state_dict(nn.LazyLinear(3)), tmp_path / "lazy.pt")


def test_assign_keeps_the_dtype_of_the_file():
    values = {"weight": np.ones((3, 2), np.float16), "bias": np.ones(3, np.float16)}
    assert bridge.load_state_dict(nn.LazyLinear(3), values)[0].weight.dtype == jnp.float32
    assert bridge.load_state_dict(nn.LazyLinear(3), values, assign=True)[0].weight.dtype == jnp.float16
    part, report = bridge.load_state_dict(nn.LazyLinear(3), {"bias": values["bias"]}, strict=False)
    assert report.missing_keys == ["weight"]
    assert part.bias.shape == (3,)


# What else takes a model.


def test_a_lazy_model_is_a_value_like_any_other():
    model = network(nn)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), bridge.eval(model)):
        assert ps.init(twin, 0, IMAGE)[5].weight.shape == (2, 36)
    half = ps.init(bridge.to(model, jnp.bfloat16), 0, IMAGE.astype(jnp.bfloat16))
    assert half[5].weight.dtype == jnp.bfloat16
    frozen = ps.init(bridge.requires_grad(model, False, "5"), 0, IMAGE)
    assert "5.weight" in ps.split(frozen)[2]
    assert bridge.audit(model)["5.weight"].shape is None
    assert "UninitializedArray" in repr(ps.split(model)[1])
    assert ps.abstract(model)[5].has_uninitialized_params()
    definition, params, buffers = ps.split(model)
    assert ps.init(ps.merge(definition, params, buffers), 0, IMAGE)[5].weight.shape == (2, 36)
    filled = ps.replace(nn.LazyLinear(3), {"weight": jnp.ones((3, 2)), "bias": jnp.zeros(3)})
    np.testing.assert_array_equal(filled(jnp.ones((1, 2))), [[2.0, 2.0, 2.0]])


def own(Mixin, nn, Uninitialized):
    """A lazy module of a user's, with a lazy child, that stays of its class."""

    class Scale(Mixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = Uninitialized()
            self.inner = nn.LazyLinear(2)

        def initialize_parameters(self, x):
            if self.has_uninitialized_params():
                self.scale.materialize(x.shape[1:])
                nn.init.ones_(self.scale)

        def forward(self, x):
            return self.inner(x * self.scale)

    return Scale


def test_a_lazy_module_of_ones_own():
    theirs = own(TorchLazy, torch.nn, TorchUninitialized)()
    ours = own(LazyModuleMixin, nn, nn.UninitializedParameter)()
    assert repr(ours) == repr(theirs)
    theirs(torch.ones(1, 3))
    ready = ps.init(ours, 0, jnp.ones((1, 3)))
    assert repr(ready) == repr(theirs)
    np.testing.assert_array_equal(ready.scale, jnp.ones(3))
    assert ps.init(ready, 0, jnp.ones((1, 3)))(jnp.ones((1, 3))).shape == (1, 2)


def test_incomplete_lazy_modules():
    def build(Mixin, nn, Uninitialized):
        class Half(own(Mixin, nn, Uninitialized)):
            def initialize_parameters(self, x):
                self.other = Uninitialized()
                super().initialize_parameters(x)

        class Nothing(Mixin, nn.Module):
            pass

        return Half(), Nothing()

    theirs = build(TorchLazy, torch.nn, TorchUninitialized)
    ours = build(LazyModuleMixin, nn, nn.UninitializedParameter)
    for our, their in zip(ours, theirs, strict=True):
        check_error(lambda: ps.init(our, 0, jnp.ones((1, 3))), lambda: their(torch.ones(1, 3)))  # noqa: B023


def test_a_constructor_may_give_the_shape_itself():
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LazyLinear(2)
            assert self.layer.has_uninitialized_params()
            self.layer.reset_parameters()
            self.layer.initialize_parameters(jnp.ones((1, 3)))
            assert not self.layer.has_uninitialized_params()

        def forward(self, x):
            return self.layer(x)

    model = ps.init(Host(), 0)
    assert model(jnp.ones((1, 3))).shape == (1, 2)
    assert type(ps.init(model, 0, jnp.ones((1, 3))).layer) is nn.Linear
