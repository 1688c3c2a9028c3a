"""torch.func's two functions on modules, which are this package's native form under other names."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

import purestate as ps
from bridge._surgery import untie
from purestate._definition import Definition
from purestate._lives import flatten, unflatten
from purestate._split import settled


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a model with other arrays in place of some of its own (``torch.func.functional_call``).

    Args:
        module: A model.
        parameter_and_buffer_dicts: ``{dotted name: array}``, or several of these without a name in
            common. A name that no module has is passed over, as in torch, unless ``strict``.
        args: The positional arguments: a tuple, or the only one.
        kwargs: The keyword arguments; ``rng`` is the call's key.
        tie_weights: Whether one name of a tie gives all of them its array.
        strict: Whether every parameter and buffer must be given, and nothing else.

    Returns:
        The output.

    Raises:
        ValueError: For something else than dictionaries, a name in two of them, or two names of one
            tie with different arrays.
        RuntimeError: With ``strict``, for missing and unexpected names.
        AttributeError: For a name below a module that is not there.
        TypeError: For the name of something else than a parameter or buffer.
        StatefulCallError: When the call writes state, which torch puts into the caller's dictionary;
            ``purestate.apply`` returns it.
    """
    arrays = _joined(parameter_and_buffer_dicts)
    leaves, definition = flatten(module)
    if tie_weights:
        arrays = _with_ties(definition, arrays)
    if strict:
        _check_names(definition, arrays)
    for name in arrays:
        path, _, last = name.rpartition(".")
        if name not in definition.leaf_at and hasattr(module.get_submodule(path), last):
            raise TypeError(
                f"attribute '{name}' is not a registered array and cannot be replaced.\n"
                "    write: the names of bridge.state_dict(model), a parametrized weight's originals"
            )
    if not tie_weights:
        for name in arrays:
            if name in definition.leaf_at:
                module = untie(module, name)
        leaves, definition = flatten(module)
    given = list(leaves)
    for name, array in arrays.items():
        leaf = definition.leaf_at.get(name)
        if leaf is not None:
            given[leaf] = settled(array, name, leaves[leaf])
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    kwargs = dict(kwargs or {})
    output, after = ps.call(unflatten(definition, tuple(given)), *args, **kwargs)
    _check_unwritten(definition, given, flatten(after)[0])
    return output


def _joined(dicts: Any) -> dict[str, Any]:
    if isinstance(dicts, Mapping):
        return dict(dicts)
    if not isinstance(dicts, Sequence):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, "
            f"but got {type(dicts)}"
        )
    if not all(isinstance(part, Mapping) for part in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    every = [name for part in dicts for name in part]
    repeated = [name for name in dict.fromkeys(every) if every.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
        )
    return {name: array for part in dicts for name, array in part.items()}


def _with_ties(definition: Definition, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays, with those of a tie under all of its names."""
    ties: dict[int, list[str]] = {}
    for entry in definition.entries:
        ties.setdefault(entry.leaf, []).append(entry.name)
    tied = dict(arrays)
    for names in ties.values():
        given = [name for name in names if name in arrays]
        if len({id(arrays[name]) for name in given}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, "
                "which are tied. Consider using tie_weights=False"
            )
        tied |= {name: arrays[given[0]] for name in names if given}
    return tied


def _check_names(definition: Definition, arrays: Mapping[str, Any]) -> None:
    problems = []
    unexpected = sorted(arrays.keys() - definition.leaf_at.keys())
    missing = sorted(definition.leaf_at.keys() - arrays.keys())
    for label, names in (("Unexpected", unexpected), ("Missing", missing)):
        if names:
            problems.append(f"{label} key(s): {', '.join(map(repr, names))}.")
    if problems:
        raise RuntimeError(
            "Error(s) in reparametrizing for {}:\n\t{}".format(
                definition.cls.__name__, "\n\t".join(problems)
            )
        )


def _check_unwritten(definition: Definition, before: Sequence[Any], after: Sequence[Any]) -> None:
    written = [definition.names[leaf] for leaf in range(len(before)) if before[leaf] is not after[leaf]]
    if written:
        raise ps.StatefulCallError(
            f"this call of {definition.cls.__name__} gives new values to {written}, and "
            "functional_call returns the output only.\n"
            "    write: y, buffers = purestate.apply(definition, params, buffers, x)"
        )


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of several equal models, stacked, for ``vmap`` (``torch.func.stack_module_state``).

    Args:
        models: Models of one class and mode.

    Returns:
        ``(params, buffers)``: ``{dotted name: (len(models), *shape)}`` of the parameters and of the
        buffers, a tie under its first name.

    Raises:
        RuntimeError: For no model, and for models of different classes, modes or ``requires_grad``.
        KeyError: When a model lacks a name of the first one.
    """
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = _stacked([dict(model.named_parameters()) for model in models])
    definitions = [flatten(model)[1] for model in models]
    for name in params:
        flags = {d.leaves[d.leaf_at[name]].trainable for d in definitions}
        if len(flags) > 1:
            raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return params, _stacked([dict(model.named_buffers()) for model in models])


def _stacked(tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: jnp.stack([table[name] for table in tables]) for name in tables[0]}
