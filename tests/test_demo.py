"""The demo, and what PyTorch says about the files it reads and writes."""

import inspect
import subprocess
import sys
from importlib import resources

import jax
import numpy as np
import pytest
import torch

import bridge
import purestate
from bridge.demo import _files, _run, run
from bridge.demo._data import read_checkpoint, read_digits
from bridge.demo._errors import Mismatch
from bridge.demo._network import Digits
from bridge.demo._optimizer import from_torch
from bridge.demo._training import batches, correct, train_step
from tests import make_demo
from tests.parity import to_numpy


def torch_twin(checkpoint):
    """PyTorch's network and optimizer from a checkpoint, both loaded strictly."""
    model = make_demo.Digits()
    model.load_state_dict(checkpoint["model"], strict=True)
    optimizer = make_demo.adam(model)
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer


def our_logits(state_dict, images):
    model, _ = bridge.load_state_dict(Digits(), state_dict)
    return np.asarray(bridge.eval(model)(images))


@pytest.fixture(scope="module")
def digits():
    with (resources.files("bridge.demo") / "data" / "digits.npz").open("rb") as file:
        return dict(np.load(file))


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The folder of one run with two epochs, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "new"
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr(_run, "_say", lambda console, text: lines.append(text))
        assert run(folder) == 0
    return folder, lines


def test_the_network_is_torchs_text_over_another_import():
    assert inspect.getsource(Digits) == inspect.getsource(make_demo.Digits)


def test_it_tells_what_it_does(story):
    folder, lines = story
    assert lines[0] == "Reading digits_checkpoint.pt: written by torch.save after 2 epochs."
    assert lines[1] == "Strict load: <All keys matched successfully>"
    assert lines[2].startswith("Accuracy before: 88.1%, 317 of 360")
    assert lines[3].startswith("Accuracy after:")
    assert lines[4:6] == [
        f"Wrote {folder / 'digits.pt'}: all 38 tensors came back bit for bit.",
        f"Wrote {folder / 'digits.safetensors'}: all 14 tensors came back bit for bit.",
    ]
    assert lines[6:] == ["PyTorch was imported before the demo began; the demo did not use it."]


def test_torch_counts_the_same_before(digits):
    model, _ = torch_twin(torch.load(make_demo.DATA / "digits_checkpoint.pt", weights_only=True))
    checkpoint = read_checkpoint()
    right = make_demo.correct(model, digits["test_images"], digits["test_labels"])
    assert right == checkpoint["test_correct"] == 317
    _, test = read_digits()
    expected = make_demo.logits(model, digits["test_images"]).numpy()
    np.testing.assert_allclose(our_logits(checkpoint["model"], test.images), expected, 1e-5, 1e-5)


def test_torch_loads_what_was_written_and_gives_the_same_logits(story, digits):
    folder, _ = story
    written = torch.load(folder / "digits.pt", weights_only=True)
    model, _ = torch_twin(written)
    right = make_demo.correct(model, digits["test_images"], digits["test_labels"])
    assert right == written["test_correct"] > 317 + 10
    assert written["epoch"] == 4
    _, test = read_digits()
    expected = make_demo.logits(model, digits["test_images"]).numpy()
    for name in ("digits.pt", "digits.safetensors"):
        read = bridge.load(folder / name)
        actual = our_logits(read.get("model", read), test.images)
        np.testing.assert_allclose(actual, expected, 1e-5, 1e-5)


def test_the_checkpoint_has_torchs_layout(story):
    folder, _ = story
    written = torch.load(folder / "digits.pt", weights_only=True)
    start = torch.load(make_demo.DATA / "digits_checkpoint.pt", weights_only=True)
    assert written["optimizer"]["param_groups"] == start["optimizer"]["param_groups"]
    assert written["model"]._metadata == start["model"]._metadata
    for got, expected in (
        (written["model"], start["model"]),
        *zip(written["optimizer"]["state"].values(), start["optimizer"]["state"].values(), strict=True),
    ):
        assert [(n, t.dtype, t.shape) for n, t in got.items()] == [
            (n, t.dtype, t.shape) for n, t in expected.items()
        ]
    assert written["model"]["bn1.num_batches_tracked"] == 4 * 44
    assert all(entry["step"] == 4 * 44 for entry in written["optimizer"]["state"].values())


