"""Padding layers: constructors, values, errors. Their outputs are in the module database."""

import jax
import jax.numpy as jnp
import pytest
import torch

from purestate import nn
from tests.nn.both import check_same
from tests.oracles import module_db
from tests.parity import check_error, to_jax


KINDS = ["CircularPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "ZeroPad"]
CLASSES = [f"{kind}{n}d" for kind in KINDS for n in (1, 2, 3)]


def x(n, dtype=torch.float32):
    shape = (2, 3, 4, 5, 4)[: n + 2]
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).to(dtype)


def padding_of(name, padding):
    return (padding, 2.5) if name.startswith("Constant") else (padding,)


@pytest.mark.parametrize("name", CLASSES)
def test_constructors(name):
    n = int(name[-2])
    for padding in (1, tuple(range(2 * n)), [1] * 2 * n):
        args = padding_of(name, padding)
        check_same(lambda nn, args=args: getattr(nn, name)(*args))


@pytest.mark.parametrize("name", CLASSES)
def test_negative_padding(name):
    n = int(name[-2])
    args = padding_of(name, (-1, 2) * n)
    module_db.compare_call(getattr(nn, name)(*args), getattr(torch.nn, name)(*args), (x(n),))


@pytest.mark.parametrize("name", CLASSES)
def test_half_types_stay_half(name):
    n = int(name[-2])
    args, values = padding_of(name, 1), x(n, torch.bfloat16)
    module_db.compare_call(getattr(nn, name)(*args), getattr(torch.nn, name)(*args), (values,))
    assert getattr(nn, name)(*args)(to_jax(values)).dtype == jnp.bfloat16


def test_zero_padding_is_constant_padding():
    assert issubclass(nn.ZeroPad2d, nn.ConstantPad2d)
    assert nn.ZeroPad2d(1).value == 0.0


def test_under_jit_and_vmap():
    layer, values = nn.ReflectionPad2d((1, 0, 2, 1)), to_jax(x(2))
    expected = layer(values)
    assert jnp.array_equal(jax.jit(lambda model, v: model(v))(layer, values), expected)
    assert jnp.array_equal(jax.vmap(layer)(values), expected)


def both(name, args, values):
    check_error(
        lambda: getattr(nn, name)(*args)(to_jax(values)),
        lambda: getattr(torch.nn, name)(*args)(values),
    )


@pytest.mark.parametrize("name", [name for name in CLASSES if name.startswith("Circular")])
def test_database_errors(name):
    entry = module_db.table()[name]
    cases = entry.module_error_inputs_func(
        entry, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    )
    assert cases
    for case in cases:
        options = case.module_error_input
        both(name, options.constructor_input.args, options.forward_input.args[0])


@pytest.mark.parametrize("name", CLASSES)
def test_errors(name):
    n = int(name[-2])
    both(name, padding_of(name, -9), x(n))
    both(name, padding_of(name, 1.5), x(n))
    if not name.startswith(("Constant", "Zero", "Replication")):
        both(name, padding_of(name, 9), x(n))
    if not name.startswith(("Constant", "Zero")):
        both(name, padding_of(name, 1), torch.zeros(3))
