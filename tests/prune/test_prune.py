"""bridge.prune next to torch.nn.utils.prune: masks, names, amounts, errors, files."""

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.utils import prune as torch_prune

import bridge
import purestate as ps
from bridge import prune
from purestate import nn
from tests.differential.sides import OURS, SIDES, TORCH
from tests.parametrize.both import arrays, described, outcome, pair, same_state
from tests.parity import assert_close


def tools(side) -> Any:
    return torch_prune if side is TORCH else prune


def linear(library):
    return library.Linear(4, 3)


def conv(library):
    return library.Conv2d(4, 3, 2)


def norm(library):
    return library.BatchNorm1d(3)


def agree(ask, make=linear):
    models = pair(make)
    theirs = ask(TORCH, torch_prune, models["torch"])
    ours = ask(OURS, prune, models["purestate"])
    assert ours == theirs
    return ours


def both_sides(change, make=linear):
    """The pruned model on both sides: the same structure, state and values."""
    models = pair(make)
    theirs, ours = (change(side, tools(side), models[side.name]) for side in SIDES)
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)
    return theirs, ours


METHODS = {
    "identity": lambda u, m: u.identity(m, "weight"),
    "l1 count": lambda u, m: u.l1_unstructured(m, "weight", 5),
    "l1 fraction": lambda u, m: u.l1_unstructured(m, "weight", 0.3),
    "l1 none": lambda u, m: u.l1_unstructured(m, "weight", 0),
    "l1 all": lambda u, m: u.l1_unstructured(m, "weight", 1.0),
    "l1 bias": lambda u, m: u.l1_unstructured(m, "bias", 1),
    "l2 rows": lambda u, m: u.ln_structured(m, "weight", 1, 2, 0),
    "l2 columns": lambda u, m: u.ln_structured(m, "weight", 0.5, 2, 1),
    "l1 rows": lambda u, m: u.ln_structured(m, "weight", 0.4, 1, -2),
    "inf": lambda u, m: u.ln_structured(m, "weight", 2, float("inf"), -1),
    "minus inf": lambda u, m: u.ln_structured(m, "weight", 2, float("-inf"), -1),
    "l3": lambda u, m: u.ln_structured(m, "weight", 2, 3, 1),
    "fro": lambda u, m: u.ln_structured(m, "weight", 2, "fro", 1),
    "no rows": lambda u, m: u.ln_structured(m, "weight", 0, 2, 0),
}


CASES = [(name, linear) for name in METHODS]
CASES += [(name, conv) for name in METHODS if name != "fro"]  # torch takes two axes for a matrix.


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_method(name, make):
    theirs, ours = both_sides(lambda side, u, m: METHODS[name](u, m), make)
    pruned = "bias" if name == "l1 bias" else "weight"
    assert_close(getattr(ours, pruned), getattr(theirs, pruned))
    x = np.linspace(-1, 1, 4 * 25, dtype=np.float32)
    x = x.reshape(25, 4) if make is linear else x.reshape(1, 4, 5, 5)
    assert_close(ours(jnp.array(x)), theirs(torch.tensor(x)))
    assert prune.is_pruned(ours)
    removed, expected = prune.remove(ours, pruned), torch_prune.remove(theirs, pruned)
    assert described(OURS, removed) == described(TORCH, expected)
    same_state(removed, expected)
    assert not prune.is_pruned(removed)
    assert [name for name, _ in removed.named_parameters()][-1] == pruned


def test_the_nuclear_norm():
    both_sides(
        lambda side, u, m: u.ln_structured(m, "weight", 1, "nuc", 0),
        lambda library: library.Conv1d(4, 3, 2),
    )


