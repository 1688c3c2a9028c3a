"""torch.nn.utils.prune's functions: model in, model out."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from bridge._opened import changed, is_open
from bridge._places import in_its_module
from bridge.prune._methods import (
    BasePruningMethod,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    PruningContainer,
    RandomStructured,
    RandomUnstructured,
)
from bridge.prune._pruned import Pruned, bake, held, prune_with
from purestate._abstract import AbstractArray, is_undrawn
from purestate._freeze import snapshot
from purestate._lives import flatten
from purestate._select import Selector, select


@in_its_module
def apply(
    model: Any,
    name: str,
    method: BasePruningMethod,
    importance_scores: Any = None,
    *,
    at: Selector = "",
) -> Any:
    """The model with a parameter pruned by a method of any kind.

    What ``Method.apply(module, name, ...)`` is in torch.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter, which may be pruned already.
        method: What computes the mask.
        importance_scores: Of each entry; the parameter itself when None.
        at: Which modules; the root by default.

    Raises:
        AttributeError: When there is no such name.
        TypeError: When it is not a parameter.
    """

    def change(module: Any, path: str) -> None:
        place = f"{path}.{name}" if path else name
        prune_with(module, name, method.at(place), importance_scores)

    return changed(model, change, at)


def identity(model: Any, name: str, *, at: Selector = "") -> Any:
    """The model with a mask of ones (``torch.nn.utils.prune.identity``).

    For a model that is to take a pruned one's ``state_dict``.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        at: Which modules; the root by default.
    """
    return apply(model, name, Identity(), at=at)


def random_unstructured(
    model: Any, name: str, amount: Any, *, rng: Any = None, at: Selector = ""
) -> Any:
    """The model without some entries of a parameter (``torch.nn.utils.prune.random_unstructured``).

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        amount: How many, or which fraction.
        rng: A key or an int; each module draws by its own path.
        at: Which modules; the root by default.

    Raises:
        MissingRngError: Without ``rng``.
        TypeError: For an amount that is no number.
        ValueError: For an amount out of range.
    """
    return apply(model, name, RandomUnstructured(amount, rng), at=at)


def l1_unstructured(
    model: Any, name: str, amount: Any, importance_scores: Any = None, *, at: Selector = ""
) -> Any:
    """The model without the smallest entries of a parameter (``torch.nn.utils.prune.l1_unstructured``).

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        amount: How many, or which fraction.
        importance_scores: Of each entry; the parameter itself when None.
        at: Which modules; the root by default.

    Raises:
        TypeError: For an amount that is no number.
        ValueError: For an amount out of range.
        AssertionError: For scores of another shape.
    """
    return apply(model, name, L1Unstructured(amount), importance_scores, at=at)


def random_structured(
    model: Any, name: str, amount: Any, dim: int, *, rng: Any = None, at: Selector = ""
) -> Any:
    """The model without some channels of a parameter (``torch.nn.utils.prune.random_structured``).

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        amount: How many, or which fraction.
        dim: The axis of the channels.
        rng: A key or an int; each module draws by its own path.
        at: Which modules; the root by default.

    Raises:
        MissingRngError: Without ``rng``.
        TypeError: For an amount that is no number.
        ValueError: For an amount out of range, or a parameter without channels.
        IndexError: For an axis that it does not have.
    """
    return apply(model, name, RandomStructured(amount, dim, rng), at=at)


def ln_structured(
    model: Any,
    name: str,
    amount: Any,
    n: Any,
    dim: int,
    importance_scores: Any = None,
    *,
    at: Selector = "",
) -> Any:
    """The model without the channels of the smallest norm (``torch.nn.utils.prune.ln_structured``).

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        amount: How many, or which fraction.
        n: Which norm: a number, an infinity, ``"fro"`` or ``"nuc"``.
        dim: The axis of the channels.
        importance_scores: Of each entry; the parameter itself when None.
        at: Which modules; the root by default.

    Raises:
        TypeError: For an amount that is no number.
        ValueError: For an amount out of range, or a parameter without channels.
        IndexError: For an axis that it does not have.
        AssertionError: For scores of another shape.
    """
    return apply(model, name, LnStructured(amount, n, dim), importance_scores, at=at)


def custom_from_mask(model: Any, name: str, mask: Any, *, at: Selector = "") -> Any:
    """The model with a mask that was made elsewhere (``torch.nn.utils.prune.custom_from_mask``).

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        mask: Ones for what stays.
        at: Which modules; the root by default.

    Raises:
        AssertionError: For a mask of another shape.
    """
    return apply(model, name, CustomFromMask(mask), at=at)


def global_unstructured(
    model: Any,
    parameters: Iterable[tuple[Selector, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[str, str], Any] | None = None,
    **kwargs: Any,
) -> Any:
    """The model with several parameters pruned as one (``torch.nn.utils.prune.global_unstructured``).

    Args:
        model: A model, or a module under construction.
        parameters: ``(modules, name)`` pairs; a path, or any other selector.
        pruning_method: A class of unstructured methods.
        importance_scores: ``{(path, name): scores}``; a parameter itself where there are none.
        **kwargs: For the class: ``amount``, and ``rng`` for one that draws.

    Raises:
        TypeError: For a class of another type, or what is no iterable or no dict.
        ValueError: For an amount out of range.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = importance_scores if importance_scores is not None else {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    definition, leaves = snapshot(model) if is_open(model) else flatten(model)[::-1]
    places = [
        (path, name)
        for where, name in parameters
        for path in select(definition, where, leaves).values()
    ]

    def change(root: Any, path: str) -> None:
        del path
        modules = [root.get_submodule(path) for path, _ in places]
        names = [name for _, name in places]
        values, masks = [], []
        for module, place in zip(modules, places, strict=True):
            value = held(module, place[1])
            values.append(scores.get(place, value))
            mask = module.__dict__["_buffers"].get(f"{place[1]}_mask")
            masks.append(jnp.ravel(jnp.ones(value.shape, value.dtype) if mask is None else mask.data))
        method: Any = pruning_method(**kwargs)
        if method.PRUNING_TYPE != "unstructured":
            raise TypeError(
                'Only "unstructured" PRUNING_TYPE supported for '
                f"the `pruning_method`. Found method {pruning_method} of type {method.PRUNING_TYPE}"
            )
        whole = PruningContainer(method).compute_mask(_joined(values), jnp.concatenate(masks))
        start = 0
        for module, name, part in zip(modules, names, masks, strict=True):
            shape = held(module, name).shape
            mask = whole[start : start + part.size].reshape(shape)
            prune_with(module, name, CustomFromMask(mask))
            start += part.size

    return changed(model, change)


def _joined(values: list[Any]) -> Any:
    """The entries of all arrays; without values where one of them has none."""
    if any(map(is_undrawn, values)):
        return AbstractArray((sum(value.size for value in values),), jnp.result_type(*values))
    return jnp.concatenate([jnp.ravel(value) for value in values])


@in_its_module
def remove(model: Any, name: str, *, at: Selector = "") -> Any:
    """The model with a pruned parameter as a plain one, zeros included.

    The counterpart of ``torch.nn.utils.prune.remove``.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a pruned parameter.
        at: Which modules; the root by default.

    Raises:
        ValueError: When the parameter is not pruned.
        UninitializedError: When it has no value yet.
    """
    return changed(model, lambda module, path: bake(module, name), at)


def is_pruned(model: Any) -> bool:
    """Whether anything in a model is pruned (``torch.nn.utils.prune.is_pruned``)."""
    if is_open(model):
        rules = (rule for part in model.modules() for rule in vars(part)["_computed_names"].values())
        return any(isinstance(rule, Pruned) for rule in rules)
    definition = flatten(model)[1]
    return any(isinstance(a.value, Pruned) for node in definition.nodes for a in node.attributes)
