"""A module under construction: PyTorch's rules of assignment, registration and deletion.

While the outermost constructor runs, every module it made is *open*: an ordinary object whose
``__dict__`` holds torch's own registries (``_parameters``, ``_buffers``, ``_modules``) and plain
attributes, and which changes in place as a torch module does. The rules below are those of
``torch.nn.Module``, with its order of tests, error types and texts. Two defects are mended: a
failed registration leaves the old value where it was, and a module cannot be assigned under a name
with a dot or an empty name.

The functions of ``bridge`` that change structure open a finished model, apply these same rules to
the copy, and close it again (``purestate._edit``).
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from purestate._abstract import is_undrawn
from purestate._base import Base
from purestate._errors import BuildError, refuse_method
from purestate._opening import adopt
from purestate._parameter import Box, Buffer, Parameter
from purestate._session import INTERNAL, REGISTRIES, Open, current_session


RESERVED = frozenset(
    {"_parts", "_leaves", "_definition", "_registered_hooks", "_computed_names", "_life", "_origin"}
)
"""The names that purestate itself gives to every module."""


def construction_only(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that changes its module: on a finished one it says what to write instead."""

    @functools.wraps(method)
    def checked(self: Base, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self._life, Open):
            raise refuse_method(method.__name__)
        return method(self, *args, **kwargs)

    return checked


def start(module: Base) -> None:
    """What ``torch.nn.Module.__init__`` sets up, in torch's order."""
    module.__dict__.update(
        training=True,
        _parameters={},
        _buffers={},
        _non_persistent_buffers_set=set(),
        _registered_hooks=((), 0),
        _computed_names={},
        _modules={},
    )


def typename(value: Any) -> str:
    """The name of a type as ``torch.typename`` prints it."""
    if isinstance(value, jax.Array):
        return "jax.Array"
    cls = value if hasattr(value, "__qualname__") else type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def is_array(value: Any) -> bool:
    """Whether a value may be the array of a buffer."""
    return isinstance(value, jax.Array | np.ndarray | np.generic) or is_undrawn(value)


def assign(module: Any, name: str, value: Any) -> None:
    """``module.name = value``, by torch's chain of tests."""
    own = module.__dict__
    if name in RESERVED:
        raise AttributeError(
            f"'{name}' is a name that purestate needs itself.\n    write: another attribute name"
        )
    parameters, buffers, modules = (own.get(registry) for registry in REGISTRIES)
    if name == "training" and isinstance(value, Parameter | Base):
        raise KeyError("attribute 'training' already exists")  # The mode, which every module has.
    if isinstance(value, Parameter):
        if parameters is None:
            raise AttributeError("cannot assign parameters before Module.__init__() call")
        with _released(module, name):
            module.register_parameter(name, value)
    elif parameters is not None and name in parameters:
        if value is not None:
            raise TypeError(
                f"cannot assign '{typename(value)}' as parameter '{name}' "
                "(torch.nn.Parameter or None expected)"
            )
        module.register_parameter(name, None)
    elif isinstance(value, Base):
        if modules is None:
            raise AttributeError("cannot assign module before Module.__init__() call")
        _check_name("module", name)
        child = adopt(value)
        _release(module, name)
        modules[name] = child
    elif modules is not None and name in modules:
        if value is not None:
            raise TypeError(
                f"cannot assign '{typename(value)}' as child module '{name}' "
                "(torch.nn.Module or None expected)"
            )
        modules[name] = None
    elif isinstance(value, Buffer) or (buffers is not None and name in buffers):
        _assign_buffer(module, name, value)
    else:
        own[name] = value


def _assign_buffer(module: Any, name: str, value: Any) -> None:
    own = module.__dict__
    if value is not None and not (isinstance(value, Box) or is_array(value)):
        raise TypeError(
            f"cannot assign '{typename(value)}' as buffer '{name}' "
            "(torch.nn.Buffer, torch.Tensor or None expected)"
        )
    persistent = name not in own.get("_non_persistent_buffers_set", ())
    if isinstance(value, Buffer):
        persistent = value.persistent
    if "persistent" in inspect.signature(module.register_buffer).parameters:
        module.register_buffer(name, value, persistent)
    elif persistent:
        module.register_buffer(name, value)
    else:
        raise RuntimeError(
            "Registering a non-persistent buffer on a Module subclass that implements "
            "register_buffer() without the persistent argument is not allowed."
        )


def _release(module: Base, name: str) -> None:
    """Take a name out of wherever it is, except the registry it is assigned to again."""
    own = module.__dict__
    own.pop(name, None)
    for registry in ("_parameters", "_buffers"):
        own[registry].pop(name, None)
    own["_non_persistent_buffers_set"].discard(name)


@contextmanager
def _released(module: Base, name: str) -> Iterator[None]:
    """Free a name for a parameter; put everything back when the registration is refused."""
    own = module.__dict__
    places = [own, own["_buffers"], own["_modules"]]
    held = [(place, dict(place)) for place in places if name in place]
    unsaved = name in own["_non_persistent_buffers_set"]
    for place, _ in held:
        del place[name]
    own["_non_persistent_buffers_set"].discard(name)
    try:
        yield
    except Exception:
        for place, before in held:
            place.clear()
            place.update(before)
        if unsaved:
            own["_non_persistent_buffers_set"].add(name)
        raise


