"""``purestate.scan`` against the plain loop: the same outputs, state, draws, gradients and names."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import bridge
import purestate as ps
from purestate import nn


class Block(nn.Module):
    """Parameters, a buffer that is written, draws, and a nested module."""

    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, shift=0.0, *, scale=1.0):
        noise = jax.random.normal(self.next_key(), x.shape)
        return x + scale * self.dropout(self.norm(self.linear(x))) + shift + 0.1 * noise


class Stack(nn.Module):
    def __init__(self, depth, scanned, block=Block, size=4):
        super().__init__()
        self.layers = nn.ModuleList(block(size) for _ in range(depth))
        self.scanned = scanned

    def forward(self, x, *shared, **options):
        if self.scanned:
            return ps.scan(self.layers, x, *shared, **options)
        for layer in self.layers:
            x = layer(x, *shared, **options)
        return x


def pair(depth=3, block=Block, **options):
    scanned = ps.init(Stack(depth, True, block, **options), 0)
    looped, report = bridge.load_state_dict(
        ps.init(Stack(depth, False, block, **options), 1), bridge.state_dict(scanned)
    )
    assert not report.missing_keys
    return scanned, looped


def close(actual, expected, atol=1e-6):
    assert list(actual) == list(expected)
    for name in actual:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=atol, err_msg=name)


def primitives(function, *args):
    return str(jax.make_jaxpr(function)(*args))


X = jax.random.normal(jax.random.key(5), (6, 4))


@jax.jit
def run(model, x, shift):
    y, model = ps.call(model, x, shift, scale=0.5, rng=7)
    return y, model


def test_outputs_state_and_draws_are_the_loops():
    scanned, looped = pair()
    assert "scan" in primitives(run, scanned, X, 0.1)
    assert "scan" not in primitives(run, looped, X, 0.1)
    (ours, after), (theirs, wanted) = run(scanned, X, 0.1), run(looped, X, 0.1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    close(bridge.state_dict(after), bridge.state_dict(wanted))
    assert int(after.layers[2].norm.num_batches_tracked) == 1


def test_outside_of_jit_it_is_the_loop():
    scanned, looped = pair()
    ours, after = ps.call(scanned, X, rng=3)
    theirs, wanted = ps.call(looped, X, rng=3)
    np.testing.assert_array_equal(ours, theirs)
    close(bridge.state_dict(after), bridge.state_dict(wanted))


def test_two_scans_of_the_same_layers_draw_on():
    class Twice(Stack):
        def forward(self, x):
            x = super().forward(x)
            return super().forward(self.layers[1](x))

    scanned = ps.init(Twice(3, True), 0)
    looped = ps.init(Twice(3, False), 0)
    call = jax.jit(functools.partial(ps.call, rng=2))
    (ours, after), (theirs, wanted) = call(scanned, X), call(looped, X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    close(bridge.state_dict(after), bridge.state_dict(wanted))


def test_layers_that_share_what_draws():
    class Sharing(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.dropout = dropout

        def forward(self, x):
            return x + self.dropout(self.dropout(self.linear(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)
            self.layers = nn.ModuleList(Sharing(self.dropout) for _ in range(4))

        def forward(self, x):
            return self.dropout(ps.scan(self.layers, ps.scan(self.layers, self.dropout(x))))

    model = ps.init(Net(), 0)
    expected, _ = ps.call(model, X, rng=5)
    assert "scan" in primitives(lambda model: ps.call(model, X, rng=5), model)
    actual, _ = jax.jit(lambda model: ps.call(model, X, rng=5))(model)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_gradients_and_names():
    scanned, looped = pair()

    def gradient(model):
        definition, params, buffers = ps.split(model)

        def loss(params):
            return jnp.sum(ps.apply(definition, params, buffers, X, 0.1, rng=7)[0] ** 2)

        return jax.jit(jax.grad(loss))(params)

    close(gradient(scanned), gradient(looped), atol=2e-5)


def test_forward_mode_vmap_and_checkpoint():
    scanned, looped = pair()

    def outputs(model):
        def call(x):
            return ps.call(model, x, 0.1, rng=7)[0]

        tangent = jax.jit(lambda x: jax.jvp(call, (x,), (jnp.cos(x),)))(X)
        mapped = jax.jit(jax.vmap(call))(jnp.stack([X, 2 * X]))
        rematerialised = jax.jit(jax.grad(lambda x: jnp.sum(jax.checkpoint(call)(x) ** 2)))(X)
        return tangent, mapped, rematerialised

    for ours, theirs in zip(*map(jax.tree.leaves, (outputs(scanned), outputs(looped))), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_capture_sees_every_layer():
    scanned, looped = pair()
    call = jax.jit(lambda model: ps.capture(model, X, rng=7))
    (_, _, ours), (_, _, theirs) = call(scanned), call(looped)
    # A dict comes out of jit sorted.
    close(ours, theirs)
    assert "layers.2.norm" in ours
    some = jax.jit(lambda model: ps.capture(model, X, at="layers.*.linear", rng=7)[2])(scanned)
    assert list(some) == ["layers.0.linear", "layers.1.linear", "layers.2.linear"]


def test_a_nested_scan():
    class Outer(nn.Module):
        def __init__(self, scanned):
            super().__init__()
            self.stacks = nn.ModuleList(Stack(2, scanned) for _ in range(3))
            self.scanned = scanned

        def forward(self, x):
            if self.scanned:
                return ps.scan(self.stacks, x)
            for stack in self.stacks:
                x = stack(x)
            return x

    scanned, looped = ps.init(Outer(True), 0), ps.init(Outer(False), 0)
    call = jax.jit(lambda model: ps.capture(model, X, rng=1, at="**.linear"))
    (ours, after, seen), (theirs, wanted, known) = call(scanned), call(looped)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    close(bridge.state_dict(after), bridge.state_dict(wanted))
    close(seen, known)


def test_layers_that_differ_run_in_groups():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Linear(4, 4), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 8), nn.Linear(8, 8)]
                + [nn.Linear(8, 8), nn.Linear(8, 2)]
            )

        def forward(self, x):
            return ps.scan(self.layers, x)

    model = ps.init(Mixed(), 0)
    text = primitives(lambda m: m(X), model)
    assert text.count("scan[") == 2
    expected = X
    for layer in model.layers:
        expected = layer(expected)
    np.testing.assert_allclose(jax.jit(lambda m: m(X))(model), expected, rtol=1e-5, atol=1e-6)


def test_a_layer_that_changes_the_shape_is_the_loop():
    class Double(nn.Module):
        def forward(self, x):
            return jnp.concatenate([x, x], -1)

    class Doubles(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Double() for _ in range(3))

        def forward(self, x):
            return ps.scan(self.layers, x)

    assert jax.jit(Doubles())(X).shape == (6, 32)


def test_shared_layers_and_ties_are_the_loop():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.BatchNorm1d(4)
            self.layers = nn.ModuleList([layer, layer])

        def forward(self, x):
            return ps.scan(self.layers, x)

    model = ps.init(Shared(), 0)
    _, after = jax.jit(ps.call)(model, X)
    assert int(after.layers[0].num_batches_tracked) == 2


def test_modules_outside_of_a_call():
    layers = ps.init(nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), 0)
    text = primitives(lambda layers, x: ps.scan(layers, x), layers, X)
    assert "scan[" in text
    expected = layers[2](layers[1](layers[0](X)))
    np.testing.assert_allclose(jax.jit(ps.scan)(layers, X), expected, rtol=1e-5, atol=1e-6)
    norms = ps.init(nn.ModuleList(nn.BatchNorm1d(4) for _ in range(3)), 0)
    with pytest.raises(ps.StatefulCallError, match="running_mean"):
        jax.jit(ps.scan)(norms, X)


def test_a_write_under_another_trace_is_refused():
    class Leaky(Stack):
        def forward(self, x):
            return jax.checkpoint(lambda x: ps.scan(self.layers, x))(x)

    model = ps.init(Leaky(2, True), 0)
    with pytest.raises(ps.LeakedWriteError, match=r"layers\.0\.norm"):
        jax.jit(lambda model: ps.call(model, X, rng=0))(model)


def test_without_a_key_the_error_names_the_first_layer():
    model = ps.init(Stack(2, True), 0)
    with pytest.raises(ps.MissingRngError, match=r"layers\.0"):
        jax.jit(ps.call)(model, X)


def test_a_deep_sequential_scans_by_itself():
    model = ps.init(nn.Sequential(*(nn.Linear(4, 4) for _ in range(12))), 0)
    short = model[:11]
    assert "scan[" in primitives(lambda m: m(X), model)
    assert "scan[" not in primitives(lambda m: m(X), short)
    np.testing.assert_allclose(jax.jit(lambda m: m(X))(model), model(X), rtol=1e-5, atol=1e-6)


def test_layers_that_vary_over_a_mapped_axis():
    """Where the first gets what all members share, and the others do not: the loop."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    models = [ps.init(nn.Sequential(*(nn.Linear(4, 4) for _ in range(12))), seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *both: jnp.stack(both), *models)

    def member(model, x):
        return jax.tree.map(lambda leaf: leaf[0], model)(x)[None]

    for spec, is_loop in ((P(), True), (P("data"), False)):
        run = jax.shard_map(member, mesh=mesh, in_specs=(P("data"), spec), out_specs=P("data"))
        x = X if is_loop else jnp.concatenate([X, X])
        assert ("scan[" not in primitives(run, stacked, x)) is is_loop
        for ours, model in zip(jax.jit(run)(stacked, x), models, strict=True):
            np.testing.assert_allclose(ours, model(X), rtol=1e-5, atol=1e-6)


