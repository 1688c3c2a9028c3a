"""state_dict: PyTorch's names, order and versions, as a pure function.

What a ``state_dict`` gives back to a model is in ``bridge._load_state_dict``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.core import Tracer

from bridge._state_dict_type import EXTRA_STATE, StateDict
from bridge.checkpoint._arrays import is_spread, spread
from purestate import Module
from purestate._abstract import is_undrawn
from purestate._definition import Definition, Leaf, Node
from purestate._lives import flatten
from purestate._select import Selector, select


def state_dict(model: Any, *, prefix: str = "", where: Selector | None = None) -> StateDict:
    """Every parameter and persistent buffer by dotted name (``torch.nn.Module.state_dict``).

    Args:
        model: A model.
        prefix: Put before every name, as it is.
        where: Only what is in these modules and below them; names stay full names.

    Returns:
        The arrays under torch's names in torch's order, every name of a tie. ``metadata`` has each
        module's version. An array that JAX narrowed (an int64 counter) is a numpy array of its
        wide dtype again.

    Raises:
        SelectorError: When ``where`` matches nothing.
        RuntimeError: When a hook that is registered with ``register_state_dict_post_hook`` returns
            something.
        Unwritable: When an array that JAX narrowed is spread over several processes.
    """
    leaves, definition = flatten(model)
    save = _Save(model, definition, leaves, _below(definition, where, leaves))
    return save.module(0, "", prefix, StateDict())


class _Save:
    """One ``state_dict`` in the making: torch's recursion over the modules."""

    def __init__(self, model: Any, definition: Definition, leaves: Any, inside: Callable[[str], bool]):
        self.model = model
        self.definition = definition
        self.leaves = leaves
        self.inside = inside
        self.saved: dict[int, Any] = {}

    def module(self, index: int, path: str, prefix: str, sd: StateDict) -> StateDict:
        """Put in what one module and its children have; ``prefix`` is all that stands before."""
        node = self.definition.nodes[index]
        inside = self.inside(path)
        version = {"version": node.cls._version}
        hooks = [hook for hook in node.hooks if inside and hook.kind.startswith("state_dict")]
        module = self.model.get_submodule(path) if hooks else None
        if inside:
            # Torch cuts the last character of the module's prefix, dot or not.
            sd.metadata[prefix[:-1]] = version
            for hook in hooks:
                if hook.kind == "state_dict_pre":
                    hook.function(module, prefix, False)
            for name, value in self.own(node, path).items():
                sd[prefix + name] = value
        for name, child in node.modules:
            if child is not None:
                below = f"{path}.{name}" if path else name
                # What a hook of a child returns is not looked at, as in torch.
                self.module(child, below, f"{prefix}{name}.", sd)
        for hook in hooks:
            if hook.kind == "state_dict_post":
                result = hook.function(module, sd, prefix, version)
                if result is not None and not hook.may_replace:
                    raise RuntimeError("state_dict post-hook must return None")
                sd = sd if result is None else result
        return sd

    def own(self, node: Node, path: str) -> dict[str, Any]:
        """A module's own entries, under its own names."""
        held = [(name, leaf) for name, leaf in node.parameters if leaf is not None]
        held += [(name, leaf) for name, leaf, keep in node.buffers if keep and leaf is not None]
        own = {name: self.leaf(leaf) for name, leaf in held}
        if node.cls.own_state_dict is not Module.own_state_dict:
            own = self.model.get_submodule(path).own_state_dict(own)
        if node.cls.get_extra_state is not Module.get_extra_state:
            own[EXTRA_STATE] = self.model.get_submodule(path).get_extra_state()
        return own

    def leaf(self, leaf: int) -> Any:
        """What is saved of a leaf: one array under all its names, so that files know of the tie."""
        if leaf not in self.saved:
            described = self.definition.leaves[leaf]
            if described.stored_dtype is not None and is_spread(self.leaves[leaf]):
                raise spread(self.definition.names[leaf])
            self.saved[leaf] = _widen(self.leaves[leaf], described)
        return self.saved[leaf]


def _below(definition: Definition, where: Selector | None, leaves: Any) -> Callable[[str], bool]:
    if where is None:
        return lambda path: True
    chosen = select(definition, where, leaves)
    roots = [path for path, node in definition.paths if node in chosen]
    return lambda path: any(not root or path == root or path.startswith(f"{root}.") for root in roots)


def _widen(array: Any, leaf: Leaf) -> Any:
    if leaf.stored_dtype is None or isinstance(array, Tracer):
        return array
    if is_undrawn(array):
        return array.update(dtype=np.dtype(leaf.stored_dtype))
    return np.asarray(array).astype(leaf.stored_dtype)
