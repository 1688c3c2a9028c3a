"""Parametrizations under the same names on both sides, and models that start with the same numbers."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.utils import parametrizations, parametrize

import bridge
import purestate as ps
from purestate import nn
from tests.differential import sides
from tests.differential.sides import OURS, TORCH, Side
from tests.parity import assert_close


def _set(model, name, value):
    setattr(model, name, value)
    return model


THEIRS = SimpleNamespace(
    weight_norm=parametrizations.weight_norm,
    spectral_norm=parametrizations.spectral_norm,
    orthogonal=parametrizations.orthogonal,
    register_parametrization=parametrize.register_parametrization,
    remove_parametrizations=parametrize.remove_parametrizations,
    transfer_parametrizations_and_params=parametrize.transfer_parametrizations_and_params,
    type_before_parametrizations=parametrize.type_before_parametrizations,
    is_parametrized=parametrize.is_parametrized,
    set_parametrized=_set,
    cached=parametrize.cached,
)


def tools(side: Side) -> Any:
    """The functions of a side."""
    return THEIRS if side is TORCH else bridge.parametrize


def normalise(text: str) -> str:
    """A message without what names the library."""
    text = sides.normalise(text)
    text = re.sub(r"torch\.((float|complex|int|bfloat)\d+)", r"\1", text)
    return re.sub(r"\b(ArrayImpl|Tensor|DynamicJaxprTracer)\.$", "array.", text)


def outcome(call: Callable[[], Any]) -> Any:
    """The type and normalised text of what a call raises, or None."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, normalise(str(error))
    return None


def classes(side: Side) -> Any:
    """Parametrizations of users, on either side."""

    class Symmetric(side.nn.Module):
        def forward(self, X):
            upper: Any = torch.triu(X) if side is TORCH else jnp.triu(X)
            return upper + upper.mT - upper * _eye(side, X)

        def right_inverse(self, A):
            return torch.triu(A) if side is TORCH else jnp.triu(A)

    class RankOne(side.nn.Module):
        def forward(self, x, y):
            return x[..., None] @ y[..., None, :]

        def right_inverse(self, Z):
            return Z[:, 0] + 0.0, Z[0] / Z[0, 0]

    class Double(side.nn.Module):
        def forward(self, X):
            return 2 * X

    class Scale(side.nn.Module):
        """Has a parameter and a buffer of its own, and counts."""

        def __init__(self):
            super().__init__()
            self.scale = side.nn.Parameter(side.array([2.0]))
            self.register_buffer("shift", side.array([0.5]))

        def forward(self, X):
            return X * self.scale + self.shift

        def right_inverse(self, Y):
            return (Y - self.shift) / self.scale

    class Cut(side.nn.Module):
        def forward(self, X):
            return X[:1]

    class Integer(side.nn.Module):
        def forward(self, X):
            return X.int() if side is TORCH else X.astype(jnp.int32)

    class Nothing(side.nn.Module):
        def forward(self, X):
            return [X]

    class Unable(side.nn.Module):
        def forward(self, X):
            return X + 1

        def right_inverse(self, X):
            raise NotImplementedError("no way back")

    class Text(side.nn.Module):
        def forward(self, X):
            return X

        def right_inverse(self, X) -> Any:
            return 5

    class Texts(Text):
        def right_inverse(self, X):
            return [X, 5]

    class Halved(side.nn.Module):
        def forward(self, X):
            return X.float() if side is TORCH else X.astype(jnp.float32)

        def right_inverse(self, X):
            return X.half() if side is TORCH else X.astype(jnp.float16)

    class Identity(side.nn.Module):
        def forward(self, X):
            return X

    class Scaled(side.nn.Module):
        """Scales by its mode."""

        def forward(self, X):
            return X * (3 if self.training else 5)

    return SimpleNamespace(**{k: v for k, v in locals().items() if isinstance(v, type)})


def _eye(side, X) -> Any:
    return torch.eye(len(X)) if side is TORCH else jnp.eye(len(X))


def pair(make: Callable[[Any], Any], seed: int = 0) -> dict[str, Any]:
    """A model on both sides with torch's numbers."""
    torch.manual_seed(seed)
    theirs = make(torch.nn)
    ours, _ = bridge.load_state_dict(make(nn), arrays(theirs.state_dict()))
    return {"torch": theirs, "purestate": ours}


def arrays(sd: Any) -> dict[str, np.ndarray]:
    """A torch state_dict as numpy arrays."""
    return {name: value.detach().numpy().copy() for name, value in sd.items()}


def linear(library):
    return library.Linear(3, 3)


def agree(ask: Callable[[Side, Any, Any], Any], make: Callable[[Any], Any] = linear) -> Any:
    """``ask(side, tools, model)`` on both sides gives the same; what it gives."""
    models = pair(make)
    theirs = ask(TORCH, THEIRS, models["torch"])
    ours = ask(OURS, tools(OURS), models["purestate"])
    assert ours == theirs
    return ours


def same_state(model: Any, theirs: torch.nn.Module) -> None:
    """Names, order and values of two state_dicts."""
    ours, expected = bridge.state_dict(model), theirs.state_dict()
    assert list(ours) == list(expected)
    for name in ours:
        assert_close(ours[name], expected[name], where=name)


def described(side: Side, model: Any) -> Any:
    """What a structure is: names, kinds, who trains, what is saved, and the repr."""
    if side is OURS:
        trains = set(ps.split(model)[1])
    else:
        trains = {name for name, value in model.named_parameters() if value.requires_grad}
    return {
        "state": list(side.state_dict(model)),
        "parameters": [name for name, _ in model.named_parameters()],
        "buffers": [name for name, _ in model.named_buffers()],
        "trains": trains,
        "modules": [(name, module.training) for name, module in model.named_modules()],
        "repr": repr(model),
    }
