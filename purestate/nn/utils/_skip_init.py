"""A module whose values are not drawn."""

from typing import Any

from purestate._module import Module
from purestate._split import abstract


__all__ = ["skip_init"]


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """A module without values, to be filled by a checkpoint.

    Torch's name: ``torch.nn.utils.skip_init``. A module draws nothing in its constructor here, so this
    is the module itself, where also the arrays that its constructor computed are given up.

    Args:
        module_cls: The class.
        *args: Arguments of its constructor.
        **kwargs: Likewise.

    Raises:
        RuntimeError: When ``module_cls`` is not a class of modules.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    return abstract(module_cls(*args, **kwargs))
