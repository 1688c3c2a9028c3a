# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What a module holds
#
# **Question.** What is inside a `torch.nn.Module` object, and where does each part live when a
# model is a value?
#
# **Answer.** Seventeen slots: five hold the state, twelve the hooks. In `purestate` the arrays are
# the leaves of a pytree, and all the rest is one immutable definition that the leaves travel with.
#
# Every statement below is an `assert` in the cell that shows it.

# %% [markdown]
# ## Setup

# %%
import tempfile

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import torch
from _study import Table, arrays, changed, gap, outcome, side_by_side, to_numpy, versions

import bridge
import purestate as ps
from purestate import nn


torch.manual_seed(0)
versions()

# %% [markdown]
# ## The seventeen slots
#
# A fresh `torch.nn.Module` has them before anything is assigned. The left of this table is read from
# the live object; the right says where each slot went.

# %%
slots = vars(torch.nn.Module())


def function(name):
    assert name in dir(bridge)
    return f"bridge.{name}"


here = {
    "training": "a flag of the node; bridge.train and bridge.eval return another definition",
    "_parameters": "one leaf each; the node has (name, leaf number)",
    "_buffers": "one leaf each; the node has (name, leaf number, persistent)",
    "_non_persistent_buffers_set": "the third field of the buffer above",
    "_backward_pre_hooks": function("register_full_backward_pre_hook"),
    "_backward_hooks": function("register_full_backward_hook"),
    "_is_full_backward_hook": "nowhere: it marks legacy hooks, and there are none to mark",
    "_forward_hooks": function("register_forward_hook"),
    "_forward_hooks_with_kwargs": "an option of " + function("register_forward_hook"),
    "_forward_hooks_always_called": "an option of " + function("register_forward_hook"),
    "_forward_pre_hooks": function("register_forward_pre_hook"),
    "_forward_pre_hooks_with_kwargs": "an option of " + function("register_forward_pre_hook"),
    "_state_dict_hooks": function("register_state_dict_post_hook"),
    "_state_dict_pre_hooks": function("register_state_dict_pre_hook"),
    "_load_state_dict_pre_hooks": function("register_load_state_dict_pre_hook"),
    "_load_state_dict_post_hooks": function("register_load_state_dict_post_hook"),
    "_modules": "(name, node number) in the node; a shared module is one number twice",
}
assert list(here) == list(slots)
assert (len(slots), sum("hook" in slot for slot in slots)) == (17, 12)
rows = [(slot, type(value).__name__, repr(value), here[slot]) for slot, value in slots.items()]
Table(["slot", "type", "at first", "here"], rows)

# %% [markdown]
# ## One class, written twice
#
# Six assignments: the five that PyTorch tells apart, and a list of modules. The lines have the same
# order and the same names.


# %%
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("mask", torch.ones(2), persistent=False)
        self.scale = torch.full((2,), 2.0)
        self.head = torch.nn.Linear(2, 2)
        self.layers = [torch.nn.Linear(2, 2)]

    def forward(self, x):
        return self.head(self.weight * (x - self.mean) * self.mask * self.scale)


TorchNet, theirs = Net, Net()


# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(jnp.ones(2))
        self.register_buffer("mean", jnp.zeros(2))
        self.register_buffer("mask", jnp.ones(2), persistent=False)
        self.scale = jnp.full((2,), 2.0)
        self.head = nn.Linear(2, 2)
        self.layers = [nn.Linear(2, 2)]

    def forward(self, x):
        return self.head(self.weight * (x - self.mean) * self.mask * self.scale)


ours, report = bridge.load_state_dict(Net(), arrays(theirs.state_dict()))

# %% [markdown]
# `Net()` has shapes and no numbers yet; the load fills it with the very weights that torch drew.
# Now both objects, slot by slot.

# %%
x = np.array([[2.5, 3.0], [-1.0, 0.5]], np.float32)
assert str(report) == "<All keys matched successfully>"
assert gap(theirs(torch.tensor(x)), ours(x)) <= 1e-6

definition, params, buffers = ps.split(ours)
root = definition.nodes[0]
assert vars(ours) == {}, "no instance dictionary: the value is its leaves and its definition"
assert set(vars(theirs)) - set(slots) == {"scale", "layers"}

