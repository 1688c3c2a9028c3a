"""Conversion, renaming, audit: what moves, what is reported, what stays."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

import bridge
import purestate as ps
from purestate import nn
from tests.core.models import Tied


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(jnp.ones(2, jnp.float32))
        self.register_buffer("phase", jnp.ones(2, jnp.complex64))
        self.register_buffer("count", jnp.ones((), jnp.int32))
        self.register_buffer("flag", jnp.ones(2, bool), persistent=False)
        self.register_buffer("scale", jnp.ones(2, jnp.float32), persistent=False)
        self.plain = jnp.ones(2, jnp.float32)


class TorchMixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("count", torch.ones((), dtype=torch.int32))
        self.register_buffer("flag", torch.ones(2, dtype=torch.bool), persistent=False)
        self.register_buffer("scale", torch.ones(2), persistent=False)
        self.plain = torch.ones(2)


NAMES = ("weight", "phase", "count", "flag", "scale", "plain")


def dtypes(model):
    return {name: str(getattr(model, name).dtype).removeprefix("torch.") for name in NAMES}


@pytest.mark.parametrize("name", ["half", "bfloat16", "float", "double"])
def test_the_casts_touch_what_torchs_touch(name):
    with jax.enable_x64(True):
        assert dtypes(getattr(bridge, name)(Mixed())) == dtypes(getattr(TorchMixed(), name)())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_to_casts_complex_as_well_with_torchs_warning(dtype):
    with warnings.catch_warnings():  # Torch warns once in a process.
        warnings.simplefilter("ignore")
        theirs = TorchMixed().to(getattr(torch, dtype))
    with pytest.warns(UserWarning, match="Casting complex values to real"):
        ours = bridge.to(Mixed(), dtype=dtype)
    assert dtypes(ours) == dtypes(theirs)


def test_to_refuses_integers_with_torchs_text():
    with pytest.raises(TypeError) as ours:
        bridge.to(Mixed(), dtype=jnp.int32)
    with pytest.raises(TypeError) as theirs:
        TorchMixed().to(torch.int32)
    assert str(ours.value) == str(theirs.value).replace("torch.", "")


def test_keep_holds_the_dtype_of_chosen_modules():
    model = bridge.to(Tied(), dtype=jnp.bfloat16, keep="decoder")
    assert model.encoder.bias.dtype == jnp.bfloat16
    assert model.decoder.bias.dtype == model.decoder.weight.dtype == jnp.float32
    assert model.encoder.weight is model.decoder.weight


def test_to_places_by_device_and_by_sharding():
    device = jax.devices()[1]
    assert bridge.to(Tied(), device=device).encoder.weight.devices() == {device}
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    model = bridge.to(
        Mixed(),
        sharding=lambda name, array: None if array.ndim == 0 else jax.NamedSharding(mesh, jax.P("x")),
    )
    assert model.weight.sharding.spec == jax.P("x")
    abstract = bridge.to(ps.abstract(Tied()), sharding=jax.NamedSharding(mesh, jax.P()))
    assert abstract.encoder.weight.sharding.spec == jax.P()


def test_a_loaded_model_keeps_its_placement():
    device = jax.devices()[1]
    model = bridge.to(Tied(), device=device)
    loaded, _ = bridge.load_state_dict(
        model, {k: np.asarray(v) for k, v in bridge.state_dict(model).items()}
    )
    assert loaded.encoder.weight.devices() == {device}


def test_rename_reports_both_sides_and_moves_the_versions():
    sd = bridge.state_dict(Tied(), prefix="module.")
    stripped, report = bridge.strip_prefix(sd, "module.", model=Tied())
    assert list(stripped) == list(bridge.state_dict(Tied()))
    assert stripped.metadata == bridge.state_dict(Tied()).metadata
    assert (report.missing, report.unexpected, report.untouched) == ([], [], [])
    renamed, report = bridge.rename(
        stripped,
        {"encoder": "first", "decoder.bias": "last.bias", "nothing.": "x."},
        model=Tied(),
    )
    assert list(renamed)[:3] == ["first.weight", "first.bias", "first.calls"]
    assert report.unused_rules == ["nothing."]
    assert "encoder.weight" in report.missing
    assert "first.weight" in report.unexpected
    assert report.untouched[0] == "decoder.weight"
    assert "first" in renamed.metadata
    back, _ = bridge.rename(renamed, [(re.compile(r"^first\."), "encoder.")])
    assert "encoder.weight" in back
    for old, new, prefix in (("module", "", ""), ("module.", "", ""), ("module", "net.", "net.")):
        moved, _ = bridge.rename(sd, {old: new})
        assert list(moved) == list(bridge.state_dict(Tied(), prefix=prefix))
        assert f"{prefix}encoder" in moved.metadata
    with pytest.raises(ValueError, match="would both become"):
        bridge.rename(stripped, lambda name: "same")


def test_consume_prefix_agrees_with_torch():
    names = ["module.a.weight", "module.b", "other", "module"]
    theirs = torch.nn.Module().state_dict()
    theirs.update({name: torch.ones(1) for name in names})
    consume_prefix_in_state_dict_if_present(theirs, "module.")
    ours, _ = bridge.strip_prefix(dict.fromkeys(names, np.ones(1)), "module.")
    assert set(ours) == set(theirs)


def test_audit_lists_ties_frozen_and_constants():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tied = Tied()
            self.raw = jnp.ones(3)
            self.hidden = [nn.Module()]
            self.register_buffer("count", np.zeros((), np.int64))

    rows = bridge.audit(bridge.requires_grad(Net(), False, where="tied.decoder"))
    notes = {row.name: row.note for row in rows}
    assert notes["tied.decoder.weight"] == "tied to tied.encoder.weight, frozen"
    assert notes["count"] == "int64 in files"
    assert "12 bytes in every compiled program" in notes["raw"]
    assert "nn.ModuleList" in notes["hidden[0]"]
    assert not rows["raw"].saved
    assert "tied.encoder.weight" in repr(rows)


def test_state_dict_where_keeps_full_names():
    sd = bridge.state_dict(Tied(), where="decoder")
    assert list(sd) == ["decoder.weight", "decoder.bias", "decoder.calls"]
    assert list(sd.metadata) == ["decoder"]


def test_skip_leaves_a_mismatch_and_reports_it():
    sd = dict(bridge.state_dict(Tied())) | {"encoder.bias": np.zeros(7, np.float32)}
    loaded, report = bridge.load_state_dict(Tied(), sd, strict=False, on_mismatch="skip")
    assert set(report.missing_keys) == {"encoder.bias"}
    assert loaded.encoder.bias.shape == (3,)
