"""Hooks as data: they go through every transform and copy, cost nothing where there are none."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bridge
import purestate as ps
from purestate import nn


X = jnp.arange(6.0).reshape(3, 2)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


def pre(module, args):
    LOG.append("pre")


def fwd(module, args, output):
    LOG.append("fwd")


def bwd(module, grad_input, grad_output):
    LOG.append("bwd")


def hooked(model=None):
    model = ps.init(nn.Linear(2, 2), 0) if model is None else model
    model, _ = bridge.register_forward_pre_hook(model, pre)
    model, _ = bridge.register_forward_hook(model, fwd)
    model, _ = bridge.register_full_backward_hook(model, bwd)
    return model


def loss(model, x):
    return jnp.sum(jnp.tanh(model(x)))


ONCE = {
    "grad": jax.grad(loss, (0, 1)),
    "checkpoint": jax.grad(jax.checkpoint(loss), (0, 1)),
    "jit inside": jax.grad(jax.jit(loss), (0, 1)),
    "vmap inside": jax.grad(lambda m, x: jnp.sum(jax.vmap(loss, (None, 0))(m, x)), (0, 1)),
    "vmap outside": jax.vmap(jax.grad(loss, (0, 1)), (None, 0)),
    "vmap over models": lambda m, x: jax.vmap(jax.grad(loss, (0, 1)), (0, None))(
        jax.tree.map(lambda a: jnp.stack([a, a]), m), x
    ),
    "scan": jax.grad(
        lambda m, x: jnp.sum(jax.lax.scan(lambda c, _: (m(c), None), x, length=3)[0]), (0, 1)
    ),
    "linearize": lambda m, x: jax.vjp(loss, m, x)[1](jnp.ones(())),
}


@pytest.mark.parametrize("outer", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("how", ONCE)
def test_each_hook_fires_once_under_every_transform(how, outer):
    jax.clear_caches()  # jit and checkpoint keep what they traced before.
    outer(lambda m, x: ONCE[how](m, x))(hooked(), X)
    assert LOG == ["pre", "fwd", "bwd"]


@pytest.mark.parametrize("how", ONCE)
def test_a_hook_that_returns_nothing_changes_no_number(how):
    plain = ps.init(nn.Linear(2, 2), 0)
    expected, actual = ONCE[how](plain, X), ONCE[how](hooked(plain), X)
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_forward_mode_and_second_order_work_with_hooks_of_the_backward_pass():
    plain = ps.init(nn.Linear(2, 2), 0)
    model = hooked(plain)
    for of in (
        lambda m: jax.jvp(lambda x: loss(m, x), (X,), (X,))[1],
        lambda m: jax.hessian(lambda x: loss(m, x))(X),
        lambda m: jax.jacfwd(lambda x: m(x))(X),
        lambda m: jax.grad(lambda x: jnp.sum(jax.grad(loss, 1)(m, x) ** 2))(X),
    ):
        np.testing.assert_allclose(of(model), of(plain), rtol=1e-5, atol=1e-6)


def test_no_tracer_is_left_behind():
    with jax.checking_leaks():
        jax.jit(jax.grad(loss, (0, 1)))(hooked(), X)


def test_under_vmap_a_hook_may_use_the_name_of_the_axis():
    def average(module, grad_input, grad_output):
        return tuple(jax.lax.pmean(grad, "examples") for grad in grad_input)

    layer = ps.init(nn.Linear(2, 2), 0)
    layer, _ = bridge.register_full_backward_hook(layer, average)
    x = jnp.arange(6.0).reshape(3, 2)

    def loss(row):
        return jnp.sum(layer(row) ** 2)

    inside = jax.grad(lambda x: jnp.sum(jax.vmap(loss, axis_name="examples")(x)))(x)
    outside = jax.vmap(jax.grad(loss), axis_name="examples")(x)
    np.testing.assert_allclose(inside, outside, rtol=1e-5)
    np.testing.assert_allclose(outside, jnp.tile(outside[:1], (3, 1)), rtol=1e-6)


def test_under_vmap_a_hook_sees_single_examples():
    seen = []

    def see(module, grad_input, grad_output):
        seen.append((grad_input[0].shape, grad_output[0].shape))
        return (grad_input[0] * jnp.sum(grad_output[0]),)

    plain = ps.init(nn.Linear(2, 2), 0)
    model, _ = bridge.register_full_backward_hook(plain, see)
    inside = jax.grad(lambda x: jnp.sum(jax.vmap(lambda row: loss(model, row))(x)))(X)
    outside = jax.vmap(jax.grad(lambda row: loss(model, row)))(X)
    nested = jax.vmap(jax.grad(lambda x: jnp.sum(jax.vmap(lambda row: loss(model, row))(x))))(X[None])
    assert seen == [((2,), (2,))] * 3
    by_hand = []
    for row in X:
        output, back = jax.vjp(lambda row: plain(row), row)
        slopes = 1 - jnp.tanh(output) ** 2
        by_hand.append(back(slopes)[0] * jnp.sum(slopes))
    for actual in (inside, outside, nested[0]):
        np.testing.assert_allclose(actual, jnp.stack(by_hand), rtol=1e-5)


def test_a_backward_hook_reads_the_arrays_of_the_call():
    def decay(module, grad_output):
        return (grad_output[0] * jnp.sum(module.weight),)

    model, _ = bridge.register_full_backward_pre_hook(ps.init(nn.Linear(2, 2), 0), decay)

    @jax.jit
    def gradient(weight):
        return jax.grad(lambda x: jnp.sum(ps.replace(model, {"weight": weight})(x)))(X)

    weight = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(gradient(weight), jnp.ones((3, 2)) @ weight * 10)


def test_a_backward_hook_cannot_write_state():
    def write(module, grad_output):
        module.running_mean = grad_output[0][0]

    model, _ = bridge.register_full_backward_pre_hook(nn.BatchNorm1d(2), write)
    with pytest.raises(ps.FrozenModelError, match="running_mean"):
        jax.grad(lambda x: jnp.sum(ps.call(ps.init(model, 0), x)[0]))(X)


def test_a_forward_hook_writes_buffers_of_its_module():
    def count(module, args, output):
        module.calls = module.calls + 1

    model = bridge.register_buffer(ps.init(nn.Linear(2, 2), 0), "calls", jnp.zeros((), int))
    model, _ = bridge.register_forward_hook(model, count)
    _, after = jax.jit(ps.call)(model, X)
    assert int(after.calls) == 1
    with pytest.raises(ps.StatefulCallError):
        model(X)


def test_gradients_of_pytree_inputs_and_outputs():
    class Pairs(nn.Module):
        def forward(self, pair):
            return {"sum": pair["a"] + pair["b"], "names": ("n", pair["a"] * 2)}

    seen = []

    def see(module, grad_input, grad_output):
        seen.append((jax.tree.structure(grad_input), jax.tree.structure(grad_output)))
        return ({"a": grad_input[0]["a"] * 10, "b": grad_input[0]["b"]},)

    model, _ = bridge.register_full_backward_hook(Pairs(), see)
    pair = {"a": X, "b": X}
    gradient = jax.grad(lambda pair: jnp.sum(model(pair)["sum"] * 3))(pair)
    np.testing.assert_allclose(gradient["a"], 30 * jnp.ones_like(X))
    np.testing.assert_allclose(gradient["b"], 3 * jnp.ones_like(X))
    assert len(seen) == 1


def test_hooks_are_in_copies_and_pickles_and_in_no_state_dict():
    model = hooked()
    for twin in (
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        jax.tree.map(lambda a: a, model),
        bridge.eval(model),
    ):
        LOG.clear()
        twin(X)
        assert LOG == ["pre", "fwd"]
    assert list(bridge.state_dict(model)) == ["weight", "bias"]
    rebuilt, report = bridge.load_state_dict(nn.Linear(2, 2), bridge.state_dict(model))
    assert not any(report)
    LOG.clear()
    rebuilt(X)
    assert LOG == []


def test_equal_hooks_are_one_definition_and_one_trace():
    traces = []

    @jax.jit
    def run(model, x):
        traces.append(1)
        return model(x)

    for _ in range(3):
        run(hooked(), X)
    assert len(traces) == 1
    assert hooked()._definition is hooked()._definition


def test_a_definition_takes_hooks_too():
    definition, params, buffers = ps.split(ps.init(nn.Linear(2, 2), 0))
    definition, handle = bridge.register_forward_hook(definition, fwd)
    ps.apply(definition, params, buffers, X)
    assert LOG == ["fwd"]
    ps.apply(handle.remove(definition), params, buffers, X)
    assert LOG == ["fwd"]


def test_a_handle_works_on_descendants_and_names_what_never_had_the_hook():
    plain = ps.init(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), 0)
    model, handle = bridge.register_forward_hook(plain, fwd, at="1")
    model, other = bridge.register_forward_hook(model, fwd, at="1")
    assert handle != other
    model = bridge.insert(bridge.eval(model), 0, nn.ReLU())
    model(X)
    assert LOG == ["fwd", "fwd"]
    without = handle.remove(model)
    without(X)
    assert LOG == ["fwd"] * 3
    assert handle.remove(without) is without
    assert not other.remove(without)._definition.is_hooked
    with pytest.raises(LookupError, match="never had the forward hook 'fwd'"):
        handle.remove(plain)


def test_one_registration_on_many_modules():
    model = ps.init(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), 0)
    model, handle = bridge.register_forward_hook(model, fwd, at=nn.Linear)
    model(X)
    assert LOG == ["fwd", "fwd"]
    handle.remove(model)(X)
    assert LOG == ["fwd", "fwd"]


class Counting(nn.Module):
    """Registers its own method, as torch's classes do."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(2, 2)
        self.register_buffer("calls", jnp.zeros(()))
        self.register_forward_hook(self._count)

    def _count(self, module, args, output):
        assert module is self
        self.calls = self.calls + 1

    def forward(self, x):
        return self.part(x)