PAIRS = [
    ("l1 count", "l1 count"),
    ("l1 fraction", "l2 rows"),
    ("l2 columns", "l1 fraction"),
    ("l2 rows", "l2 columns"),
    ("l2 rows", "l1 rows"),
    ("identity", "l1 count"),
    ("l1 count", "identity"),
    ("inf", "l1 count"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_second_pruning_acts_on_what_is_left(first, second):
    def change(side, u, m):
        return METHODS[second](u, METHODS[first](u, m))

    theirs, ours = both_sides(change)
    assert_close(ours.weight, theirs.weight)
    third_theirs = torch_prune.l1_unstructured(theirs, "weight", 1)
    same_state(prune.l1_unstructured(ours, "weight", 1), third_theirs)


def test_importance_scores():
    scores = np.arange(12, dtype=np.float32).reshape(3, 4)[::-1].copy()

    def change(side, u, m):
        m = u.l1_unstructured(m, "weight", 3, importance_scores=side.array(scores.tolist()))
        m = u.ln_structured(m, "weight", 1, 2, 1, importance_scores=side.array(scores.tolist()))
        return u.l1_unstructured(m, "bias", 1, side.array([1.0, 0.0, 2.0]))

    both_sides(change)


def test_a_mask_of_ones_own():
    mask = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]

    def change(side, u, m):
        m = u.custom_from_mask(m, "weight", side.array(mask, "int32"))
        m = u.custom_from_mask(m, "weight", side.array([[1, 1, 1, 0]] * 3, "bool"))
        return u.custom_from_mask(m, "bias", side.array([1.0, 0.0, 1.0]))

    both_sides(change)


def test_a_method_of_ones_own():
    def change(side, u, m):
        class EveryOther(u.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t, default_mask):
                flat = default_mask.reshape(-1)
                if side is OURS:
                    return flat.at[::2].set(0).reshape(default_mask.shape)
                mask = flat.clone()
                mask[::2] = 0
                return mask.reshape(default_mask.shape)

        if side is OURS:
            m = u.apply(m, "weight", EveryOther())
            return u.apply(m, "weight", EveryOther())
        EveryOther.apply(m, "weight")
        EveryOther.apply(m, "weight")
        return m

    both_sides(change)


@pytest.mark.parametrize("kind", ["strange", "structured"])
def test_a_type_of_ones_own(kind):
    def ask(side, u, m):
        class Strange(u.BasePruningMethod):
            PRUNING_TYPE = kind

            def compute_mask(self, t, default_mask):
                return default_mask

        def apply(model):
            return (
                u.apply(model, "weight", Strange()) if side is OURS else Strange.apply(model, "weight")
            )

        first = apply(m)
        return outcome(lambda: apply(first if side is OURS else m))

    assert agree(ask) is not None


def networks(library):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.a = library.Linear(4, 3)
            self.b = library.Linear(3, 2)

        def forward(self, x):
            return self.b(self.a(x))

    return Net()


def globally(side, u, model, pairs, scores=None, **kwargs):
    if side is OURS:
        return u.global_unstructured(model, pairs, importance_scores=scores, **kwargs)
    if scores is not None:
        scores = {(model.get_submodule(path), name): value for (path, name), value in scores.items()}
    u.global_unstructured(
        [(model.get_submodule(path), name) for path, name in pairs], importance_scores=scores, **kwargs
    )
    return model


PLACES = [("a", "weight"), ("b", "weight"), ("b", "bias")]


@pytest.mark.parametrize("amount", [7, 0.5, 0])
@pytest.mark.parametrize("before", [False, True])
def test_globally(amount, before):
    def change(side, u, m):
        if before:
            m = globally(side, u, m, PLACES[:1], pruning_method=u.L1Unstructured, amount=2)
        return globally(side, u, m, PLACES, pruning_method=u.L1Unstructured, amount=amount)

    _, ours = both_sides(change, networks)
    assert prune.is_pruned(ours)
    assert prune.is_pruned(ours.b)


def test_globally_by_scores():
    def change(side, u, m):
        scores = {("b", "bias"): side.array([0.0, 9.0]), ("a", "weight"): side.array([[5.0] * 4] * 3)}
        return globally(side, u, m, PLACES, scores, pruning_method=u.L1Unstructured, amount=4)

    both_sides(change, networks)


def test_globally_with_selectors():
    model = pair(networks)["purestate"]
    pruned = prune.global_unstructured(model, [(nn.Linear, "weight")], prune.L1Unstructured, amount=6)
    again = prune.global_unstructured(
        model, [("a", "weight"), ("b", "weight")], prune.L1Unstructured, amount=6
    )
    assert pruned._definition is again._definition
    assert (pruned.a.weight_mask == again.a.weight_mask).all()


def test_what_is_refused_globally():
    def ask(side, u, m):
        def run(**kwargs):
            return outcome(lambda: globally(side, u, m, PLACES, **kwargs))

        return (
            run(pruning_method=u.L1Unstructured, amount=100),
            run(pruning_method=u.L1Unstructured, amount=-1),
        )

    agree(ask, networks)
    model = pair(networks)["purestate"]
    with pytest.raises(TypeError, match="is not an Iterable"):
        prune.global_unstructured(model, 5, prune.L1Unstructured)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="must be of type dict"):
        prune.global_unstructured(model, PLACES, prune.L1Unstructured, 5)  # pyright: ignore
    with pytest.raises(TypeError, match='Only "unstructured" PRUNING_TYPE supported'):
        prune.global_unstructured(model, PLACES, prune.LnStructured, amount=1, n=2)


