"""Tells JAX about StateDict, which itself is written without JAX so that files open without it."""

import json
from typing import Any

import jax
import jax.export

from bridge._state_dict_type import StateDict


def _aux(
    sd: StateDict,
) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]]:
    versions = tuple((path, tuple(entry.items())) for path, entry in sd.metadata.items())
    return tuple(sd), versions


def _flatten(sd: StateDict) -> tuple[tuple[Any, ...], Any]:
    return tuple(sd.values()), _aux(sd)


def _flatten_with_keys(sd: StateDict) -> tuple[tuple[Any, ...], Any]:
    return tuple((jax.tree_util.DictKey(name), value) for name, value in sd.items()), _aux(sd)


def _unflatten(aux: Any, values: Any) -> StateDict:
    names, versions = aux
    sd = StateDict(zip(names, values, strict=True))
    sd.metadata = {path: dict(entry) for path, entry in versions}
    return sd


def _to_bytes(aux: Any) -> bytes:
    return json.dumps(aux).encode()


def _from_bytes(data: bytes) -> Any:
    names, versions = json.loads(data)
    entries = ((path, tuple((key, value) for key, value in entry)) for path, entry in versions)
    return tuple(names), tuple(entries)


jax.tree_util.register_pytree_with_keys(StateDict, _flatten_with_keys, _unflatten, _flatten)
jax.export.register_pytree_node_serialization(
    StateDict,
    serialized_name="bridge.StateDict",
    serialize_auxdata=_to_bytes,
    deserialize_auxdata=_from_bytes,
)
