"""Every layer against torch, over the cases of torch's own module database."""

import jax
import pytest

from purestate import nn
from tests.oracles import module_db


NO_ENTRY = {
    "AdaptiveLogSoftmaxWithLoss",
    "AlphaDropout",
    "ChannelShuffle",
    "Container",
    "CosineSimilarity",
    "CrossMapLRN2d",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "EmbeddingBag",
    "FeatureAlphaDropout",
    "Flatten",
    "Fold",
    "Hardsigmoid",
    "Identity",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss2d",
    "PairwiseDistance",
    "ParameterDict",
    "ParameterList",
    "PixelShuffle",
    "PixelUnshuffle",
    "RNNBase",
    "RNNCellBase",
    "RReLU",
    "Sequential",
    "SyncBatchNorm",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "TransformerDecoder",
    "Unflatten",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
}
"""The layers that the database has no entry for; each has a test with values from torch."""

LAYERS = {n for n in nn.__all__ if isinstance(getattr(nn, n), type(nn.Module))} - NO_ENTRY


def test_what_the_database_lacks_is_known():
    assert module_db.shared_names() == LAYERS


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.filterwarnings("ignore:linear_cross_entropy")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_module_db(name, training):
    report = module_db.check(name, training)
    assert report.total > 0
    assert report.passed == report.total, str(report)


REFUSING = [
    *("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CircularPad1d", "CircularPad2d", "CircularPad3d"),
    *("CrossEntropyLoss", "Embedding", "GRU", "GRUCell", "GroupNorm", "HuberLoss", "LSTM", "LSTMCell"),
    *("LinearCrossEntropyLoss", "MaxPool2d", "MultiMarginLoss", "NLLLoss", "RNN", "RNNCell"),
]


def test_every_class_with_refusals_is_held_to_them():
    assert sorted(module_db.names_with_errors()) == REFUSING


@pytest.mark.parametrize("name", REFUSING)
def test_module_db_refusals(name):
    with jax.enable_x64(True):  # The texts name 64-bit integers.
        report = module_db.check_errors(name)
    assert report.passed == report.total > 0, str(report)
