"""Which damaged file a number stands for: the same one on every machine, in every process."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.hostile.mutations import mutate


@dataclass(frozen=True)
class Case:
    """One damaged checkpoint.

    Attributes:
        seed: The number of the seed it comes from.
        files: Every file of it.
        target: Which of them is opened; "" for the folder.
    """

    seed: int
    files: dict[str, bytes]
    target: str

    @property
    def size(self) -> int:
        """How many bytes it has in all."""
        return sum(map(len, self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write it to an empty folder and return what to open."""
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        return folder / self.target if self.target else folder


class Corpus:
    """The seeds of one format, in memory.

    Args:
        folder: Where ``make_seeds`` wrote them.
        seeds: For each seed of the format its number, what is opened, and the kinds of its files.
    """

    def __init__(self, folder: Path, seeds: list[tuple[int, str, dict[str, str]]]) -> None:
        self.seeds = seeds
        self._files = {
            number: {path.name: path.read_bytes() for path in sorted((folder / str(number)).iterdir())}
            for number, _, _ in seeds
        }

    def original(self, number: int) -> Case:
        """A seed as it was made."""
        target = next(target for at, target, _ in self.seeds if at == number)
        return Case(number, self._files[number], target)

    def case(self, key: str) -> Case:
        """The damaged file that ``key`` stands for."""
        rng = Random(key)
        number, target, kinds = rng.choice(self.seeds)
        files = dict(self._files[number])
        name = rng.choice(sorted(kinds))
        files[name] = mutate(files[name], kinds[name], rng)
        return Case(number, files, target)
