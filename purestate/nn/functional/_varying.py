"""Arrays that differ between the members of a mapped axis, beside arrays that do not.

Inside of ``jax.shard_map`` the type of an array says over which axes it varies, and JAX adds axes to
it where an operation needs them. It does not where types must be equal from the start: a scan's carry,
the two sides of ``jax.linear_transpose``, a value and its tangent. There we ask for them.
"""

from typing import Any, TypeVar

import jax
from jax import lax


Tree = TypeVar("Tree")


def varying_alike(tree: Tree) -> Tree:
    """The same arrays, all of them varying over every axis over which one of them does.

    The gradient of an array that did not vary is summed over the axis, once, here.
    """
    leaves, structure = jax.tree.flatten(tree)
    each = [_axes(leaf) for leaf in leaves]
    union = frozenset().union(*each)
    leaves = [
        leaf if axes == union else lax.pcast(leaf, tuple(sorted(union - axes, key=str)), to="varying")
        for leaf, axes in zip(leaves, each, strict=True)
    ]
    return jax.tree.unflatten(structure, leaves)


def _axes(array: Any) -> frozenset[Any]:
    kind: Any = jax.typeof(array)
    if hasattr(kind, "manual_axis_type"):
        return kind.manual_axis_type.varying
    return getattr(kind, "vma", frozenset())  # JAX before 0.10.2.
