"""What ``load_checkpoint`` did, to be kept, tested or printed."""

from collections.abc import Iterable
from dataclasses import dataclass, field


_SHOWN = 5


@dataclass(frozen=True)
class LoadReport:
    """What a load took from the files, and what was left over on both sides.

    Attributes:
        loaded: The model's names that got a value, in the order they were matched.
        renamed: ``{name in the file: name in the model}`` of what ``rename`` changed.
        unused_rules: Rules of ``rename`` that matched no name.
        cast: ``{name: (dtype in the file, dtype in the model)}`` where they differ. An int64 that
            JAX holds in 32 bits is not among them: it goes back to a file as int64.
        missing: Names of the model without a value in the file.
        unexpected: Names of the file without a place in the model.
        tied: Names of one array, where a file could have given several values. The last one counts.
        replicated: Names whose axes the asked sharding does not divide; those axes are not sharded.
        inside: The keys at which the file holds the state dict; empty where it is the whole file.
        files: The paths of the files.
        bytes: How many bytes of arrays this process took from them.
        seconds: How long it took.
        notes: Sentences about what is odd in the files and does no harm.
    """

    loaded: tuple[str, ...]
    renamed: dict[str, str] = field(default_factory=dict)
    unused_rules: tuple[str, ...] = ()
    cast: dict[str, tuple[str, str]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    replicated: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    bytes: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line: how much was loaded from how many files, and how much did not meet."""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        text = f"{len(self.loaded)} arrays from {files}, {size(self.bytes)} in {self.seconds:.2f} s"
        left = [f"{len(self.missing)} missing"] if self.missing else []
        left += [f"{len(self.unexpected)} unexpected"] if self.unexpected else []
        return f"{text}; {', '.join(left)}" if left else text

    def __str__(self) -> str:
        lines = [self.summary()]
        lines += [f"found at: {''.join(f'[{key!r}]' for key in self.inside)}"] if self.inside else []
        for title, items in (
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("renamed", (f"{old} -> {new}" for old, new in self.renamed.items())),
            ("rules that matched nothing", self.unused_rules),
            ("cast", (f"{name} ({a} -> {b})" for name, (a, b) in self.cast.items())),
            ("tied", (" = ".join(names) for names in self.tied)),
            ("replicated where asked to be sharded", self.replicated),
        ):
            lines += _listed(title, items)
        return "\n    ".join([*lines, *self.notes])


def _listed(title: str, items: Iterable[str]) -> list[str]:
    names = list(items)
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN])
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{title}: {shown}{more}"]


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    number = float(count)
    for unit in ("B", "KB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
