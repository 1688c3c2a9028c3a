"""Everything but tensors that people put into checkpoints: read as torch reads it, or left inert."""

import argparse
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import random
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import bridge
from bridge.checkpoint import Placeholder
from tests.corpora.truth import assert_agree, read_by_torch


PROTOCOLS = [2, 3, 4, 5]
ZIPPED = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)


def with_metadata() -> OrderedDict[str, Any]:
    state: Any = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).state_dict()
    assert state._metadata["1"] == {"version": 2}
    return state


PLAIN: dict[str, Any] = {
    "numbers": {
        "int": 3,
        "byte": 255,
        "word": 65535,
        "negative": -3,
        "32 bits": [2**31 - 1, 2**31, -(2**31), -(2**31) - 1],
        "64 bits": [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64],
        "large": [2**100, -(2**100), 10**300, 1 << 2039, 1 << 2040, 1 << 8_000],
        "float": [0.1, -0.0, 1e308, 5e-324, float("inf"), float("-inf")],
        "truth": [True, False, None],
        "complex": [1 - 2j, complex("inf")],
    },
    "text": ["", "a", "käse\nß", "\u0000", "\ud800", "\U0001f600", "x" * 300, "y" * 70_000],
    "bytes": [b"", b"\x00\xff", bytes(range(256)), b"z" * 70_000],
    "bytearrays": [bytearray(), bytearray(b"ab"), bytearray(range(256))],
    "sets": [set(), {1, 2, 3}, {"a"}, {(1, "a")}, frozenset(), frozenset({1, None})],
    "slices": [slice(None), slice(1, 2, 3), range(3), range(0, -10, -2)],
    "nested": [[{"a": (1, (2, [torch.zeros(1)]))}], [], (), {}, OrderedDict(), [[[[[[]]]]]]],
    "keys": {0: 1, 1.5: 2, True: 3, None: 4, "s": 5, (1, "a"): 6, b"b": 7, -(2**40): 8},
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), tuple(range(2000))],
    "counter": Counter({80: 1, 120: 2}),
    "defaultdict": defaultdict(list, {"a": [1], "b": []}),
    "deque": [deque([1, 2]), deque([1, 2, 3], maxlen=3), deque()],
    "ordered": OrderedDict(a=torch.ones(1), b=2),
    "metadata": with_metadata(),
    "size": [torch.Size([2, 3]), torch.Size([])],
    "dtype": [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool],
    "device": [torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")],
    "layout": [torch.strided, torch.sparse_coo, torch.sparse_csr],
    "paths": [pathlib.PurePosixPath("a/b"), pathlib.PosixPath("/x"), pathlib.PosixPath()],
    "many keys": {f"k{i}": i for i in range(2500)},
    "many items": list(range(2500)),
    "fifty deep": functools.reduce(lambda inner, _: [inner], range(50), "bottom"),
}


