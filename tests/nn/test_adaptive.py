"""AdaptiveLogSoftmaxWithLoss, and the constructors of the losses of sequences and vocabularies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.oracles import module_db
from tests.oracles.module_db import compare_call
from tests.parity import assert_close, check_error, to_jax, to_numpy


torch.manual_seed(0)
INPUT, TARGET = torch.randn(6, 16, requires_grad=True), torch.tensor([0, 9, 3, 4, 19, 5])


def pair(*args, **kwargs):
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(*args, **kwargs)
    values = {key: to_numpy(value) for key, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(nn.AdaptiveLogSoftmaxWithLoss(*args, **kwargs), values)
    return ours, theirs


OURS, THEIRS = pair(16, 20, [4, 10], div_value=2.0, head_bias=True)


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10]),
        lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 20, (4, 10, 15), 2.0, True),
        lambda nn: nn.CTCLoss(),
        lambda nn: nn.CTCLoss(3, "sum", True),
        lambda nn: nn.LinearCrossEntropyLoss(5, 4),
        lambda nn: nn.LinearCrossEntropyLoss(
            5, 4, out_features=(2, 3), bias=True, ignore_index=1, options=nn.LinearCrossEntropyOptions()
        ),
    ],
    ids=range(6),
)
def test_built_as_torch(build):
    check_same(build)


@pytest.mark.parametrize(
    "cutoffs",
    [[], [4, 4], [10, 4], [0, 4], [4, 20], [-1], [4.5]],
    ids=str,
)
def test_cutoffs_that_are_refused(cutoffs):
    check_same_error(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs))


@pytest.mark.parametrize(("classes", "cutoffs"), [(10, [2.0]), (10, [2, 4.0]), (10.0, [2])], ids=str)
def test_sizes_that_are_no_ints(classes, cutoffs):
    check_same_error(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(6, classes, cutoffs))


@pytest.mark.parametrize("method", ["predict", "log_prob"])
def test_one_row_without_a_batch_is_refused(method):
    for input in (INPUT[0], INPUT[0, :5]):
        check_error(
            lambda input=input: getattr(OURS, method)(to_jax(input)),
            lambda input=input: getattr(THEIRS, method)(input),
        )


def test_the_output_and_the_loss():
    output = OURS(*to_jax((INPUT, TARGET)))
    assert type(output).__name__ == "_ASMoutput"
    assert output._fields == ("output", "loss")
    compare_call(OURS, THEIRS, (INPUT, TARGET))
    compare_call(OURS, THEIRS, (INPUT, TARGET % 4))  # No cluster is asked.
    compare_call(OURS, THEIRS, (INPUT[:1].detach().requires_grad_(), TARGET[1:2]))
    compare_call(OURS, THEIRS, (INPUT[0].detach().requires_grad_(), TARGET[1]))


def test_all_classes():
    assert_close(OURS.log_prob(to_jax(INPUT)), THEIRS.log_prob(INPUT))
    for input in (INPUT, INPUT[:1], INPUT * 10):
        np.testing.assert_array_equal(OURS.predict(to_jax(input)), THEIRS.predict(input).numpy())
    assert_close(ps.call(OURS.log_prob, to_jax(INPUT))[0], THEIRS.log_prob(INPUT))


def test_a_row_that_is_not_finite_stays_in_its_cluster():
    input = INPUT.detach().clone()
    input[1] = torch.inf
    definition, params, buffers = ps.split(OURS)

    def loss(params):
        return ps.apply(definition, params, buffers, *to_jax((input, TARGET)))[0].output[4]

    slopes = jax.grad(loss)(params)
    assert all(jnp.isfinite(slopes[name]).all() for name in ("tail.1.0.weight", "tail.1.1.weight"))


def test_transforms():
    args = to_jax((INPUT, TARGET))
    assert_close(jax.jit(lambda m, *args: m(*args))(OURS, *args).loss, OURS(*args).loss)
    outputs = jax.vmap(OURS)(*args).output
    np.testing.assert_allclose(outputs, OURS(*args).output, rtol=1e-5)
    unknown = jax.jit(lambda m, *args: m(*args))(OURS, args[0], jnp.array([0, 20, -1, 19, 3, 9]))
    np.testing.assert_array_equal(np.isnan(unknown.output), [False, True, True, False, False, False])
    shift = lambda t: OURS(args[0] * t, args[1]).loss  # noqa: E731
    second = jax.jvp(jax.grad(shift), (1.0,), (1.0,))[1]
    step = 1e-2
    slopes = [jax.grad(shift)(1.0 + sign * step) for sign in (1, -1)]
    np.testing.assert_allclose(second, (slopes[0] - slopes[1]) / (2 * step), rtol=1e-2)


@pytest.mark.parametrize(
    "args",
    [
        (INPUT[:4], TARGET),
        (INPUT[0], TARGET[0:1].expand(16)),
        (INPUT, TARGET[0]),
        (INPUT, TARGET[None]),
        (INPUT, TARGET + 1),
        (INPUT, TARGET - 1),
    ],
    ids=range(6),
)
def test_errors(args):
    check_error(lambda: OURS(*to_jax(args)), lambda: THEIRS(*args))


def test_errors_of_linear_cross_entropy():
    with jax.enable_x64(True):  # A text names the dtype of the target.
        report = module_db.check_errors("LinearCrossEntropyLoss")
    assert (report.passed, report.total) == (5, 5), str(report)
