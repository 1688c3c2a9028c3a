"""Hooks, one script on both sides: what they see, in which order, what they change, what is refused.

Numbers in the names of scripts are the rows of torch's contract they stand for. Each script runs on
torch, here eagerly and here under ``jax.jit``: the logs, outputs and gradients must be the same.
"""

import copy
import warnings

import jax
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from tests.differential.hook_sides import TORCH, ours, shapes


X = np.arange(6.0, dtype=np.float32).reshape(3, 2)


def linear(nn):
    return nn.Linear(2, 2)


def stack(nn):
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))


def logs(log, event, result=None):
    """A hook that writes down what it gets, and returns this."""

    def hook(module, *arguments):
        log.append([event, type(module).__name__, shapes(arguments)])
        return result

    return hook


def well_known(side, log):
    """106, 107, 116: pre, forward and backward hook on a Linear."""
    model = side.build(linear)
    model, _ = side.register(model, "forward_pre_hook", logs(log, "pre"))
    model, _ = side.register(model, "forward_hook", logs(log, "fwd"))
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"))
    return side.run(model, X)


def order_107(side, log):
    """Order of several hooks of a kind, with prepend."""
    model = side.build(stack)
    for kind in (
        "forward_pre_hook",
        "forward_hook",
        "full_backward_pre_hook",
        "full_backward_hook",
    ):
        model, _ = side.register(model, kind, logs(log, f"{kind} 1"), at="0")
        model, _ = side.register(model, kind, logs(log, f"{kind} 2"), at="0")
        model, _ = side.register(model, kind, logs(log, f"{kind} 0"), at="0", prepend=True)
        model, _ = side.register(model, kind, logs(log, f"{kind} root"))
    return side.run(model, X)


def pre_replaces_108(side, log):
    """A pre-hook's tuple replaces the arguments, another value is the only argument."""
    model = side.build(linear)
    model, _ = side.register(model, "forward_pre_hook", lambda m, args: (args[0] * 2,))
    model, _ = side.register(model, "forward_pre_hook", lambda m, args: args[0] + 1)
    model, _ = side.register(model, "forward_pre_hook", logs(log, "pre"))
    return side.run(model, X)


def a_list_is_one_argument_108(side, log):
    """A pre-hook's list is no tuple: it is the only argument."""

    def make(nn):
        class Sum(nn.Module):
            def forward(self, pair):
                return pair[0] + 2 * pair[1]

        return Sum()

    model = side.build(make)
    model, _ = side.register(model, "forward_pre_hook", lambda m, args: [args[0], args[0] * 3])
    model, _ = side.register(model, "forward_pre_hook", logs(log, "pre"))
    return side.run(model, X, wrt=("x",))


class Scaled:
    """A module with a keyword argument, for both sides."""

    def __new__(cls, nn):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)

            def forward(self, x, scale=1.0):
                return self.inner(x) * scale

        return Module()


def kwargs_109_110(side, log):
    """Hooks with keyword arguments see and change them."""
    model = side.build(Scaled)
    model, _ = side.register(
        model,
        "forward_pre_hook",
        lambda m, args, kwargs: (args, {"scale": kwargs["scale"] * 2}),
        with_kwargs=True,
    )
    model, _ = side.register(model, "forward_hook", logs(log, "fwd"), with_kwargs=True)
    model, _ = side.register(model, "forward_hook", lambda m, args, output: output + 1)
    return side.run(model, X, scale=3.0)


def arguments_are_unpacked_109(side, log):
    """A pre-hook with keywords gives anything for args, which is unpacked as it is."""

    def make(nn):
        class Two(nn.Module):
            def forward(self, x, y=None):
                return x if y is None else x - 2 * y

        return Two()

    model = side.build(make)
    model, _ = side.register(
        model, "forward_pre_hook", lambda m, args, kwargs: (args[0][:2], {}), with_kwargs=True
    )
    return side.run(model, X, wrt=("x",))


def chained_110(side, log):
    """Anything but None replaces the output, and hooks are chained."""
    model = side.build(stack)
    model, _ = side.register(model, "forward_hook", lambda m, args, output: output * 3, at="1")
    model, _ = side.register(model, "forward_hook", lambda m, args, output: output - 1, at="1")
    model, _ = side.register(model, "forward_hook", logs(log, "fwd"), at="1")
    return side.run(model, X)


