"""load_checkpoint: a model's values, straight from files.

``bridge.load_state_dict(model, bridge.load(path))`` with the steps merged: names are matched before
numbers are read, and each array is made where it is to stay (`_streaming.py`). The rules are those of
``load_state_dict``, because it does the matching.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bridge import _names
from bridge._float_names import float_named, float_names
from bridge._load_report import LoadReport
from bridge._load_state_dict import Load
from bridge._state_in_file import find_state, proposal
from bridge._streaming import Streams, chooser, targets
from bridge.checkpoint import Truncated
from bridge.checkpoint._files import PathLike, read_content
from purestate._definition import Definition
from purestate._lives import flatten


def load_checkpoint(
    model: Any,
    path: PathLike,
    *,
    rename: _names.Rules | None = None,
    strict: bool = True,
    dtype: Any = None,
    sharding: Any = None,
    copy: bool = False,
    progress: bool = True,
    key: str | None = None,
    verify: bool = False,
) -> tuple[Any, LoadReport]:
    """The model with the values of a checkpoint file or folder.

    The rules are those of :func:`bridge.load_state_dict`: names, versions, hooks, ties, dtypes, and
    the texts of what does not fit. All or nothing, and nothing is read before the names fit. On the
    CPU, arrays are used where they lie in the file if JAX can; otherwise they are read one at a time.

    Args:
        model: A model; arrays without a value yet are filled as well.
        path: A file of any format that ``bridge.load`` reads, a folder of files, or an index of
            one. A training checkpoint may hold the state dict under a key or in a list; it is found.
        rename: Rules from names of the file to names of the model, as :func:`bridge.rename` takes them.
        strict: Whether a missing or unexpected name is an error. A name whose array the file has
            under a tied name is not missing.
        dtype: A floating-point dtype, or its name (``"bfloat16"``, ``"bf16"``), for all floating-point
            arrays of the model. Without it, each keeps the model's dtype, and values are cast to it.
        sharding: A ``jax.sharding.Sharding`` for every array, a function
            ``(name, array) -> sharding or None``, or ``{name: sharding}``. Each process reads only
            the slices of its own devices. Axes that it does not divide are not sharded.
        copy: Whether every array gets memory of its own. Without it, arrays may be views of the
            file: replacing the file (as ``bridge.save`` does) is safe, but a program that writes
            into it changes the model, and one that cuts it short ends this process.
        progress: Whether a bar is shown, on a terminal, when loading takes more than a second.
        key: Which state dict of a training checkpoint is meant, as ``"ema.model"`` or ``"models.0"``.
            Without it, the only one with names of the model is; or else the only one at all.
        verify: Whether to check the files against their checksums and digests first.

    Returns:
        ``(model, report)``.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If the file is damaged, unsafe or not supported, or if it holds no state
            dict or several; the text has the line to write.
        RuntimeError: With torch's text, naming every problem, and proposing a ``rename`` where a
            prefix keeps the names from meeting.
        TypeError: For a dtype that is not floating-point, and for arguments of other kinds.
        ValueError: For a 64-bit dtype while x64 is off.
    """
    start = time.perf_counter()
    if isinstance(model, type | str):
        raise TypeError(
            f"load_checkpoint takes a model first, not {model!r}\n"
            "    write: model, report = bridge.load_checkpoint(Net(), path)"
        )
    if isinstance(rename, str):
        raise TypeError(f"rename takes rules, not {rename!r}\n    write: rename={{{rename!r}: ''}}")
    if key is not None and not isinstance(key, str):
        steps = key if isinstance(key, tuple | list) else (key,)
        text = ".".join(
            step.decode("utf-8", "replace") if isinstance(step, bytes) else str(step) for step in steps
        )
        raise TypeError(
            f"key is the dotted name of a state dict, as text, not {key!r}\n    write: key={text!r}"
        )
    name = os.fspath(path)
    leaves, definition = flatten(model)
    dtype = _floating(dtype)
    leaf_of = {entry.name: entry.leaf for entry in definition.entries if entry.persistent}
    rules = None if rename is None else _names.checked(rename)
    together = _looks_at_values(definition)
    content = read_content(path, copy=False, verify=verify, together=together)
    sizes = {file: os.stat(file).st_size for file in content.files}
    new_name = (lambda name: name) if rules is None else _names._compiled(rules)[0]
    values, inside = find_state(content.value, name, leaf_of, new_name, key)
    renamed = _names.RenameReport({}, [], [], [], [])
    if rules is not None:
        values, renamed = _names.rename(values, rules)
    wanted, uneven = targets(definition, leaves, dtype, chooser(sharding, definition))
    streams = Streams(copy=copy, progress=progress)
    load = Load(definition, wanted, streams)
    load.match(model, values)
    loaded_leaves = set(streams.made.values())
    load.missing = [key for key in load.missing if leaf_of.get(key) not in loaded_leaves]
    advice = ""
    if rules is None and (load.missing or load.unexpected):
        advice = proposal(name, values, leaf_of)
    load.check(model, strict, advice)
    load.leaves = streams.settle(load.leaves)
    _check_lengths(sizes)
    load.errors += streams.errors
    load.check(model, strict)
    if dtype is not None:
        _forget_wide(load, definition, leaves)
    report = LoadReport(
        loaded=tuple(name for name in streams.made if name in values),
        renamed=renamed.renamed,
        unused_rules=tuple(renamed.unused_rules),
        cast=streams.cast,
        missing=tuple(load.missing),
        unexpected=tuple(load.unexpected),
        tied=_ties(definition, loaded_leaves),
        replicated=tuple(definition.names[leaf] for leaf in sorted(uneven)),
        inside=inside,
        files=content.files,
        bytes=streams.bytes,
        seconds=time.perf_counter() - start,
        notes=content.notes,
    )
    return load.model(), report


def _looks_at_values(definition: Definition) -> bool:
    """Whether a user's code sees the values on their way, and so needs arrays in one piece."""
    return any(
        any(hook.kind == "load_state_dict_pre" for hook in node.hooks)
        or not node.cls.upgrade_state_dict.__module__.startswith("purestate.")
        for node in definition.nodes
    )


