"""Registering, assigning, removing and transferring parametrizations: model in, model out.

The checks, their order and the error texts are those of ``torch.nn.utils.parametrize``. They are
applied to an open copy, so what is refused leaves nothing behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from bridge._opened import box_of, changed, remember, size
from bridge._places import in_its_module
from bridge.parametrize._list import (
    ParametrizationList,
    Parametrized,
    assign,
    drawable_value,
    is_parametrized,
    list_of,
    originals,
)
from bridge.parametrize._old_names import OldNames
from bridge.parametrize._part import Part, is_tensor
from purestate._building import typename
from purestate._freeze import settle
from purestate._keys import as_key, fold_name
from purestate._module import Module
from purestate._opening import adopt
from purestate._parameter import Box, Buffer, Parameter
from purestate._select import Selector
from purestate.nn.container import ModuleDict


@in_its_module
def register_parametrization(
    model: Any,
    name: str,
    parametrization: Any,
    *,
    unsafe: bool = False,
    at: Selector = "",
    rng: Any = 0,
) -> Any:
    """The model with a parameter or buffer computed by a module.

    The counterpart of ``torch.nn.utils.parametrize.register_parametrization``. ``model.weight`` is
    ``parametrization(original)`` from then on, computed once in a call; the original is
    ``parametrizations.weight.original`` (``original0``, ``original1``, ... where ``right_inverse``
    returns several). A second one is applied to what the first gives.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter or buffer, which may have no value yet.
        parametrization: A module whose ``forward`` takes the original. Its ``right_inverse``, if it
            has one, turns a value of the weight into the original.
        unsafe: Do not check that shape and dtype stay.
        at: Which modules; the root by default. They share the parametrization.
        rng: A key or an int, for a ``right_inverse`` that draws.

    Raises:
        ValueError: For an unknown name, and when shape or dtype would change.
        SelectorError: When ``at`` matches nothing.
    """

    def change(module: Any, path: str) -> None:
        register(module, name, parametrization, unsafe, key_at(rng, path, name))

    return changed(model, change, at)


def key_at(rng: Any, path: str, name: str) -> Any:
    """The key for what is drawn for one name of one module."""
    key = as_key(rng)
    return None if key is None else fold_name(key, f"{path}.{name}" if path else name)


def register(module: Any, name: str, parametrization: Any, unsafe: bool, key: Any) -> None:
    """Register on an open module."""
    if not isinstance(parametrization, Module):
        raise TypeError(f"{typename(parametrization)} is not a Module subclass")
    parametrization = adopt(parametrization)
    mode = parametrization.training
    parametrization.train(module.training)
    try:
        if is_parametrized(module, name):
            _append(module, name, parametrization, unsafe, key)
        elif box_of(module, name) is not None:
            _start(module, name, parametrization, unsafe, key)
        else:
            raise ValueError(
                f"Module '{module}' does not have a parameter, a buffer, or a "
                f"parametrized element with name '{name}'"
            )
    except Exception:
        parametrization.train(mode)
        raise


def _start(module: Any, name: str, parametrization: Any, unsafe: bool, key: Any) -> None:
    own, box = module.__dict__, cast(Box, box_of(module, name))
    settle(box, name)
    saved = name not in own["_non_persistent_buffers_set"]
    chain = ParametrizationList([parametrization], box, unsafe, persistent=saved, rng=key)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[name] = chain
    delattr(module, name)
    own["_computed_names"][name] = Parametrized(name)


def _append(module: Any, name: str, parametrization: Any, unsafe: bool, key: Any) -> None:
    chain = list_of(module, name)
    if not unsafe:
        _check_stacked(module, name, parametrization, key)
    chain.append(parametrization)
    chain.unsafe = chain.unsafe or unsafe


def _check_stacked(module: Any, name: str, parametrization: Any, key: Any) -> None:
    """That a parametrization maps the values of a name to such values, and back."""
    value = Parametrized(name).compute(module)
    part = Part.of(parametrization)

    def settled(output: Any) -> Any:
        if not is_tensor(output):
            raise ValueError(f"A parametrization must return a tensor. Got {type(output).__name__}.")
        return output

    result = part.probe("forward", (value,), key, settled)
    text = (
        "Registering a parametrization may not change the {0} of the tensor, unless the `unsafe` flag "
        "is enabled.\nmodule.{1}.{0}: {2}\nparametrization(module.{1}).{0}: {3}"
    )
    if result.dtype != value.dtype:
        raise ValueError(text.format("dtype", name, value.dtype, result.dtype))
    if result.shape != value.shape:
        raise ValueError(text.format("shape", name, size(value), size(result)))
    if not hasattr(parametrization, "right_inverse"):
        return

    def settled_back(output: Any) -> Any:
        if not is_tensor(output):
            raise ValueError(
                f"parametrization.right_inverse must return a tensor. Got: {type(output).__name__}"
            )
        return output

    try:
        back = part.probe("right_inverse", (result,), key, settled_back)
    except NotImplementedError:
        return
    text = (
        "The tensor returned by parametrization.right_inverse must have the same {0} as module.{1}, "
        "unless the `unsafe` flag is enabled.\nmodule.{1}.{0}: {2}\nreturned {0}: {3}"
    )
    if back.dtype != value.dtype:
        raise ValueError(text.format("dtype", name, value.dtype, back.dtype))
    if back.shape != value.shape:
        raise ValueError(text.format("shape", name, size(value), size(back)))


@in_its_module
def set_parametrized(model: Any, name: str, value: Any, *, at: Selector = "", rng: Any = 0) -> Any:
    """The model with a parametrized name set to a value, through each ``right_inverse``.

    What ``module.weight = value`` is in torch, and in a constructor.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parametrized parameter or buffer.
        value: An array.
        at: Which modules; the root by default.
        rng: A key or an int, for a ``right_inverse`` that draws.

    Raises:
        ValueError: When the name is not parametrized, or the dtype does not fit.
        RuntimeError: When a parametrization has no ``right_inverse``.
    """

    def change(module: Any, path: str) -> None:
        _check_parametrized(module, name)
        assign(list_of(module, name), value, key_at(rng, path, name))

    return changed(model, change, at)


def _check_parametrized(module: Any, name: str) -> None:
    if not is_parametrized(module, name):
        raise ValueError(f"Module {module} does not have a parametrization on {name}")


@in_its_module
def remove_parametrizations(
    model: Any, name: str, leave_parametrized: bool = True, *, at: Selector = ""
) -> Any:
    """The model with a plain parameter or buffer again.

    The counterpart of ``torch.nn.utils.parametrize.remove_parametrizations``.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parametrized parameter or buffer.
        leave_parametrized: Keep the value that was computed (what ``model.weight`` reads); else the
            original, of which there must be only one.
        at: Which modules; the root by default.

    Raises:
        ValueError: When the name is not parametrized, or has several originals to leave.
    """
    return changed(model, lambda module, path: _remove(module, name, leave_parametrized), at)


def _remove(module: Any, name: str, leave_parametrized: bool) -> None:
    _check_parametrized(module, name)
    chain, own = list_of(module, name), module.__dict__
    held = originals(chain)
    box = next(iter(held.values()))
    if not chain.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    if leave_parametrized:
        value = drawable_value(module, name)
        if chain.is_tensor:
            box.data = value
        elif isinstance(box, Parameter):
            box = Parameter(value, any(part.requires_grad for part in chain.parameters()))
        else:
            box = Buffer(value)
            box.tagged = False
        remember(box, value, next(iter(held.values())).stored_dtype)
    saved = not chain.__dict__["_non_persistent_buffers_set"]
    del own["_computed_names"][name]
    del module.parametrizations[name]
    if not is_parametrized(module):
        del module.parametrizations
    if isinstance(box, Parameter):
        module.register_parameter(name, box)
    else:
        module.register_buffer(name, box, saved)
    hooks, registered = own["_registered_hooks"]
    kept = [
        hook
        for hook in hooks
        if not (isinstance(hook.function, OldNames) and hook.function.name == name)
    ]
    own["_registered_hooks"] = tuple(kept), registered


def type_before_parametrizations(model: Any) -> type:
    """The class of a module, which a parametrization does not change.

    The counterpart of ``torch.nn.utils.parametrize.type_before_parametrizations``.
    """
    return type(model)


def transfer_parametrizations_and_params(
    from_model: Any, to_model: Any, name: str | None = None, *, at: Selector = ""
) -> Any:
    """``to_model`` with the parametrizations of ``from_model`` and the arrays they compute from.

    The counterpart of ``torch.nn.utils.parametrize.transfer_parametrizations_and_params``.

    Args:
        from_model: A module; without parametrizations nothing happens.
        to_model: A model, or in a constructor, a child. A name that it lacks becomes a parameter.
        name: Only this parametrized name.
        at: Which modules of ``to_model``; the root by default.

    Raises:
        KeyError: When ``from_model`` has no parametrization on ``name``.
    """
    if not is_parametrized(from_model):
        return to_model
    names = list(from_model.parametrizations) if name is None else [name]
    return changed(to_model, lambda module, path: _transfer(from_model, module, names), at)


def _transfer(source: Any, target: Any, names: list[str]) -> None:
    for name in names:
        taken = source.parametrizations[name]
        if not hasattr(target, name):
            setattr(target, name, Parameter(Parametrized(name).compute(source)))
        for parametrization in taken:
            register(target, name, parametrization, False, as_key(0))
        chain, copied = originals(list_of(target, name)), originals(adopt(taken))
        for original in chain:
            if original in copied:
                chain[original].data = copied[original].data
                chain[original].requires_grad = copied[original].requires_grad
                chain[original].stored_dtype = copied[original].stored_dtype


@contextmanager
def cached() -> Iterator[None]:
    """Nothing: a parametrized name is computed once in a call, whoever reads it.

    Torch's name: ``torch.nn.utils.parametrize.cached``.
    """
    yield
