"""One recurrence against a plain scan: values, derivatives, frozen steps, each platform's form."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from purestate.nn.functional import _gates, _recurrence
from purestate.nn.functional._recurrence import Weights, recurrence
from tests.programs import equations


GATES = {"lstm": _gates.LSTM, "gru": _gates.GRU, "tanh": _gates.TANH, "relu": _gates.RELU}
LENGTH, BATCH, SIZE, HIDDEN = 6, 2, 3, 5


def drawn(*shape):
    seed = sum(place * size for place, size in enumerate(shape, 1))
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32) * 0.7


def case(gates, projected=False, masked=False):
    """``(xs, start, weights, kept)``."""
    rows, width = gates.blocks * HIDDEN, 2 if projected else HIDDEN
    start = (drawn(width, BATCH), drawn(HIDDEN, BATCH) * 0.5)[: gates.states]
    weights = Weights(
        drawn(rows, SIZE),
        drawn(rows, width),
        drawn(rows),
        drawn(rows) * 0.5,
        drawn(2, HIDDEN) if projected else None,
    )
    kept = jnp.asarray([[True, True]] * 4 + [[True, False]] * (LENGTH - 4))[:, None]
    return drawn(LENGTH, SIZE, BATCH), start, weights, kept if masked else None


def plain(gates, is_reverse, xs, start, weights, kept):
    """A scan with all of the step inside, left to JAX in all derivatives."""

    def step(state, inputs):
        x, kept = inputs
        joined = gates.join(weights.from_input(x), weights.from_state(state[0]))
        (h, *rest), _ = gates.advance(joined, state)
        after = (h if weights.w_hr is None else weights.w_hr @ h, *rest)
        if kept is not None:
            after = tuple(jnp.where(kept, a, b) for a, b in zip(after, state, strict=True))
        return after, after[0]

    last, ys = lax.scan(step, start, (xs, kept), reverse=is_reverse)
    return ys, last


CASES = {
    "lstm, projected, masked, reverse": ("lstm", True, True, True),
    "gru": ("gru", False, False, False),
    "tanh, reverse": ("tanh", True, False, False),
    "relu, masked": ("relu", False, False, True),
}


def both(name, is_reverse, projected, masked):
    """Both forms as functions of what is differentiated."""
    gates = GATES[name]
    xs, start, weights, kept = case(gates, projected, masked)
    sides = [
        lambda xs, start, weights, form=form: form(gates, is_reverse, xs, start, weights, kept)
        for form in (recurrence, plain)
    ]
    return *sides, (xs, start, weights)


def close(actual, expected, tolerance=1e-5):
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, float(jnp.max(jnp.abs(b)))))


def total(function, *args):
    """A weighted sum of all outputs, for gradients."""
    leaves = jax.tree.leaves(function(*args))
    return sum(jnp.sum(leaf * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape)) for leaf in leaves)


@pytest.fixture(params=[True, False], ids=["merged axes", "axes as they are"])
def each_form(request, monkeypatch):
    """Products as one CPU device gets them, and as all others do."""
    monkeypatch.setattr(_recurrence, "merging_pays", lambda: request.param)


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.usefixtures("each_form")
def test_values_and_derivatives(options):
    ours, expected, args = both(*options)
    close(jax.jit(ours)(*args), jax.jit(expected)(*args))
    gradients = [jax.jit(jax.grad(functools.partial(total, f), (0, 1, 2))) for f in (ours, expected)]
    close(gradients[0](*args), gradients[1](*args), 1e-4)
    tangents = jax.tree.map(lambda leaf: jnp.sin(leaf * 3), args)
    pushed = [jax.jit(lambda a, t, f=f: jax.jvp(f, a, t)) for f in (ours, expected)]
    close(pushed[0](args, tangents), pushed[1](args, tangents), 1e-4)

    def second(function):
        """The gradient along a tangent: forward over reverse."""
        gradient = jax.grad(functools.partial(total, function), (0, 1, 2))
        return jax.jit(lambda a, t: jax.jvp(gradient, a, t))

    close(second(ours)(args, tangents), second(expected)(args, tangents), 1e-3)


def test_a_derivative_with_respect_to_some_arguments():
    """What is not differentiated has a symbolic zero for a tangent."""
    ours, expected, args = both("lstm", False, True, False)
    for place in range(3):
        gradients = [jax.jit(jax.grad(functools.partial(total, f), place)) for f in (ours, expected)]
        close(gradients[0](*args), gradients[1](*args), 1e-4)


@pytest.mark.usefixtures("each_form")
def test_hessian_and_reverse_over_reverse():
    ours, expected, (xs, start, weights) = both("gru", False, False, False)
    hessians = [
        jax.jit(jax.hessian(lambda w, f=f: total(f, xs, start, weights._replace(b_hh=w))))(weights.b_hh)
        for f in (ours, expected)
    ]
    close(hessians[0], hessians[1], 1e-3)

    def steepness(function, weights):
        return jnp.sum(jax.grad(functools.partial(total, function, xs, start))(weights).w_hh ** 2)

    twice = [jax.jit(jax.grad(functools.partial(steepness, f)))(weights) for f in (ours, expected)]
    close(twice[0], twice[1], 1e-3)


LONG = 2 * _recurrence.BLOCK + 1


@pytest.mark.parametrize("is_reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("name", GATES)
def test_all_at_once_is_block_by_block(name, is_reverse):
    """The form of every other platform, on this one."""
    gates = GATES[name]
    _, start, weights, _ = case(gates)
    kept = jnp.arange(LONG)[:, None, None] < jnp.asarray([LONG, LONG - 3])
    at_once = jax.jit(functools.partial(_recurrence._block, gates, is_reverse, 1))
    in_blocks = jax.jit(functools.partial(_recurrence._in_blocks, gates, is_reverse))
    args = drawn(LONG, SIZE, BATCH), start, weights, kept
    close(at_once(*args), in_blocks(*args))


@pytest.mark.parametrize("merged", [True, False])
def test_each_platform_gets_its_form(monkeypatch, merged):
    """Lowered for a GPU, the products of the inputs are one product before the loop."""
    monkeypatch.setattr(_recurrence, "merging_pays", lambda: merged)
    _, start, weights, kept = case(_gates.GRU)
    xs = drawn(LONG, SIZE, BATCH)
    run = jax.jit(functools.partial(recurrence, _gates.GRU, False))
    whole = f"tensor<{3 * HIDDEN}x{LONG * BATCH if merged else f'{LONG}x{BATCH}'}xf32>"
    assert whole not in run.trace(xs, start, weights, kept).lower(lowering_platforms=("cpu",)).as_text()
    assert whole in run.trace(xs, start, weights, kept).lower(lowering_platforms=("cuda",)).as_text()


def test_the_gradient_of_a_weight_is_one_product():
    """The point of the rule: no loop carries an array as large as a weight."""
    xs, start, weights, kept = case(_gates.LSTM)
    gradient = jax.grad(lambda w: total(lambda: recurrence(_gates.LSTM, False, xs, start, w, kept)))
    sizes = set()
    for loop in equations(jax.make_jaxpr(gradient)(weights).jaxpr, lax.scan_p):
        carried = loop.params["num_carry"]
        sizes |= {variable.aval.shape for variable in loop.outvars[:carried]}
    assert sizes == {(HIDDEN, BATCH)}


def test_what_does_not_change_is_not_multiplied():
    xs, start, weights, kept = case(_gates.LSTM, projected=True)

    def products(function, *args):
        return len(list(equations(jax.make_jaxpr(function)(*args).jaxpr, lax.dot_general_p)))

    def more(place):
        """How many products forward mode adds, by one argument."""

        def run(changed):
            args = [xs, start, weights]
            args[place] = changed
            return recurrence(_gates.LSTM, False, *args, kept)

        at = (xs, start, weights)[place]
        return products(lambda a: jax.jvp(run, (a,), (a,)), at) - products(run, at)

    # In a step w_hh and w_hr; before it w_ih by the change; the changes of the three by what they meet.
    assert [more(place) for place in range(3)] == [3, 2, 5]


def test_vmap_over_inputs_and_over_weights():
    ours, _, (xs, start, weights) = both("lstm", False, True, False)
    stacked = jnp.stack([xs, xs * 0.5])
    mapped = jax.vmap(ours, (0, None, None))(stacked, start, weights)
    close(jax.tree.map(lambda leaf: leaf[1], mapped), ours(stacked[1], start, weights))
    halves = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf * 0.5]), weights)
    gradient = jax.jit(jax.grad(lambda w: total(ours, xs, start, w)))
    per_model = jax.jit(jax.vmap(gradient))(halves)
    half = jax.tree.map(lambda leaf: leaf[1], halves)
    close(
        jax.tree.map(lambda leaf: leaf[1], per_model),
        gradient(half),
        1e-4,
    )