@ZIPPED
@PROTOCOL
@pytest.mark.parametrize("name", PLAIN)
def test_plain_values(tmp_path: Path, name: str, protocol: int, zipped: bool) -> None:
    path = tmp_path / "m.pt"
    torch.save(PLAIN[name], path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    assert_agree(bridge.load(path), read_by_torch(path))


@ZIPPED
def test_containers_that_are_shared_or_hold_themselves(tmp_path: Path, zipped: bool) -> None:
    shared, loop, table = [1], [2], {}
    loop.append(loop)  # pyright: ignore[reportArgumentType]
    table["self"] = table
    path = tmp_path / "m.pt"
    value = {"a": shared, "b": shared, "loop": loop, "table": table}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    ours = bridge.load(path)
    assert ours["a"] is ours["b"]
    assert ours["loop"][1] is ours["loop"]
    assert ours["table"]["self"] is ours["table"]


CODES = ["?", "i1", "u1", "<i2", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", ">f4", ">i8"]


@PROTOCOL
@pytest.mark.parametrize("code", CODES)
def test_numpy_arrays_and_scalars(tmp_path: Path, code: str, protocol: int) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(code)
    value = {
        "array": array,
        "fortran": np.asfortranarray(array),
        "sliced": array[:, ::2],
        "scalar": array[0, 0, 1],
        "zero-dimensional": np.array(array[0, 1, 1]),
        "empty": array[:0],
        "dtype": array.dtype,
    }
    path = tmp_path / "m.pt"
    torch.save(value, path, pickle_protocol=protocol)
    ours, theirs = bridge.load(path), torch.load(path, weights_only=False)
    assert list(ours) == list(theirs)
    for name, item in theirs.items():
        if name == "dtype":
            assert ours[name] == item
        else:
            assert ours[name].dtype == item.dtype, name
            assert np.array_equal(ours[name], item), name
            assert np.shape(ours[name]) == np.shape(item), name


@PROTOCOL
def test_numpy_text_and_bytes(tmp_path: Path, protocol: int) -> None:
    value = [
        np.array(["ab", "c"]),
        np.array([b"ab", b"c"]),
        np.str_("x"),
        np.float64(0.5),
        np.bool_(True),
    ]
    path = tmp_path / "m.pt"
    torch.save(value, path, pickle_protocol=protocol)
    for ours, theirs in zip(bridge.load(path), value, strict=True):
        assert np.array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype


def test_the_states_of_random_generators(tmp_path: Path) -> None:
    """What Hugging Face's trainer and Lightning write beside the weights."""
    path = tmp_path / "rng_state.pth"
    value = {
        "python": random.Random(3).getstate(),
        "numpy": np.random.RandomState(3).get_state(),
        "cpu": torch.Generator().manual_seed(3).get_state(),
    }
    torch.save(value, path)
    ours = bridge.load(path)
    assert ours["python"] == value["python"]
    for mine, theirs in zip(ours["numpy"], value["numpy"], strict=True):
        assert np.array_equal(mine, theirs)
    assert_agree({"cpu": ours["cpu"]}, {"cpu": value["cpu"]})


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Config:
    width: int
    weight: torch.Tensor


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, [2]


class MyList(list):
    pass


class MyDict(dict):
    pass


class MyOrdered(OrderedDict):
    pass


class MyTensor(torch.Tensor):
    pass


class Custom:
    def __init__(self) -> None:
        self.items = [1, 2]

    def __reduce__(self) -> Any:
        return Custom, (), {"items": self.items}, iter([3]), iter([("k", 4)])

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)

    def append(self, item: Any) -> None: ...

    def extend(self, items: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...


OBJECTS: dict[str, Any] = {
    "namespace": argparse.Namespace(lr=0.1, name="x", sizes=[1, 2], weight=torch.ones(2)),
    "simple namespace": SimpleNamespace(a=1),
    "dataclass": Config(3, torch.arange(3.0)),
    "enumeration": Colour.RED,
    "named tuple": Point(1, 2),
    "slots": Slotted(),
    "list subclass": MyList([1, 2]),
    "dictionary subclass": MyDict(a=1, b=torch.ones(1)),
    "ordered subclass": MyOrdered(a=1),
    "function": with_metadata,
    "class": Config,
    "partial": functools.partial(Config, 3),
    "date": datetime.date(2020, 1, 2),
    "time": datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "duration": datetime.timedelta(days=1),
    "decimal": decimal.Decimal("1.5"),
    "fraction": fractions.Fraction(1, 3),
    "uuid": uuid.UUID(int=5),
    "custom": Custom(),
    "twice": [o := argparse.Namespace(a=1), o],
    "nested": argparse.Namespace(inner=argparse.Namespace(w=torch.ones(2))),
}


@PROTOCOL
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_inert_placeholders(tmp_path: Path, name: str, protocol: int) -> None:
    path = tmp_path / "m.pt"
    value = {"object": OBJECTS[name], "weight": torch.arange(4.0)}
    torch.save(value, path, pickle_protocol=protocol)
    ours = bridge.load(path)
    assert_agree(ours, read_by_torch(path))
    assert ours["weight"].tolist() == [0, 1, 2, 3]


def test_what_a_placeholder_carries(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"args": OBJECTS["namespace"], "class": Config}, path)
    ours = bridge.load(path)
    arguments = ours["args"]
    assert isinstance(arguments, Placeholder)
    assert arguments.path == "argparse.Namespace"
    assert arguments.state["lr"] == 0.1
    assert arguments.state["weight"].tolist() == [1, 1]
    assert (ours["class"].path, ours["class"].args) == (f"{__name__}.Config", None)


@ZIPPED
def test_a_tensor_subclass_is_its_numbers(tmp_path: Path, zipped: bool) -> None:
    value = {"x": torch.arange(6.0).reshape(2, 3).as_subclass(MyTensor)}
    path = tmp_path / "m.pt"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    assert_agree(bridge.load(path), {"x": torch.arange(6.0).reshape(2, 3)})


def test_arrays_of_objects_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    objects = np.array([1, "a", None], object)
    torch.save({"objects": objects, "weight": torch.ones(2)}, path)
    ours = bridge.load(path)
    assert ours["weight"].tolist() == [1, 1]
    assert isinstance(ours["objects"], Placeholder)


@pytest.mark.parametrize("generator", ["random_state", "default_rng"])
def test_numpy_generators_are_left_alone(tmp_path: Path, generator: str) -> None:
    made = np.random.RandomState(1) if generator == "random_state" else np.random.default_rng(1)
    path = tmp_path / "m.pt"
    torch.save({"rng": made, "weight": torch.ones(2)}, path)
    ours = bridge.load(path)
    assert ours["weight"].tolist() == [1, 1]
    assert isinstance(ours["rng"], Placeholder)


ARRAYS_NOT_READ: dict[str, np.ndarray] = {
    "objects": np.array([torch.ones(2), {"a": np.ones(1), "b": np.float32(1)}], dtype=object),
    "fields": np.array([(1, 2.0)], dtype=[("p", "i4"), ("q", "f8")]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
}


@PROTOCOL
@pytest.mark.parametrize("name", ARRAYS_NOT_READ)
def test_arrays_that_are_not_read_hold_data_only(tmp_path: Path, name: str, protocol: int) -> None:
    path = tmp_path / "m.pt"
    torch.save({"array": ARRAYS_NOT_READ[name], "w": torch.ones(1)}, path, pickle_protocol=protocol)
    ours = bridge.load(path)
    assert isinstance(ours["array"], Placeholder)
    assert ours["array"].path == "numpy.ndarray"
    assert_data(ours)
    _, shape, _, fortran, data = ours["array"].state
    assert (shape, fortran) == (ARRAYS_NOT_READ[name].shape, False)
    if name == "objects":
        assert data[0].tolist() == [1, 1]
        assert data[1]["a"].tolist() == [1]
    else:
        assert data == ARRAYS_NOT_READ[name].tobytes()


def test_an_array_of_objects_that_holds_itself(tmp_path: Path) -> None:
    array = np.array([None, torch.ones(2)], dtype=object)
    array[0] = array
    torch.save({"array": array}, tmp_path / "m.pt")
    ours = bridge.load(tmp_path / "m.pt")["array"]
    assert ours.state[4][0] is ours
    assert ours.state[4][1].tolist() == [1, 1]


def assert_data(value: Any) -> None:
    """Assert that a value is of arrays, plain values and records only."""
    match value:
        case dict():
            assert_data([*value.values()])
        case list() | tuple():
            for item in value:
                assert_data(item)
        case Placeholder():
            assert_data([value.args or (), value.kwargs, value.state, value.items, value.entries])
        case _:
            plain = str | bytes | int | float | None | np.ndarray | np.generic | np.dtype
            assert isinstance(value, plain), value


@PROTOCOL
@pytest.mark.parametrize(
    "value",
    [np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.void(b"ab"), ARRAYS_NOT_READ["fields"][0]],
    ids=["date", "time", "bytes", "fields"],
)
def test_scalars_of_dtypes_that_are_not_read_are_left_alone(
    tmp_path: Path, value: np.generic, protocol: int
) -> None:
    path = tmp_path / "m.pt"
    torch.save({"value": value, "w": torch.ones(1)}, path, pickle_protocol=protocol)
    ours = bridge.load(path)
    assert ours["w"].tolist() == [1]
    assert isinstance(ours["value"], Placeholder)
    assert ours["value"].args is not None
    assert ours["value"].args[1] == value.tobytes()
    assert_data(ours)


@PROTOCOL
def test_texts_of_no_length(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "m.pt"
    texts = [np.str_(""), np.bytes_(b""), np.str_("a")]
    torch.save(texts, path, pickle_protocol=protocol)
    for ours in (bridge.load(path), torch.load(path, weights_only=False)):
        assert ours == texts
        assert [type(text) for text in ours] == [np.str_, np.bytes_, np.str_]
