"""safetensors headers that lie, and index files that point elsewhere."""

import json
import struct
from collections.abc import Iterator
from typing import Any

from tests.hostile.forgery import Forgery


def forgeries() -> Iterator[Forgery]:
    """Every hostile table."""
    for name, data in _headers().items():
        yield Forgery("safetensors headers", name, {"m.safetensors": data}, "m.safetensors")
    yield from _indices()


def _file(header: bytes | dict[str, Any], data: bytes = bytes(8), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _one(shape: Any = (2,), offsets: Any = (0, 8), dtype: Any = "F32", **more: Any) -> dict[str, Any]:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets} | more}


def _two(first: tuple[int, int], second: tuple[int, int]) -> dict[str, Any]:
    entry = {"dtype": "F32", "shape": [1]}
    return {"a": entry | {"data_offsets": first}, "b": entry | {"data_offsets": second}}


def _headers() -> dict[str, bytes]:
    good = json.dumps(_one()).encode()
    inner = good[1:-1]
    return {
        "length of 2**64 - 1": _file(good, length=(1 << 64) - 1),
        "length of 2**63": _file(good, length=1 << 63),
        "length of 100 MB and one": _file(good, length=100_000_001),
        "length beyond the file": _file(good, length=len(good) + 9),
        "length into the data": _file(good, length=len(good) + 4),
        "length too short": _file(good, length=len(good) - 1),
        "a list": _file(b"[]"),
        "not JSON": _file(b"{'w': 1}"),
        "two objects": _file(good + b"{}"),
        "NUL behind": _file(good + b"\0"),
        "bad UTF-8": _file(good.replace(b'"w"', b'"\xff"')),
        "lone surrogate": _file(good.replace(b'"w"', b'"\\ud800"')),
        "a name twice": _file(b"{" + inner + b"," + inner + b"}"),
        "a field twice": _file(good.replace(b'"dtype"', b'"dtype": "I32", "dtype"')),
        "metadata twice": _file(b'{"__metadata__":{"a":"1"},"__metadata__":{"a":"2"},' + inner + b"}"),
        "NaN": _file(good.replace(b"[2]", b"[NaN]")),
        "Infinity": _file(good.replace(b"[2]", b"[Infinity]")),
        "50,000 brackets": _file(b'{"w":' + b"[" * 50_000),
        "a shape of 1 MB digits": _file(good.replace(b"[2]", b"[" + b"9" * 1_000_000 + b"]")),
        "offsets of 4,000 digits": _file(good.replace(b"8]", b"9" * 4000 + b"]")),
        "dimension of 2**64": _file(_one(shape=[1 << 64])),
        "dimensions that wrap": _file(_one(shape=[1 << 32, 1 << 32, 2])),
        "dimensions that wrap to 2": _file(_one(shape=[(1 << 61) + 1, 8, 2])),
        "zero times 2**62": _file(_one(shape=[0, 1 << 62, 8], offsets=(0, 0)), b""),
        "negative dimension": _file(_one(shape=[-2])),
        "two negative dimensions": _file(_one(shape=[-1, -2])),
        "dimension of 2.0": _file(_one(shape=[2.0])),
        "dimension of true": _file(_one(shape=[True, 2])),
        "dimension of text": _file(_one(shape=["2"])),
        "shape of null": _file(_one(shape=None)),
        "1,000 dimensions": _file(_one(shape=[2, *[1] * 1000])),
        "negative offset": _file(_one(offsets=(-8, 0))),
        "end before begin": _file(_one(offsets=(8, 0))),
        "offset beyond the file": _file(_one(offsets=(1 << 40, (1 << 40) + 8))),
        "size that does not fit": _file(_one(offsets=(0, 4)), bytes(4)),
        "three offsets": _file(_one(offsets=(0, 4, 8))),
        "offsets of text": _file(_one(offsets="08")),
        "overlap": _file(_two((0, 4), (2, 6))),
        "the same place": _file(_two((0, 4), (0, 4)), bytes(4)),
        "hole": _file(_two((0, 4), (8, 12)), bytes(12)),
        "does not start at 0": _file(_one(offsets=(4, 12)), bytes(12)),
        "data behind the last": _file(_one(), bytes(9)),
        "a program behind the last": _file(_one(), bytes(8) + b"\x80\x02cos\nsystem\n)R."),
        "data too short": _file(_one(), bytes(7)),
        "no data": _file(_one(), b""),
        "unknown dtype": _file(_one(dtype="F31")),
        "dtype in small letters": _file(_one(dtype="f32")),
        "dtype of a list": _file(_one(dtype=["F32"])),
        "dtype of null": _file(_one(dtype=None)),
        "no dtype": _file({"w": {"shape": [2], "data_offsets": [0, 8]}}),
        "entry of a number": _file({"w": 3}),
        "metadata of a number": _file({"__metadata__": 3} | _one()),
        "metadata of numbers": _file({"__metadata__": {"a": 1}} | _one()),
        "nested metadata": _file({"__metadata__": {"a": {"b": "c"}}} | _one()),
    }


_SHARD = _file(_one())


def _index(table: Any, name: str = "model.safetensors.index.json", **files: Any) -> dict[str, bytes]:
    text = (
        table
        if isinstance(table, bytes)
        else json.dumps({"metadata": {}, "weight_map": table}).encode()
    )
    return {"in/" + name: text, "in/s.safetensors": _SHARD, "outside.safetensors": _SHARD} | files


def _indices() -> Iterator[Forgery]:
    kind = "index files"
    places = {
        "parent": "../outside.safetensors",
        "parent in the middle": "x/../../outside.safetensors",
        "parent with backslashes": "..\\outside.safetensors",
        "absolute": "/etc/passwd",
        "device": "/dev/zero",
        "process": "/proc/self/mem",
        "address": "https://example.org/s.safetensors",
        "file address": "file:///etc/passwd",
        "home": "~/s.safetensors",
        "variable": "$HOME/s.safetensors",
        "NUL": "s.safetensors\0",
        "nothing": "",
        "itself": "model.safetensors.index.json",
        "the folder": ".",
        "the folder above": "..",
        "missing": "t.safetensors",
        "long": "a" * 5000,
        "drive": "C:\\s.safetensors",
        "share": "\\\\host\\s.safetensors",
        "a number": 3,
        "null": None,
        "a list": ["s.safetensors"],
    }
    for name, place in places.items():
        yield Forgery(kind, name, _index({"w": place}), "in")
    yield Forgery(kind, "tensor that is not in the shard", _index({"v": "s.safetensors"}), "in")
    yield Forgery(kind, "table of a list", _index([]), "in")
    yield Forgery(kind, "no table", _index(b"{}"), "in")
    yield Forgery(kind, "not JSON", _index(b"{"), "in")
    yield Forgery(kind, "100,000 brackets", _index(b"[" * 100_000), "in")
    yield Forgery(
        kind,
        "a name twice",
        _index(b'{"weight_map": {"w": "s.safetensors", "w": "t.safetensors"}}'),
        "in",
    )
    files = _index({"w": "linked.safetensors"})
    zero = {"in/linked.safetensors": "/dev/zero"}
    yield Forgery(kind, "a link to a device", files, "in", links=zero)
    both = _index({"w": "s.safetensors", "v": "u.safetensors"}) | {
        "in/u.safetensors": _file(
            {"w": _one()["w"] | {"data_offsets": [0, 8]}, "v": _one()["w"] | {"data_offsets": [8, 16]}},
            bytes(16),
        )
    }
    yield Forgery(kind, "one tensor in two shards", both, "in")
