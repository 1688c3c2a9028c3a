"""split, merge, replace, map_modules, capture, abstract, NamedArrays: the functions over a model."""

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bridge
import purestate as ps
from purestate import nn
from tests.core.models import Dense, Tied


X = jnp.arange(6.0).reshape(2, 3)


def test_split_takes_what_trains_and_leaves_the_rest():
    model = bridge.requires_grad(Tied(), False, where="decoder")
    definition, params, buffers = ps.split(model)
    # The tied weight belongs to the frozen decoder too: torch's requires_grad_ freezes the tensor.
    assert list(params) == ["encoder.bias"]
    assert list(buffers) == ["encoder.weight", "encoder.calls", "decoder.bias", "decoder.calls"]
    again = ps.merge(definition, params, buffers)
    assert again._parts[1] is model._parts[1]
    assert all(a is b for a, b in zip(again._leaves, model._leaves, strict=True))


def test_named_arrays_is_an_immutable_ordered_pytree():
    arrays = ps.NamedArrays({"b": jnp.ones(2), "a": jnp.zeros(3)})
    assert list(arrays) == ["b", "a"]
    assert dict(jax.tree.map(lambda x: x + 1, arrays))["a"].tolist() == [1, 1, 1]
    assert list(jax.jit(lambda x: x)(arrays)) == ["b", "a"]
    assert repr(arrays) == "NamedArrays({'b': float32[2], 'a': float32[3]})"
    with pytest.raises(AttributeError, match=r"params \| \{name: array\}"):
        arrays.b = 1
    with pytest.raises(TypeError):
        arrays["b"] = 1  # pyright: ignore[reportIndexIssue]
    assert list(arrays | {"c": jnp.ones(1)}) == ["b", "a", "c"]
    again = pickle.loads(pickle.dumps(arrays))
    assert jax.tree.structure(again) == jax.tree.structure(arrays)
    assert copy.copy(arrays) == arrays


def test_optax_keeps_the_type_and_never_sees_what_is_frozen():
    model = bridge.requires_grad(Tied(), False, where="decoder")
    definition, params, buffers = ps.split(model)
    optimizer = optax.adamw(0.1, weight_decay=0.5)
    state = optimizer.init(params)
    grads = jax.grad(lambda p: jnp.sum(ps.apply(definition, p, buffers, X)[0] ** 2))(params)
    updates, _ = optimizer.update(grads, state, params)
    new: Any = optax.apply_updates(params, updates)
    assert type(grads) is type(updates) is type(new) is ps.NamedArrays
    after = ps.merge(definition, new, buffers)
    assert after.decoder.weight is model.decoder.weight


def test_replace_reaches_a_tie_by_either_name():
    for name in ("encoder.weight", "decoder.weight", "again.weight"):
        model = ps.replace(Tied(), {name: jnp.zeros((3, 3))})
        assert float(jnp.abs(model.encoder.weight).sum()) == 0
        assert model.decoder.weight is model.encoder.weight


def test_map_modules_visits_children_first_and_shared_modules_once():
    seen = []

    def visit(module):
        seen.append(type(module).__name__)
        return module

    model = Tied()
    same = ps.map_modules(model, visit)
    assert seen == ["Dense", "Dense", "Tied"]
    assert same._definition is model._definition


def test_map_modules_may_change_the_class_and_keeps_other_ties():
    class Scaled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    model = ps.map_modules(Tied(), Scaled, where="decoder")
    assert [name for name, _ in model.named_parameters(remove_duplicate=False)][:4] == [
        "encoder.weight",
        "encoder.bias",
        "decoder.inner.weight",
        "decoder.inner.bias",
    ]
    assert model.decoder.inner.weight is model.encoder.weight
    y, _ = ps.call(model, X)
    np.testing.assert_allclose(y, 2 * ps.call(Tied(), X)[0], rtol=1e-6)
    with pytest.raises(TypeError, match="returned int for 'encoder'"):
        ps.map_modules(Tied(), lambda module: 1)


