"""Module: one class with three lives.

* *building*: while the outermost constructor runs, a module is an open object and ``self.x = value``
  follows PyTorch's rules (``purestate._building``). The metaclass opens and closes it.
* *value*: from then on, for ever. One slot, the pair of leaves and definition that it flattens
  to as a registered pytree. Assignment is refused and says what to write instead.
* *running*: ``self`` inside ``forward``. A view of one call (``purestate._running``): reads and
  writes go to the call's cells, and the call returns what was written.

``__dict__['_life']`` tells them apart: a value has none. What differs between the lives when a
module is read or written is in ``purestate._lives``; this file is the class that users see.
"""

import abc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax

from purestate import _building as building, _lives as lives
from purestate._building import construction_only
from purestate._call import call_stateless
from purestate._computed import class_name
from purestate._errors import FrozenModelError, check_overrides
from purestate._freeze import close
from purestate._hook_methods import HookMethods
from purestate._repr import module_repr
from purestate._running import Running
from purestate._session import Open, current_session, session
from purestate._traversal import named_children, named_members, named_modules


class ModuleMeta(abc.ABCMeta):
    """Opens a module before its constructor and closes it after the outermost one."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any):
        super().__init__(name, bases, namespace, **kwargs)
        check_overrides(name, namespace)
        jax.tree_util.register_pytree_with_keys(
            cls, lives.flatten_with_keys, lives.unflatten, lives.flatten
        )

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's arguments, for ``help`` and editors."""
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if current_session() is not None:
            return cls._construct(args, kwargs)
        with session(Open()):
            module = cls._construct(args, kwargs)
            return close(module) if isinstance(module, Module) else module

    def _construct(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module: Any
        if cls.__new__ is object.__new__:
            module = object.__new__(cls)
        else:
            module = cls.__new__(cls, *args, **kwargs)
        if isinstance(module, cls):
            module.__dict__["_life"] = current_session()
            module.__init__(*args, **kwargs)
        return module


class Module(HookMethods, metaclass=ModuleMeta):
    """The base class of every model and layer. Subclass it as ``torch.nn.Module``.

    ``__init__`` calls ``super().__init__()`` and assigns parameters, buffers and submodules;
    ``forward`` computes. The finished object is an immutable pytree: ``jax.jit``, ``jax.grad``,
    ``jax.tree.map`` and the rest take it as it is, and the functions of ``bridge`` return changed
    copies.

    ``model(x)`` runs ``forward`` when that changes no state; ``purestate.call(model, x)`` returns
    ``(output, model)`` with the new buffer values.

    Example:
        >>> class Up(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.up = nn.Linear(8, 32)
        ...     def forward(self, x):
        ...         return self.up(x)
        >>> model = purestate.init(Up(), 0)
        >>> model(jnp.ones((2, 8))).shape
        (2, 32)
    """

    __slots__ = ()

    _version: int = 1
    training: bool

    call_super_init: bool = False
    """Whether ``Module.__init__`` passes its arguments on to the next class in the method order."""

    def __init__(self, *args: Any, **kwargs: Any):
        if self.call_super_init:
            building.start(self)
            super().__init__(*args, **kwargs)
            return
        name = type(self).__name__
        if kwargs:
            key = next(iter(kwargs))
            raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{key}'")
        if args:
            raise TypeError(
                f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given"
            )
        building.start(self)

    # What a subclass defines.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; subclasses define it."""
        del args, kwargs
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def extra_repr(self) -> str:
        """What stands between the parentheses in ``repr``; subclasses define it."""
        return ""

    def _get_name(self) -> str:
        """What ``repr`` calls the module; subclasses may define it."""
        return class_name(self)

    def upgrade_state_dict(self, state: dict[str, Any], version: int | None) -> dict[str, Any]:
        """This module's own entries of a ``state_dict``, brought to the class's ``_version``.

        Args:
            state: ``{name: array}`` of this module only, without prefix; not to be changed.
            version: The version the entries were written with; None when it was not recorded.

        Returns:
            The entries to load.

        Raises:
            RuntimeError: For entries that cannot be brought; the text goes into the load's report.
        """
        del version
        return state

    def own_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        """This module's own entries of a ``state_dict``, from its arrays.

        The way back is ``upgrade_state_dict``.

        Args:
            state: ``{name: array}`` of this module only, without prefix: its parameters and
                persistent buffers.

        Returns:
            The entries to save, in order.
        """
        return state

    def get_extra_state(self) -> Any:
        """What else belongs in a ``state_dict``; subclasses define it, and ``set_extra_state``."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called. "
            "Define it in the class to save something."
        )

    def set_extra_state(self, state: Any) -> None:
        """Take what ``get_extra_state`` gave; assigns, as a constructor does."""
        del state
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called. "
            "Define it in the class to load something."
        )

    # Calling.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``. On a finished model the call must not change state."""
        life = self._life
        if type(life) is Running:
            if life.call.watched:
                return life.invoke(self, args, kwargs)
            return self.forward(*args, **kwargs)
        if life is None:
            return call_stateless(self, args, kwargs)
        raise FrozenModelError(
            f"{type(self).__name__} is still being built and cannot be called in a constructor: its "
            "arrays have no values yet.\n"
            "    write: compute shapes from the arguments of __init__, or use "
            "jax.eval_shape(lambda m, x: purestate.call(m, x), part, x) outside"
        )

    def next_key(self) -> jax.Array:
        """A fresh random key, in ``forward``: from the call's ``rng``, this path and a counter.

        Raises:
            MissingRngError: When the call was given no ``rng``.
            RuntimeError: Outside of a call.
        """
        if type(self._life) is not Running:
            raise RuntimeError("next_key() works inside forward: keys come from the call's rng")
        return self._life.next_key()

    # Attributes.

    def __getattr__(self, name: str) -> Any:
        declared = getattr(type(self), name, None)
        if isinstance(declared, property) and declared.fget is not None:
            return declared.fget(self)  # It raised AttributeError: let that error be seen.
        return lives.read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        lives.write(self, name, value)

    def __delattr__(self, name: str) -> None:
        lives.delete(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *lives.names(self)}
        return sorted(name for name in names if not name[:1].isdigit())

    def __repr__(self) -> str:
        return module_repr(self)

    # Reading the tree: the same in all three lives.

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """``(name, array)`` of every parameter; a tie once unless ``remove_duplicate=False``."""
        return self._named("parameters", prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """``(name, array)`` of every buffer, the non-persistent ones too."""
        return self._named("buffers", prefix, recurse, remove_duplicate)

    def _named(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        graph = lives.graph(self)
        for name, token in named_members(
            graph.members, graph.root, kind, prefix, recurse, remove_duplicate
        ):
            yield name, graph.array(token)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Every parameter array, ties once."""
        return (value for _, value in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """Every buffer array, ties once."""
        return (value for _, value in self.named_buffers(recurse=recurse))

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Module"]]:
        """``(path, module)``, this one first; a shared module once unless asked otherwise."""
        graph = lives.graph(self)
        seen = set()
        if memo:
            every = named_modules(graph.members, graph.root, "", False)
            seen = {token for path, token in every if graph.module(path, token) in memo}
        for path, token in named_modules(graph.members, graph.root, "", remove_duplicate, seen):
            module = graph.module(path, token)
            if memo is not None and remove_duplicate:
                memo.add(module)
            yield ".".join(part for part in (prefix, path) if part), module

    def modules(self, remove_duplicate: bool = True) -> Iterator["Module"]:
        """This module and every one below it."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """``(name, module)`` of the direct children, each once."""
        graph = lives.graph(self)
        for name, token in named_children(graph.members, graph.root):
            yield name, graph.module(name, token)

    def children(self) -> Iterator["Module"]:
        """The direct children, each once."""
        return (module for _, module in self.named_children())

    def get_submodule(self, target: str) -> "Module":
        """The module at a dotted path; ``""`` is this one.

        Raises:
            AttributeError: When there is nothing there, or it is not a module.
        """
        module: Any = self
        for item in target.split(".") if target else ():
            if not hasattr(module, item):
                raise AttributeError(f"{type(module).__name__} has no attribute `{item}`")
            module = getattr(module, item)
            if not isinstance(module, Module):
                raise AttributeError(f"`{item}` is not an nn.Module")
        return module

    def get_parameter(self, target: str) -> Any:
        """The parameter at a dotted name."""
        return self._get_member(target, "parameters", "is not an nn.Parameter")

    def get_buffer(self, target: str) -> Any:
        """The buffer at a dotted name."""
        return self._get_member(target, "buffers", "is not a buffer")

    def _get_member(self, target: str, kind: str, complaint: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        graph = lives.graph(module)
        own = dict(graph.members(graph.root, kind))
        if name not in own or (own[name] is None and kind == "parameters"):
            raise AttributeError(f"`{name}` {complaint}")
        return getattr(module, name)

    # Changing the tree: only while it is being built. On a value each says what to write instead.

    @construction_only
    def register_parameter(self, name: str, param: Any) -> None:
        """Register a Parameter, or None to reserve the name. In a constructor."""
        building.register_parameter(self, name, param)

    @construction_only
    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Register an array as state. In a constructor.

        Args:
            name: Without dots, not taken.
            tensor: An array, or None to reserve the name.
            persistent: Whether it is part of the ``state_dict``.
        """
        building.register_buffer(self, name, tensor, persistent)

    @construction_only
    def register_module(self, name: str, module: Any) -> None:
        """Register a child. In a constructor."""
        building.register_module(self, name, module)

    @construction_only
    def add_module(self, name: str, module: Any) -> None:
        """Register a child, under torch's older name. In a constructor."""
        building.register_module(self, name, module)

    @construction_only
    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put a module at a dotted path. In a constructor."""
        building.set_submodule(self, target, module, strict)

    @construction_only
    def train(self, mode: bool = True) -> "Module":
        """Set the mode of this module and its children. In a constructor, or overridden.

        ``bridge.train`` and ``bridge.eval`` call it on an open copy, so an override (a frozen
        BatchNorm) is honoured.
        """
        building.train(self, mode)
        return self

    @construction_only
    def eval(self) -> "Module":
        """``train(False)``. In a constructor."""
        return self.train(False)

    @construction_only
    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Set whether the parameters train. In a constructor."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    @construction_only
    def apply(self, fn: Callable[["Module"], Any]) -> "Module":
        """Call ``fn`` on every module below and then on this one. In a constructor."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # Copies.

    def __copy__(self) -> "Module":
        return lives.copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Module":
        return lives.deepcopy(self, memo)

    def __reduce__(self) -> Any:
        return lives.reduce(self)