AMOUNTS = [1.5, -0.1, -1, "half", None, 13, 2.0, np.float32(0.5), np.int64(2)]


@pytest.mark.parametrize("amount", AMOUNTS, ids=repr)
@pytest.mark.parametrize("function", ["l1_unstructured", "ln_structured"])
def test_amounts(amount, function):
    def ask(side, u, m):
        more = (2, 0) if function == "ln_structured" else ()
        return outcome(lambda: getattr(u, function)(m, "weight", amount, *more))

    agree(ask)


@pytest.mark.parametrize("amount", AMOUNTS, ids=repr)
@pytest.mark.parametrize("function", ["random_unstructured", "random_structured"])
def test_amounts_of_what_is_drawn(amount, function):
    def ask(side, u, m):
        more = {"dim": 0} if function == "random_structured" else {}
        if side is OURS:
            more["rng"] = 0
        return outcome(lambda: getattr(u, function)(m, "weight", amount, **more))

    agree(ask)


REFUSED = {
    "unknown": lambda side, u, m: u.identity(m, "unknown"),
    "a plain attribute": lambda side, u, m: u.l1_unstructured(m, "in_features", 1),
    "no channels": lambda side, u, m: u.ln_structured(m, "bias", 1, 2, 0),
    "no such axis": lambda side, u, m: u.ln_structured(m, "weight", 1, 2, 2),
    "mask of another shape": lambda side, u, m: u.custom_from_mask(m, "weight", side.array([1.0])),
    "scores of another shape": lambda side, u, m: u.l1_unstructured(
        m, "weight", 1, importance_scores=side.array([1.0])
    ),
    "remove": lambda side, u, m: u.remove(m, "weight"),
    "remove unknown": lambda side, u, m: u.remove(m, "unknown"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    def ask(side, u, m):
        error = outcome(lambda: REFUSED[name](side, u, m))
        if side is OURS:
            assert list(side.state_dict(m)) == ["weight", "bias"]  # torch's rollback moves a name.
        return error if name != "a plain attribute" else error is not None

    assert agree(ask) is not None


def test_a_buffer_is_refused():
    def ask(side, u, m):
        return outcome(lambda: u.l1_unstructured(m, "running_mean", 1))

    assert agree(ask, norm)[0] == "TypeError"


def test_a_refused_second_pruning_leaves_the_first():
    ours = prune.l1_unstructured(pair(linear)["purestate"], "weight", 5)
    with pytest.raises(ValueError, match="amount=8"):
        prune.l1_unstructured(ours, "weight", 8)
    theirs = torch_prune.l1_unstructured(torch.nn.Linear(4, 3), "weight", 5)
    with pytest.raises(ValueError, match="amount=8"):
        torch_prune.l1_unstructured(theirs, "weight", 8)
    assert not torch_prune.is_pruned(theirs)  # It forgot the first.
    assert prune.is_pruned(ours)


@pytest.mark.parametrize("amount", [5, 0.25])
def test_at_random(amount):
    model = pair(networks)["purestate"]
    number = amount if isinstance(amount, int) else round(amount * 12)
    pruned = prune.random_unstructured(model, "weight", amount, rng=0, at="a")
    assert int((pruned.a.weight_mask == 0).sum()) == number
    again = prune.random_unstructured(model, "weight", amount, rng=jax.random.key(0), at="a")
    assert (again.a.weight_mask == pruned.a.weight_mask).all()
    other = prune.random_unstructured(model, "weight", amount, rng=1, at="a")
    assert not (other.a.weight_mask == pruned.a.weight_mask).all()
    more = prune.random_unstructured(pruned, "weight", 2, rng=3, at="a")
    assert int((more.a.weight_mask == 0).sum()) == number + 2
    everywhere = prune.random_unstructured(model, "weight", 3, rng=0, at=nn.Linear)
    assert int((everywhere.b.weight_mask == 0).sum()) == 3
    with pytest.raises(ps.MissingRngError, match="rng="):
        prune.random_unstructured(model, "weight", 3, at="a")


def test_channels_at_random():
    model = pair(conv)["purestate"]
    pruned = prune.random_structured(model, "weight", 2, 1, rng=0)
    channels = pruned.weight_mask.sum((0, 2, 3))
    assert sorted(channels.tolist()) == [0, 0, 12, 12]
    more = prune.random_structured(pruned, "weight", 1, 1, rng=0)
    assert sorted(more.weight_mask.sum((0, 2, 3)).tolist()) == [0, 0, 0, 12]
    whole = prune.global_unstructured(
        pair(networks)["purestate"], PLACES, prune.RandomUnstructured, amount=5, rng=0
    )
    assert sum(int((b == 0).sum()) for b in whole.buffers()) == 5


def test_a_pruned_value_is_never_stale():
    model = prune.l1_unstructured(pair(linear)["purestate"], "weight", 5)
    sd = {name: np.ones_like(value) for name, value in bridge.state_dict(model).items()}
    loaded, _ = bridge.load_state_dict(model, sd)
    assert (loaded.weight == 1).all()
    assert bridge.bfloat16(model).weight.dtype == jnp.bfloat16
    theirs = torch_prune.l1_unstructured(torch.nn.Linear(4, 3), "weight", 5)
    theirs.load_state_dict(
        {name: torch.ones_like(value) for name, value in theirs.state_dict().items()}
    )
    assert not (theirs.weight == 1).all()  # Until it is called.


def test_copies():
    model = prune.l1_unstructured(pair(linear)["purestate"], "weight", 5)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), jax.jit(lambda m: m)(model)):
        assert again._definition is model._definition
        assert (again.weight == model.weight).all()
    theirs = torch_prune.l1_unstructured(torch.nn.Linear(4, 3), "weight", 5)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(theirs)


