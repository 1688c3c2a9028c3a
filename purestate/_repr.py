"""``repr`` of a module, character for character as ``torch.nn.Module.__repr__`` prints it."""

from typing import Any


def indent(text: str, spaces: int) -> str:
    """Indent every line but the first; blank lines stay blank."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line if line.strip() else "" for line in rest)])


def module_repr(module: Any) -> str:
    """``Name(extra)`` on one line without children, else one item a line."""
    extra = module.extra_repr()
    extra_lines = extra.split("\n") if extra else []
    children = [f"({name}): {indent(repr(child), 2)}" for name, child in module._modules.items()]
    head = module._get_name() + "("
    if len(extra_lines) == 1 and not children:
        return head + extra_lines[0] + ")"
    lines = extra_lines + children
    return head + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"
