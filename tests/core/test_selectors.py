"""Selectors: paths, globs, classes, predicates, sequences; one tree, every spelling."""

import pytest

import bridge
import purestate as ps
from purestate import nn
from purestate._select import select
from tests.core.models import Dense


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = Dense(2, 2)
        self.bn1 = nn.Module()
        self.bn2 = nn.Module()


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = Block()
        self.layer10 = Block()
        self.layer1.inner = Block()
        self.shared = self.layer1.conv1


def paths(selector):
    return list(select(Tree()._definition, selector).values())


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", [""]),
        ("layer1", ["layer1"]),
        ("layer1.bn?", ["layer1.bn1", "layer1.bn2"]),
        ("*.bn1", ["layer1.bn1", "layer10.bn1"]),
        ("**.bn1", ["layer1.bn1", "layer1.inner.bn1", "layer10.bn1"]),
        ("layer1.**", ["layer1.conv1", "layer1.bn1", "layer1.bn2"] + ["layer1.inner"]
         + ["layer1.inner.conv1", "layer1.inner.bn1", "layer1.inner.bn2"]),
        ("layer[0-9]", ["layer1"]),
        ("*1*", ["layer1", "layer10"]),
        ("*", ["layer1", "layer10", "shared"]),
        ("layer1.*", ["layer1.conv1", "layer1.bn1", "layer1.bn2", "layer1.inner"]),
        ("shared", ["shared"]),
        (Dense, ["layer1.conv1", "layer1.inner.conv1", "layer10.conv1"]),
        (lambda path, module: path.endswith("inner"), ["layer1.inner"]),
        (["layer10.bn1", "layer1.bn1"], ["layer1.bn1", "layer10.bn1"]),
    ],
)  # fmt: skip
def test_what_matches(selector, expected):
    assert paths(selector) == expected


def test_a_double_star_alone_is_everything_below_the_root():
    everything = [path for path, _ in Tree().named_modules() if path]
    assert paths("**") == everything


def test_a_predicate_sees_the_module_with_its_arrays():
    model = Tree()
    model = ps.replace(model, {"layer10.conv1.bias": model.layer10.conv1.bias + 1})
    frozen = bridge.requires_grad(
        model, False, where=lambda path, m: type(m) is Dense and m.bias.sum() > 0
    )
    assert [row.name for row in bridge.audit(frozen) if row.note == "frozen"] == [
        "layer10.conv1.weight",
        "layer10.conv1.bias",
    ]


def test_a_shared_module_is_matched_by_either_path():
    for where in ("shared", "layer1.conv1"):
        model = bridge.eval(Tree(), where=where)
        assert model.shared.training is model.layer1.conv1.training is False
        assert model.layer10.conv1.training is True