unsaved = [name for name, _, persistent in root.buffers if not persistent]
held = {
    "training": (theirs.training, root.training),
    "_parameters": (list(theirs._parameters), [name for name, _ in root.parameters]),
    "_buffers": (list(theirs._buffers), [name for name, _, _ in root.buffers]),
    "_non_persistent_buffers_set": (list(theirs._non_persistent_buffers_set), unsaved),
    "_modules": (list(theirs._modules), [name for name, _ in root.modules]),
    "(plain attributes)": (["scale", "layers"], [attribute.name for attribute in root.attributes]),
}
assert all(left == right for left, right in held.values())
assert all(not vars(theirs)[slot] for slot in slots if slot not in held), "the hook slots are empty"
rows = [(slot, repr(left), repr(right)) for slot, (left, right) in held.items()]
Table(["slot", "torch object", "purestate definition"], rows)

# %% [markdown]
# ## Six assignments, six fates
#
# **Predict first.** For each name: does an optimizer step change it (`trains`), is it in the
# `state_dict` (`saved`), does `.double()` convert it (`moves`)? Below stands a guess that many
# people start from, "what I assign to `self` is part of the model". Put your own in its place.

# %%
names = ["weight", "mean", "mask", "scale", "head.weight", "layers.0.weight"]
prediction = {name: {"trains": True, "saved": True, "moves": True} for name in names}


def read(model, name):
    if name == "layers.0.weight":
        return model.layers[0].weight
    path, _, last = name.rpartition(".")
    return getattr(model.get_submodule(path), last)


# %% [markdown]
# **Run: PyTorch.** The step, the save and the cast each change the object.

# %%
before = arrays((name, read(theirs, name)) for name in names)

optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
loss_theirs = (theirs(torch.tensor(x)) ** 2).sum()
loss_theirs.backward()
optimizer.step()

trained_theirs = changed(before, arrays((name, read(theirs, name)) for name in names))
stepped_theirs = arrays(theirs.named_parameters())
theirs.double()
moved_theirs = [name for name in names if read(theirs, name).dtype == torch.float64]

# %% [markdown]
# **Run: purestate.** The step, the save and the cast each return something; `ours` stays as it was.


# %%
def loss(params):
    y, _ = ps.apply(definition, params, buffers, x)
    return (y**2).sum()


loss_ours, gradient = jax.value_and_grad(loss)(params)
stepped = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

trained_ours = [name for name in names if name in changed(params, stepped)]
with jax.enable_x64(True):
    double = bridge.double(ours)
moved_ours = [name for name in names if read(double, name).dtype == jnp.float64]
assert ours.weight.dtype == jnp.float32

# %% [markdown]
# **The answer** is the same in both libraries, and the numbers after the step as well.

# %%
truth_theirs = {"trains": trained_theirs, "saved": list(theirs.state_dict()), "moves": moved_theirs}
truth_ours = {"trains": trained_ours, "saved": list(bridge.state_dict(ours)), "moves": moved_ours}
fate_theirs = np.array([[name in group for group in truth_theirs.values()] for name in names])
fate_ours = np.array([[name in group for group in truth_ours.values()] for name in names])
assert (fate_theirs == fate_ours).all()
assert truth_theirs["saved"] == truth_ours["saved"] == ["weight", "mean", "head.weight", "head.bias"]
assert trained_theirs == ["weight", "head.weight"]
assert moved_theirs == ["weight", "mean", "mask", "head.weight"]
assert abs(loss_theirs.item() - float(loss_ours)) <= 1e-5
assert gap(stepped_theirs, stepped) <= 1e-6

guess = np.array([list(prediction[name].values()) for name in names])
print(f"the prediction is right in {(guess == fate_ours).sum()} of {guess.size} places")

figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
for axis, fate, title in zip(axes, (fate_theirs, fate_ours), ("torch", "purestate"), strict=True):
    axis.imshow(fate, cmap="Greens", vmin=0, vmax=2, aspect="auto")
    axis.set(title=title, xticks=range(3), xticklabels=truth_ours, yticks=range(6), yticklabels=names)
    for (row, column), answer in np.ndenumerate(fate):
        axis.text(column, row, "yes" if answer else "no", ha="center", va="center")

# %% [markdown]
# `bridge.audit` answers the three questions for any model, without running it.

# %%
audit = bridge.audit(ours)
for name, fate in zip(names[:5], fate_theirs[:5], strict=True):
    assert (audit[name].trains, audit[name].saved, audit[name].moves) == tuple(fate), name
audit

# %% [markdown]
# ## The list of modules, when `forward` uses it
#
# In PyTorch this runs, with weights that no optimizer, no file and no cast will ever reach (backward
# even computes their gradients). Here a list is a constant of the definition, `init` and
# `load_state_dict` do not reach into it, and the first call says that its arrays have no values.