def test_a_hook_may_be_a_method_of_its_own_module():
    model = ps.init(nn.Sequential(Counting(), Counting()), 0)
    _, after = jax.jit(ps.call)(pickle.loads(pickle.dumps(model)), X)
    assert [float(part.calls) for part in after] == [1, 1]
    assert Counting()._definition is Counting()._definition
    value = ps.init(Counting(), 0)
    value, _ = bridge.register_forward_hook(value, value._count)
    assert float(ps.call(value, X)[1].calls) == 2


def test_what_cannot_be_a_hook():
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="a hook is a function, got int"):
        bridge.register_forward_hook(model, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="method of another module"):
        bridge.register_forward_hook(model, nn.Linear(2, 2).extra_repr)
    with pytest.raises(ps.SelectorError):
        bridge.register_forward_hook(model, fwd, at="nowhere")
    with pytest.raises(ps.FrozenModelError, match=r"bridge\.register_forward_hook"):
        model.register_forward_hook(fwd)
    with pytest.raises(NotImplementedError, match="register_full_backward_hook"):
        model.register_backward_hook(bwd)
    with pytest.raises(AttributeError, match="no hooks for all modules"):
        bridge.register_module_forward_hook(fwd)


def test_layers_with_hooks_run_as_a_loop():
    model = ps.init(nn.Sequential(*(nn.Linear(2, 2) for _ in range(14))), 0)
    expected = model(X)
    for at in ("3", nn.Linear):
        LOG.clear()
        changed, _ = bridge.register_forward_hook(model, fwd, at=at)
        np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(changed, X), expected, rtol=1e-6)
        assert len(LOG) == (1 if at == "3" else 14)


