"""The ``inplace`` flag of torch's activations: accepted, printed, and without effect here."""

from purestate._module import Module


class Inplace(Module):
    """An activation whose one option is the flag."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """As torch prints it."""
        return "inplace=True" if self.inplace else ""


def flag(inplace: bool) -> str:
    """The flag after other options, as torch prints it."""
    return ", inplace=True" if inplace else ""