def _check_lengths(sizes: Mapping[str, int]) -> None:
    """Refuse files that were cut while they were read: a map has zeros to the end of its last page."""
    for file, size in sizes.items():
        if os.path.exists(file) and os.stat(file).st_size < size:
            raise Truncated("the file became shorter while it was read", file=file)


def _floating(dtype: Any) -> Any:
    if dtype is None:
        return None
    if type(dtype).__module__.partition(".")[0] == "torch":
        dtype = str(dtype)
    try:
        dtype = float_named(dtype) if isinstance(dtype, str) else jnp.dtype(dtype)
    except TypeError as error:
        if isinstance(dtype, str):
            raise
        raise TypeError(f"{dtype!r} is no dtype\n    write: {float_names()}") from error
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"load_checkpoint casts floating-point arrays to floating point dtypes, got dtype={dtype}"
        )
    # NumPy has more than JAX: another byte order, more bits. Those of six bits JAX names, and has no
    # arrays of.
    if not dtype.isnative or not hasattr(jnp, dtype.name) or dtype.name.startswith("float6_"):
        raise TypeError(f"JAX has no arrays of dtype {dtype!r}\n    write: {float_names()}")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(
            f"JAX is in 32-bit mode and cannot hold {dtype.name}.\n"
            '    write: jax.config.update("jax_enable_x64", True)'
        )
    return dtype


def _ties(definition: Definition, loaded: set[int]) -> tuple[tuple[str, ...], ...]:
    """The names of arrays that have several, among those that were loaded."""
    names: dict[int, list[str]] = {}
    for entry in definition.entries:
        if entry.persistent and entry.leaf in loaded:
            names.setdefault(entry.leaf, []).append(entry.name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _forget_wide(load: Load, definition: Definition, leaves: Any) -> None:
    """A cast is a decision about the dtype: what JAX narrowed before is no longer remembered."""
    for leaf, array in enumerate(leaves):
        if jnp.issubdtype(array.dtype, jnp.floating):
            load.stored[leaf] = None
