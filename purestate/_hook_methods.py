"""PyTorch's methods that register a hook: a constructor runs them, elsewhere they name what does."""

from collections.abc import Callable
from typing import Any

from purestate._base import Base
from purestate._building import construction_only
from purestate._hook_registration import Handle, register_open


Function = Callable[..., Any]


class HookMethods(Base):
    """``self.register_forward_hook(hook)`` and its like, in ``__init__``.

    A hook may be a method of its own module. On a finished model ``bridge`` has functions of the same
    names, which return ``(model, handle)``.
    """

    __slots__ = ()

    @construction_only
    def register_forward_pre_hook(
        self, hook: Function, *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """``bridge.register_forward_pre_hook``, in a constructor."""
        return register_open(self, "forward_pre", hook, prepend, with_kwargs=with_kwargs)

    @construction_only
    def register_forward_hook(
        self,
        hook: Function,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """``bridge.register_forward_hook``, in a constructor."""
        return register_open(
            self, "forward", hook, prepend, with_kwargs=with_kwargs, always_call=always_call
        )

    @construction_only
    def register_full_backward_pre_hook(self, hook: Function, prepend: bool = False) -> Handle:
        """``bridge.register_full_backward_pre_hook``, in a constructor."""
        return register_open(self, "backward_pre", hook, prepend)

    @construction_only
    def register_full_backward_hook(self, hook: Function, prepend: bool = False) -> Handle:
        """``bridge.register_full_backward_hook``, in a constructor."""
        return register_open(self, "backward", hook, prepend)

    def register_backward_hook(self, hook: Function) -> Handle:
        """PyTorch's older backward hook, which sees the last operation only.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "register_backward_hook sees the gradients of the last operation only, and is deprecated "
            "in PyTorch.\n    write: model, handle = bridge.register_full_backward_hook(model, hook)"
        )

    @construction_only
    def register_state_dict_pre_hook(self, hook: Function) -> Handle:
        """``bridge.register_state_dict_pre_hook``, in a constructor."""
        return register_open(self, "state_dict_pre", hook)

    @construction_only
    def register_state_dict_post_hook(self, hook: Function) -> Handle:
        """``bridge.register_state_dict_post_hook``, in a constructor."""
        return register_open(self, "state_dict_post", hook)

    @construction_only
    def _register_state_dict_hook(self, hook: Function) -> Handle:
        """The older form, whose hook may return another ``state_dict``; that counts at the root."""
        return register_open(self, "state_dict_post", hook, may_replace=True)

    @construction_only
    def register_load_state_dict_pre_hook(self, hook: Function) -> Handle:
        """``bridge.register_load_state_dict_pre_hook``, in a constructor."""
        return register_open(self, "load_state_dict_pre", hook)

    @construction_only
    def _register_load_state_dict_pre_hook(self, hook: Function, with_module: bool = False) -> Handle:
        """The older form, whose hook does not take the module."""
        return register_open(self, "load_state_dict_pre", hook, takes_module=with_module)

    @construction_only
    def register_load_state_dict_post_hook(self, hook: Function) -> Handle:
        """``bridge.register_load_state_dict_post_hook``, in a constructor."""
        return register_open(self, "load_state_dict_post", hook)
