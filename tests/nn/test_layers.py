"""Every layer against torch, over the cases of torch's own module database."""

import pytest

from tests.oracles import module_db


CLASSES = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "CrossEntropyLoss",
    "ELU",
    "Embedding",
    "GELU",
    "GroupNorm",
    "Hardswish",
    "Hardtanh",
    "L1Loss",
    "LSTM",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "NLLLoss",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


def test_every_shared_class_is_checked():
    assert set(CLASSES) == module_db.shared_names()


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", CLASSES)
def test_module_db(name, training):
    report = module_db.check(name, training)
    assert report.total > 0
    assert report.passed == report.total, str(report)