def false_replaces_110(side, log):
    """False is an output too."""

    def make(nn):
        class Asks(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Tanh()

            def forward(self, x):
                return x * 5 if self.inner(x) is False else x

        return Asks()

    model = side.build(make)
    model, _ = side.register(model, "forward_hook", lambda m, args, output: False, at="inner")
    return side.run(model, X, wrt=("x",))


def forward_goes_around_106(side, log):
    """``forward`` itself runs no hook of its module."""

    def make(nn):
        class Around(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)

            def forward(self, x):
                return self.inner.forward(x) + self.inner(x)

        return Around()

    model = side.build(make)
    model, _ = side.register(model, "forward_hook", logs(log, "fwd"), at="inner")
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"), at="inner")
    return side.run(model, X)


def removed_in_the_call_113(side, log):
    """A hook that removes another one and adds one: this pass goes on with those it began with."""
    model = side.build(linear)
    held = {}

    def change(module, args, output):
        log.append("first")
        held["second"].remove(*held["model"])
        side.register(held["all"], "forward_hook", logs(log, "added"))

    model, _ = side.register(model, "forward_hook", change)
    model, held["second"] = side.register(model, "forward_hook", logs(log, "second"))
    held["all"] = model
    held["model"] = () if side.nn is torch.nn else (model,)
    return side.run(model, X, wrt=())


def shared_114(side, log):
    """A shared module's hook fires once a call."""

    def make(nn):
        layer = nn.Linear(2, 2)
        return nn.Sequential(layer, nn.Tanh(), layer)

    model = side.build(make)
    model, _ = side.register(model, "forward_hook", logs(log, "fwd"), at="0")
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"), at="2")
    return side.run(model, X)


def grad_output_117(side, log):
    """A pre-hook's gradient reaches the parameters."""
    model = side.build(stack)
    model, _ = side.register(model, "full_backward_pre_hook", lambda m, grads: (grads[0] * 10,), at="2")
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"), at="2")
    return side.run(model, X)


def grad_input_117(side, log):
    """A hook's gradient reaches what comes before only."""
    model = side.build(stack)
    model, _ = side.register(
        model, "full_backward_hook", lambda m, grads, outputs: (grads[0] * 10,), at="2"
    )
    model, _ = side.register(
        model, "full_backward_hook", lambda m, grads, outputs: (grads[0] + outputs[0].sum(),), at="2"
    )
    return side.run(model, X)


def several_inputs_119(side, log):
    """What is not an array has None, and keyword arguments are not seen."""

    def make(nn):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)

            def forward(self, x, flag, y, *, z):
                return self.inner(x * y) + z, x

        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.two = Two()

            def forward(self, x):
                return self.two(x, True, x * 2, z=x * 3)[0]

        return Outer()

    model = side.build(make)
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"), at="two")
    return side.run(model, X)


def removed_124(side, log):
    """A handle removes its hook, and again nothing."""
    model = side.build(linear)
    model, first = side.register(model, "forward_hook", logs(log, "first"))
    model, _ = side.register(model, "forward_hook", logs(log, "second"))
    model = side.remove(model, first)
    model = side.remove(model, first)
    return side.run(model, X)


def forward_only_120(side, log):
    """Nothing is differentiated, and no hook of the backward pass runs."""
    model = side.build(linear)
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"))
    model, _ = side.register(model, "forward_hook", logs(log, "fwd"))
    return side.run(model, X, wrt=())