def test_without_hooks_a_call_does_not_come_near_them(monkeypatch):
    from purestate import _running

    monkeypatch.setattr(_running, "run", None)
    model = ps.init(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), 0)
    model(X)
    assert "tap" not in str(jax.make_jaxpr(jax.grad(loss))(model, X))


def test_capture_sees_what_the_hooks_made():
    model = ps.init(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), 0)
    model, _ = bridge.register_forward_hook(model, lambda m, a, output: output * 0, at="0")
    _, _, outputs = ps.capture(model, X, at="0")
    np.testing.assert_array_equal(outputs["0"], jnp.zeros((3, 2)))


class Cube(nn.Module):
    def forward(self, x):
        return x**3


def twice(module, grad_input, grad_output):
    return None if grad_input[0] is None else (2 * grad_input[0],)


@pytest.mark.parametrize("inner", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_hooks_act_in_each_level_of_differentiation(inner):
    """Torch with create_graph gives 6 and 12: the second derivative of what the hook made."""
    model, _ = bridge.register_full_backward_hook(Cube(), twice)
    value, slope = jax.value_and_grad(jax.grad(inner(lambda x: model(x))))(1.0)
    assert float(value) == 6.0
    assert float(slope) == 12.0
    seen = []
    watched, _ = bridge.register_full_backward_hook(Cube(), lambda m, i, o: seen.append(i))
    jax.value_and_grad(jax.grad(inner(lambda x: watched(x))))(1.0)
    assert all(grad_input[0] is not None for grad_input in seen)


def test_an_unused_output_of_a_scan_has_no_gradient():
    model = ps.init(nn.LSTM(3, 4), 0)
    watched, _ = bridge.register_full_backward_hook(model, lambda m, i, o: None)
    inputs = jnp.ones((5, 2, 3))
    gradients = [jax.grad(lambda x, m=m: jnp.sum(m(x)[1][0]))(inputs) for m in (model, watched)]
    np.testing.assert_allclose(*gradients, rtol=1e-6)


def test_what_does_not_come_from_the_output_leaves_nothing_behind():
    class Stopped(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(jnp.ones(2))

        def forward(self, x):
            return self.w * jax.lax.stop_gradient(x)

    seen = []
    model, _ = bridge.register_full_backward_hook(Stopped(), lambda m, i, o: seen.append(i))
    with jax.checking_leaks():
        jax.jit(jax.grad(lambda m, x: jnp.sum(m(x * 2)), argnums=(0, 1)))(model, X)
    assert seen == []


def test_a_hook_leaves_known_numbers_known():
    class Masked(nn.Module):
        def forward(self, x, mask):
            return x[:, np.asarray(mask) > 0]

    model, _ = bridge.register_full_backward_hook(Masked(), lambda m, i, o: None)
    masked = jax.jit(lambda x: model(x, np.array([1.0, 0.0])))
    np.testing.assert_array_equal(masked(X), X[:, :1])


def test_one_transposed_pass_in_several_threads():
    from concurrent.futures import ThreadPoolExecutor

    def mixed(module, grad_input, grad_output):
        return (grad_input[0] + grad_output[0],)

    model = ps.init(nn.Sequential(*(nn.Linear(2, 2) for _ in range(3))), 0)
    model, _ = bridge.register_full_backward_hook(model, mixed, at=nn.Linear)
    y, back = jax.vjp(model, X)
    expected = back(y)[0]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda factor: back(y * factor)[0] / factor, range(1, 65)))
    for gradient in found:
        np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_registrations_that_look_alike_are_told_apart_by_their_place():
    a, first = bridge.register_forward_hook(nn.Linear(2, 2), fwd)
    b, _ = bridge.register_forward_hook(nn.Linear(2, 2), fwd)
    model = ps.init(nn.Sequential(a, b), 0)
    with pytest.raises(LookupError, match=r"2 modules have a hook .* stand for: '0', '1'"):
        first.remove(model)
    first.remove(model, at="0")(X)
    assert LOG == ["fwd"]


def test_a_handle_is_known_when_its_module_is_gone():
    model = ps.init(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 0)
    model, handle = bridge.register_forward_hook(model, fwd, at="1")
    without = bridge.pop(model, 1)
    assert handle.remove(without) is without
    other = bridge.set_submodule(model, "1", nn.GELU())
    other, _ = bridge.register_forward_hook(other, fwd, at="0")
    handle.remove(other)(X)
    assert LOG == ["fwd"]


def test_a_handle_in_a_constructor():
    class Undecided(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Linear(2, 2)
            handle = self.part.register_forward_hook(fwd)
            self.part.register_forward_hook(pre)
            handle.remove(self.part)

        def forward(self, x):
            return self.part(x)

    assert [hook.function for node in Undecided()._definition.nodes for hook in node.hooks] == [pre]
