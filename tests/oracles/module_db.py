"""Torch's own module database as an oracle: every constructor and input it tests a module with.

``torch.testing._internal`` lists, for each of its modules, constructor arguments and inputs. ``check``
builds both sides with them, carries torch's ``state_dict`` over and compares the ``repr``, the
output, the gradient of a weighted sum with respect to inputs and parameters, and the whole
``state_dict`` after the call. The import takes seconds, so it happens on first use.

Every case compiles. Of the classes with many slow ones a fixed random choice is run;
``PURESTATE_ALL_SAMPLES=1`` in the environment runs all.
"""

import functools
import inspect
import os
import random
import re
from typing import Any

import jax
import jax.numpy as jnp
import torch

import bridge
import purestate as ps
from purestate import nn
from tests import tolerances
from tests.oracles.op_db import Report, described
from tests.parity import assert_close, check_error, cotangent, raised, to_jax, to_numpy


LIMITS = {"CrossEntropyLoss": 40, "GRU": 8, "LSTM": 10, "RNN": 10, "LinearCrossEntropyLoss": 24}


@functools.cache
def table() -> dict[str, Any]:
    """The database entries by class name."""
    from torch.testing._internal.common_modules import module_db

    return {entry.module_cls.__name__: entry for entry in module_db}


def shared_names() -> set[str]:
    """The classes that both the database and ``purestate.nn`` have."""
    return {name for name in nn.__all__ if name in table()}


def _inputs(function: Any, entry: Any, training: bool, dtype: torch.dtype) -> list[Any]:
    torch.manual_seed(0)
    options = {"device": "cpu", "dtype": dtype, "requires_grad": True, "training": training}
    return list(function(entry, **options))


def dtype() -> torch.dtype:
    """What the cases are made in: float64 where JAX has it switched on."""
    return torch.float64 if jax.config.read("jax_enable_x64") else torch.float32


def check(name: str, training: bool) -> Report:
    """Compare the cases of one class, in one mode."""
    entry = table()[name]
    cases = _inputs(entry.module_inputs_func, entry, training, dtype())
    if os.environ.get("PURESTATE_ALL_SAMPLES") != "1" and name in LIMITS:
        cases = random.Random(0).sample(cases, LIMITS[name])
    failures, total = [], len(cases)
    for case in cases:
        try:
            _compare(name, case, training)
        except Exception as error:
            options = case.constructor_input
            case_name = f"{name}(*{options.args}, **{options.kwargs}) {case.desc}"
            failures.append(described(case_name, error))
    return Report(name, total - len(failures), total, failures)


def check_errors(name: str) -> Report:
    """What torch says must raise raises here, with the same type and text."""
    entry = table()[name]
    # Of float32: the modules are made without a dtype, and some cases are of another than theirs.
    cases = _inputs(entry.module_error_inputs_func, entry, True, torch.float32)
    failures = []
    for case in cases:
        error = raised(functools.partial(_compare_error, name, case))
        if error is not None:
            failures.append(described(f"{name}, refusing {case.error_regex!r}", error))
    return Report(f"{name} errors", len(cases) - len(failures), len(cases), failures)


def names_with_errors() -> list[str]:
    """The classes for which the database has inputs that must raise."""
    return [name for name, entry in table().items() if entry.module_error_inputs_func is not None]


def _compare_error(name: str, case: Any) -> None:
    given = case.module_error_input
    options, forward = given.constructor_input, given.forward_input

    def theirs() -> Any:
        try:
            module = getattr(torch.nn, name)(*options.args, **options.kwargs)
            return module(*forward.args, **forward.kwargs)
        except Exception as error:
            raise type(error)(_in_our_words(str(error))) from error

    def ours() -> Any:
        keywords = {key: to_jax(value) for key, value in options.kwargs.items() if key != "device"}
        if "dtype" in inspect.signature(getattr(nn, name)).parameters:
            keywords.setdefault("dtype", jnp.float32)  # torch's default, whether or not x64 is on
        module = ps.init(getattr(nn, name)(*to_jax(options.args), **keywords), 0)
        return ps.call(module, *to_jax(forward.args), **to_jax(forward.kwargs))

    check_error(ours, theirs)


def _in_our_words(text: str) -> str:
    """A text of torch with JAX's dtypes, and with the line to write here where it advises one."""
    text = re.sub(r"input\.to\(torch\.(\w+)\)", r'input.astype("\1")', text)
    text = re.sub(r"model\.to\(torch\.(\w+)\)", r'bridge.to(model, dtype="\1")', text)
    return re.sub(r"torch\.(float64|float32)", r"\1", text) if "weight dtype" in text else text


