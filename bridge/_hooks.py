"""Hooks: functions that run around a module's ``forward``, backward pass, saving and loading.

Each function takes a model, or a Definition, and returns ``(model, handle)``. The hook is part of the
model from then on: it goes through every JAX transform, ``copy`` and ``pickle`` (if it is a named
function), and is in no ``state_dict``. ``handle.remove(model)`` gives the model without it.

A hook gets the module as first argument: in the forward pass the running one, whose buffers it may
write; elsewhere a value. It runs while a function is traced, as ``forward`` does.
"""

from collections.abc import Callable
from typing import Any

from purestate._hook_registration import Handle as Handle, register
from purestate._select import Selector


Registered = tuple[Any, Handle]
Function = Callable[..., Any]


def register_forward_pre_hook(
    model: Any,
    hook: Function,
    *,
    at: Selector = "",
    prepend: bool = False,
    with_kwargs: bool = False,
) -> Registered:
    """Run ``hook(module, args)`` before ``forward`` (``Module.register_forward_pre_hook``).

    Args:
        model: A model or a Definition.
        hook: Returns None, or the positional arguments to use: a tuple, or one value. With
            ``with_kwargs`` it is ``hook(module, args, kwargs)`` and returns None or
            ``(args, kwargs)``.
        at: Which modules; the root by default.
        prepend: Whether it comes before the hooks that are there.
        with_kwargs: Whether the hook takes keyword arguments too.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "forward_pre", hook, at, prepend, with_kwargs=with_kwargs)


def register_forward_hook(
    model: Any,
    hook: Function,
    *,
    at: Selector = "",
    prepend: bool = False,
    with_kwargs: bool = False,
    always_call: bool = False,
) -> Registered:
    """Run ``hook(module, args, output)`` after ``forward`` (``Module.register_forward_hook``).

    Args:
        model: A model or a Definition.
        hook: Returns None, or what replaces the output. With ``with_kwargs`` it is
            ``hook(module, args, kwargs, output)``.
        at: Which modules; the root by default.
        prepend: Whether it comes before the hooks that are there.
        with_kwargs: Whether the hook takes keyword arguments too.
        always_call: Whether it also runs, with the last output or None, when the call raises.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(
        model, "forward", hook, at, prepend, with_kwargs=with_kwargs, always_call=always_call
    )


def register_full_backward_pre_hook(
    model: Any, hook: Function, *, at: Selector = "", prepend: bool = False
) -> Registered:
    """Run ``hook(module, grad_output)`` in the backward pass (``register_full_backward_pre_hook``).

    It runs when the cotangents of the module's output are known, before those of anything in it.

    Args:
        model: A model or a Definition.
        hook: Gets a tuple with an entry for each output, None where there is no gradient; returns
            None or the tuple to use, which the gradients of the module's parameters see too.
        at: Which modules; the root by default.
        prepend: Whether it comes before the hooks that are there.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "backward_pre", hook, at, prepend)


def register_full_backward_hook(
    model: Any, hook: Function, *, at: Selector = "", prepend: bool = False
) -> Registered:
    """Run ``hook(module, grad_input, grad_output)`` in the backward pass.

    The counterpart of ``Module.register_full_backward_hook``. Without a differentiated input (a first
    layer, gradients of parameters only) it runs when ``grad_output`` is known, warns as torch does
    and must not return gradients.

    Args:
        model: A model or a Definition.
        hook: Gets a tuple with an entry for each positional argument, None where there is no
            gradient, and what the pre-hooks made of the output's. Returns None or the
            ``grad_input`` to use, which only what comes before the module sees.
        at: Which modules; the root by default.
        prepend: Whether it comes before the hooks that are there.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "backward", hook, at, prepend)


def register_state_dict_pre_hook(model: Any, hook: Function, *, at: Selector = "") -> Registered:
    """Run ``hook(module, prefix, keep_vars)`` before a module's entries are saved.

    The counterpart of ``Module.register_state_dict_pre_hook``; ``keep_vars`` is always False.

    Args:
        model: A model or a Definition.
        hook: Returns None.
        at: Which modules; the root by default.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "state_dict_pre", hook, at)


def register_state_dict_post_hook(model: Any, hook: Function, *, at: Selector = "") -> Registered:
    """Run ``hook(module, state_dict, prefix, local_metadata)`` after a module and its children.

    The counterpart of ``Module.register_state_dict_post_hook``.

    Args:
        model: A model or a Definition.
        hook: May change the ``state_dict`` that is being made, and the metadata of its module;
            returns None.
        at: Which modules; the root by default.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "state_dict_post", hook, at)


def register_load_state_dict_pre_hook(model: Any, hook: Function, *, at: Selector = "") -> Registered:
    """Run a hook before a module takes its entries (``Module.register_load_state_dict_pre_hook``).

    Args:
        model: A model or a Definition.
        hook: ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
            unexpected_keys, error_msgs)``. It may change this ``state_dict``, a copy that holds what
            is under the prefix, and the three lists. ``strict`` is always True, as in torch.
        at: Which modules; the root by default.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "load_state_dict_pre", hook, at)


def register_load_state_dict_post_hook(model: Any, hook: Function, *, at: Selector = "") -> Registered:
    """Run ``hook(module, incompatible_keys)`` after a module and its children are loaded.

    The counterpart of ``Module.register_load_state_dict_post_hook``.

    Args:
        model: A model or a Definition.
        hook: May change the two lists of ``incompatible_keys``, of the whole load; returns None.
        at: Which modules; the root by default.

    Returns:
        ``(model, handle)``.

    Raises:
        SelectorError: When ``at`` matches nothing.
        TypeError: For a hook that is not a function, or a method of another module.
    """
    return register(model, "load_state_dict_post", hook, at)
