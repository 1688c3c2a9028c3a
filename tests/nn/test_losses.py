"""The loss layers beyond the module database: their weights are state, and the old arguments."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

import bridge
from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.oracles import module_db
from tests.parity import check_error, to_jax


PLAIN = (
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
)

WEIGHTED = (
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
)


def r(*shape, seed=0):
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.requires_grad_()


@pytest.mark.parametrize("name", PLAIN)
def test_built_as_torch(name):
    check_same(lambda nn: getattr(nn, name)())
    check_same(lambda nn: getattr(nn, name)(reduction="sum"))
    for options in ({}, {"reduction": "sum"}):
        ours, theirs = (getattr(module, name)(**options) for module in (nn, torch.nn))
        plain = {key: value for key, value in vars(theirs).items() if not key.startswith("_")}
        assert {key: getattr(ours, key) for key in plain} == plain


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_are_buffers(name):
    layer = getattr(nn, name)(weight=jnp.ones(3))
    assert [key for key, _ in layer.named_buffers()] == ["weight"]
    assert list(bridge.state_dict(layer)) == list(
        getattr(torch.nn, name)(weight=torch.ones(3)).state_dict()
    )
    assert bridge.half(layer).weight.dtype == jnp.float16


def test_positive_weight_is_a_buffer():
    layer = nn.BCEWithLogitsLoss(pos_weight=jnp.ones(3))
    assert list(bridge.state_dict(layer)) == ["pos_weight"]


@pytest.mark.parametrize("size_average", [None, True, False])
@pytest.mark.parametrize("reduce", [None, True, False])
@pytest.mark.parametrize("name", ["MSELoss", "KLDivLoss", "CrossEntropyLoss", "HingeEmbeddingLoss"])
def test_old_arguments(name, size_average, reduce):
    """The warning points here, however many constructors there are between."""
    options = {"size_average": size_average, "reduce": reduce}
    if size_average is None and reduce is None:
        assert getattr(nn, name)(**options).reduction == "mean"
        return
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated") as ours:
        layer = getattr(nn, name)(**options)
    with pytest.warns(UserWarning, match="size_average") as theirs:
        assert layer.reduction == getattr(torch.nn, name)(**options).reduction
    assert str(ours[0].message) == str(theirs[0].message)
    assert ours[0].filename == __file__


def test_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="some is not a valid value for reduction"):
        nn.MSELoss(reduction="some")(jnp.ones(2), jnp.ones(2))


def test_old_name():
    with pytest.warns(FutureWarning, match="NLLLoss2d") as ours:
        layer = nn.NLLLoss2d(jnp.ones(3), ignore_index=1)
    with pytest.warns(FutureWarning, match="NLLLoss2d") as theirs:
        torch_layer = torch.nn.NLLLoss2d(torch.ones(3), ignore_index=1)
    assert str(ours[0].message) == str(theirs[0].message)
    assert ours[0].filename == __file__
    assert repr(layer) == repr(torch_layer)
    target = torch.tensor([[[0, 1], [2, 0]], [[1, 1], [0, 2]]])
    module_db.compare_call(layer, torch_layer, (r(2, 3, 2, 2), target))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "options", [{}, {"swap": True, "margin": 0.5}, {"p": 1.0, "eps": 0.1}], ids=str
)
def test_triplets(options, reduction):
    options = {**options, "reduction": reduction}
    args = [r(4, 3, seed=seed) for seed in range(3)]
    names = ["TripletMarginLoss"] + ["TripletMarginWithDistanceLoss"] * ("p" not in options)
    for name in names:
        ours, theirs = (getattr(module, name)(**options) for module in (nn, torch.nn))
        module_db.compare_call(ours, theirs, args)


def test_a_distance_function():
    options: Any = {"distance_function": lambda a, b: 1 - (a * b).sum(-1)}
    ours = nn.TripletMarginWithDistanceLoss(**options)
    theirs = torch.nn.TripletMarginWithDistanceLoss(**options)
    assert repr(ours) == repr(theirs)
    module_db.compare_call(ours, theirs, [r(4, 3, seed=seed) for seed in range(3)])


def learned(nn):
    """A distance with parameters: they are the loss's own."""

    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(3, 2, bias=False)

        def forward(self, a, b):
            return ((self.map(a) - self.map(b)) ** 2).sum(-1)

    return nn.TripletMarginWithDistanceLoss(distance_function=Learned(), swap=True)


def test_a_distance_with_parameters():
    ours, theirs = learned(nn), learned(torch.nn)
    assert repr(ours) == repr(theirs)
    ours, _ = bridge.load_state_dict(ours, {k: v.numpy() for k, v in theirs.state_dict().items()})
    module_db.compare_call(ours, theirs, [r(4, 3, seed=seed) for seed in range(3)])


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.HuberLoss(delta=1j),
        lambda nn: nn.MultiMarginLoss(p=3),
        lambda nn: nn.TripletMarginLoss(margin=0),
        lambda nn: nn.TripletMarginWithDistanceLoss(margin=-1.0),
    ],
    ids=["delta", "p", "margin", "margin with distance"],
)
def test_refused_by_the_constructor(build):
    check_same_error(build)


def test_weight_of_another_rank():
    check_error(
        lambda: nn.MultiMarginLoss(weight=jnp.ones((2, 2))),
        lambda: torch.nn.MultiMarginLoss(weight=torch.ones(2, 2)),
    )


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "HuberLoss", "MultiMarginLoss", "NLLLoss"])
def test_refused_by_the_database(name):
    entry = module_db.table()[name]
    torch.manual_seed(0)
    cases = entry.module_error_inputs_func(
        entry, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    )
    for case in cases:
        built, call = case.module_error_input.constructor_input, case.module_error_input.forward_input

        def run(cls, convert, built=built, call=call):
            layer = cls(*convert(built.args), **convert(built.kwargs))
            if call is not None:
                layer(*convert(call.args), **convert(call.kwargs))

        with jax.enable_x64(True):  # The texts name the dtypes of the targets.
            check_error(
                lambda run=run: run(getattr(nn, name), to_jax),
                lambda run=run: run(getattr(torch.nn, name), lambda value: value),
            )


def test_a_divergence_warns_in_a_call():
    layer, args = nn.KLDivLoss(), (jnp.zeros(2), jnp.ones(2))
    with pytest.warns(UserWarning, match="'batchmean' divides only by the batch size"):
        layer(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nn.KLDivLoss(reduction="batchmean")(*args) == 0


def test_a_layer_under_transformations():
    layer = nn.TripletMarginWithDistanceLoss(swap=True)
    args = to_jax([r(4, 3, seed=seed) for seed in range(3)])
    assert jnp.allclose(jax.jit(layer)(*args), layer(*args))
    assert jax.hessian(layer)(*args).shape == (4, 3, 4, 3)
    assert jax.vmap(layer)(*args).shape == (4,)
