"""The documentation is true: its one-page tour runs, and it names every public thing."""

import copy
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import bridge.checkpoint
import bridge.parametrize
import bridge.prune
import purestate as ps
from purestate import nn


DOCS = Path(__file__).parent.parent / "docs"
API = "\n".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page, with the line each starts at."""
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in found]


def run(page: Path) -> dict[str, Any]:
    """Run a page's blocks in order in one namespace, under the line numbers of the page."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    for line, source in blocks(page):
        exec(compile("\n" * line + source, str(page), "exec"), namespace)
    return namespace


def public(module: ModuleType) -> list[str]:
    """What a package offers: its ``__all__``, or what it holds under a public name."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    held = bridge._HOME if module is bridge else vars(module)
    return [n for n in held if n[0] != "_" and not isinstance(getattr(module, n), ModuleType)]


PACKAGES = [ps, nn, nn.functional, nn.init, nn.utils, nn.utils.rnn, bridge, bridge.checkpoint]
PACKAGES += [bridge.parametrize, bridge.prune]
NAMES = [(module, name) for module in PACKAGES for name in public(module)]


def documented(module: ModuleType) -> set[str]:
    """The names that an API page describes as this module's."""
    current, found = "", set()
    for line in API.splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            current = match.group(1)
        elif match := re.match(r"\.\. auto\w+:: (\S+)", line):
            target = match.group(1)
            found.add(target if target.startswith(("purestate.", "bridge.")) else f"{current}.{target}")
    return {name.removeprefix(f"{module.__name__}.") for name in found}


def test_the_one_page_tour_runs():
    assert len(blocks(DOCS / "all-of-purestate.md")) > 10
    run(DOCS / "all-of-purestate.md")


def test_the_model_on_the_front_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(run(DOCS / "index.md")["report"]) == "<All keys matched successfully>"


def test_a_false_page_fails_at_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as caught:
        run(page)
    assert caught.traceback[-1].lineno + 1 == 8


@pytest.mark.parametrize("module", PACKAGES, ids=lambda module: module.__name__)
def test_every_public_name_has_its_place_in_the_api_pages(module):
    # The same object may have its one description under another package: nn.Module, bridge.load.
    elsewhere = {
        id(getattr(other, name))
        for other in PACKAGES
        for name in documented(other)
        if other is not module and hasattr(other, name)
    }
    missing = [
        name
        for name in public(module)
        if name not in documented(module) and id(getattr(module, name)) not in elsewhere
    ]
    assert missing == []


def test_the_api_pages_describe_nothing_that_is_gone():
    for module in PACKAGES:
        for name in documented(module):
            if not name.startswith(("purestate.", "bridge.")) and "." not in name:
                assert hasattr(module, name), f"{module.__name__}.{name}"


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: getattr(part, "__name__", part))
def test_every_public_name_has_a_docstring_of_its_own(module, name):
    value = getattr(module, name)
    text = inspect.unwrap(value).__doc__ if callable(value) else None
    assert text, f"{module.__name__}.{name}"
    assert not isinstance(value, type) or "__doc__" in vars(value)


def test_the_design_pages_are_listed():
    index = (DOCS / "design" / "index.md").read_text()
    pages = sorted(page.stem for page in (DOCS / "design").glob("[0-9]*.md"))
    assert len(pages) >= 10
    assert all(page in index for page in pages)


REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)(?:\[([^`]+)\])?`")
DIFFERENCES = (DOCS / "differences.md").read_text()


def test_tests_named_in_the_differences_exist():
    tests = Path(__file__).parent
    named = REFERENCE.findall(DIFFERENCES)
    assert len(named) > 10
    assert len(named) == DIFFERENCES.count(".py::")
    for file, test, case in named:
        source = (tests / file).read_text()
        assert f"def {test}(" in source, f"{file}::{test}"
        assert case in source, f"{file}::{test}[{case}]"


def test_every_row_of_the_contract_has_its_line_and_its_test():
    section = DIFFERENCES.split("\n## The contract, row by row\n")[1]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    assert [row[0] for row in rows] == [str(number) for number in range(1, 168)]
    for number, (_, what, here, held) in enumerate(rows, 1):
        assert what
        assert re.match(r"(matched|mended|refused|not applicable)\b", here), number
        rest = REFERENCE.sub("", held).replace(",", "").strip()
        assert held, number
        assert rest == "", number


# The differences that no other test holds, each on both sides where torch has one.


class Tie(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight = self.a.weight


class TorchTie(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.b.weight = self.a.weight


def test_assign_keeps_ties_and_leaves_the_callers_metadata_alone():
    theirs = TorchTie()
    torch_sd: Any = theirs.state_dict()
    theirs.load_state_dict(torch_sd, assign=True)
    assert theirs.b.weight is not theirs.a.weight
    assert torch_sd._metadata[""]["assign_to_params_buffers"]

    model = ps.init(Tie(), 0)
    sd = jax.tree.map(lambda a: np.asarray(a, np.float16), bridge.state_dict(model))
    before = {path: dict(entry) for path, entry in sd.metadata.items()}
    loaded, _ = bridge.load_state_dict(model, sd, assign=True)
    assert loaded.b.weight is loaded.a.weight
    assert loaded.a.weight.dtype == jnp.float16
    assert sd.metadata == before


def kept_after_a_refusal(library, array):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", array([1.0]))
            type(self).state = "a class attribute"
            with pytest.raises(KeyError, match="attribute 'state' already exists"):
                self.state = library.Parameter(array([2.0]))

    return Net()


def test_a_refused_parameter_leaves_the_old_value():
    assert list(kept_after_a_refusal(torch.nn, torch.tensor).state_dict()) == []
    assert list(bridge.state_dict(kept_after_a_refusal(nn, jnp.array))) == ["state"]


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_module_is_not_assigned_under_a_name_with_a_dot(name):
    setattr(torch.nn.Module(), name, torch.nn.Linear(1, 1))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            setattr(self, name, nn.Linear(1, 1))

    with pytest.raises(KeyError, match="module name can"):
        Net()


def test_tied_buffers_stay_tied_in_a_conversion():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            shared = jnp.ones(2)
            self.register_buffer("a", shared)
            self.register_buffer("b", shared)

    half = bridge.half(Net())
    assert half.a is half.b
    theirs, shared = torch.nn.Module(), torch.ones(2)
    theirs.register_buffer("a", shared)
    theirs.register_buffer("b", shared)
    assert theirs.a is theirs.b
    theirs.half()
    assert theirs.a is not theirs.b


def test_two_conventions_of_a_prefix():
    model = ps.init(nn.Linear(2, 2), 0)
    theirs = torch.nn.Linear(2, 2)
    for side in (model, theirs):
        assert [name for name, _ in side.named_parameters(prefix="p.")] == ["p..weight", "p..bias"]
    sd = bridge.state_dict(model, prefix="p.")
    assert list(sd) == list(theirs.state_dict(prefix="p.")) == ["p.weight", "p.bias"]


def test_another_shape_raises_even_when_not_strict():
    for load, sd in (
        (torch.nn.Linear(2, 2).load_state_dict, {"weight": torch.ones(3, 3)}),
        (lambda *a, **k: bridge.load_state_dict(nn.Linear(2, 2), *a, **k), {"weight": np.ones((3, 3))}),
    ):
        with pytest.raises(RuntimeError, match="size mismatch for weight"):
            load(sd, strict=False)


def test_a_one_element_array_loads_into_a_scalar():
    def build(library, array):
        class Net(library.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scalar", array(1.0))
                self.register_buffer("one", array([1.0]))

        return Net()

    fits = {"scalar": np.array([2.0], np.float32), "one": np.array([3.0], np.float32)}
    refused = fits | {"one": np.array(3.0, np.float32)}
    theirs, ours = build(torch.nn, torch.tensor), build(nn, jnp.array)
    theirs.load_state_dict({name: torch.from_numpy(value) for name, value in fits.items()})
    loaded, _ = bridge.load_state_dict(ours, fits)
    assert float(loaded.scalar) == float(theirs.scalar) == 2.0
    with pytest.raises(RuntimeError) as expected:
        theirs.load_state_dict({name: torch.from_numpy(value) for name, value in refused.items()})
    with pytest.raises(RuntimeError) as actual:
        bridge.load_state_dict(ours, refused)
    assert str(actual.value) == str(expected.value)


def test_of_two_values_for_a_tie_the_last_wins():
    theirs = TorchTie()
    sd = {name: value.clone() for name, value in theirs.state_dict().items()}
    sd["a.weight"], sd["b.weight"] = torch.ones(2, 2), torch.zeros(2, 2)
    theirs.load_state_dict(sd)
    arrays = {name: value.numpy() for name, value in sd.items()}
    ours, _ = bridge.load_state_dict(Tie(), arrays)
    assert float(ours.a.weight.sum()) == float(theirs.a.weight.detach().sum()) == 0.0
    del arrays["b.weight"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "b.weight"'):
        bridge.load_state_dict(Tie(), arrays)


def test_an_empty_container_is_false():
    assert not nn.Sequential()
    assert not torch.nn.Sequential()


def test_a_child_that_is_none_swallows_its_keys():
    def build(library):
        class Net(library.Module):
            def __init__(self):
                super().__init__()
                self.register_module("child", None)

        return Net()

    assert build(torch.nn).load_state_dict({"child.weight": torch.ones(1)}) == ([], [])
    _, report = bridge.load_state_dict(build(nn), {"child.weight": np.ones(1)})
    assert report == ([], [])


def test_a_module_added_after_eval_is_in_training_mode():
    model = bridge.set_submodule(bridge.eval(nn.Sequential()), "new", nn.ReLU())
    assert model.new.training
    assert not model.training


def test_what_a_value_gives_back():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes, self.table, self.kinds = [1, 2], {"a": 1}, {3}
            array = jnp.ones(2)
            self.first, self.second = nn.Parameter(array), nn.Parameter(array)

    model = Net()
    assert (model.sizes, model.table, model.kinds) == ([1, 2], {"a": 1}, {3})
    assert type(model.kinds) is frozenset
    for change in (lambda: model.sizes.append(3), lambda: model.table.update(b=1)):
        with pytest.raises(TypeError, match="constant of a finished model"):
            change()
    assert isinstance(model.first, jax.Array)
    assert not isinstance(model.first, nn.Parameter)
    assert len(jax.tree.leaves(model)) == 2
    assert copy.deepcopy(model).first is model.first


def test_a_module_in_an_unregistered_list_gets_no_values():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]

        def forward(self, x):
            return self.layers[0](x)

    with pytest.raises(ps.UninitializedError):
        ps.init(Net(), 0)(jnp.ones((1, 2)))


def test_a_module_is_not_called_in_a_constructor():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.ReLU()
            self.layer(jnp.ones(1))

    with pytest.raises(ps.FrozenModelError, match="cannot be called in a constructor"):
        Net()


def test_the_body_of_a_scan_draws_one_key_unless_it_is_given_one():
    class Noise(nn.Module):
        def forward(self, x):
            return x + jax.random.normal(self.next_key(), x.shape)

    class Scan(nn.Module):
        def __init__(self, own):
            super().__init__()
            self.own, self.noise = own, Noise()

        def forward(self, keys):
            def body(carry, key):
                drawn = ps.call(self.noise, carry, rng=key)[0] if self.own else self.noise(carry)
                return carry, drawn

            return jax.lax.scan(body, jnp.zeros(()), keys)[1]

    keys = jax.random.split(jax.random.key(0), 3)
    assert len(np.unique(ps.call(Scan(False), keys, rng=1)[0])) == 1
    assert len(np.unique(ps.call(Scan(True), keys, rng=1)[0])) == 3


def test_abstract_arrays_are_in_a_state_dict_and_in_no_file(tmp_path):
    sd = bridge.state_dict(nn.Linear(2, 2))
    assert isinstance(sd["weight"], ps.AbstractArray)
    with pytest.raises(bridge.checkpoint.Unwritable, match="weight"):
        bridge.save(sd, tmp_path / "file.pt")


def test_a_wide_dtype_is_narrow_in_memory_and_wide_on_export():
    model = ps.init(nn.Linear(2, 2, dtype="float64"), 0)
    assert model.weight.dtype == jnp.float32
    assert bridge.state_dict(model)["weight"].dtype == np.float64
