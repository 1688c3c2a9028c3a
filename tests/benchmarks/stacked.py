"""An optimizer that sees arrays of one shape as one array.

Optax maps its update over the leaves of a tree, a dozen operations for each. Of a deep stack of equal
layers, whose arrays are separate leaves, that is more to trace and to compile than the gradient, which
is one scan. ``stacked`` puts the leaves of one shape and dtype together, inside of the program, updates
the stacks and takes them apart again. It is for rules that work element by element, as Adam's is.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def stacked(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """``inner`` on the stacks; its state is theirs."""

    def init(params: Any) -> Any:
        return inner.init(_stacks(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        below = None if params is None else _stacks(params)
        stacks, state = inner.update(_stacks(updates), state, below)
        return _apart(stacks, updates), state

    return optax.GradientTransformation(init, update)


def _groups(leaves: list[Any]) -> list[list[int]]:
    """The positions of the leaves of each shape and dtype."""
    groups: dict[Any, list[int]] = {}
    for position, leaf in enumerate(leaves):
        groups.setdefault((leaf.shape, leaf.dtype), []).append(position)
    return list(groups.values())


def _stacks(tree: Any) -> Any:
    leaves = jax.tree.leaves(tree)
    return [jnp.stack([leaves[position] for position in group]) for group in _groups(leaves)]


def _apart(stacks: Any, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    for stack, group in zip(stacks, _groups(leaves), strict=True):
        for row, position in enumerate(group):
            leaves[position] = jax.lax.index_in_dim(stack, row, keepdims=False)
    return jax.tree.unflatten(structure, leaves)
