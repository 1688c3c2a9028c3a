"""Parts of arrays: the numbers NumPy's indexing gives, and no more bytes than they take."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bridge.checkpoint import BadFormat, _source, load, save
from bridge.checkpoint._chunks import Chunk, Chunked
from bridge.checkpoint._parts import read_part
from bridge.checkpoint._source import place_of


def read_so_far() -> int:
    """How many bytes this process has read."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def saved(tmp_path: Path, tensor: torch.Tensor) -> np.ndarray:
    path = tmp_path / "f.pt"
    torch.save({"x": tensor}, path)
    array = load(path)["x"]
    assert place_of(array) is not None
    return array


CASES = {
    "rows": (lambda t: t, (slice(3, 9), slice(None), slice(None))),
    "columns": (lambda t: t, (slice(None), slice(1, 3), slice(None))),
    "thin columns": (lambda t: t, (slice(None), slice(None), slice(2, 5))),
    "a corner": (lambda t: t, (slice(1, 4), slice(2, 4), slice(7, 16))),
    "nothing": (lambda t: t, (slice(3, 3), slice(None), slice(None))),
    "transposed": (lambda t: t.transpose(0, 2), (slice(2, 9), slice(0, 3), slice(5, 11))),
    "steps": (lambda t: t[::3, ::2, ::5], (slice(1, 3), slice(None), slice(0, 2))),
    "expanded": (lambda t: t[:, :1].expand(12, 5, 16), (slice(2, 4), slice(1, 5), slice(None))),
    "one row": (lambda t: t[3:4, :, 2:3], (slice(0, 1), slice(1, 4), slice(None))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_parts_are_what_indexing_gives(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    view, index = CASES[name]
    tensor = view(torch.arange(12 * 4 * 16).reshape(12, 4, 16).to(dtype))
    torch.save({"x": tensor}, tmp_path / "f.pt")
    array = load(tmp_path / "f.pt")["x"]
    for chosen in (index, ()):
        part = read_part(array, chosen)
        expected = tensor[chosen] if chosen else tensor
        assert part.tobytes() == expected.contiguous().view(torch.uint8).numpy().tobytes()
        assert part.shape == tuple(expected.shape)
        assert part.ctypes.data % 64 == 0 or not part.size
        assert part.flags.c_contiguous
        assert not np.shares_memory(part, array)


def test_a_scalar(tmp_path: Path) -> None:
    array = saved(tmp_path, torch.tensor(7.5))
    assert read_part(array).shape == ()
    assert read_part(array) == np.float32(7.5)


@pytest.mark.parametrize(
    ("index", "most"),
    [
        ((slice(100, 200), slice(None)), 100 * 4096 * 4),
        ((slice(None), slice(1024, 2048)), 1000 * 1024 * 4),
    ],
    ids=["rows", "columns"],
)
def test_a_part_reads_its_own_bytes(tmp_path: Path, index: tuple[slice, ...], most: int) -> None:
    array = saved(tmp_path, torch.rand(1000, 4096))
    read_so_far()
    before = read_so_far()
    spent = read_so_far() - before  # On reading the count itself.
    before = read_so_far()
    part = read_part(array, index)
    assert read_so_far() - before - spent == part.nbytes == most


def test_runs_that_lie_close_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = saved(tmp_path, torch.rand(100_000, 64))
    calls = []
    pread = _source.pread_into
    monkeypatch.setattr(_source, "pread_into", lambda *args: calls.append(pread(*args)))
    part = read_part(array, (slice(None), slice(3, 5)))
    assert np.array_equal(part, array[:, 3:5])
    assert 0 < len(calls) < 30


def test_a_part_of_a_file_that_was_replaced(tmp_path: Path) -> None:
    array = saved(tmp_path, torch.arange(12.0).reshape(3, 4))
    path = next(tmp_path.iterdir())
    os.rename(path, tmp_path / "old")
    path.write_bytes(bytes(4096))
    assert read_part(array, (slice(1, 3), slice(1, 2))).tolist() == [[5], [9]]
    path.unlink()
    assert read_part(array, (slice(1, 3), slice(1, 2))).tolist() == [[5], [9]]


def test_more_files_than_half_of_those_that_may_be_open(tmp_path: Path) -> None:
    """A thousand shards are mapped at once where a process may have 1024 files open."""
    for number in range(1, 101):
        name = f"m-{number:05d}-of-00100.safetensors"
        save({f"w{number}": np.full(1000, number, np.float32)}, tmp_path / name)
    code = """if True:
        import resource, sys
        from bridge.checkpoint import load
        from bridge.checkpoint._parts import read_part
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
        arrays = load(sys.argv[1])
        print(sum(float(read_part(array)[0]) for array in arrays.values()))
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "5050.0\n"


def pieces(array: np.ndarray, *places: tuple[tuple[int, int], tuple[int, int]]) -> list[Chunk]:
    return [
        Chunk(offsets, sizes, lambda o=offsets, s=sizes: array[o[0] : o[0] + s[0], o[1] : o[1] + s[1]])
        for offsets, sizes in places
    ]


UNEVEN = (((0, 0), (4, 2)), ((0, 2), (1, 3)), ((1, 2), (3, 3)), ((4, 0), (2, 5)), ((6, 0), (0, 5)))


def test_pieces_together() -> None:
    array = np.arange(30.0).reshape(6, 5)
    chunked = Chunked((6, 5), array.dtype, pieces(array, *UNEVEN))
    assert np.array_equal(np.asarray(chunked), array)
    for rows in (slice(0, 6), slice(1, 3), slice(3, 6), slice(5, 5)):
        for columns in (slice(0, 5), slice(1, 3), slice(2, 5), slice(4, 5)):
            part = chunked.part((rows, columns))
            assert np.array_equal(part, array[rows, columns])
            assert part.ctypes.data % 64 == 0 or not part.size


def test_only_pieces_that_are_wanted_are_opened() -> None:
    def refuse() -> np.ndarray:
        raise AssertionError("not wanted")

    array = np.arange(10.0)
    chunks = [Chunk((0,), (5,), lambda: array[:5]), Chunk((5,), (5,), refuse)]
    assert np.array_equal(Chunked((10,), array.dtype, chunks).part((slice(1, 5),)), array[1:5])


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        (UNEVEN[:-2], "have 20 of its elements"),
        ((*UNEVEN, ((0, 0), (1, 1))), "overlap"),
        ((*UNEVEN[:-2], ((3, 0), (2, 5))), "overlap"),
        ((((0, 0), (6, 6)),), "outside of the shape"),
        ((), "have 0 of its elements"),
    ],
    ids=["a hole", "one twice", "a hole and an overlap", "outside", "none"],
)
def test_pieces_that_are_no_tiling(places: tuple, problem: str) -> None:
    array = np.zeros((6, 5))
    with pytest.raises(BadFormat, match=problem):
        Chunked((6, 5), array.dtype, pieces(array, *places))
