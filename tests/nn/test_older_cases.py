"""Torch's older cases, for the classes and functionals that its databases lack or know less of."""

import pytest

from tests.oracles import legacy


# Many are written with deprecated options.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SUBJECTS = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CELU",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss",
    "CrossMapLRN2d",
    "ELU",
    "Embedding",
    "EmbeddingBag",
    "Flatten",
    "Fold",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "MSELoss",
    "MarginRankingLoss",
    "Mish",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "NLLLoss",
    "PReLU",
    "PairwiseDistance",
    "PixelShuffle",
    "PixelUnshuffle",
    "PoissonNLLLoss",
    "RReLU",
    "ReLU",
    "ReLU6",
    "ReplicationPad3d",
    "SELU",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Transformer",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "Unflatten",
    "Unfold",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "hinge_embedding_loss",
    "huber_loss",
    "interpolate",
    "kl_div",
    "l1_loss",
    "log_softmax",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
]


def test_every_subject_is_checked():
    assert legacy.subjects() == SUBJECTS


@pytest.mark.parametrize("subject", SUBJECTS)
def test_older_cases(subject):
    report = legacy.check(subject)
    assert report.passed == report.total > 0, str(report)