def test_one_further_step_is_the_same_on_both_sides(story):
    folder, _ = story
    train, _ = read_digits()
    batch = next(batches(train, 0))

    # Dropout draws its own numbers on each side, so it is off; BatchNorm trains.
    twin, twin_optimizer = torch_twin(torch.load(folder / "digits.pt", weights_only=True))
    twin.train()
    twin.dropout.eval()
    labels = torch.from_numpy(batch.labels.astype(np.int64))
    torch.nn.functional.cross_entropy(twin(torch.from_numpy(batch.images)), labels).backward()
    twin_optimizer.step()

    read = bridge.load(folder / "digits.pt")
    model, _ = bridge.load_state_dict(Digits(), read["model"])
    definition, params, buffers = purestate.split(bridge.eval(model, where="dropout"))
    optimizer, state = from_torch(read["optimizer"], params)
    params, buffers, _, _ = train_step(
        optimizer, definition, params, buffers, state, *batch, jax.random.key(0)
    )
    actual = bridge.state_dict(purestate.merge(definition, params, buffers))
    for name, expected in twin.state_dict().items():
        np.testing.assert_allclose(actual[name], to_numpy(expected), 1e-5, 1e-5, err_msg=name)


def test_one_shape_means_one_compilation(story):
    # The one further step of the test above is another definition; both evaluations are one.
    del story
    assert correct._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]
    assert train_step._cache_size() <= 2  # pyright: ignore[reportAttributeAccessIssue]


def test_it_runs_without_torch(tmp_path):
    code = (
        "import sys; from bridge.cli import main; "
        "status = main(['demo', '--epochs', '1', '--out', sys.argv[1]]); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "PyTorch was never imported." in done.stdout
    assert "\x1b" not in done.stdout
    assert "bn1.num_batches_tracked" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.pt", "digits.safetensors"]


def with_change(change):
    checkpoint = read_checkpoint()
    change(checkpoint)
    return lambda: checkpoint


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda c: c["model"].pop("fc.bias"), 'Missing key(s) in state_dict: "fc.bias"'),
        (lambda c: c.update(test_correct=1), "PyTorch got 1 test digits right, JAX 317"),
        (lambda c: c["optimizer"]["param_groups"][0].update(amsgrad=True), "amsgrad=True"),
        (lambda c: c["optimizer"]["param_groups"].append({}), "expected one parameter group"),
        (lambda c: c["optimizer"]["state"].pop(7), "moves other parameters than conv1.weight"),
        (
            lambda c: c["optimizer"]["state"][0].update(step=np.float32(1)),
            "at different steps: [1.0, 88.0]",
        ),
        (
            lambda c: c["optimizer"]["state"][7].update(exp_avg=np.zeros(3, np.float32)),
            "the optimizer's average for fc.bias has another shape",
        ),
    ],
)
def test_a_file_that_does_not_match_gives_status_1_and_a_line(
    change, line, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(_run, "read_checkpoint", with_change(change))
    assert run(tmp_path, 0) == 1
    assert line in capsys.readouterr().err


def test_an_import_of_torch_during_the_demo_gives_status_1(monkeypatch):
    assert _run._about_torch(True).startswith("PyTorch was imported before")
    with pytest.raises(Mismatch, match="something imported it"):
        _run._about_torch(False)
    monkeypatch.delitem(sys.modules, "torch")
    assert _run._about_torch(False) == "PyTorch was never imported."


@pytest.mark.parametrize(
    ("back", "line"),
    [
        ({"a": np.array([0.0], np.float32), "b": 1}, "a came back from x.pt changed"),
        ({"a": np.array([-0.0]), "b": 1}, "a came back from x.pt changed"),
        ({"a": np.array([-0.0], np.float32), "b": 2}, "b came back from x.pt changed"),
        ({"a": np.array([-0.0], np.float32), "c": 1}, "x.pt came back with other names"),
    ],
)
def test_a_file_that_comes_back_changed_is_told(back, line, monkeypatch, tmp_path):
    value = {"a": np.array([-0.0], np.float32), "b": 1}
    assert _files.write_and_compare(value, tmp_path / "x.pt") == 1
    monkeypatch.setattr(bridge, "load", lambda path: back)
    with pytest.raises(Mismatch, match=line):
        _files.write_and_compare(value, tmp_path / "x.pt")
