"""Modes: train or evaluate, trainable or frozen. They change the definition and no array.

So each takes a :class:`purestate.Definition` as well as a model: in split form,
``eval_definition = bridge.eval(definition)``.
"""

from typing import Any

from purestate._edit import edit
from purestate._select import Selector


def train(model: Any, mode: bool = True, where: Selector = "") -> Any:
    """The model in training mode (``torch.nn.Module.train``).

    Args:
        model: A model or a Definition.
        mode: True for training, False for evaluation.
        where: The modules to start from, each with everything below it; the root by default. A
            class that overrides ``train`` (a frozen BatchNorm) is asked.

    Raises:
        ValueError: When ``mode`` is not a bool.
        SelectorError: When ``where`` matches nothing.
    """
    return edit(model, lambda module: module.train(mode), where)


def eval(model: Any, where: Selector = "") -> Any:
    """The model in evaluation mode (``torch.nn.Module.eval``). See :func:`train`."""
    return edit(model, lambda module: module.eval(), where)


def requires_grad(model: Any, flag: bool = True, where: Selector = "") -> Any:
    """The model with its parameters trainable, or frozen (``torch.nn.Module.requires_grad_``).

    A frozen parameter is among ``buffers`` in ``purestate.split``: no gradient, no optimizer and no
    weight decay can reach it. Its name and its place in the ``state_dict`` stay.

    Args:
        model: A model or a Definition.
        flag: Whether the parameters train.
        where: The modules to start from, each with everything below it; the root by default.

    Raises:
        SelectorError: When ``where`` matches nothing.
        RuntimeError: When an integer parameter is asked to train.
    """
    return edit(model, lambda module: module.requires_grad_(flag), where)
