"""Hooks: functions that a definition holds, and that run around ``forward``.

A hook is data. It is part of a node, so it goes wherever the model goes (copies, pickles, every JAX
transform) and never into a ``state_dict``; registering and removing one gives another model
(``bridge.register_forward_hook``). Order, arguments, what a return value replaces and the errors are
those of ``torch.nn.Module._call_impl``. A model that has none pays nothing: its calls do not come here.

Under ``jax.jit`` a hook runs while the model is traced. What it returns is in the program, what else it
does (printing, appending to a list) happens then; ``jax.debug.callback`` acts in each run.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any, NamedTuple

from purestate import _backward_hooks as backward
from purestate._base import Base
from purestate._warning import warn


class Hook(NamedTuple):
    """One registered function.

    Attributes:
        number: Which registration of the model it was, from 1 on; what its handle knows it by.
        kind: ``"forward_pre"``, ``"forward"``, ``"backward_pre"``, ``"backward"``,
            ``"state_dict_pre"``, ``"state_dict_post"``, ``"load_state_dict_pre"`` or
            ``"load_state_dict_post"``.
        function: What to call.
        with_kwargs: Whether it takes the keyword arguments of the call too.
        always_call: Whether it runs when the call raises.
        may_replace: Whether what it returns becomes the ``state_dict``.
    """

    number: int
    kind: str
    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False
    may_replace: bool = False


class OwnMethod(NamedTuple):
    """A hook that is a method of its own module: its function, with the module that runs as ``self``.

    Attributes:
        function: The function.
        takes_module: Whether it takes the module once more, as a hook's first argument.
    """

    function: Callable[..., Any]
    takes_module: bool = True

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        again = (module,) if self.takes_module else ()
        return self.function(module, *again, *args, **kwargs)


class WithoutModule(NamedTuple):
    """A hook that does not take the module."""

    function: Callable[..., Any]

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        del module
        return self.function(*args, **kwargs)


def settled(function: Any, module: Any, takes_module: bool = True) -> Callable[..., Any]:
    """The function to hold for a hook that is registered on a module.

    Args:
        function: What the user gave.
        module: The module it is registered on; None where only a definition is known.
        takes_module: Whether the hook takes the module.

    Raises:
        TypeError: For what cannot be called or hashed, and for a method of another module.
    """
    if not callable(function):
        raise TypeError(f"a hook is a function, got {type(function).__name__}")
    if isinstance(function, MethodType) and isinstance(function.__self__, Base):
        if function.__self__ is not module:
            raise TypeError(
                f"the hook {function.__qualname__} is a method of another module, and a model would "
                "hold that module as it is today, for ever.\n"
                "    write: a function of the module that the hook is registered on"
            )
        return OwnMethod(function.__func__, takes_module)
    try:
        hash(function)
    except TypeError as error:
        raise TypeError(
            f"the hook {function!r} cannot be hashed, and a definition is compared by what it holds.\n"
            "    write: a function, or a class with eq=False"
        ) from error
    return function if takes_module else WithoutModule(function)


def run(view: Any, hooks: tuple[Hook, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``view(*args, **kwargs)`` with its hooks around ``forward``."""
    call = _Run(view, hooks, args, kwargs)
    try:
        return call.inner()
    except Exception:
        call.always()
        raise


class _Run:
    """One call with hooks; after an exception it knows how far the call came."""

    def __init__(
        self, view: Any, hooks: tuple[Hook, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ):
        self.view = view
        self.hooks = hooks
        self.args = args
        self.kwargs = kwargs
        self.result: Any = None
        self.called: set[int] = set()

    def of(self, kind: str) -> tuple[Hook, ...]:
        """The hooks of one kind, in order."""
        return tuple(hook for hook in self.hooks if hook.kind == kind)

    def inner(self) -> Any:
        """Pre-hooks, forward, hooks; those of the backward pass are put in between."""
        for hook in self.of("forward_pre"):
            self._before(hook)
        link = backward.link(self.of("backward_pre"), self.of("backward"))
        token = None
        if link is not None:
            self.args, token = link.on_inputs(self.view, self.args)
        self.result = self.view.forward(*self.args, **self.kwargs)
        for hook in self.of("forward"):
            self.called.add(hook.number)
            self._after(hook)
        if link is not None:
            self.result = link.on_outputs(self.view, self.result, token)
        return self.result

    def _before(self, hook: Hook) -> None:
        if hook.with_kwargs:
            given = hook.function(self.view, self.args, self.kwargs)
            if given is None:
                return
            if not (isinstance(given, tuple) and len(given) == 2):
                raise RuntimeError(
                    "forward pre-hook must return None or a tuple "
                    f"of (new_args, new_kwargs), but got {given}."
                )
            self.args, self.kwargs = given
            return
        given = hook.function(self.view, self.args)
        if given is not None:
            self.args = given if isinstance(given, tuple) else (given,)

    def _after(self, hook: Hook) -> None:
        keywords = (self.kwargs,) if hook.with_kwargs else ()
        given = hook.function(self.view, self.args, *keywords, self.result)
        if given is not None:
            self.result = given

    def always(self) -> None:
        """After an exception: the hooks that run in any case, and did not yet."""
        for hook in self.of("forward"):
            if not hook.always_call or hook.number in self.called:
                continue
            try:
                self._after(hook)
            except Exception as error:
                warn(
                    "module forward hook with ``always_call=True`` raised an exception "
                    f"that was silenced as another error was raised in forward: {error}"
                )
