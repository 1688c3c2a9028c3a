"""Exported functions of what carries a model's arrays: their pytrees are stored by their names."""

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jax._src.export import _export

import purestate as ps
from bridge import StateDict


NAMED = ps.NamedArrays({"fc.weight": jnp.ones((2, 3)), "é": jnp.zeros(3)})
VERSIONED = StateDict(
    {"b": jnp.ones(2), "a": jnp.zeros(3)}, metadata={"": {"version": 1}, "bn": {"version": 2}}
)


@pytest.mark.parametrize(
    ("name", "value"), [("purestate.NamedArrays", NAMED), ("bridge.StateDict", VERSIONED)]
)
def test_the_names_come_back_from_their_bytes(name, value):
    serialized, to_bytes = _export.serialization_registry[type(value)]
    _, from_bytes, _ = _export.deserialization_registry[serialized]
    _, aux = jax.tree.flatten(value)[1].node_data()
    data = to_bytes(aux)
    assert serialized == name
    assert isinstance(data, bytes)
    assert from_bytes(data) == aux


def test_an_exported_function_is_stored_and_loaded():
    pytest.importorskip("flatbuffers")
    exported = export.export(jax.jit(lambda named, versioned: (named, versioned["a"])))(
        NAMED, VERSIONED
    )
    loaded = export.deserialize(exported.serialize())
    assert loaded.in_tree == exported.in_tree
    named, _ = loaded.call(NAMED, VERSIONED)
    assert list(named) == list(NAMED)