def test_capture_of_outputs_that_are_no_arrays():
    class Told(nn.Module):
        def forward(self, x):
            return {"sum": x.sum(), "size": x.shape[0], "name": "told", "none": None}

    class Telling(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.told = Told()

        def forward(self, x):
            return self.linear(x) + self.told(x)["sum"]

    model = ps.init(nn.Sequential(*(Telling() for _ in range(12))), 0)
    eager = ps.capture(model, X, at="*.told")[2]
    kept = {}

    def run(model):
        seen = ps.capture(model, X, at="*.told")[2]
        kept.update({name: output | {"sum": None} for name, output in seen.items()})
        return {name: output["sum"] for name, output in seen.items()}

    assert "scan[" in primitives(run, model)
    sums = jax.jit(run)(model)
    assert kept == {name: output | {"sum": None} for name, output in eager.items()}
    for name, output in eager.items():
        np.testing.assert_allclose(sums[name], output["sum"], rtol=1e-4)


def test_no_tracer_outlives_the_scan():
    model = ps.init(nn.Sequential(*(nn.Linear(4, 4) for _ in range(12))), 0)
    with jax.checking_leaks():
        jax.jit(lambda model: ps.capture(model, X, at="*"))(model)


def test_any_pytree_is_handed_on():
    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, state):
            return {"x": self.linear(state["x"]), "n": state["n"] + 1}

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Step() for _ in range(3))

        def forward(self, state):
            return ps.scan(self.layers, state)

    model = ps.init(Steps(), 0)
    state = {"x": X, "n": jnp.zeros((), jnp.int32)}
    assert "scan[" in primitives(model, state)
    ours, theirs = jax.jit(model)(state), model(state)
    assert int(ours["n"]) == 3
    np.testing.assert_allclose(ours["x"], theirs["x"], rtol=1e-5, atol=1e-6)


def test_nothing_at_all():
    assert ps.scan([], X) is X


def test_a_parameter_that_a_layer_writes_under_another_trace_is_refused_by_name():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(4, 4, max_norm=0.1)

        def forward(self, x):
            return x + self.embedding(jnp.arange(4)).sum()

    class Stacked(nn.Module):
        def __init__(self, leaks):
            super().__init__()
            self.layers = nn.ModuleList(Rows() for _ in range(2))
            self.leaks = leaks

        def forward(self, x):
            def run(x):
                return ps.scan(self.layers, x)

            return (jax.checkpoint(run) if self.leaks else run)(x)

    fine, leaky = (ps.init(Stacked(leaks), 0) for leaks in (False, True))
    _, after = jax.jit(ps.call)(fine, X)
    norms = jnp.linalg.norm(after.layers[1].embedding.weight, axis=1)
    np.testing.assert_allclose(norms, 0.1, rtol=1e-4)
    with pytest.raises(ps.LeakedWriteError, match=r"parameter 'layers\.0\.embedding\.weight'"):
        jax.jit(ps.call)(leaky, X)