def _compare(name: str, case: Any, training: bool) -> None:
    options, forward = case.constructor_input, case.forward_input
    theirs = getattr(torch.nn, name)(*options.args, **options.kwargs).train(training)
    theirs = theirs.to(dtype())  # Some cases construct with float64, for torch's tests to cast.
    kwargs = {key: _ported(value) for key, value in options.kwargs.items() if key != "device"}
    ours = getattr(nn, name)(*map(_ported, options.args), **kwargs)
    if name.startswith("Lazy"):  # Both sides become their eager classes.
        assert repr(ours) == repr(theirs)
        theirs(*forward.args, **forward.kwargs)
        ours = ps.init(ours, 0, *to_jax(forward.args), **to_jax(forward.kwargs))
    ours = _loaded(ours, theirs, training)
    assert repr(ours) == repr(theirs)
    compare_call(ours, theirs, forward.args, forward.kwargs)


def _ported(value: Any) -> Any:
    """Our counterpart of what torch's cases construct with: arrays, activations, encoder layers."""
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return nn.TransformerEncoderLayer(
            value.self_attn.embed_dim,
            value.self_attn.num_heads,
            value.linear1.out_features,
            value.dropout.p,
            _ported(value.activation),
            value.norm1.eps,
            value.self_attn.batch_first,
            value.norm_first,
            value.linear1.bias is not None,
        )
    if callable(value) and value in (torch.nn.functional.relu, torch.nn.functional.gelu):
        return getattr(nn.functional, value.__name__)
    return to_jax(value)


def _loaded(ours: Any, theirs: torch.nn.Module, training: bool) -> Any:
    values = {key: to_numpy(value) for key, value in theirs.state_dict().items()}
    ours, report = bridge.load_state_dict(ours, values)
    assert not report.missing_keys
    assert not report.unexpected_keys
    return bridge.train(ours, training)


def compare_call(
    ours: Any, theirs: torch.nn.Module, args: Any, kwargs: Any = None, rng: Any = None
) -> Any:
    """One call on both sides: output, gradients, and state after it; returns our model after it."""
    leaves, treedef = jax.tree.flatten((tuple(args), dict(kwargs or {})), is_leaf=lambda x: x is None)
    tensors = [_fresh(leaf) for leaf in leaves]
    places = [i for i, leaf in enumerate(tensors) if _wants_gradient(leaf)]
    torch_args, torch_kwargs = jax.tree.unflatten(treedef, tensors)
    arrays = [to_jax(leaf) for leaf in leaves]
    definition, params, buffers = ps.split(ours)

    def run(params: Any, inputs: Any) -> Any:
        filled = list(arrays)
        for place, value in zip(places, inputs, strict=True):
            filled[place] = value
        jax_args, jax_kwargs = jax.tree.unflatten(treedef, filled)
        output, after = ps.call(ps.merge(definition, params, buffers), *jax_args, rng=rng, **jax_kwargs)
        total = sum(
            jnp.sum(jnp.real(leaf) * jnp.asarray(cotangent(leaf.shape), jnp.real(leaf).dtype))
            for leaf in jax.tree.leaves(output)
            if jnp.issubdtype(leaf.dtype, jnp.inexact)
        )
        return total, (output, after)

    (_, (output, after)), gradients = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)(
        params, [arrays[place] for place in places]
    )
    expected = theirs(*torch_args, **torch_kwargs)
    assert_close(output, expected)
    _compare_gradients(gradients, theirs, expected, [tensors[place] for place in places])
    compare_state(after, theirs)
    return after


def _fresh(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def _wants_gradient(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _compare_gradients(
    gradients: Any, theirs: torch.nn.Module, expected: Any, inputs: list[torch.Tensor]
) -> None:
    outputs = [leaf for leaf in jax.tree.leaves(expected) if leaf.requires_grad]
    if not outputs:
        return
    named = {key: value for key, value in theirs.named_parameters() if value.requires_grad}
    weights = [torch.from_numpy(cotangent(leaf.shape)).to(leaf.dtype) for leaf in outputs]
    wanted = torch.autograd.grad(outputs, [*named.values(), *inputs], weights, allow_unused=True)
    by_name, by_place = gradients
    assert list(by_name) == list(named)
    labels = [*named, *(f"input {place}" for place in range(len(inputs)))]
    for label, ours, tensor, grad in zip(
        labels, [*by_name.values(), *by_place], [*named.values(), *inputs], wanted, strict=True
    ):
        grad = torch.zeros_like(tensor) if grad is None else grad.to_dense().conj()  # As JAX has it.
        assert_close(ours, grad, table=tolerances.GRADIENT, where=f"gradient of {label}")


def compare_state(ours: Any, theirs: torch.nn.Module) -> None:
    """The same ``state_dict``: names, order, dtypes, values and versions."""
    actual = bridge.state_dict(ours)
    expected: Any = theirs.state_dict()
    assert list(actual) == list(expected)
    for key, tensor in expected.items():
        assert str(actual[key].dtype) == str(tensor.dtype).removeprefix("torch."), key
        assert_close(actual[key], tensor, where=key)
    assert dict(actual.metadata) == {path: dict(entry) for path, entry in expected._metadata.items()}
