"""One file that was made to hurt."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Forgery:
    """A hostile file, or folder of files.

    Attributes:
        kind: The class of attack.
        name: Which one of it.
        files: Name to bytes.
        target: Which file is opened; "" for the folder.
        inert: Whether it may also be read, as placeholders.
        objects: How many Python objects it makes, if these are what takes the memory.
        links: Symbolic links to make in the folder: name to target.
    """

    kind: str
    name: str
    files: Mapping[str, bytes]
    target: str
    inert: bool = False
    links: Mapping[str, str] | None = None
    objects: int = 0

    @property
    def id(self) -> str:
        """Its name in tables and tests."""
        return f"{self.kind}: {self.name}"

    @property
    def size(self) -> int:
        """How many bytes it has in all."""
        return sum(map(len, self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write it and return what to open."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name, target in (self.links or {}).items():
            (folder / name).symlink_to(target)
        return folder / self.target if self.target else folder


def one_file(kind: str, name: str, data: bytes, *, inert: bool = False) -> Forgery:
    """A forgery of a single file."""
    return Forgery(kind, name, {"m.pt": data}, "m.pt", inert)