def _check_name(kind: str, name: str) -> None:
    """Torch's tests of a name, in its order and with its texts."""
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
    got = f", got: {name}" if kind == "module" else ""
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."{got}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')


def _check_free(module: Base, name: str, registry: str) -> None:
    own = module.__dict__
    if name in own["_computed_names"] or (hasattr(module, name) and name not in own[registry]):
        raise KeyError(f"attribute '{name}' already exists")


def register_parameter(module: Base, name: str, param: Parameter | None) -> None:
    """``torch.nn.Module.register_parameter``."""
    if "_parameters" not in module.__dict__:
        raise AttributeError("cannot assign parameter before Module.__init__() call")
    _check_name("parameter", name)
    _check_free(module, name, "_parameters")
    if param is not None and not isinstance(param, Parameter):
        raise TypeError(
            f"cannot assign '{typename(param)}' object to parameter '{name}' "
            "(torch.nn.Parameter or None required)"
        )
    module.__dict__["_parameters"][name] = param


def register_buffer(module: Base, name: str, tensor: Any, persistent: bool = True) -> None:
    """``torch.nn.Module.register_buffer``."""
    own = module.__dict__
    if "_buffers" not in own:
        raise AttributeError("cannot assign buffer before Module.__init__() call")
    _check_name("buffer", name)
    _check_free(module, name, "_buffers")
    if tensor is not None and not (isinstance(tensor, Box) or is_array(tensor)):
        raise TypeError(
            f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
            "(torch Tensor or None required)"
        )
    own["_buffers"][name] = tensor if tensor is None or isinstance(tensor, Box) else _box(tensor)
    if persistent:
        own["_non_persistent_buffers_set"].discard(name)
    else:
        own["_non_persistent_buffers_set"].add(name)


def _box(array: Any) -> Buffer:
    """The box of a plain array: the same one each time in a build, as torch's tensor is itself."""
    arrays = life.arrays if (life := current_session()) is not None else {}
    if id(array) not in arrays:
        box = Buffer(array)
        box.tagged = False
        arrays[id(array)] = (array, box)
    return arrays[id(array)][1]


def register_module(module: Base, name: str, child: Any) -> None:
    """``torch.nn.Module.register_module`` (``add_module``)."""
    if child is not None and not isinstance(child, Base):
        raise TypeError(f"{typename(child)} is not a Module subclass")
    if not isinstance(name, str):
        raise TypeError(f"module name should be a string. Got {typename(name)}")
    if "_modules" not in module.__dict__:
        raise AttributeError(f"'{type(module).__name__}' object has no attribute '_modules'")
    _check_free(module, name, "_modules")
    _check_name("module", name)
    module.__dict__["_modules"][name] = None if child is None else adopt(child)


def delete(module: Base, name: str) -> None:
    """``del module.name``: torch's order of registries."""
    own = module.__dict__
    if "_parameters" not in own:
        raise AttributeError(f"'{type(module).__name__}' object has no attribute '_parameters'")
    for registry in REGISTRIES:
        if name in own[registry]:
            del own[registry][name]
            own["_non_persistent_buffers_set"].discard(name)
            return
    if name not in own or name in INTERNAL:
        raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'")
    del own[name]


def read(module: Base, name: str) -> Any:
    """``module.name`` where Python's own look-up found nothing: registries, and what is computed."""
    own = module.__dict__
    if name == "_parts":
        raise BuildError(
            f"{type(module).__name__} is still being built and is not a value yet.\n"
            "    write: in a constructor use its own methods (self.part.train(False), "
            "nn.init.normal_(self.part.weight)); call functions of purestate and bridge after it"
        )
    for registry in REGISTRIES:
        members = own.get(registry)
        if members is not None and name in members:
            value = members[name]
            return value.data if isinstance(value, Buffer) and not value.tagged else value
    if name in own.get("_computed_names", ()):
        return own["_computed_names"][name].compute(module)
    raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'")


def train(module: Any, mode: bool) -> None:
    """``torch.nn.Module.train``: this module, then each child by its own method."""
    if not isinstance(mode, bool):
        raise ValueError("training mode is expected to be boolean")
    module.__dict__["training"] = mode
    for child in module.children():
        child.train(mode)


def set_submodule(module: Any, target: str, child: Any, strict: bool) -> None:
    """``torch.nn.Module.set_submodule``: put a module at a dotted path whose parent exists."""
    if target == "":
        raise ValueError("Cannot set the submodule without a target name!")
    if not isinstance(child, Base):
        raise ValueError(f"`module` is not an nn.Module, found {type(child)}")
    path, _, name = target.rpartition(".")
    parent = module.get_submodule(path)
    if strict and not hasattr(parent, name):
        raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
    if hasattr(parent, name) and not isinstance(getattr(parent, name), Base):
        raise AttributeError(f"`{name}` is not an nn.Module")
    assign(parent, name, child)