def parameters_only_120(side, log):
    """The input needs no gradient: all of grad_input is None, with a warning."""
    model = side.build(linear)
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"))
    model, _ = side.register(model, "full_backward_pre_hook", lambda m, grads: (grads[0] * 2,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = side.run(model, X, wrt=("params",))
    log.append([str(w.message) for w in caught if "Full backward hook" in str(w.message)])
    return result


def input_only_120(side, log):
    """Frozen parameters: the hook sees the input's gradient."""
    model = side.build(stack)
    model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"), at="2")
    return side.run(model, X, wrt=("x",))


SCRIPTS = (
    well_known,
    order_107,
    pre_replaces_108,
    a_list_is_one_argument_108,
    kwargs_109_110,
    arguments_are_unpacked_109,
    chained_110,
    false_replaces_110,
    forward_goes_around_106,
    removed_in_the_call_113,
    shared_114,
    grad_output_117,
    grad_input_117,
    several_inputs_119,
    removed_124,
    forward_only_120,
    parameters_only_120,
    input_only_120,
)


@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_same_log_output_and_gradients(script, how):
    theirs_log, ours_log = [], []
    expected, expected_gradients = script(TORCH, theirs_log)
    output, gradients = script(ours(how), ours_log)
    assert ours_log == theirs_log
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected_gradients[name], rtol=1e-5, atol=1e-5)


def raises(function):
    def hook(*arguments):
        raise ValueError(function)

    return hook


def always(side, log, fails, **options):
    """111: what runs with always_call when something raises."""
    model = side.build(stack)
    model, _ = side.register(model, "forward_hook", logs(log, "plain"))
    model, _ = side.register(model, "forward_hook", logs(log, "always"), always_call=True)
    model, _ = side.register(
        model, "forward_hook", lambda m, args, output: log.append("other"), always_call=True, **options
    )
    kind, at = fails
    model, _ = side.register(model, kind, raises("of the hook"), at=at)
    model, _ = side.register(model, "forward_hook", logs(log, "late"), always_call=True)
    side.run(model, X)


REFUSED = {
    "pre-hook of keywords returns one value (109)": lambda side, log: side.run(
        side.register(
            side.build(linear),
            "forward_pre_hook",
            lambda m, args, kwargs: 7,
            with_kwargs=True,
        )[0],
        X,
    ),
    "too many grad_input (118)": lambda side, log: side.run(
        side.register(side.build(linear), "full_backward_hook", lambda m, i, o: (i[0], i[0]))[0], X
    ),
    "too many grad_output (118)": lambda side, log: side.run(
        side.register(side.build(linear), "full_backward_pre_hook", lambda m, o: (o[0], o[0]))[0], X
    ),
    "a bare gradient is counted by its rows (118)": lambda side, log: side.run(
        side.register(side.build(linear), "full_backward_pre_hook", lambda m, o: o[0])[0], X
    ),
    "gradients without an input (120)": lambda side, log: side.run(
        side.register(side.build(linear), "full_backward_hook", lambda m, i, o: o)[0],
        X,
        wrt=("params",),
    ),
    "always_call, a later hook raises (111)": lambda side, log: always(side, log, ("forward_hook", "")),
    "always_call, forward raises (111)": lambda side, log: always(side, log, ("forward_hook", "1")),
    "always_call, a pre-hook raises (111)": lambda side, log: always(
        side, log, ("forward_pre_hook", "")
    ),
}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", REFUSED)
def test_the_same_refusal(name):
    found = []
    for side in (TORCH, ours(lambda f: f)):
        log = []
        with pytest.raises((RuntimeError, ValueError)) as caught:
            REFUSED[name](side, log)
        found.append((type(caught.value), str(caught.value), log))
    assert found[0] == found[1]


def test_an_error_of_a_hook_that_always_runs_is_a_warning_111():
    found = []
    for side in (TORCH, ours(lambda f: f)):
        model = side.build(linear)
        model, _ = side.register(model, "forward_pre_hook", raises("first"))
        model, _ = side.register(model, "forward_hook", raises("second"), always_call=True)
        with (
            pytest.raises(ValueError, match="first"),
            pytest.warns(UserWarning, match="second") as caught,
        ):
            side.run(model, X)
        found.append([str(warning.message) for warning in caught])
    assert found[0] == found[1]


def test_an_interruption_runs_no_hook_111():
    for side in (TORCH, ours(lambda f: f)):
        log = []

        def interrupt(*arguments):
            raise KeyboardInterrupt

        model = side.build(stack)
        model, _ = side.register(model, "forward_hook", logs(log, "always"), always_call=True)
        model, _ = side.register(model, "forward_hook", interrupt, at="1")
        with pytest.raises(KeyboardInterrupt):
            side.run(model, X)
        assert log == []


def test_an_output_that_is_a_dict_has_gradients_here_and_no_hook_in_torch_121():
    def make(nn):
        class Named(nn.Module):
            def forward(self, x):
                return {"y": x * 2}

        return nn.Sequential(Named())

    found = {}
    for name, side in (("torch", TORCH), ("purestate", ours(lambda f: f))):
        log = []
        model = side.build(make)
        model, _ = side.register(model, "full_backward_hook", logs(log, "bwd"), at="0")
        model, _ = side.register(model, "forward_hook", lambda m, args, output: output["y"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, gradients = side.run(model, X, wrt=("x",))
        texts = [str(w.message) for w in caught if "backward hook" in str(w.message)]
        found[name] = log, len(texts), gradients["x"]
    assert found["torch"][:2] == ([], 1)
    assert found["purestate"][:2] == ([["bwd", "Named", [[[3, 2]], [{"y": [3, 2]}]]]], 0)
    np.testing.assert_allclose(found["purestate"][2], found["torch"][2], rtol=1e-6)


def test_what_hooks_recorded_is_what_capture_returns_115():
    """Recording is what hooks are used for; outputs by name need no side effect."""
    recorded, model = {}, TORCH.build(stack)
    for path, module in model.named_modules():
        module.register_forward_hook(lambda m, args, output, path=path: recorded.update({path: output}))
    model(torch.tensor(X))
    captured = jax.jit(lambda model, x: ps.capture(model, x, at=["", "**"])[2])(
        ours(lambda f: f).build(stack), X
    )
    assert set(captured) == set(recorded)
    for path, output in captured.items():
        np.testing.assert_allclose(output, recorded[path].detach(), rtol=1e-5)


def test_hooks_for_all_modules_are_refused_112_126():
    names = [name for name in dir(torch.nn.modules.module) if name.startswith("register_module_")]
    assert len(names) == 8
    for name in names:
        with pytest.raises(AttributeError, match="no hooks for all modules"):
            getattr(bridge, name)


def test_a_handle_is_no_context_manager_124():
    model, handle = TORCH.register(TORCH.build(linear), "forward_hook", print)
    with handle:
        pass
    assert not model._forward_hooks
    assert not hasattr(bridge.Handle, "__enter__")


def test_a_bare_gradient_of_one_row_has_another_shape_118():
    """Its length is right, so it is refused later; the text has the name of the user's hook here."""
    for side, name in ((TORCH, "hook"), (ours(lambda f: f), "bare")):

        def bare(module, grad_output):
            return grad_output[0]

        model, _ = side.register(side.build(linear), "full_backward_pre_hook", bare)
        with pytest.raises(RuntimeError, match=f"hook '{name}' has changed the size of value"):
            side.run(model, X[:1])


def test_hooks_of_copies_125():
    """A deep copy has the hooks; what is registered on a shallow one is torch's original's as well."""
    found = {}
    for name, side in (("torch", TORCH), ("purestate", ours(lambda f: f))):
        log = []
        model, handle = side.register(side.build(linear), "forward_hook", logs(log, "first"))
        deep, shallow = copy.deepcopy(model), copy.copy(model)
        shallow, _ = side.register(shallow, "forward_hook", logs(log, "second"))
        counts = []
        for twin in (deep, shallow, model):
            log.clear()
            side.run(twin, X, wrt=())
            counts.append([event for event, *_ in log])
        deep = side.remove(deep, handle)  # Torch's handle is of the original.
        log.clear()
        side.run(deep, X, wrt=())
        found[name] = *counts, [event for event, *_ in log]
    assert found["torch"] == (["first"], ["first", "second"], ["first", "second"], ["first"])
    assert found["purestate"] == (["first"], ["first", "second"], ["first"], [])


def test_a_gradient_of_another_shape_is_refused():
    for side in (TORCH, ours(lambda f: f)):
        model = side.build(linear)
        model, _ = side.register(model, "full_backward_hook", lambda m, i, o: (i[0][:1],))
        with pytest.raises(RuntimeError, match="has changed the size of value"):
            side.run(model, X)