# %%
def with_list(base):
    class Net(base):
        def forward(self, x):
            return self.layers[0](super().forward(x))

    return Net()


listed_theirs, listed_ours = with_list(TorchNet), ps.init(with_list(Net), 0)
listed = side_by_side(
    torch=lambda: listed_theirs(torch.tensor(x)).shape, purestate=lambda: listed_ours(x).shape
)
assert [result.error for result in listed] == [None, "UninitializedError"]
listed_theirs(torch.tensor(x)).sum().backward()
assert listed_theirs.layers[0].weight.grad is not None
assert all(p is not listed_theirs.layers[0].weight for p in listed_theirs.parameters())

# %% [markdown]
# ## Refused in both: the guards of registration
#
# While a constructor runs, `self` is open in both libraries and the same mistakes raise the same
# error with the same text.


# %%
def early(self, start, nn, array):
    self.weight = nn.Parameter(array)


def mistyped(self, start, nn, array):
    start()
    self.weight = nn.Parameter(array)
    self.weight = "zero"


def construct(library, array, body):
    class Net(library.Module):
        def __init__(self):
            body(self, super().__init__, library, array)

    return outcome(Net)


guards = (early, mistyped)
refused_theirs = [construct(torch.nn, torch.ones(2), body) for body in guards]
refused_ours = [construct(nn, jnp.ones(2), body) for body in guards]
assert refused_theirs == refused_ours
assert all(result.error for result in refused_ours)
Table(["in a constructor", "both raise"], zip(("early", "mistyped"), refused_ours, strict=True))

# %% [markdown]
# ## Refused in one: change after construction
#
# A PyTorch module stays open for ever. A finished model here is a value: each attempt names the pure
# function to use instead.

# %%
attempts = {
    "model.weight = a parameter": lambda m, nn, a: setattr(m, "weight", nn.Parameter(a)),
    "model.mean = an array": lambda m, nn, a: setattr(m, "mean", a),
    "model.extra = an array": lambda m, nn, a: setattr(m, "extra", a),
    "model.head = a module": lambda m, nn, a: setattr(m, "head", nn.Linear(2, 3)),
    "model.eval()": lambda m, nn, a: m.eval() and None,
}
late_theirs = [outcome(lambda t=t: t(TorchNet(), torch.nn, torch.ones(2))) for t in attempts.values()]
late_ours = [outcome(lambda t=t: t(ours, nn, jnp.ones(2))) for t in attempts.values()]
assert all(result.error is None for result in late_theirs)
assert all(result.error == "FrozenModelError" for result in late_ours)
Table(["attempt", "torch", "purestate"], zip(attempts, late_theirs, late_ours, strict=True))

# %% [markdown]
# The functions those messages name return a new model; the old one is still there.

# %%
replaced = ps.replace(ours, {"mean": jnp.ones(2)})
evaluating = bridge.eval(ours)
assert (replaced.mean.tolist(), ours.mean.tolist()) == ([1, 1], [0, 0])
assert (evaluating.training, ours.training) == (False, True)
assert all(a is b for a, b in zip(jax.tree.leaves(evaluating), jax.tree.leaves(ours), strict=True))

# %% [markdown]
# ## A flag flips between two versions of a class
#
# Version 1 saves the mask, version 2 does not. The file is from version 1. Both libraries give the
# same report when not strict, and the same error when strict.


# %%
def version(number, library, ones):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.weight = library.Parameter(ones(2))
            self.register_buffer("mask", ones(2), persistent=number == 1)

    return Net()


old = version(1, torch.nn, lambda n: torch.full((n,), 5.0)).state_dict()
new_theirs, new_ours = version(2, torch.nn, torch.ones), version(2, nn, jnp.ones)
strict = side_by_side(
    torch=lambda: new_theirs.load_state_dict(old),
    purestate=lambda: bridge.load_state_dict(new_ours, arrays(old)),
)
assert strict[0] == strict[1]
assert strict[0].error == "RuntimeError"
half_loaded = [to_numpy(model.weight).tolist() == [5, 5] for model in (new_theirs, new_ours)]
assert half_loaded == [True, False]

loose_theirs = new_theirs.load_state_dict(old, strict=False)
loaded, loose_ours = bridge.load_state_dict(new_ours, arrays(old), strict=False)
assert tuple(loose_theirs) == tuple(loose_ours) == ([], ["mask"])
assert new_theirs.mask.tolist() == loaded.mask.tolist() == [1, 1]
assert new_theirs.weight.tolist() == loaded.weight.tolist() == [5, 5]
print("not strict:", loose_ours)

