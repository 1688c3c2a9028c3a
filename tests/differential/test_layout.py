"""What a module is made of, next to torch's: slots, class attributes, boxes, methods, versions.

The number in a name is the row of torch's contract.
"""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.modules import module as torch_module

import bridge
import purestate as ps
from purestate import nn
from purestate._errors import REMEDIES
from tests.differential.sides import OURS, SIDES, TORCH, construct, outcome


def test_the_slots_of_a_module_1():
    """Torch's ten tables of hooks are one here; the rest has its names, order, types and contents."""
    seen = {}
    for side in SIDES:
        construct(side, lambda side, m: seen.update({side.name: dict(vars(m))}))
    ours, theirs = seen["purestate"], seen["torch"]
    assert len(theirs) == 17
    shared = [name for name in theirs if name in ours]
    assert shared == [
        "training",
        "_parameters",
        "_buffers",
        "_non_persistent_buffers_set",
        "_modules",
    ]
    assert [name for name in ours if name in theirs] == shared
    assert all(name.endswith("hooks") or "hook" in name for name in theirs.keys() - shared)
    assert ours.keys() - shared == {"_life", "_registered_hooks", "_computed_names"}
    for name in shared:
        assert type(ours[name]) is type(theirs[name])
        assert ours[name] == theirs[name]


def test_class_attributes_2():
    for name in ("_version", "call_super_init"):
        assert getattr(nn.Module, name) == getattr(torch.nn.Module, name)
    # What is left of older files and of torch.compile.
    for name in ("dump_patches", "_compiled_call_impl"):
        assert hasattr(torch.nn.Module, name)
        assert not hasattr(nn.Module, name)
    said = [outcome(lambda make=make: make()(1)) for make in (torch.nn.Module, nn.Module)]
    assert (
        said[0]
        == said[1]
        == (
            "NotImplementedError",
            'Module [Module] is missing the required "forward" function',
        )
    )


