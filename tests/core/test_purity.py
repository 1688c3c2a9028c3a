"""Every JAX transform takes a model, whole or in part, and no model ever changes."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import bridge
import purestate as ps
from purestate import nn
from tests.core.models import Deep, Dense, Leaky, Noise, Tied


X = jnp.arange(6.0).reshape(2, 3)


def snapshot(model):
    """What must not change: the very leaf objects and the definition."""
    leaves, definition = model._parts
    return tuple(map(id, leaves)), definition, [np.asarray(leaf).copy() for leaf in leaves]


def assert_unchanged(model, before):
    identities, definition, values = before
    assert tuple(map(id, model._leaves)) == identities
    assert model._definition is definition
    for leaf, value in zip(model._leaves, values, strict=True):
        np.testing.assert_array_equal(leaf, value)


def loss(model, x):
    y, model = ps.call(model, x)
    return jnp.sum(y**2), model


def reference(x):
    """``Tied`` by hand: the arithmetic the model must do under every transform."""
    weight = 0.1 * jnp.cos(jnp.arange(9.0).reshape(3, 3))
    for _ in range(3):
        x = x @ weight.T
    return x


def test_jit_of_a_call_equals_the_call():
    model = Tied()
    y, after = jax.jit(ps.call)(model, X)
    np.testing.assert_allclose(y, reference(X), rtol=1e-6)
    assert (int(after.encoder.calls), int(after.decoder.calls)) == (2, 1)
    assert after._definition is model._definition


def test_grad_reaches_a_tied_weight_once_with_both_contributions():
    model = Tied()
    trainable = jax.tree.map(lambda a: a if a.dtype == jnp.float32 else a.astype(float), model)
    gradient = jax.grad(lambda m: jnp.sum(reference_of(m, X) ** 2))(trainable)
    weight = 0.1 * jnp.cos(jnp.arange(9.0).reshape(3, 3))
    by_hand = jax.grad(lambda w: jnp.sum((X @ w.T @ w.T @ w.T) ** 2))(weight)
    np.testing.assert_allclose(gradient.encoder.weight, by_hand, rtol=1e-5)
    assert gradient.decoder.weight is gradient.encoder.weight


def reference_of(model, x):
    return ps.call(model, x)[0]


def test_vmap_over_models_equals_a_loop():
    models = [ps.replace(Dense(3, 2), {"bias": jnp.full(2, float(i))}) for i in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    ys, after = jax.vmap(ps.call, in_axes=(0, None))(stacked, X)
    for index, model in enumerate(models):
        np.testing.assert_allclose(ys[index], ps.call(model, X)[0], rtol=1e-6)
    np.testing.assert_array_equal(after.calls, [1, 1, 1])


def test_scan_over_a_model_as_carry():
    def step(model, x):
        y, model = ps.call(model, x)
        return model, y

    model, ys = jax.lax.scan(step, Dense(3, 3), jnp.stack([X, X, X]))
    assert int(model.calls) == 3
    np.testing.assert_allclose(ys[2], ps.call(Dense(3, 3), X)[0], rtol=1e-6)


def test_checkpoint_of_a_whole_model():
    model = Dense(3, 3)
    value, gradient = jax.value_and_grad(
        lambda w: jax.checkpoint(loss)(ps.replace(model, {"weight": w}), X)[0]
    )(model.weight)
    plain, expected = jax.value_and_grad(lambda w: jnp.sum((X @ w.T) ** 2))(model.weight)
    np.testing.assert_allclose(value, plain, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize(("how", "calls"), [("checkpoint", 1), ("jit", 1), ("scan", 3), ("plain", 1)])
def test_a_submodule_goes_through_a_transform_inside_forward(how, calls):
    y, after = jax.jit(ps.call)(Deep(how), X)
    expected = X
    for _ in range(calls):
        expected = expected @ Dense(3, 3).weight.T
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    assert int(after.block.calls) == calls
    assert [name for name, _ in after.named_parameters()] == ["block.weight", "block.bias"]


def test_a_submodule_read_only_under_vmap_inside_forward():
    y, after = ps.call(Deep("vmap"), X)
    np.testing.assert_allclose(y, X @ Dense(3, 3).weight.T, rtol=1e-6)
    assert int(after.block.calls) == 0


def test_shard_map_over_two_devices_of_a_whole_model_and_of_a_part():
    assert jax.device_count() == 2
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    class Parallel(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Dense(3, 3)

        def forward(self, x):
            def shard(part, h):
                h, part = ps.call(part, h)
                return h, part

            y, self.part = jax.shard_map(
                shard, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P("data"), P())
            )(self.part, x)
            return y

    expected = X @ Dense(3, 3).weight.T
    y, after = jax.jit(ps.call)(Parallel(), X)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert int(after.part.calls) == 1
    whole = jax.shard_map(
        lambda model, x: ps.call(model, x),
        mesh=mesh,
        in_specs=(P(), P("data")),
        out_specs=(P("data"), P()),
    )
    y, after = whole(Dense(3, 3), X)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert int(after.calls) == 1


@pytest.mark.parametrize("how", ["checkpoint", "scan", "vmap", "jit", "grad"])
@pytest.mark.parametrize("outer", [lambda f: f, jax.jit])
def test_a_write_that_cannot_get_out_is_refused_with_the_remedy(how, outer):
    model = Leaky(how)
    before = snapshot(model)
    with pytest.raises(ps.LeakedWriteError) as caught:
        outer(ps.call)(model, X)
    assert "'block.calls'" in str(caught.value)
    assert "h, block = ps.call(block, h)" in str(caught.value)
    assert "self.block" in str(caught.value)
    assert_unchanged(model, before)


def test_a_captured_output_inside_a_transform_is_refused():
    with pytest.raises(ps.LeakedWriteError, match="cannot be captured"):
        ps.capture(LeakyRead(), X, at="block")


class LeakyRead(nn.Module):
    """Calls a submodule that has no state inside a transform."""

    def __init__(self):
        super().__init__()
        self.block = Plain()

    def forward(self, x):
        return jax.checkpoint(lambda h: self.block(h))(x)


class Plain(nn.Module):
    def forward(self, x):
        return 2 * x


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        bridge.save_checkpoint(model, f"{folder}/model.pt")


def saved_and_loaded(model):
    with tempfile.TemporaryDirectory() as folder:
        bridge.save_checkpoint(jax.tree.map(lambda a: a + 1, model), f"{folder}/model.pt")
        bridge.load_checkpoint(model, f"{folder}/model.pt")


PUBLIC = {
    "call": lambda m: ps.call(m, X, rng=0),
    "capture": lambda m: ps.capture(m, X, rng=0),
    "init": lambda m: ps.init(m, 0),
    "split": ps.split,
    "abstract": ps.abstract,
    "replace": lambda m: ps.replace(m, {"encoder.bias": jnp.ones(3)}),
    "map_modules": lambda m: ps.map_modules(
        m, lambda x: ps.replace(x, {"bias": x.bias + 1}) if isinstance(x, Dense) else x
    ),
    "state_dict": bridge.state_dict,
    "load_state_dict": lambda m: bridge.load_state_dict(m, bridge.state_dict(m)),
    "train": bridge.train,
    "eval": bridge.eval,
    "requires_grad": lambda m: bridge.requires_grad(m, False),
    "bfloat16": bridge.bfloat16,
    "to": lambda m: bridge.to(m, dtype=jnp.float16, device=jax.devices()[0]),
    "register_parameter": lambda m: bridge.register_parameter(m, "extra", jnp.ones(2)),
    "register_buffer": lambda m: bridge.register_buffer(m, "extra", jnp.ones(2)),
    "register_module": lambda m: bridge.register_module(m, "extra", Plain()),
    "set_submodule": lambda m: bridge.set_submodule(m, "encoder", Plain()),
    "delete": lambda m: bridge.delete(m, "again"),
    "patch": lambda m: bridge.patch(m, {"encoder": jnp.zeros((2, 3))}, X),
    "tie": lambda m: bridge.tie(m, "decoder.bias", "encoder.bias"),
    "untie": lambda m: bridge.untie(m, "decoder.weight"),
    **{
        name: lambda m, name=name: getattr(bridge, name)(m, print)[1].remove(
            getattr(bridge, name)(m, print)[0]
        )
        for name in bridge._HOME
        if name.startswith("register_") and name.endswith("_hook")
    },
    "audit": bridge.audit,
    "save_checkpoint": saved,
    "load_checkpoint": saved_and_loaded,
    "repr": repr,
    "tree_map": lambda m: jax.tree.map(lambda a: a + 1, m),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_function_changes_a_model(name):
    model = Tied()
    before = snapshot(model)
    PUBLIC[name](model)
    assert_unchanged(model, before)


CLASSES = {"IncompatibleKeys", "StateDict", "Handle", "LoadReport"}


def test_every_public_function_is_in_that_table_or_takes_no_model():
    models = {name for name in bridge._HOME if name not in CLASSES}
    without = {"load", "save", "rename", "strip_prefix", "consume_prefix_in_state_dict_if_present"}
    aliases = {"double", "float", "half"}  # bfloat16 with another dtype
    elsewhere = {"append", "extend", "insert", "pop", "functional_call", "stack_module_state"}
    assert models - without - aliases - elsewhere <= set(PUBLIC)


def test_ties_survive_every_transform_and_a_gradient_step():
    model = Tied()

    def step(model):
        definition, params, buffers = ps.split(model)
        grads = jax.grad(lambda p: jnp.sum(ps.apply(definition, p, buffers, X)[0] ** 2))(params)
        return ps.merge(definition, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), buffers)

    after = jax.jit(step)(model)
    for changed in (after, jax.tree.map(lambda a: a, after), bridge.bfloat16(after), ps.init(after, 0)):
        assert len(changed._leaves) == 5
        assert changed.decoder.weight is changed.encoder.weight
        assert changed.again is not None
        names = [name for name, _ in changed.named_parameters(remove_duplicate=False)]
        assert names.count("decoder.weight") == names.count("encoder.weight") == 1
    assert not np.array_equal(after.encoder.weight, model.encoder.weight)


def test_random_keys_come_from_rng_path_and_count():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Noise(), Noise()

        def forward(self, x):
            return self.first(x), self.second(x), self.first(x)

    (a, b, c), _ = ps.call(Two(), jnp.zeros(4), rng=0)
    (d, _, _), _ = jax.jit(lambda m, x: ps.call(m, x, rng=jax.random.key(0)))(Two(), jnp.zeros(4))
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, c)
    np.testing.assert_allclose(a, d, rtol=1e-6)


def test_split_form_returns_the_mapping_type_it_was_given():
    definition, params, buffers = ps.split(Dense(3, 3))
    y, new = ps.apply(definition, params, buffers, X)
    assert isinstance(new, ps.NamedArrays)
    z, plain = ps.apply(definition, dict(params), dict(buffers), X)
    assert type(plain) is dict
    np.testing.assert_array_equal(y, z)
    assert int(plain["calls"]) == int(new["calls"]) == 1
    with pytest.raises(KeyError, match=r"missing \['bias'\]"):
        ps.apply(definition, {"weight": params["weight"]}, buffers, X)


def test_a_submodule_that_is_assigned_is_read_with_its_new_parameters():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Linear(4, 4)

        def forward(self, x):
            before = self.block.weight
            self.block = jax.tree.map(lambda leaf: 2 * leaf, self.block)
            return self.block(x), before, self.block.weight

    model = ps.init(Twice(), 0)
    (output, before, weight), after = ps.call(model, jnp.ones((2, 4)))
    np.testing.assert_array_equal(weight, 2 * before)
    np.testing.assert_array_equal(after.block.weight, 2 * model.block.weight)
    np.testing.assert_allclose(output, after.block(jnp.ones((2, 4))), rtol=1e-6)