# %% [markdown]
# One thing differs. PyTorch copies entry by entry, which needs no second model in memory, so after
# the strict error `weight` is already the file's (`half_loaded`). A function that returns the loaded
# model has returned nothing when it raises.

# %% [markdown]
# ## Ties: one array, two names
#
# `decode.weight = encode.weight` in both. The tied gradient is the sum of the two gradients that the
# untied network has at the same weights.


# %%
def autoencoder(library, tied):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.encode = library.Linear(2, 2, bias=False)
            self.decode = library.Linear(2, 2, bias=False)
            if tied:
                self.decode.weight = self.encode.weight

        def forward(self, x):
            return self.decode(self.encode(x))

    return Net()


def gradient_theirs(model):
    (model(torch.tensor(x)) ** 2).sum().backward()
    return arrays((name, p.grad) for name, p in model.named_parameters())


def gradient_ours(model):
    definition, params, buffers = ps.split(model)
    return jax.grad(lambda p: (ps.apply(definition, p, buffers, x)[0] ** 2).sum())(params)


tied_theirs, untied_theirs = autoencoder(torch.nn, True), autoencoder(torch.nn, False)
weights = arrays(tied_theirs.state_dict())
untied_theirs.load_state_dict(tied_theirs.state_dict())
tied_ours, _ = bridge.load_state_dict(autoencoder(nn, True), weights)
untied_ours, _ = bridge.load_state_dict(autoencoder(nn, False), weights)
once_theirs, once_ours = gradient_theirs(tied_theirs), gradient_ours(tied_ours)
assert list(once_theirs) == list(once_ours) == ["encode.weight"]
assert list(bridge.state_dict(tied_ours)) == list(weights) == ["encode.weight", "decode.weight"]
assert len(jax.tree.leaves(tied_ours)) == len(list(tied_theirs.parameters())) == 1
assert gap(sum(gradient_theirs(untied_theirs).values()), once_theirs["encode.weight"]) <= 1e-4
assert gap(sum(gradient_ours(untied_ours).values()), once_ours["encode.weight"]) <= 1e-4
assert gap(once_theirs, once_ours) <= 1e-4

# %% [markdown]
# A file holds both names, whichever library wrote it, and torch reads one storage behind them.

# %%
with tempfile.TemporaryDirectory() as folder:
    torch.save(tied_theirs.state_dict(), f"{folder}/theirs.pt")
    bridge.save(bridge.state_dict(tied_ours), f"{folder}/ours.pt")
    for name in ("theirs.pt", "ours.pt"):
        file = torch.load(f"{folder}/{name}")
        assert list(file) == list(bridge.load(f"{folder}/{name}")) == list(weights)
        assert len({tensor.data_ptr() for tensor in file.values()}) == 1
        assert gap(file, bridge.load(f"{folder}/{name}")) == 0.0

# %% [markdown]
# ## Findings

# %%
agree = sum(left == right for left, right in zip(refused_theirs, refused_ours, strict=True))
late = [sum(result.error is not None for result in results) for results in (late_theirs, late_ours)]
rows = [
    ("entries of vars() of an empty module", len(slots), len(vars(nn.Module()))),
    ("fates that the other library shares, of 18", *[(fate_theirs == fate_ours).sum()] * 2),
    (f"constructor errors that the other shares, of {len(guards)}", agree, agree),
    ("a list of modules used in forward", *(result.error or "runs" for result in listed)),
    (f"changes after construction refused, of {len(attempts)}", *late),
    ("report when the mask is no longer saved", tuple(loose_theirs), tuple(loose_ours)),
    ("half loaded after a strict error", *half_loaded),
    ("gradients / names in the file of a tie", *[f"{len(once_ours)} / {len(file)}"] * 2),
]
Table(["finding", "torch", "purestate"], rows)

# %% [markdown]
# ## When to choose what
#
# **An object that stays open** suits exploration: add a layer in a debugger, attach a hook to a
# running model, cast it where it stands, with no second copy in memory. Every library that expects a
# `torch.nn.Module` takes it. What you pay is care: for aliases, half-done loads, modules in lists.
#
# **A value** suits work where the state itself is the subject: transforms over models, exact replay,
# ensembles, models that several threads read. What you pay is a line of bookkeeping: the new model is
# a return value, and you have to keep it. A hook is such a new model too, so what it records has to be
# returned or written to a buffer.
#
# Files and names are the same, so the choice can be made anew for each program.
