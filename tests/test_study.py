"""The shared helpers of the notebooks: a study prints only what these measure."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch


PATH = Path(__file__).parents[1] / "notebooks" / "_study.py"
SPEC = importlib.util.spec_from_file_location("_study", PATH)
assert SPEC is not None
assert SPEC.loader is not None
study = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(study)


def test_a_table_shows_every_cell_as_text_and_as_markdown():
    table = study.Table(["name", "saved"], [("a|b", True), ("two\nlines", np.bool_(False))])
    assert repr(table) == "name       saved\n---------  -----\na|b        yes\ntwo lines  -"
    assert table._repr_markdown_().splitlines()[2:] == ["| a\\|b | yes |", "| two<br>lines | - |"]
    with pytest.raises(ValueError, match="every row has 2 cells"):
        study.Table(["name", "saved"], [("a",)])


def test_versions_are_the_installed_ones():
    assert ("torch", torch.__version__) in study.versions().rows


def test_outcomes_are_errors_as_values(capsys):
    good, bad = study.side_by_side(torch=lambda: 1, purestate=lambda: {}["x"])
    assert (good.error, good.text) == (None, "1")
    assert (bad.error, bad.text) == ("KeyError", "'x'")
    assert capsys.readouterr().out == "--- torch\nno error: 1\n\n--- purestate\nKeyError: 'x'\n\n"


def test_copies_do_not_share_memory():
    tensor = torch.zeros(2)
    copy = study.to_numpy(tensor)
    named = study.arrays([("b", tensor), ("a", jnp.ones(1))])
    tensor += 1
    assert copy.tolist() == named["b"].tolist() == [0.0, 0.0]
    assert list(named) == ["b", "a"]


def test_gap_is_the_largest_difference_and_never_hides_a_mismatch():
    assert study.gap(torch.tensor([1.0, 2.0]), jnp.array([1.0, 2.5])) == 0.5
    assert study.gap({"a": np.ones(2), "b": np.ones(0)}, {"a": jnp.ones(2), "b": jnp.ones(0)}) == 0.0
    assert np.isnan(study.gap(np.array([np.nan]), np.ones(1)))
    assert study.changed({"a": np.ones(1), "b": np.ones(1)}, {"a": np.ones(1), "b": np.zeros(1)}) == [
        "b"
    ]
    assert study.changed({"a": np.ones(1)}, {"a": np.array([np.nan])}, tolerance=1.0) == ["a"]
    with pytest.raises(ValueError, match="names differ"):
        study.gap({"a": 1, "b": 1}, {"b": 1, "a": 1})
    with pytest.raises(ValueError, match="shapes differ"):
        study.gap(np.ones(2), np.ones((2, 1)))
