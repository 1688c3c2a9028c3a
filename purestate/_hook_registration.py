"""Registering and removing hooks: another definition, the same arrays.

``bridge.register_forward_hook(model, ...)`` and its like end here, and so do the methods of the same
names, which a constructor may call. A registration is known by a number that the model counts up and
never uses again. So a handle works on every model that descends from the one it was made on, and can
tell a hook that was removed before from one that never was there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from purestate._definition import Definition, Node, intern
from purestate._hooks import Hook, settled
from purestate._lives import flatten, unflatten
from purestate._select import Selector, select
from purestate._session import Open, members
from purestate._traversal import named_modules


class Handle(NamedTuple):
    """What removes a hook again (``torch.utils.hooks.RemovableHandle``).

    Attributes:
        number: Which registration it was.
        kind: The kind of the hook.
        function: The hook.
        places: On how many modules it was registered.
    """

    number: int
    kind: str
    function: Callable[..., Any]
    places: int = 1

    def remove(self, model: Any = None, *, at: Selector | None = None) -> Any:
        """The model, or Definition, without the hook; as it is where the hook is gone already.

        In a constructor the module changes in place.

        Args:
            model: A model or a Definition.
            at: The modules to remove it from; all when None. Needed only where models that were made
                apart became one model, and a registration of each looks alike.

        Raises:
            TypeError: Without a model.
            LookupError: When neither this model nor one that it descends from had the hook, and when
                it is not certain which one is meant.
        """
        if model is None:
            raise TypeError(
                "a handle changes no model in place.\n    write: model = handle.remove(model)"
            )
        if isinstance(getattr(model, "_life", None), Open):
            for _, part in named_modules(members, model):
                hooks, registered = part.__dict__["_registered_hooks"]
                part.__dict__["_registered_hooks"] = self._others(hooks), registered
            return model
        definition = model if isinstance(model, Definition) else flatten(model)[1]
        chosen = range(len(definition.nodes)) if at is None else select(definition, at)
        changes = {}
        for index in chosen:
            node = definition.nodes[index]
            kept = self._others(node.hooks)
            if len(kept) < len(node.hooks):
                changes[index] = kept, node.registered
        if len(changes) > self.places and at is None:
            paths = ", ".join(repr(definition.path_of[index]) for index in changes)
            raise LookupError(
                f"{len(changes)} modules have a hook that this handle may stand for: {paths}.\n"
                "    write: model = handle.remove(model, at=path)"
            )
        if not changes and all(node.registered < self.number for node in definition.nodes):
            raise LookupError(
                f"this {definition.cls.__name__} never had the {self.kind} hook "
                f"{getattr(self.function, '__name__', self.function)!r} that the handle stands for.\n"
                "    write: model = handle.remove(model) with the model that register_* returned, or "
                "one that was made from it"
            )
        return _with_hooks(model, definition, changes)

    def _others(self, hooks: tuple[Hook, ...]) -> tuple[Hook, ...]:
        return tuple(hook for hook in hooks if hook[:3] != self[:3])


def register(
    model: Any, kind: str, function: Any, at: Selector, prepend: bool = False, **options: bool
) -> tuple[Any, Handle]:
    """The model, or Definition, with a hook on the selected modules, and the handle for all of them."""
    leaves, definition = (None, model) if isinstance(model, Definition) else flatten(model)
    paths = select(definition, at, leaves)
    number = 1 + max(node.registered for node in definition.nodes)
    changes, held = {}, function
    for index, path in paths.items():
        module = None if isinstance(model, Definition) else model.get_submodule(path)
        held = settled(function, module)
        hook, hooks = Hook(number, kind, held, **options), definition.nodes[index].hooks
        changes[index] = (hook, *hooks) if prepend else (*hooks, hook), number
    # The root counts too, so that a handle is known when the module that had the hook is gone.
    changes.setdefault(0, (definition.nodes[0].hooks, number))
    return _with_hooks(model, definition, changes), Handle(number, kind, held, len(paths))


def register_open(
    module: Any,
    kind: str,
    function: Any,
    prepend: bool = False,
    takes_module: bool = True,
    **options: bool,
) -> Handle:
    """Register on a module under construction, in place."""
    below = [part for _, part in named_modules(members, module)]
    number = 1 + max(part.__dict__["_registered_hooks"][1] for part in below)
    hook = Hook(number, kind, settled(function, module, takes_module), **options)
    hooks, _ = module.__dict__["_registered_hooks"]
    hooks = (hook, *hooks) if prepend else (*hooks, hook)
    module.__dict__["_registered_hooks"] = hooks, number
    return Handle(number, kind, hook.function)


def _with_hooks(
    model: Any, definition: Definition, changes: dict[int, tuple[tuple[Hook, ...], int]]
) -> Any:
    if not changes:
        return model
    nodes = tuple(
        _replaced(node, *changes[index]) if index in changes else node
        for index, node in enumerate(definition.nodes)
    )
    changed = intern(nodes, definition.leaves)
    return changed if isinstance(model, Definition) else unflatten(changed, flatten(model)[0])


def _replaced(node: Node, hooks: tuple[Hook, ...], registered: int) -> Node:
    build, fields = node.__reduce__()
    return build(*fields[:-2], hooks, registered)