def test_gradients_and_training():
    theirs, ours = both_sides(lambda side, u, m: u.l1_unstructured(m, "weight", 5))
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    definition, params, buffers = ps.split(ours)

    @jax.jit
    def step(params):
        grads = jax.grad(lambda p: (ps.apply(definition, p, buffers, x)[0] ** 2).sum())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    for _ in range(20):
        optimizer.zero_grad()
        (theirs(torch.tensor(x)) ** 2).sum().backward()
        optimizer.step()
        params = step(params)
    same_state(ps.merge(definition, params, buffers), theirs)


def test_files(tmp_path):
    def build(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = tools(side).identity(side.nn.Linear(4, 3), "weight")
                self.b = side.nn.Sequential(tools(side).identity(side.nn.Linear(3, 2), "bias"))

        return Net()

    ours = ps.init(build(OURS), 0)
    ours = prune.l1_unstructured(ours, "weight", 5, at="a")
    bridge.save(bridge.state_dict(ours), tmp_path / "ours.pt")
    theirs = build(TORCH)
    loaded = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert theirs.load_state_dict(loaded, strict=True) == ([], [])
    same_state(ours, theirs)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    again, report = bridge.load_state_dict(build(OURS), bridge.load(tmp_path / "theirs.pt"))
    assert report == ([], [])
    same_state(again, theirs)
    assert (again.a.weight == ours.a.weight).all()


def test_before_there_are_values():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = prune.random_unstructured(nn.Linear(4, 3), "weight", 5, rng=0)
            prune.identity(self.fc, "bias")

    plain = ps.init(nn.ModuleDict({"fc": nn.Linear(4, 3)}), 0)["fc"]
    net = Net()
    assert prune.is_pruned(net)
    assert net.fc.weight.shape == (3, 4)
    drawn = ps.init(net, 0)
    assert (drawn.fc.weight_orig == plain.weight).all()
    assert (drawn.fc.bias == plain.bias).all()
    for change in (
        lambda m: prune.l1_unstructured(m, "weight", 5),
        lambda m: prune.ln_structured(m, "weight", 1, 2, 0),
        lambda m: prune.remove(prune.identity(m, "weight"), "weight"),
    ):
        with pytest.raises(ps.UninitializedError):
            change(nn.Linear(4, 3))
    scored = prune.l1_unstructured(nn.Linear(4, 3), "weight", 5, jnp.arange(12.0).reshape(3, 4))
    assert int((scored.weight_mask == 0).sum()) == 5


def test_in_a_constructor():
    seen: Any = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            seen.append(prune.is_pruned(self))
            assert prune.identity(self.fc, "weight") is self.fc
            prune.identity(self, "bias", at="fc")
            seen.append(prune.is_pruned(self))
            with pytest.raises(RuntimeError, match="weight_orig"):
                self.fc.weight = jnp.ones((3, 4))
            with pytest.raises(AttributeError, match=r"prune\.remove"):
                del self.fc.weight
            prune.global_unstructured(self, [("fc", "bias")], prune.Identity)

    assert list(bridge.state_dict(Net())) == [
        "fc.weight_orig",
        "fc.bias_orig",
        "fc.weight_mask",
        "fc.bias_mask",
    ]
    assert seen == [False, True]


def test_tied_weights():
    def tied(library):
        class Net(library.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = library.Linear(3, 3), library.Linear(3, 3)
                self.b.weight = self.a.weight

        return Net()

    def change(side, u, m):
        if side is OURS:
            return u.custom_from_mask(m, "weight", jnp.eye(3), at="a")
        u.custom_from_mask(m.a, "weight", torch.eye(3))
        return m

    _, ours = both_sides(change, tied)
    assert ours.a.weight_orig is ours.b.weight


def test_with_a_parametrization():
    def ask(side, u, m):
        norm = bridge.parametrize if side is OURS else torch.nn.utils.parametrizations
        pruned = u.identity(m, "weight")
        first = outcome(lambda: norm.weight_norm(pruned))
        second = outcome(lambda: u.identity(norm.weight_norm(side.nn.Linear(2, 2)), "weight"))
        return first, second and second[0]

    assert agree(ask)[1] == "TypeError"


def test_a_parametrized_original():
    model = prune.custom_from_mask(ps.init(nn.Linear(2, 2), 0), "weight", jnp.eye(2))
    both = bridge.parametrize.weight_norm(model, "weight_orig")
    assert "Parametrized" in repr(both)
    assert_close(both.weight, model.weight)
    assert_close(both(jnp.ones((1, 2))), model(jnp.ones((1, 2))))


def test_container():
    container = prune.PruningContainer(prune.Identity())
    container.add_pruning_method(prune.L1Unstructured(2))
    assert len(container) == 2
    assert [type(method).__name__ for method in container] == ["Identity", "L1Unstructured"]
    assert isinstance(container[0], prune.Identity)
    with pytest.raises(TypeError, match="is not a BasePruningMethod subclass"):
        container.add_pruning_method(3)
    t = jnp.array([3.0, 1.0, 2.0, 4.0])
    mask = container.compute_mask(t, jnp.array([1.0, 1.0, 1.0, 0.0]))
    assert mask.tolist() == [1, 0, 0, 0]
    theirs = torch_prune.L1Unstructured(2).prune(torch.tensor([3.0, 1.0, 2.0, 4.0]))
    assert_close(prune.L1Unstructured(2).prune(t), theirs)


def test_arrays_of_torch_stay_with_torch():
    models = pair(linear)
    assert list(arrays(models["torch"].state_dict())) == list(bridge.state_dict(models["purestate"]))


@pytest.mark.parametrize("times", [1, 2])
def test_the_mask_of_a_float64_weight_is_saved_as_torch_does(times):
    theirs = torch.nn.Linear(4, 3, dtype=torch.float64)
    sd = {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(nn.Linear(4, 3), sd, assign=True)
    for _ in range(times):
        torch_prune.l1_unstructured(theirs, "weight", 2)
        ours = prune.l1_unstructured(ours, "weight", 2)
    assert {name: str(value.dtype) for name, value in bridge.state_dict(ours).items()} == {
        name: str(value.dtype).removeprefix("torch.") for name, value in theirs.state_dict().items()
    }
