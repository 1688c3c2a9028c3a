"""What a script about hooks needs of both libraries: register, remove, run forwards and backwards.

A hook is written once. On torch's side registering changes the module and returns it; here the model
that is returned is another one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.parity import to_numpy


class HookSide(NamedTuple):
    """A library as these scripts see it.

    Attributes:
        nn: The namespace of layers.
        register: ``(model, kind, hook, at="", **options)`` to ``(model, handle)``; a kind is a
            method's name without ``register_``.
        remove: ``(model, handle)`` to the model.
        run: ``(model, x, wrt=("x", "params"), **kwargs)`` to the output and the gradients of a
            weighted sum of it.
        build: From a function of ``nn`` to a model with fixed values.
        array: From nested lists to an array.
        shape: Of an array, or None.
    """

    nn: Any
    register: Callable[..., Any]
    remove: Callable[..., Any]
    run: Callable[..., Any]
    build: Callable[..., Any]
    array: Callable[[Any], Any]


def _torch_register(model, kind, hook, at="", **options):
    module = model.get_submodule(at)
    return model, getattr(module, f"register_{kind}")(hook, **options)


def _torch_remove(model, handle):
    handle.remove()
    return model


def _torch_run(model, x, wrt=("x", "params"), **kwargs):
    model.zero_grad()
    x = torch.tensor(x, requires_grad="x" in wrt)
    model.requires_grad_("params" in wrt)
    output = model(x, **kwargs)
    first = output[0] if isinstance(output, tuple) else output
    if wrt:
        (first * _weights(torch, first.shape)).sum().backward()
    gradients = {name: to_numpy(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    if x.grad is not None:
        gradients["x"] = to_numpy(x.grad)
    return to_numpy(first), gradients


def _weights(library, shape):
    size = int(np.prod(shape))
    return library.cos(library.arange(size) * 1.0).reshape(shape)


def _torch_build(make):
    model = make(torch.nn)
    with torch.no_grad():
        for position, (_, parameter) in enumerate(model.named_parameters()):
            parameter.copy_(torch.from_numpy(_values(position, parameter.shape)))
    return model


def _values(position, shape):
    size = int(np.prod(shape))
    return np.sin(np.arange(size) + position).reshape(shape).astype(np.float32)


def _our_build(make):
    model = make(nn)
    arrays = enumerate(model.named_parameters())
    return ps.replace(
        model, {name: jnp.asarray(_values(position, p.shape)) for position, (name, p) in arrays}
    )


def _our_run(wrapped):
    def run(model, x, wrt=("x", "params"), **kwargs):
        definition, params, buffers = ps.split(model)

        def first(params, x):
            output, _ = ps.apply(definition, params, buffers, x, **kwargs)
            return output[0] if isinstance(output, tuple) else output

        def loss(params, x):
            output = first(params, x)
            return jnp.sum(output * _weights(jnp, output.shape)), output

        places = tuple(place for place, name in enumerate(("params", "x")) if name in wrt)
        x = jnp.asarray(x, jnp.float32)
        if not places:
            return np.asarray(wrapped(first)(params, x)), {}
        found, output = wrapped(jax.grad(loss, places, has_aux=True))(params, x)
        named = dict(zip(places, found, strict=True))
        gradients = {name: np.asarray(value) for name, value in named.get(0, {}).items()}
        if 1 in named:
            gradients["x"] = np.asarray(named[1])
        return np.asarray(output), gradients

    return run


def _our_register(model, kind, hook, at="", **options):
    return getattr(bridge, f"register_{kind}")(model, hook, at=at, **options)


def ours(wrapped: Callable[[Any], Any]) -> HookSide:
    """Our side, with what runs wrapped in a transform."""
    return HookSide(
        nn,
        _our_register,
        lambda model, handle: handle.remove(model),
        _our_run(wrapped),
        _our_build,
        lambda values: jnp.asarray(values, jnp.float32),
    )


TORCH = HookSide(
    torch.nn,
    _torch_register,
    _torch_remove,
    _torch_run,
    _torch_build,
    lambda values: torch.tensor(values),
)


def shapes(value: Any) -> Any:
    """A structure with arrays as their shapes, so that traced and known ones compare."""
    if isinstance(value, tuple | list):
        return [shapes(item) for item in value]
    if isinstance(value, dict):
        return {key: shapes(item) for key, item in value.items()}
    return list(value.shape) if hasattr(value, "shape") else value
