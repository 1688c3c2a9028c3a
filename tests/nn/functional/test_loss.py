"""The losses against torch: its operator database, dtypes, derivatives, refusals and warnings."""

import functools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T
from jax.test_util import check_grads

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.oracles.adapters import ADAPTERS
from tests.parity import assert_close, check_error, check_function, to_jax


NAMES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
)

BROADCASTS = "ignore:Using a target size"


def both(name):
    """A loss on both sides, without the gradients that torch lacks."""
    ours, theirs = ADAPTERS.get(name, (getattr(F, name), None))
    return ours, theirs or getattr(T, name)


def r(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def p(*shape, dtype=torch.float32, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def classes(*shape, count=3, seed=0):
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(seed))


def softmax(*shape, dtype=torch.float32, seed=1):
    return torch.softmax(r(*shape, seed=seed), min(len(shape) - 1, 1)).to(dtype)


REDUCTIONS = ("none", "mean", "sum")

# Input and target of cross_entropy, by what they are.
TARGETS = {
    "classes": lambda: (r(4, 3), classes(4)),
    "one": lambda: (r(3), classes()),
    "sequence": lambda: (r(2, 3, 4), classes(2, 4)),
    "image": lambda: (r(2, 3, 4, 5), classes(2, 4, 5)),
    "volume": lambda: (r(2, 3, 2, 2, 2), classes(2, 2, 2, 2)),
    "probabilities": lambda: (r(4, 3), softmax(4, 3)),
    "probabilities of one": lambda: (r(3), softmax(3)),
    "probabilities of an image": lambda: (r(2, 3, 4, 5), softmax(2, 3, 4, 5)),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("target", TARGETS)
def test_cross_entropy(target, reduction):
    """With a weight, a smoothed label, and a class that is ignored."""
    ours, theirs = both("cross_entropy")
    input, goal = TARGETS[target]()
    weight = torch.tensor([0.5, 2.0, 1.5])
    options = {"reduction": reduction, "label_smoothing": 0.2}
    check_function(ours, theirs, (input, goal), {**options, "weight": weight})
    if not goal.is_floating_point():
        options["ignore_index"] = int(goal.flatten()[0]) if goal.numel() > 1 else -100
        check_function(ours, theirs, (input, goal), {**options, "weight": weight})
        check_function(ours, theirs, (input, goal), {"reduction": reduction, "ignore_index": 1})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_one_example_whose_class_has_an_axis(name, reduction):
    """Torch computes it, and fails only in the backward pass."""
    ours, theirs = both(name)
    options = {"reduction": reduction}
    check_function(ours, theirs, (r(3), classes(1)), options, gradient=False)
    gradient = jax.grad(lambda x: ours(x, to_jax(classes(1)), **options).sum())(to_jax(r(3)))
    expected = jax.grad(lambda x: ours(x, to_jax(classes(1)[0]), **options))(to_jax(r(3)))
    assert_close(gradient, expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "args",
    [
        (r(3, 0), r(3, 0)),
        (r(3, 0, 2), r(3, 0, 2)),
        (r(0), r(0)),
        (r(0, 0), classes(0)),
        (r(3, 0), torch.full((3,), -100)),
    ],
    ids=op_db.describe,
)
def test_cross_entropy_of_no_classes(args, reduction):
    ours, theirs = both("cross_entropy")
    for weight in (None, r(0)):
        options = {"reduction": reduction, "label_smoothing": 0.2, "weight": weight}
        check_function(ours, theirs, args, options)


def test_every_target_ignored():
    for name in ("cross_entropy", "nll_loss"):
        for reduction in REDUCTIONS:
            options = {"ignore_index": 1, "reduction": reduction}
            check_function(*both(name), (r(4, 3), torch.ones(4, dtype=torch.long)), options)


def test_targets_of_bytes():
    check_function(*both("nll_loss"), (r(4, 3), classes(4).to(torch.uint8)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss"])
def test_where_input_and_target_agree(name, reduction):
    """Torch's subgradients at the kinks: at 0, and where the parabola ends."""
    input = torch.tensor([0.0, 1.0, -1.0, 2.0, -3.0])
    check_function(*both(name), (input, torch.zeros(5)), {"reduction": reduction})
    check_function(*both(name), (input, input.clone()), {"reduction": reduction})


NO_NUMBERS = [math.inf, -math.inf, math.nan, 5.0, 1.0, -1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("huber_loss", {}),
        ("huber_loss", {"delta": 2.5}),
        ("huber_loss", {"delta": math.inf}),
        ("l1_loss", {}),
        ("mse_loss", {}),
        ("smooth_l1_loss", {}),
        ("smooth_l1_loss", {"beta": 2.5}),
        ("smooth_l1_loss", {"beta": math.inf}),
        ("smooth_l1_loss", {"beta": 0.0}),
    ],
    ids=str,
)
def test_of_what_is_no_number(name, options):
    """The slope far away is the slope at infinity."""
    args = (torch.tensor(NO_NUMBERS), torch.zeros(len(NO_NUMBERS)))
    options = {"reduction": "none", **options}
    check_function(getattr(F, name), getattr(T, name), args, options)
    check_function(getattr(F, name), getattr(T, name), args[::-1], options)


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_no_curvature_where_the_parabola_ends(name):
    def theirs(input):
        loss = getattr(T, name)(input, torch.zeros_like(input), reduction="sum")
        return torch.autograd.grad(loss, input, create_graph=True)[0]

    points = torch.tensor([math.inf, -math.inf, 5.0, 1.0, -1.0, 0.5, 0.0], requires_grad=True)
    curvature = torch.autograd.grad(theirs(points).sum(), points)[0]
    slope = jax.grad(lambda x: getattr(F, name)(x, jnp.zeros_like(x), reduction="sum"))
    assert_close(jax.grad(lambda x: slope(x).sum())(to_jax(points)), curvature)


def test_saturated_probabilities():
    """The logarithms end at -100, the derivative at 1e12."""
    input, target = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 0.0])
    ours, theirs = both("binary_cross_entropy")

    def run(function, wanted):
        return lambda x: function(x, wanted, reduction="none")

    check_function(run(ours, to_jax(target)), run(theirs, target), (input,))


def test_forward_mode_at_saturated_probabilities():
    """The slope by the target is infinite there, and no part of a derivative by the input."""
    input, target = jnp.array([0.0, 1.0, 0.0, 1.0, 0.5]), jnp.array([0.0, 1.0, 1.0, 0.0, 0.5])

    def losses(x):
        return F.binary_cross_entropy(x, target, reduction="none")

    ones = jnp.ones(5)
    _, tangent = jax.jvp(losses, (input,), (ones,))
    np.testing.assert_array_equal(tangent, jax.grad(lambda x: losses(x).sum())(input))
    np.testing.assert_array_equal(tangent, np.array([0, 0, -1e12, 1e12, 0], np.float32))
    np.testing.assert_array_equal(jax.jacfwd(losses)(input), jnp.diag(tangent))
    jitted = jax.jit(lambda x: jax.jvp(losses, (x,), (ones,))[1])
    np.testing.assert_array_equal(jitted(input), tangent)


def test_large_logits():
    input = torch.tensor([-200.0, -50.0, 0.0, 50.0, 200.0])
    check_function(*both("binary_cross_entropy_with_logits"), (input, p(5)))


CALLS = {
    "cross_entropy": lambda d: (r(4, 3, dtype=d), classes(4)),
    "nll_loss": lambda d: (r(4, 3, dtype=d), classes(4)),
    "mse_loss": lambda d: (r(4, 3, dtype=d), r(4, 3, dtype=d, seed=1)),
    "l1_loss": lambda d: (r(4, 3, dtype=d), r(4, 3, dtype=d, seed=1)),
    "smooth_l1_loss": lambda d: (r(4, 3, dtype=d), r(4, 3, dtype=d, seed=1)),
    "huber_loss": lambda d: (r(4, 3, dtype=d), r(4, 3, dtype=d, seed=1)),
    "binary_cross_entropy": lambda d: (0.1 + 0.8 * p(4, 3, dtype=d), p(4, 3, dtype=d, seed=1)),
    "binary_cross_entropy_with_logits": lambda d: (r(4, 3, dtype=d), p(4, 3, dtype=d, seed=1)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_half_types_stay_half(name, dtype):
    args = CALLS[name](dtype)
    output = getattr(F, name)(*to_jax(args))
    assert output.dtype == to_jax(dtype)
    wide = [arg.float() if arg.is_floating_point() else arg for arg in args]
    expected = getattr(T, name)(*wide)
    epsilon = torch.finfo(dtype).eps
    np.testing.assert_allclose(np.float32(output), expected.numpy(), rtol=4 * epsilon, atol=epsilon)


@pytest.mark.parametrize("name", CALLS)
def test_in_float64(name):
    with jax.enable_x64(True):
        check_function(*both(name), CALLS[name](torch.float64))


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss"])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float16), (torch.int32, torch.float32)])
def test_promotion(name, dtypes):
    args = [(3 * r(4, seed=seed)).to(dtype) for seed, dtype in enumerate(dtypes)]
    output = getattr(F, name)(*to_jax(args), reduction="none")
    expected = getattr(T, name)(*args, reduction="none")
    assert output.dtype == to_jax(expected.dtype)
    assert_close(output, expected)


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name):
    """In both modes, the second one too, with respect to what is floating-point."""
    args = to_jax(CALLS[name](torch.float32))
    function = functools.partial(getattr(F, name), reduction="none")
    if jnp.issubdtype(args[1].dtype, jnp.inexact):
        check_grads(function, args, order=2, modes=("fwd", "rev"), rtol=0.05, atol=0.05)
    else:
        check_grads(
            lambda x: function(x, args[1]),
            args[:1],
            order=2,
            modes=("fwd", "rev"),
            rtol=0.05,
            atol=0.05,
        )


@pytest.mark.parametrize("name", CALLS)
def test_vmap_and_jit(name):
    args = CALLS[name](torch.float32)
    expected = getattr(T, name)(*args, reduction="none")
    function = functools.partial(getattr(F, name), reduction="none")
    assert_close(jax.vmap(function)(*to_jax(args)), expected)
    assert_close(jax.jit(function)(*to_jax(args)), expected)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_class_that_is_none_raises_where_it_is_known(name):
    for target in (3, -1):
        goal = torch.tensor([0, target])
        check_error(
            lambda goal=goal: getattr(F, name)(jnp.zeros((2, 3)), to_jax(goal)),
            lambda goal=goal: getattr(T, name)(torch.zeros(2, 3), goal),
        )
        function = jax.jit(functools.partial(getattr(F, name), reduction="none"))
        losses = function(jnp.zeros((2, 3)), to_jax(goal))
        assert np.isnan(losses).tolist() == [False, True]


LACKED = {
    "cross_entropy": (lambda F, x, w: F.cross_entropy(x[0], x[1], w), r(4, 3), classes(4)),
    "nll_loss": (lambda F, x, w: F.nll_loss(x[0], x[1], w), r(4, 3), classes(4)),
    "multi_margin_loss": (
        lambda F, x, w: F.multi_margin_loss(x[0], x[1], weight=w),
        r(4, 3),
        classes(4),
    ),
    "binary_cross_entropy": (
        lambda F, x, w: F.binary_cross_entropy(x[0], x[1], w),
        p(4, 3),
        p(4, 3, seed=1),
    ),
    "pos_weight": (
        lambda F, x, w: F.binary_cross_entropy_with_logits(x[0], x[1], pos_weight=w),
        r(4, 3),
        p(4, 3),
    ),
    "soft_margin_loss": (lambda F, x, w: F.soft_margin_loss(x[0], w * x[1]), r(4, 3), r(4, 3, seed=1)),
    "running statistics": (lambda F, x, w: F.batch_norm(x[0], x[1], w), r(4, 3), r(3, seed=1)),
}


@pytest.mark.parametrize("name", LACKED)
def test_gradients_that_torch_lacks(name):
    function, *inputs = LACKED[name]
    weight = p(3) + 0.5
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument"):
        function(T, inputs, weight.clone().requires_grad_())
    arrays = to_jax(inputs)
    check_grads(
        lambda weight: jax.tree.leaves(function(F, arrays, weight))[0],
        (to_jax(weight),),
        order=1,
        rtol=0.05,
        atol=0.05,
    )


LONG = torch.ones(2, dtype=torch.long)

REFUSED = {
    "cross_entropy": [
        ((r(()), r(())), {}),
        ((r(3, 3), LONG), {}),
        ((r(2, 3), LONG[:, None]), {}),
        ((r(3), LONG), {}),
        ((r(2, 3, 4), classes(2, 5)), {}),
        ((r(2, 3, 4, 5), classes(2, 4, 4)), {}),
        ((r(2, 3, 4, 5), classes(2, 4)), {}),
        ((r(2, 3), LONG), {"weight": r(2)}),
        ((r(2, 3, 4), classes(2, 4)), {"weight": r(2)}),
        ((r(2, 3, 4, 5), classes(2, 4, 5)), {"weight": r(2)}),
        ((r(2, 3), LONG.float()), {}),
        ((r(2, 3), LONG), {"weight": r(3).half()}),
        ((r(2, 3), LONG), {"label_smoothing": 1.5}),
        ((r(2, 3), LONG), {"reduction": "some"}),
        ((r(2, 3), r(2, 3)), {"ignore_index": 1}),
        ((r(2, 3), r(2, 3)), {"weight": r(2)}),
        ((r(2, 3), torch.ones(2, 3, dtype=torch.int32)), {}),
    ],
    "nll_loss": [
        ((r(()), classes()), {}),
        ((r(3, 3), LONG), {}),
        ((r(2, 3), LONG[:, None]), {}),
        ((r(2, 3), LONG), {"weight": r(2)}),
        ((r(2, 3), LONG.float()), {}),
        ((r(2, 3), LONG), {"reduction": "some"}),
    ],
    "mse_loss": [
        ((r(2), r(2)), {"reduction": "some"}),
        ((r(2), r(2)), {"weight": r(3)}),
        ((r(2).int(), r(2).int()), {}),
        ((r(2, 3), r(2, 2)), {}),
    ],
    "l1_loss": [
        ((r(2), r(2)), {"reduction": "some"}),
        ((r(2), r(2)), {"weight": r(3)}),
        ((r(2).int(), r(2).int()), {}),
        ((r(2).bool(), r(2)), {}),
        ((r(2).bool(), r(2).bool()), {}),
        ((r(2, 3), r(2, 2)), {}),
    ],
    "smooth_l1_loss": [
        ((r(2), r(2)), {"reduction": "some"}),
        ((r(2), r(2)), {"beta": -1.0}),
        ((r(2).int(), r(2).int()), {}),
        ((r(2, 3), r(2, 2)), {}),
    ],
    "huber_loss": [
        ((r(2), r(2)), {"reduction": "some"}),
        ((r(2), r(2)), {"delta": 0.0}),
        ((r(2), r(2)), {"weight": r(3)}),
        ((r(2, 3), r(2, 2)), {}),
    ],
    "binary_cross_entropy": [
        ((p(2), p(2)), {"reduction": "some"}),
        ((p(2), p(3)), {}),
        ((p(2), p(2).half()), {}),
        ((2 + p(2), p(2)), {}),
        ((p(2), 2 + p(2)), {}),
        ((p(2, 3), p(2, 3)), {"weight": p(2)}),
        ((p(2), p(2)), {"weight": p(2, 2)}),
    ],
    "binary_cross_entropy_with_logits": [
        ((r(2), p(2)), {"reduction": "some"}),
        ((r(2), p(3)), {}),
        ((r(2), p(2).int()), {}),
        ((r(2, 3), p(2, 3)), {"weight": p(2)}),
        ((r(2, 3), p(2, 3)), {"pos_weight": p(2)}),
        ((r(2), p(2)), {"pos_weight": 2.0}),
        ((r(2), p(2)), {"weight": 2, "pos_weight": 2.0}),
    ],
}


@pytest.mark.filterwarnings(BROADCASTS)
@pytest.mark.parametrize(
    ("name", "args", "options"),
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
    ids=op_db.describe,
)
def test_refused_as_torch(name, args, options):
    check_error(
        lambda: getattr(F, name)(*to_jax(args), **to_jax(options)),
        lambda: getattr(T, name)(*args, **options),
    )


def messages(call):
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        call()
    return [(warning.category, str(warning.message)) for warning in record], record


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_broadcasting_warns_every_time(name):
    args = (r(2, 3), r(3))
    theirs, _ = messages(lambda: getattr(T, name)(*args))
    for _ in range(2):
        ours, record = messages(lambda: getattr(F, name)(*to_jax(args)))
        assert ours == theirs
        assert record[0].filename == __file__


@pytest.mark.parametrize(
    ("size_average", "reduce"),
    [(True, None), (False, None), (None, True), (None, False), (False, True), (True, False)],
)
def test_old_arguments(size_average, reduce):
    args = (r(4, 3), r(4, 3, seed=1))
    options = {"size_average": size_average, "reduce": reduce}
    theirs, _ = messages(lambda: T.mse_loss(*args, **options))
    ours, record = messages(lambda: F.mse_loss(*to_jax(args), **options))
    assert ours == theirs
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_close(F.mse_loss(*to_jax(args), **options), T.mse_loss(*args, **options))