def test_capture_returns_outputs_by_name_under_jit_too():
    model = Tied()
    y, after, taps = jax.jit(lambda m, x: ps.capture(m, x, at=("encoder", "decoder")))(model, X)
    assert set(taps) == {"encoder", "decoder", "encoder#2"}
    np.testing.assert_allclose(taps["encoder"], X @ model.encoder.weight.T, rtol=1e-6)
    np.testing.assert_allclose(taps["encoder#2"], y, rtol=1e-6)
    assert int(after.encoder.calls) == 2
    assert set(ps.capture(model, X)[2]) == {"encoder", "decoder", "encoder#2"}


def test_a_bound_method_can_be_called_with_state():
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Dense(3, 3)

        def encode(self, x, *, scale=1):
            return scale * self.layer(x)

    model = Coder()
    y, after = ps.call(model.encode, X, scale=2)
    np.testing.assert_allclose(y, 2 * (X @ model.layer.weight.T), rtol=1e-6)
    assert int(after.layer.calls) == 1


def test_abstract_models_pass_through_eval_shape():
    model = ps.abstract(Tied())
    assert all(isinstance(leaf, ps.AbstractArray) for leaf in model._leaves)
    y, after = jax.eval_shape(ps.call, model, X)
    assert y.shape == (2, 3)
    assert after.encoder.calls.dtype == jnp.int32
    loaded, _ = bridge.load_state_dict(model, bridge.state_dict(Tied()))
    np.testing.assert_array_equal(loaded.encoder.weight, Tied().encoder.weight)


def test_a_submodule_is_a_model_of_its_own():
    model = Tied()
    part = model.encoder
    assert part is model.encoder
    assert part._definition is Dense(3, 3)._definition
    assert len(part._leaves) == 3
    y, after = ps.call(part, X)
    assert int(after.calls) == 1
    assert int(model.encoder.calls) == 0
    np.testing.assert_allclose(y, X @ part.weight.T, rtol=1e-6)


def test_constants_of_a_definition_compare_by_value_and_type():
    class Net(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

    def definition(value):
        return Net(value)._definition

    assert definition(jnp.arange(100)) is definition(jnp.arange(100))
    assert definition([1, {"a": (2.0, None)}]) is definition([1, {"a": (2.0, None)}])
    assert definition(float("nan")) is definition(float("nan"))
    distinct = [1, 1.0, True, "1", (1,), [1], {1: 1}, 0.0, -0.0, None, jnp.ones(1), np.ones(1)]
    definitions = [definition(value) for value in distinct]
    assert len(set(map(id, definitions))) == len(distinct)


def test_a_class_attribute_is_hidden_by_the_instances_own():
    class Net(nn.Module):
        rate = 0.5

        def __init__(self, rate=None):
            super().__init__()
            if rate is not None:
                self.rate = rate

        def forward(self, x):
            return x * self.rate

    assert (Net().rate, Net(2.0).rate) == (0.5, 2.0)
    assert float(Net(2.0)(1.0)) == 2.0
    again = jax.tree.unflatten(jax.tree.structure(Net(2.0)), [])
    assert again.rate == 2.0


def test_references_in_attributes_mean_the_live_arrays():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = Dense(3, 3)
            self.order = [self.a, {"again": self.a}]
            self.weights = (self.a.weight,)
            self.function = self.a.forward

        def forward(self, x):
            return self.order[1]["again"](x) + self.function(x) + x @ self.weights[0].T

    model = Net()
    model = ps.replace(model, {"a.weight": jnp.eye(3)})
    y, after = ps.call(model, X)
    np.testing.assert_allclose(y, 3 * X)
    assert int(after.a.calls) == 2
    assert model.order[0] is model.a
    again = pickle.loads(pickle.dumps(model.a))
    assert again._definition is model.a._definition


def test_a_part_registered_beside_its_model_is_shared_as_in_torch():
    class Holder(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.whole = model
            self.part = model.encoder

    model = Tied()
    holder = Holder(model)
    assert len(holder._leaves) == len(model._leaves)
    assert holder.part._definition is model.encoder._definition
    _, after = ps.call(holder.whole, X)
    assert int(after.encoder.calls) == 2

    class Parts(nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.first, self.second = first, second

    parts = Parts(model.encoder, model.decoder)  # Siblings stay tied.
    assert parts.first.weight is parts.second.weight
    again = bridge.register_module(model, "third", model.decoder)
    assert len(again._leaves) == len(model._leaves)
    apart = Parts(copy.deepcopy(model.encoder), model.decoder)
    assert len(apart._leaves) == 6
