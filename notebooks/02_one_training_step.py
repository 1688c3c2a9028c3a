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
# # One training step
#
# **Question.** What does one training step read, what does it write, and where does it put that?
#
# **Answer.** Both libraries read and write the same things and get the same numbers. PyTorch writes
# into the objects it was given; `purestate` takes all state as arguments and returns the new state.
#
# Every statement below is an `assert` in the cell that shows it.

# %% [markdown]
# ## Setup

# %%
import copy

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
import torch
from _study import Table, arrays, changed, gap, side_by_side, to_numpy, versions

import bridge
import purestate as ps
from purestate import nn


torch.manual_seed(0)
random = np.random.default_rng(0)
key = jax.random.key(0)
versions()

# %% [markdown]
# Synthetic data: two classes of points, one inside a ring of the other. 40 batches of 32.

# %%
steps, size = 40, 32
labels = random.integers(0, 2, (steps, size))
angles = random.uniform(0, 2 * np.pi, (steps, size))
radii = np.where(labels == 0, 1.0, 2.5) + random.normal(0, 0.3, (steps, size))
points = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=-1).astype(np.float32)

# %% [markdown]
# ## One network, written twice
#
# BatchNorm keeps statistics, dropout draws random numbers: the two layers whose calls do more than
# compute an output.


# %%
class Net(torch.nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.body = torch.nn.Linear(2, 16, bias=False)
        self.norm = torch.nn.BatchNorm1d(16)
        self.drop = torch.nn.Dropout(p)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, x):
        x = torch.nn.functional.relu(self.norm(self.body(x)))
        return self.head(self.drop(x))


TorchNet, theirs = Net, Net()


# %%
class Net(nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.body = nn.Linear(2, 16, bias=False)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(p)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        x = nn.functional.relu(self.norm(self.body(x)))
        return self.head(self.drop(x))


initial = arrays(theirs.state_dict())
ours, report = bridge.load_state_dict(Net(), initial)
assert str(report) == "<All keys matched successfully>"

# %% [markdown]
# ## What a call writes
#
# PyTorch: three buffers of the module and the state of a global generator are not what they were.
# Here: the call returns a second model with the three new buffers; the first one and the key are as
# they were.

# %%
x = torch.tensor(points[0])
generator = torch.get_rng_state()
y = theirs(x)
written_theirs = changed(initial, arrays(theirs.state_dict()))
generator_moved = not torch.equal(generator, torch.get_rng_state())

y, after = ps.call(ours, points[0], rng=key)
written_ours = changed(initial, bridge.state_dict(after))
assert (
    written_theirs
    == written_ours
    == ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
)
assert generator_moved
assert changed(initial, bridge.state_dict(ours)) == []
assert gap(theirs.state_dict(), bridge.state_dict(after)) <= 1e-6
shared = [a is b for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(after), strict=True)]
print(f"new arrays: {shared.count(False)}; shared with the old model: {shared.count(True)}")

# %% [markdown]
# ## What a call reads
#
# Change one thing at a time and see whether the output moves: each array, and the source of random
# numbers. Once in training mode, once in evaluation mode. (In training, the old running statistics
# are read too, but only to make the new ones: the output does not depend on them.)


# %%
def run_theirs(arrays_in, seed, training):
    model = TorchNet().train(training)
    model.load_state_dict({name: torch.tensor(value) for name, value in arrays_in.items()})
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    y = to_numpy(model(x))
    writes = changed(arrays_in, arrays(model.state_dict()))
    return y, writes + ["randomness"] * (not torch.equal(before, torch.get_rng_state()))


def run_ours(arrays_in, seed, training):
    model, _ = bridge.load_state_dict(bridge.train(Net(), training), arrays_in)
    y, after = ps.call(model, points[0], rng=jax.random.key(seed))
    return y, changed(arrays_in, bridge.state_dict(after))


def reads(run, training):
    y, _ = run(initial, 0, training)
    moved = [n for n in initial if gap(y, run(initial | {n: initial[n] + 1}, 0, training)[0]) > 1e-4]
    return moved + ["randomness"] * (gap(y, run(initial, 1, training)[0]) > 1e-4)


# %%
read = {mode: reads(run_ours, mode) for mode in (True, False)}
assert read == {mode: reads(run_theirs, mode) for mode in (True, False)}
assert set(read[False]) - set(read[True]) == {"norm.running_mean", "norm.running_var"}
assert set(read[True]) - set(read[False]) == {"randomness"}

written = {
    mode: (run_theirs(initial, 0, mode)[1], run_ours(initial, 0, mode)[1]) for mode in (True, False)
}
assert written[True] == ([*written_theirs, "randomness"], written_ours)
assert written[False] == ([], [])
columns = (read[True], read[False], *written[True], written[False][0])
header = ["", "moves y in train", "in eval", "written in train: torch", "purestate", "in eval: both"]
Table(header, [(n, *(n in column for column in columns)) for n in (*initial, "randomness")])