@pytest.mark.parametrize("how", ["in place", "another", "parameter"])
def test_adding_in_forward_21(how):
    """A buffer takes it in both forms, a parameter in none."""

    def build(side, m):
        class Counts(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = side.nn.Parameter(side.array([1.0]))
                self.register_buffer("count", side.array([1.0]))

            def forward(self):
                if how == "parameter":
                    self.weight += 1
                elif how == "in place":
                    self.count += 1
                else:
                    self.count = self.count + 1

        m.inner = Counts()

    theirs, ours = construct(TORCH, build).inner, construct(OURS, build).inner
    if how == "parameter":
        for call, kind in ((theirs, "RuntimeError"), (lambda: ps.call(ours), "FrozenModelError")):
            assert str(outcome(call)).startswith(f"('{kind}', ")
        return
    theirs()
    _, after = ps.call(ours)
    assert theirs.count.tolist() == after.count.tolist() == [2.0]
    assert ours.count.tolist() == [1.0]


def test_adding_in_place_to_a_parameter_in_a_constructor_21():
    def build(side, m):
        m.x = side.nn.Parameter(side.array([1.0]))
        m.x += 1

    def add(side, m):
        m.register_buffer("x", side.array([1.0]), persistent=False)
        m.x += 1

    for side in SIDES:
        refused = outcome(lambda: construct(side, build))  # noqa: B023
        assert refused is not None
        model = construct(side, add)
        assert side.numpy(model.x).tolist() == [2.0]
        assert side.unsaved(model) == {"x"}


def test_a_parameter_of_nothing_27():
    ours, theirs = nn.Parameter(), torch.nn.Parameter()
    assert ours.shape == tuple(theirs.shape) == (0,)
    assert ours.requires_grad is theirs.requires_grad is True
    assert repr(ours).splitlines()[0] == repr(theirs).splitlines()[0] == "Parameter containing:"
    texts = [
        outcome(lambda: nn.Parameter(jnp.array([1]))),
        outcome(lambda: torch.nn.Parameter(torch.tensor([1]))),
    ]
    assert texts[0] == texts[1]
    for side in SIDES:
        parameter = side.nn.Parameter(side.array([1.0]))
        assert isinstance(parameter, side.nn.Parameter)
        assert not isinstance(parameter * 2, side.nn.Parameter)
    with torch.no_grad():
        assert torch.nn.Parameter(torch.ones(1)).requires_grad


def test_a_buffer_and_what_is_made_of_it_28():
    def build(side, m):
        m.x = side.nn.Buffer(side.array([1.0]), persistent=False)
        m.y = m.x
        m.z = m.x * 2
        m.weight = side.nn.Parameter(side.array([1.0]))
        m.requires_grad_(False)
        m.requires_grad_(True)
        seen.append(isinstance(m.x, side.nn.Buffer))
        seen.append(isinstance(m.z, side.nn.Buffer))

    found = []
    for side in SIDES:
        seen: list[Any] = []
        model = construct(side, build)
        buffers = [name for name, _ in model.named_buffers(remove_duplicate=False)]
        found.append((seen, buffers, side.unsaved(model), [n for n, _ in model.named_parameters()]))
    assert found[0] == found[1]
    assert found[0] == ([True, False], ["x", "y"], {"x", "y"}, ["weight"])


def test_a_type_of_ones_own_29():
    """Torch keeps a subclass of Tensor; here whatever gives an array is that array."""

    class Own(torch.Tensor):
        pass

    class Gives:
        def __jax_array__(self):
            return jnp.ones(2)

    assert type(torch.nn.Parameter(torch.ones(2).as_subclass(Own)).data) is Own
    assert isinstance(nn.Parameter(Gives()).data, jax.Array)


def test_attributes_of_a_parameter_30():
    """Torch's deep copy drops them, so here a Parameter takes none; the flag is kept on both sides."""
    theirs = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    theirs.note = "gone"  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(copy.deepcopy(theirs), "note")
    ours = nn.Parameter(jnp.ones(1), requires_grad=False)
    with pytest.raises(AttributeError, match="no attribute 'note'"):
        ours.note = "refused"  # pyright: ignore[reportAttributeAccessIssue]
    assert copy.deepcopy(theirs).requires_grad is copy.deepcopy(ours).requires_grad is False


def test_a_lazy_model_is_frozen_and_cast_before_it_has_shapes_31():
    """Torch casts it but refuses the flag."""
    assert torch.nn.LazyLinear(2).double().weight.dtype == torch.float64
    assert bridge.half(nn.LazyLinear(2)).weight.dtype == jnp.float16
    refused = outcome(lambda: torch.nn.LazyLinear(2).requires_grad_(False))
    assert refused is not None
    assert refused[0] == "ValueError"
    frozen = ps.init(bridge.requires_grad(nn.LazyLinear(2), False), 0, jnp.ones((1, 3)))
    assert list(ps.split(frozen)[1]) == []


def test_the_classes_of_another_version_than_one_75():
    found = [
        {name for name, cls in vars(library).items() if getattr(cls, "_version", 1) == 2}
        for library in (torch.nn, nn)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 13


def test_absent_biases_of_attention_are_no_slots_78():
    for options in ({}, {"kdim": 3}, {"add_bias_kv": True}, {"bias": False}):
        slots = []
        for library in (torch.nn, nn):

            class Host(library.Module):
                def __init__(self, library=library, options=options):
                    super().__init__()
                    self.part = library.MultiheadAttention(4, 2, **options)

            part = Host().part
            slots.append([(name, value is None) for name, value in part._parameters.items()])
            assert (part.bias_k is None) == (part.bias_v is None) == ("add_bias_kv" not in options)
        assert slots[0] == slots[1], options


def walked(side, m):
    """A module that two parents share, and one under two names of one parent."""
    m.shared = side.nn.ReLU()
    m.left = side.nn.Sequential(m.shared, side.nn.Tanh())
    m.right = side.nn.Sequential(m.shared)
    m.again = m.right


def test_apply_visits_children_first_and_a_shared_one_for_each_parent_89():
    def build(side, m):
        walked(side, m)
        assert m.apply(lambda module: seen.append(type(module).__name__)) is m

    found = []
    for side in SIDES:
        seen: list[str] = []
        construct(side, build)
        found.append(seen)
    assert found[0] == found[1]
    assert found[0].count("ReLU") == 3
    visits: list[str] = []
    ps.map_modules(
        construct(OURS, walked), lambda module: visits.append(type(module).__name__) or module
    )
    assert visits == ["ReLU", "Tanh", "Sequential", "Sequential", "Net"]  # A value: each once.


PRIVATE = {"T_destination", "dump_patches"}


def test_every_method_of_torch_is_one_here_or_says_what_to_write_91_92_162():
    public = {name for name in dir(torch.nn.Module) if not name.startswith("_")} - PRIVATE
    model = nn.ReLU()
    for name in sorted(public):
        if hasattr(nn.Module, name):
            continue
        assert name in REMEDIES, name
        with pytest.raises(ps.FrozenModelError, match="write: "):
            getattr(model, name)()
    said = {name: str(outcome(lambda name=name: getattr(model, name)())) for name in REMEDIES}
    assert "gradients are return values" in said["zero_grad"]
    assert "may be shared as they are" in said["share_memory"]
    assert "jax.jit" in said["compile"]
    for name in ("cpu", "cuda", "ipu", "mtia", "xpu"):
        assert "bridge.to(model, device=" in said[name], name


def test_positions_of_an_optimizer_are_those_of_the_names_167():
    """A tie once, in the order of ``named_parameters``; Adam's entries by position."""

    def build(side, m):
        m.embed = side.nn.Linear(2, 3)
        m.head = side.nn.Linear(2, 3)
        m.head.weight = m.embed.weight
        m.first = side.nn.Parameter(side.array([1.0]))

    theirs, ours = construct(TORCH, build), construct(OURS, build)
    optimizer = torch.optim.Adam(theirs.named_parameters())
    for parameter in theirs.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    saved = optimizer.state_dict()
    names = [name for name, _ in ours.named_parameters()]
    group = saved["param_groups"][0]
    assert group["param_names"] == names == ["first", "embed.weight", "embed.bias", "head.bias"]
    assert group["params"] == list(range(len(names)))
    shapes = {name: value.shape for name, value in ps.split(ours)[1].items()}
    for position, entry in saved["state"].items():
        assert list(entry) == ["step", "exp_avg", "exp_avg_sq"]
        assert tuple(entry["exp_avg"].shape) == shapes[names[position]]


def test_registration_hooks_of_all_modules_126():
    """Torch's see each registration; a class that overrides ``register_parameter`` sees it here too."""
    theirs: list[str] = []
    handle = torch_module.register_module_parameter_registration_hook(
        lambda module, name, value: theirs.append(name)
    )
    try:
        torch.nn.Linear(1, 1)
    finally:
        handle.remove()
    ours: list[str] = []

    class Watched(nn.Linear):
        def register_parameter(self, name, param):
            ours.append(name)
            super().register_parameter(name, param)

    Watched(1, 1)
    assert ours == theirs == ["weight", "bias"]


def test_a_weight_of_a_recurrence_that_is_put_in_later_is_used_93():
    """Torch keeps a second list of the weights in step; here there is one."""
    weight = np.ones((2, 2), np.float32)
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    theirs: Any = torch.nn.RNN(2, 2)
    ours, _ = bridge.load_state_dict(
        nn.RNN(2, 2), {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    )
    assigned, registered = copy.deepcopy(theirs), copy.deepcopy(theirs)
    assigned.weight_ih_l0 = torch.nn.Parameter(torch.tensor(weight))
    registered.register_parameter("weight_ih_l0", torch.nn.Parameter(torch.tensor(weight)))
    for changed, expected in (
        (ps.replace(ours, {"weight_ih_l0": weight}), assigned),
        (bridge.register_parameter(ours, "weight_ih_l0", weight), registered),
        (bridge.half(bridge.float(ours)), theirs.half()),
    ):
        dtype = changed.weight_ih_l0.dtype
        assert [w.dtype for layer in changed.all_weights for w in layer] == [dtype] * 4
        if dtype == jnp.float32:
            output = expected(torch.tensor(x))[0].detach()
            np.testing.assert_allclose(changed(x)[0], output, rtol=1e-5, atol=1e-6)
