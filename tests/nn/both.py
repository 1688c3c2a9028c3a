"""The same constructor code on both sides: a builder takes ``torch.nn`` or ``purestate.nn``."""

import re
from collections.abc import Callable
from typing import Any

import torch

import bridge
from purestate import nn as ours
from tests.parity import raised


Builder = Callable[[Any], Any]


def host(nn: Any, build: Builder) -> Any:
    """A module whose constructor runs the builder and registers what it returns as ``part``."""

    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = build(nn)

    return Host()


def both(build: Builder) -> tuple[Any, Any]:
    """The builder's module, inside a host, on our side and on torch's."""
    return host(ours, build), host(torch.nn, build)


def check_same(build: Builder) -> None:
    """Both sides print the same and have the same names, in order, with the same shapes."""
    actual, expected = both(build)
    assert repr(actual) == repr(expected)
    names = {name: tuple(value.shape) for name, value in bridge.state_dict(actual).items()}
    wanted = {name: tuple(value.shape) for name, value in expected.state_dict().items()}
    assert list(names.items()) == list(wanted.items())
    assert [name for name, _ in actual.named_modules()] == [n for n, _ in expected.named_modules()]


def check_same_error(build: Builder) -> None:
    """Both sides raise the same type with the same text, but for the module path of a class."""
    expected = raised(lambda: host(torch.nn, build))
    actual = raised(lambda: host(ours, build))
    assert expected is not None, "torch did not raise"
    assert actual is not None, f"torch raised {expected!r}; nothing was raised here"
    assert (type(actual), _plain(actual)) == (type(expected), _plain(expected))


def _plain(error: Exception) -> str:
    return re.sub(r"<class '[\w.]+\.(\w+)'>", r"<class '\1'>", str(error))
