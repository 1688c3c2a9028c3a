"""What training leaves behind: optimizers, schedulers, wrappers, reparametrised layers, trainers."""

import argparse
import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import parametrizations, prune

import bridge
from bridge import StateDict
from tests.corpora.truth import assert_agree, read_by_torch


ZIPPED = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])

_WARNINGS = ("UserWarning", "DeprecationWarning", "FutureWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{name}" for name in _WARNINGS))


def network() -> Any:
    torch.manual_seed(0)
    layers: Any = OrderedDict(embed=nn.Embedding(5, 4), norm=nn.BatchNorm1d(4), head=nn.Linear(4, 5))
    model: Any = nn.Sequential(layers)
    model.head.weight = model.embed.weight
    return model


def check(value: Any, path: Path, zipped: bool = True) -> Any:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    ours = bridge.load(path)
    assert_agree(ours, read_by_torch(path))
    return ours


def stepped(
    optimizer: torch.optim.Optimizer, model: nn.Module, *, sparse: bool = False
) -> dict[str, Any]:
    """The state after two steps."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.arange(5)).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return optimizer.state_dict()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "Adam tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1)),
    "AdamW": lambda p: torch.optim.AdamW(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "LBFGS": lambda p: torch.optim.LBFGS(p, max_iter=3),
}


def test_no_optimizer_is_forgotten() -> None:
    classes = {
        name
        for name in dir(torch.optim)
        if isinstance(getattr(torch.optim, name), type) and name != "Optimizer"
    }
    assert classes - {name.partition(" ")[0] for name in OPTIMIZERS} == {"Muon", "SparseAdam"}


@ZIPPED
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(tmp_path: Path, name: str, zipped: bool) -> None:
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    fresh = copy.deepcopy(optimizer.state_dict())
    after = stepped(optimizer, model)
    ours = check({"fresh": fresh, "after": after}, tmp_path / "m.pt", zipped)
    assert list(ours["after"]) == ["state", "param_groups"]


def test_optimizers_of_matrices_and_of_sparse_gradients(tmp_path: Path) -> None:
    linear = nn.Linear(4, 4, bias=False)
    muon = torch.optim.Muon(linear.parameters())
    linear(torch.ones(4, 4)).sum().backward()
    muon.step()
    table = nn.Embedding(5, 4, sparse=True)
    adam = torch.optim.SparseAdam(table.parameters())
    table(torch.arange(3)).sum().backward()
    adam.step()
    check({"muon": muon.state_dict(), "adam": adam.state_dict()}, tmp_path / "m.pt")


def test_groups_names_and_frozen_parameters(tmp_path: Path) -> None:
    model = network()
    model.norm.weight.requires_grad_(False)
    groups = [
        {"params": [("head.bias", model.head.bias)], "lr": 0.5},
        {"params": list(model.norm.named_parameters())},
        {"params": [("embed.weight", model.embed.weight)], "betas": (0.5, 0.9)},
    ]
    optimizer = torch.optim.AdamW(groups)
    ours = check(stepped(optimizer, model), tmp_path / "m.pt")
    assert ours["param_groups"][0]["param_names"] == ["head.bias"]


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 5]),
    "ConstantLR": lambda o: torch.optim.lr_scheduler.ConstantLR(o),
    "LinearLR": lambda o: torch.optim.lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: torch.optim.lr_scheduler.PolynomialLR(o),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, 10),
    "CyclicLR": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.1, 0.2),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: torch.optim.lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "ReduceLROnPlateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 2)],
        [2],
    ),
    "ChainedScheduler": lambda o: torch.optim.lr_scheduler.ChainedScheduler(
        [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 2)]
    ),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler(tmp_path: Path, name: str) -> None:
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)
    optimizer.step()
    scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    value = {"scheduler": scheduler.state_dict(), "optimizer": optimizer.state_dict()}
    check(value, tmp_path / "m.pt")


def test_a_gradient_scaler(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    check({"scaler": scaler.state_dict()}, tmp_path / "m.pt")


@ZIPPED
def test_wrappers_and_their_prefixes(tmp_path: Path, zipped: bool) -> None:
    model = network()
    parallel = nn.DataParallel(model)
    compiled: Any = torch.compile(model)
    both: Any = torch.compile(parallel)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    value = {
        "parallel": parallel.state_dict(),
        "compiled": compiled.state_dict(),
        "both": both.state_dict(),
        "averaged": averaged.state_dict(),
        "plain": model.state_dict(),
    }
    ours = check(value, tmp_path / "m.pt", zipped)
    assert next(iter(ours["parallel"])) == "module.embed.weight"
    assert next(iter(ours["both"])) == "_orig_mod.module.embed.weight"
    assert ours["averaged"]["n_averaged"].dtype == "int64"
    tied = ours["plain"]
    assert tied["head.weight"].ctypes.data == tied["embed.weight"].ctypes.data
    assert tied["head.weight"].ctypes.data == ours["parallel"]["module.embed.weight"].ctypes.data


REPARAMETRISED: dict[str, Callable[[], nn.Module]] = {
    "weight norm of old": lambda: nn.utils.weight_norm(nn.Linear(3, 4)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(3, 4)),
    "spectral norm of old": lambda: nn.utils.spectral_norm(nn.Linear(3, 4)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(3, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(3, 4)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(3, 4), "weight", 0.5),
    "quantized": lambda: quantize_dynamic(nn.Sequential(nn.Linear(3, 4)), {nn.Linear}),
}


@pytest.mark.parametrize("name", REPARAMETRISED)
def test_reparametrised_layers(tmp_path: Path, name: str) -> None:
    check(REPARAMETRISED[name]().state_dict(), tmp_path / "m.pt")


def test_extra_state_is_any_object(tmp_path: Path) -> None:
    class Counting(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"seen": 3, "names": {"a", "b"}, "scale": torch.ones(2)}

    ours = check(Counting(2, 2).state_dict(), tmp_path / "m.pt")
    assert ours["_extra_state"]["seen"] == 3


@ZIPPED
def test_a_trainer_of_lightning(tmp_path: Path, zipped: bool) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    value = {
        "epoch": 3,
        "global_step": 100,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": model.state_dict(),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 4}}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5)}},
        "optimizer_states": [stepped(optimizer, model)],
        "lr_schedulers": [torch.optim.lr_scheduler.StepLR(optimizer, 2).state_dict()],
        "hparams_name": "kwargs",
        "hyper_parameters": {"args": argparse.Namespace(lr=0.1), "width": 3},
    }
    ours = check(value, tmp_path / "last.ckpt", zipped)
    assert isinstance(ours["state_dict"], StateDict)
    assert ours["state_dict"].metadata["norm"] == {"version": 2}


def test_optimizers_of_the_first_versions(tmp_path: Path) -> None:
    """Steps were Python integers, and parameters went by their addresses."""
    first, second = 140178894849224, 140178894849296
    value = {
        "state": {
            second: {"step": 12, "exp_avg": torch.ones(2), "momentum_buffer": None},
            first: {"step": 12, "exp_avg": torch.zeros(2)},
        },
        "param_groups": [{"lr": 0.1, "params": [first, second]}],
    }
    ours = check(value, tmp_path / "m.pt", zipped=False)
    assert list(ours["state"]) == [second, first]


def test_a_deepcopy_and_a_cast_keep_their_own_storages(tmp_path: Path) -> None:
    model = network()
    value = {"a": model.state_dict(), "b": copy.deepcopy(model).state_dict()}
    value["half"] = model.half().state_dict()
    check(value, tmp_path / "m.pt")


def test_pipelines_of_formats(tmp_path: Path) -> None:
    """The same weights through safetensors, zip and legacy are the same bytes."""
    state = {name: value.clone() for name, value in network().state_dict().items()}
    safetensors.torch.save_file(state, tmp_path / "m.safetensors", {"format": "pt"})
    torch.save(state, tmp_path / "m.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("m.safetensors", "m.pt", "old.pt"):
        ours = bridge.load(tmp_path / name)
        assert_agree({key: ours[key] for key in state}, state)


@ZIPPED
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "alone"])
def test_whole_modules_with_hooks_of_their_state(tmp_path: Path, zipped: bool, nested: bool) -> None:
    """Torch wraps such a hook in an object of its own, which holds the module where it is asked to."""
    layer: Any = torch.nn.utils.spectral_norm(nn.Linear(2, 2))
    layer.register_load_state_dict_pre_hook(_hook)
    layer.register_forward_hook(_hook)
    model = nn.Sequential(layer) if nested else layer
    path = tmp_path / "m.pt"
    torch.save({"model": model, "epoch": 1}, path, _use_new_zipfile_serialization=zipped)
    ours = bridge.load(path)
    assert ours["epoch"] == 1
    # The hook notes its version in the metadata, which nothing needs of a complete state.
    assert_agree(dict(ours["model"]), dict(model.state_dict()))
    assert len(ours["model"]) == 4


def _hook(*_: Any) -> None:
    pass