# %% [markdown]
# ## A call whose writes would be lost
#
# `model(x)` has one return value. PyTorch needs no second one. Here the call says what is missing: a
# key for dropout and, without dropout, a place for the statistics.

# %%
no_key = side_by_side(torch=lambda: theirs(x).shape, purestate=lambda: ours(points[0]).shape)
plain_theirs, plain_ours = TorchNet(p=0.0), bridge.load_state_dict(Net(p=0.0), initial)[0]
lost = side_by_side(torch=lambda: plain_theirs(x).shape, purestate=lambda: plain_ours(points[0]).shape)
assert [result.error for result in (*no_key, *lost)] == [
    None,
    "MissingRngError",
    None,
    "StatefulCallError",
]

# %% [markdown]
# ## Evaluation
#
# No writes, no random numbers, the same output in both, and `model(x)` is all it takes. `ps.call`
# returns the very model it was given.

# %%
theirs.load_state_dict({name: torch.tensor(value) for name, value in initial.items()})
evaluating = bridge.eval(ours)
y_theirs, y_ours = theirs.eval()(x), evaluating(points[0])
assert gap(y_theirs, y_ours) <= 1e-6
assert gap(theirs(x), y_theirs) == gap(evaluating(points[0]), y_ours) == 0.0
assert ps.call(evaluating, points[0])[1] is evaluating
assert (theirs.training, ours.training, evaluating.training) == (False, True, False)

# %% [markdown]
# ## The step
#
# The same five lines: gradients, optimizer, new weights. PyTorch's return the loss; ours return the
# loss and all that is new.


# %%
def step_theirs(model, optimizer, x, labels):
    optimizer.zero_grad()
    logits = model(x)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %%
optimizer = optax.sgd(0.1, momentum=0.9)
definition = ps.split(ours)[0]


@jax.jit
def step_ours(definition, params, buffers, state, x, labels, key):
    def loss(params):
        logits, new = ps.apply(definition, params, buffers, x, rng=key)
        return nn.functional.cross_entropy(logits, labels), new

    (value, buffers), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), buffers, state, value


# %% [markdown]
# **What a step changes.** The torch step changes four kinds of things where they stand. Ours changes
# nothing: the arguments of the call are intact, and the same call again gives the same bits.

# %%
theirs.train()
sgd = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
generator = torch.get_rng_state()
step_theirs(theirs, sgd, x, torch.tensor(labels[0]))
changed_theirs = {
    "arrays of the model": len(changed(initial, arrays(theirs.state_dict()))),
    "gradients on the model": sum(p.grad is not None for p in theirs.parameters()),
    "arrays of the optimizer": len(sgd.state_dict()["state"]),
    "random generators": int(not torch.equal(generator, torch.get_rng_state())),
}
assert list(changed_theirs.values()) == [8, 5, 5, 1]

_, params, buffers = ps.split(ours)
arguments = (definition, params, buffers, optimizer.init(params), points[0], labels[0], key)
copies = jax.tree.map(to_numpy, arguments[1:6])
first, second = step_ours(*arguments), step_ours(*arguments)
assert all(
    gap(a, b) == 0.0 for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
)
pairs = zip(jax.tree.leaves(copies), jax.tree.leaves(arguments[1:6]), strict=True)
changed_ours = sum(gap(before, after) > 0.0 for before, after in pairs)
assert changed_ours == 0
rows = [*changed_theirs.items(), ("in all", sum(changed_theirs.values()))]
Table(["changed in place by one step of torch", "number"], rows)

# %% [markdown]
# **Replay.** To take a step again, PyTorch needs three snapshots made beforehand: model, optimizer,
# generator. With them it replays exactly as well.

# %%
batch = x, torch.tensor(labels[0])
snapshot = copy.deepcopy((theirs.state_dict(), sgd.state_dict())), torch.get_rng_state()
losses = [step_theirs(theirs, sgd, *batch), step_theirs(theirs, sgd, *batch)]
(model_state, sgd_state), generator = snapshot
theirs.load_state_dict(model_state)
sgd.load_state_dict(sgd_state)
torch.set_rng_state(generator)
replayed = step_theirs(theirs, sgd, *batch)
assert losses[0] != losses[1]
assert replayed == losses[0]

# %% [markdown]
# ## The same 40 steps
#
# The same network from the same weights, without dropout (the two random generators differ). SGD
# with momentum on both sides. Losses, weights and running statistics stay together.

# %%
theirs = TorchNet(p=0.0)
theirs.load_state_dict({name: torch.tensor(value) for name, value in initial.items()})
sgd = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
losses_theirs = [
    step_theirs(theirs, sgd, torch.tensor(p), torch.tensor(t))
    for p, t in zip(points, labels, strict=True)
]

# %%
definition, params, buffers = ps.split(plain_ours)
state, losses_ours = optimizer.init(params), []
compiled = step_ours._cache_size()
for p, t in zip(points, labels, strict=True):
    params, buffers, state, value = step_ours(definition, params, buffers, state, p, t, key)
    losses_ours.append(float(value))
trained = ps.merge(definition, params, buffers)
assert step_ours._cache_size() == compiled + 1, "one compilation for 40 steps"

# %%
tolerance = 1e-4
gaps = np.abs(np.array(losses_theirs) - np.array(losses_ours))
assert gaps.max() <= tolerance
assert gap(theirs.state_dict(), bridge.state_dict(trained)) <= tolerance
assert int(trained.norm.num_batches_tracked) == int(theirs.norm.num_batches_tracked) == steps
assert gap(theirs.eval()(x), bridge.eval(trained)(points[0])) <= tolerance
assert np.mean(losses_ours[-5:]) < 0.5 * losses_ours[0]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(losses_theirs, "o", mfc="none", label="torch")
left.plot(losses_ours, "-", label="purestate")
left.set(xlabel="step", ylabel="loss", title="the same network from the same weights")
right.plot(gaps, ".", label="difference of the losses")
right.axhline(tolerance, color="gray", ls="--", label="tolerance, asserted")
right.set(xlabel="step", title="how far apart")
right.set_yscale("symlog", linthresh=1e-8)
for axis, place in ((left, "upper right"), (right, (0.42, 0.6))):
    axis.legend(loc=place)

# %% [markdown]
# ## Dropout: the same key, the same mask
#
# PyTorch repeats a mask when the generator is set to the same seed first. Here the key is an argument.

# %%
ones = np.ones((8, 24), np.float32)
drop_theirs, drop_ours = torch.nn.Dropout(0.5), nn.Dropout(0.5)


def mask_theirs(seed):
    torch.manual_seed(seed)
    return to_numpy(drop_theirs(torch.tensor(ones)))


masks = [ps.call(drop_ours, ones, rng=seed)[0] for seed in (0, 0, 1)]
assert gap(masks[0], masks[1]) == gap(mask_theirs(0), mask_theirs(0)) == 0.0
assert gap(masks[0], masks[2]) == gap(mask_theirs(0), mask_theirs(1)) == 2.0
assert set(np.unique(masks)) == set(np.unique(mask_theirs(0))) == {0.0, 2.0}
assert (
    gap(bridge.eval(drop_ours)(ones), ones) == gap(drop_theirs.eval()(torch.tensor(ones)), ones) == 0.0
)

keys = jax.random.split(key, 2000)
many = jax.vmap(lambda key: ps.call(drop_ours, ones, rng=key)[0])(keys)
assert gap(many.mean(0), ones) <= 0.15, "2000 masks average to the evaluation output"

figure, axes = plt.subplots(1, 4, figsize=(9, 1.6), layout="constrained")
for axis, image, title in zip(
    axes, [*masks, many.mean(0)], ["key 0", "key 0", "key 1", "mean of 2000"], strict=True
):
    axis.imshow(image, cmap="Greens", vmin=0, vmax=2)
    axis.set(title=title, xticks=[], yticks=[])

# %% [markdown]
# **Who draws first?** A global generator gives numbers in the order of the calls, so a new dropout
# layer early in a network changes the masks of all later ones. A key is folded with the path of the
# layer, so the others keep theirs.


# %%
def two_drops(library, p):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.early = library.Dropout(p)
            self.late = library.Dropout(0.5)

        def forward(self, x):
            self.early(x)
            return self.late(x)

    return Net()


def late_theirs(p):
    torch.manual_seed(0)
    return to_numpy(two_drops(torch.nn, p)(torch.tensor(ones)))


late_ours = [ps.call(two_drops(nn, p), ones, rng=key)[0] for p in (0.0, 0.3)]
mask_kept = [gap(late_theirs(0.0), late_theirs(0.3)) == 0.0, gap(*late_ours) == 0.0]
assert mask_kept == [False, True]

# %% [markdown]
# ## Findings

# %%
Table(
    ["finding", "torch", "purestate"],
    [
        ("arrays with a new value after a training call", len(written_theirs), len(written_ours)),
        ("where they are", "in the module", "in the model returned"),
        ("things changed in place by a step", sum(changed_theirs.values()), changed_ours),
        ("training call without a place for new state", *(result.error or "runs" for result in lost)),
        ("loss after 40 steps", *(f"{losses[-1]:.4f}" for losses in (losses_theirs, losses_ours))),
        (f"losses, weights and statistics within {tolerance:g}", True, True),
        ("a later mask survives a new dropout layer", *mask_kept),
    ],
)

# %% [markdown]
# ## When to choose what
#
# **Writing in place** keeps one copy of everything by construction, and each line of a loop can stand
# on its own: call the model when you like, the statistics are kept. It is the shorter program when
# there is one model, one optimizer and one loop, and a step that is not compiled is easy to look into.
#
# **State in, state out** makes what a step depends on visible in its signature. Replay, vmapped
# masks, branching a run in two, or a test of one step need no snapshots. The price is that new state
# has to be named and passed on, and that for speed the step must be a function that `jax.jit` compiles
# (donate its arguments to keep one copy in memory).
#
# The numbers are the same, and so are the files: a run can start in one and go on in the other.
