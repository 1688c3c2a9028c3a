"""Damaged and malicious files: they raise this package's errors, and nothing else happens."""

import os
import pickle
import random
import resource
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge.checkpoint import (
    BadFormat,
    CheckpointError,
    Truncated,
    Unsafe,
    Unsupported,
    load,
    save,
)
from bridge.checkpoint._legacy import MAGICS
from bridge.checkpoint._source import FileBytes
from tests.checkpoint.agree import FORMATS, torch_save
from tests.checkpoint.test_read_torch import Net


def with_pickle(path: Path, data: bytes, *, storage: bytes = bytes(16)) -> Path:
    """A zip checkpoint with the pickle ``data`` and one storage, "0"."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", data)
        archive.writestr("m/version", "3\n")
        archive.writestr("m/data/0", storage)
    return path


class Text(bytes):
    """Raw opcodes, to be placed as they are."""


def op(value: Any) -> bytes:
    """The opcodes of a value; ``Text`` stands for itself."""
    if isinstance(value, Text):
        return value
    if isinstance(value, tuple):
        return b"(" + b"".join(op(item) for item in value) + b"t"
    if isinstance(value, str):
        data = value.encode()
        return b"X" + struct.pack("<I", len(data)) + data
    return pickle.dumps(value, 2)[2:-1]


def glob(module: str, name: str) -> Text:
    return Text(f"c{module}\n{name}\n".encode())


def call(module: str, name: str, *args: Any) -> Text:
    return Text(glob(module, name) + op(args) + b"R")


def storage(key: Any = "0", numel: Any = 4, cls: str = "FloatStorage") -> Text:
    return Text(op(("storage", glob("torch", cls), key, "cpu", numel)) + b"Q")


def tensor(offset: Any = 0, size: Any = (4,), stride: Any = (1,), **kwargs: Any) -> Text:
    parts = (storage(**kwargs), offset, size, stride, False, None)
    return call("torch._utils", "_rebuild_tensor_v2", *parts)


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


class Runs:
    def __reduce__(self) -> Any:
        return pytest.fail, ("the file ran code",)


@pytest.mark.parametrize(
    "name",
    ["os.system", "posix.system", "builtins.eval", "builtins.exec", "builtins.getattr"]
    + ["subprocess.Popen", "torch.load", "torch.storage._load_from_bytes", "runpy.run_path"]
    + ["torch.hub.load", "numpy.f2py.crackfortran.myeval", "collections.OrderedDict.fromkeys"],
)
@pytest.mark.parametrize("kind", FORMATS)
def test_names_outside_the_table_are_refused_by_name(tmp_path: Path, name: str, kind: str) -> None:
    module, _, attribute = name.rpartition(".")
    data = program(call(module, attribute, "touch /tmp/x"))
    path = tmp_path / "m.pt"
    if kind == "zip":
        with_pickle(path, data)
    else:
        facts = pickle.dumps({"little_endian": True}, 2)
        path.write_bytes(MAGICS[0] + pickle.dumps(1001, 2) + facts + data + pickle.dumps([], 2))
    with pytest.raises(Unsafe, match=f"asks Python for '{name}'"):
        load(path)


def test_a_plain_pickle_that_runs_code_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(pickle.dumps(Runs(), 2))
    with pytest.raises(BadFormat, match="a pickle, but not one of"):
        load(path)
    torch.save(Runs(), path)
    with pytest.raises(Unsafe, match="calls an object of"):
        load(path)


def test_classes_and_functions_of_others_are_not_looked_up(tmp_path: Path) -> None:
    body = op((call("no_such_module", "Net", 1, "a"), glob("no_such_module", "function")))
    instance, function = load(with_pickle(tmp_path / "m.pt", program(body)))
    assert (instance.path, instance.args) == ("no_such_module.Net", (1, "a"))
    assert (function.path, function.args) == ("no_such_module.function", None)


deep_tuple = b")" + b"\x85" * 100_000
deep_list = b"]" * 50_000 + b"a" * 49_999

LONG = Text(b"\x8b" + struct.pack("<i", 1025) + b"\x7f" * 1025)


def numpy_array(code: str, shape: Any, data: str) -> Text:
    """A NumPy array; ``data`` is text, as protocol 2 has bytes."""
    empty = call("numpy._core.multiarray", "_reconstruct", glob("numpy", "ndarray"), (0,), "b")
    dtype = call("numpy", "dtype", code, False, True)
    return Text(empty + op((1, shape, dtype, False, call("_codecs", "encode", data, "latin1"))) + b"b")


PROGRAMS: dict[str, tuple[bytes, type[CheckpointError], str]] = {
    "eval through reduce of data": (op(1) + b")R", BadFormat, "calls a int"),
    "tensor class called": (call("torch", "Tensor", 1), Unsafe, "calls torch.Tensor"),
    "storage class called": (call("torch", "FloatStorage"), BadFormat, "calls a StorageClass"),
    "state of a name": (glob("m", "Net") + b"}b", Unsafe, "changes m.Net itself"),
    "memo bomb": (b"]r" + struct.pack("<I", 1 << 27), Unsafe, "memo slot"),
    "memo miss": (b"h\x07", BadFormat, "memo slot 7 is read before"),
    "underflow": (b"R", BadFormat, "empty stack"),
    "no mark": (b"t", BadFormat, "not opened"),
    "left over": (b"NN", BadFormat, "left over"),
    "marks": (b"(" * 100_000, Unsafe, "nested more than 100"),
    "deep tuple": (deep_tuple, Unsafe, "nested more than 100"),
    "deep list": (deep_list, Unsafe, "nested more than 100"),
    "deep tuple as key": (b"}" + deep_tuple + b"Ns", Unsafe, "nested too deep"),
    "deep tuple as offset": (tensor(offset=Text(deep_tuple)), BadFormat, "natural number"),
    "wide tuple as key": (b"}(" + b"N" * 65 + b"tNs", Unsafe, "more than 64 parts"),
    "folded tuple as key": (
        b"K\x01q\x010" + b"".join([b"(" + b"h\x01" * 60 + b"tq\x010"] * 4) + b"}h\x01Ns",
        Unsafe,
        "more than 64 parts",
    ),
    "complex key": (b"}" + call("builtins", "complex", 1.0, 2.0) + b"Ns", Unsafe, "not a complex"),
    "list as key": (b"}]Ns", Unsafe, "not a list"),
    "tensor as key": (b"}" + tensor() + b"Ns", Unsafe, "not a Tensor"),
    "tensor as id": (tensor() + b"Q", BadFormat, "persistent id"),
    "tensor in id": (op((tensor(), 1, 2, 3, 4)) + b"Q", BadFormat, "persistent id"),
    "huge key": (b"}" + op(1 << 200) + b"Ns", Unsafe, "beyond 64 bits"),
    "long length of a storage": (tensor(numel=LONG), Unsafe, "an integer of 1025 bytes"),
    "long key of a storage": (tensor(key=LONG), Unsafe, "an integer of 1025 bytes"),
    "longest numbers": (
        tensor(offset=1 << 8000, size=(1 << 62, 1), stride=(1 << 8000, 1 << 8000)),
        BadFormat,
        "has more than",
    ),
    "huge text": (b"X" + struct.pack("<I", 1 << 31), Truncated, "are needed here"),
    "huge integer": (b"\x8b" + struct.pack("<i", 1 << 30), Unsafe, "an integer of"),
    "negative length": (b"\x8b" + struct.pack("<i", -1), BadFormat, "negative length"),
    "bytearray": (call("__builtin__", "bytearray", 2_000_000_000), BadFormat, "from a int"),
    "codec": (call("_codecs", "encode", "a", "punycode"), Unsafe, "encoding 'punycode'"),
    "codec array": (call("_codecs", "encode", "a", tensor()), Unsafe, "encoding"),
    "codec text": (call("_codecs", "encode", "Ā"), BadFormat, "beyond latin-1"),
    "counter of text": (call("collections", "Counter", "ab"), BadFormat, "from a dictionary"),
    "set of lists": (b"c__builtin__\nset\n]]a\x85R", Unsafe, "not a list"),
    "too many arguments": (call("torch", "Size", 1, 2), BadFormat, "takes 0 to 1"),
    "append to dict": (b"}Na", BadFormat, "appended to a dict"),
    "set on list": (b"]NNs", BadFormat, "set on a list"),
    "odd items": (b"}(Nu", BadFormat, "without a value"),
    "state of a list": (b"]}b", BadFormat, "given attributes"),
    "metadata": (
        b"ccollections\nOrderedDict\n)R}" + op("_metadata") + b"K\x01sb",
        BadFormat,
        "_metadata must be",
    ),
    "unknown opcode": (b"\xff", BadFormat, "0xff is no pickle opcode"),
    "text opcode": (b"I1\n", Unsupported, "pickle opcode INT"),
    "bad utf-8": (b"X\x01\0\0\0\xff", BadFormat, "not UTF-8"),
    "endless name": (b"c" + b"a" * 5000, BadFormat, "no line end"),
    "numpy text": (numpy_array("U1", (1,), "\xff" * 4), BadFormat, "has a character 4294967295"),
    "numpy text scalar": (
        call(
            "numpy._core.multiarray",
            "scalar",
            call("numpy", "dtype", "U1", False, True),
            call("_codecs", "encode", "\xff" * 4, "latin1"),
        ),
        BadFormat,
        "has a character 4294967295",
    ),
    "numpy empty": (numpy_array("f4", (0, 1 << 62, 8), ""), BadFormat, "is larger than any"),
    "numpy texts of no length": (numpy_array("S0", (1 << 62, 4), ""), BadFormat, "is larger than any"),
    "device tensor": (
        call(
            "torch._utils",
            "_rebuild_device_tensor_from_cpu_tensor",
            call(
                "torch._utils",
                "_rebuild_nested_tensor",
                *(tensor(), tensor(), tensor(), tensor()),
            ),
            glob("torch", "float32"),
            "cpu",
            False,
        ),
        BadFormat,
        "a NestedTensor is to become a tensor of a device",
    ),
    "storage without record": (tensor(key="7"), BadFormat, "no record data/7"),
    "storage outside": (tensor(key="../version"), BadFormat, "no record"),
    "storage too long": (tensor(numel=5), BadFormat, "needs 20 bytes, but its record has 16"),
    "storage huge": (tensor(numel=1 << 62), BadFormat, "claims"),
    "storage negative": (tensor(numel=-4), BadFormat, "natural number, not -4"),
    "storage of bool length": (tensor(numel=True), BadFormat, "natural number, not True"),
    "storage class": (op(("storage", 1, "0", "cpu", 4)) + b"Q", BadFormat, "class int"),
    "two dtypes": (
        op((tensor(), tensor(cls="IntStorage"))),
        BadFormat,
        "float32 and again as 4 x int32",
    ),
    "two lengths": (op((tensor(), tensor(numel=3, size=(3,)))), BadFormat, "again as 3"),
    "double and bytes": (
        op(
            (
                tensor(cls="DoubleStorage", numel=2, size=(2,)),
                Text(op(("storage", glob("torch.storage", "UntypedStorage"), "0", "cpu", 2)) + b"Q"),
            )
        ),
        BadFormat,
        "again as 2 x None",
    ),
    "size too large": (tensor(size=(5,)), BadFormat, "reaches element 4"),
    "offset": (tensor(offset=1), BadFormat, "reaches element 4"),
    "offset huge": (tensor(offset=1 << 63), BadFormat, "reaches element"),
    "stride": (tensor(size=(2, 2), stride=(3, 1)), BadFormat, "reaches element 4"),
    "stride overflow": (tensor(size=(2,), stride=(1 << 62,)), BadFormat, "reaches element"),
    "product overflow": (
        tensor(size=(1 << 31, 1 << 31), stride=(0, 0)),
        BadFormat,
        "more than 2",
    ),
    "negative size": (tensor(size=(-1,)), BadFormat, "natural number"),
    "negative stride": (tensor(stride=(-1,)), BadFormat, "natural number"),
    "float size": (tensor(size=(4.0,)), BadFormat, "natural number"),
    "lengths differ": (tensor(size=(2, 2)), BadFormat, "2 sizes but 1 strides"),
    "many dimensions": (tensor(size=(1,) * 65, stride=(1,) * 65), Unsupported, "65 dimensions"),
    "untyped without dtype": (
        call(
            "torch._utils",
            "_rebuild_tensor",
            Text(op(("storage", glob("torch.storage", "UntypedStorage"), "0", "cpu", 16)) + b"Q"),
            0,
            (4,),
            (1,),
        ),
        BadFormat,
        "does not say its dtype",
    ),
    "tensor of text": (
        call("torch._utils", "_rebuild_tensor", "0", 0, (4,), (1,)),
        BadFormat,
        "needs a storage, not a str",
    ),
    "subclass of subclass": (
        call(
            "torch._tensor",
            "_rebuild_from_type_v2",
            glob("torch._tensor", "_rebuild_from_type_v2"),
            None,
            (),
            None,
        ),
        Unsafe,
        "more than one subclass",
    ),
    "empty old tensor": (b"ctorch\nFloatTensor\n)R", BadFormat, "never given its contents"),
    "parameter of nothing": (
        call("torch._utils", "_rebuild_parameter", 1, True, None),
        BadFormat,
        "a tensor is needed, not a int",
    ),
    "module id": (op(("module", 1, "f.py", "code")) + b"Q", BadFormat, "persistent id 'module'"),
    "stack global of numbers": (op(1) + op(2) + b"\x93", BadFormat, "named by a module"),
    "named arguments": (
        glob("torch", "Size") + b")}" + op("a") + op(1) + b"s\x92",
        BadFormat,
        "no named arguments",
    ),
    "set of sets": (b"\x8f(\x8f\x90", Unsafe, "not a set"),
    "numpy of other bytes": (
        call("numpy.core.multiarray", "_reconstruct", glob("numpy", "ndarray"), (0,), "b")
        + op((1, (1 << 40,), call("numpy", "dtype", "f4", False, True), False, b""))
        + b"b",
        BadFormat,
        "calls|comes with 0 bytes",
    ),
    "quantized floats": (
        call("torch._utils", "_rebuild_qtensor", storage(), 0, (4,), (1,), None, False, None),
        BadFormat,
        "a quantized tensor of float32",
    ),
    "sparse of text": (
        call("torch._utils", "_rebuild_sparse_tensor", "torch.x", "y"),
        BadFormat,
        "sparse",
    ),
    "wrapped tensor": (
        call(
            "torch._tensor",
            "_rebuild_from_type_v2",
            glob("torch._utils", "_rebuild_wrapper_subclass"),
            glob("m", "Odd"),
            (1,),
            None,
        ),
        Unsupported,
        "wraps others in a way of its own .m.Odd",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_hostile_programs_are_refused(tmp_path: Path, name: str) -> None:
    body, error, text = PROGRAMS[name]
    path = with_pickle(tmp_path / "m.pt", program(body))
    start = time.monotonic()
    with pytest.raises(error, match=text) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "data.pkl" in str(caught.value)
    assert time.monotonic() - start < 5


def test_modules_that_hold_each_other_twice_have_no_end(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    for _ in range(20):
        model = torch.nn.Sequential(model, model)
    torch.save(model, tmp_path / "m.pt")
    with pytest.raises(Unsafe, match="have no end"):
        load(tmp_path / "m.pt")


def test_programs_whose_modules_hold_each_other_twice_have_no_end(tmp_path: Path) -> None:
    inner = Text(glob("__torch__", "M") + b")\x81}" + op("w") + tensor() + b"sb")
    body = inner + b"q\x00"
    for level in range(30):
        pair = b"}(" + op("a") + b"h" + bytes([level]) + op("b") + b"h" + bytes([level])
        pair += op("w") + b"Nu"
        body += b"0" + glob("__torch__", "M") + b")\x81" + pair + b"bq" + bytes([level + 1])
    path = with_pickle(tmp_path / "m.pt", program(body))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("m/constants.pkl", b"\x80\x02).")
        source = 'class M(Module):\n  __parameters__ = ["w", ]\n  __buffers__ = []\n'
        source += "  w : Optional[Tensor]\n  a : __torch__.M\n  b : __torch__.M\n"
        archive.writestr("m/code/__torch__.py", source)
    with pytest.raises(Unsafe, match="have no end"):
        load(path)


def test_values_are_not_copied_over_and_over(tmp_path: Path) -> None:
    big = op("a" * 4_000_000)
    body = big + b"q\x000(" + 300 * (glob("__builtin__", "bytearray") + b"h\x00\x85R") + b"t"
    with pytest.raises(Unsafe, match="over and over"):
        load(with_pickle(tmp_path / "m.pt", program(body)))


def test_broadcast_of_a_terabyte_stays_a_view(tmp_path: Path) -> None:
    body = op((tensor(size=(1 << 40,), stride=(0,)), tensor()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wide, plain = load(with_pickle(tmp_path / "m.pt", program(body)))
    assert wide.shape == (1 << 40,)
    assert np.shares_memory(wide[:1], plain)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_conjugated_broadcast_of_a_terabyte_stays_a_view(tmp_path: Path) -> None:
    parts = (storage(cls="ComplexFloatStorage", numel=2), 0, (1 << 40,), (0,), False, None)
    body = call("torch._utils", "_rebuild_tensor_v2", *parts, Text(op({"conj": True})))
    data = np.array([1 + 2j, 3], np.complex64).tobytes()
    wide = load(with_pickle(tmp_path / "m.pt", program(body), storage=data))
    assert wide[12345] == 1 - 2j


def test_empty_tensor_may_point_anywhere(tmp_path: Path) -> None:
    body = tensor(offset=100, size=(0, 1 << 40), stride=(1, 1))
    assert load(with_pickle(tmp_path / "m.pt", program(body))).shape == (0, 1 << 40)


def test_billion_laughs_cost_nothing(tmp_path: Path) -> None:
    body = b"]q\0"
    for level in range(60):
        again = b"h" + bytes([level])
        body += b"](" + again + again + b"eq" + bytes([level + 1])
    laughs = load(with_pickle(tmp_path / "m.pt", program(b"(" + body + b"t")))
    assert len(laughs) == 61
    assert laughs[60][0] is laughs[60][1] is laughs[59]


def test_old_tensors_and_parameters(tmp_path: Path) -> None:
    state = op((storage(), 1, (2,), (1,)))
    old = b"ctorch\nFloatTensor\n)R" + state + b"b"
    parameter = b"ctorch.nn.parameter\nParameter\n" + tensor() + b"\x85\x81"
    parameter += op((True, False, None)) + b"b"
    data = np.arange(4, dtype=np.float32)
    path = with_pickle(
        tmp_path / "m.pt", program(b"(" + old + parameter + b"t"), storage=data.tobytes()
    )
    first, second = load(path)
    assert first.tolist() == [1, 2]
    assert second.tolist() == [0, 1, 2, 3]


def content() -> dict[str, Any]:
    return {"model": Net().state_dict(), "step": 3, "names": ["a", b"b"], "lr": 0.1}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_truncation_is_refused(tmp_path: Path, kind: str) -> None:
    path = torch_save(content(), tmp_path / "m.pt", kind)
    data = path.read_bytes()
    for size in {*range(0, 64), *range(0, len(data), 29), *range(len(data) - 120, len(data))}:
        path.write_bytes(data[:size])
        with pytest.raises(Truncated) as caught:
            load(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_mutations_raise_only_our_errors(tmp_path: Path, kind: str) -> None:
    path = torch_save(content(), tmp_path / "m.pt", kind)
    data = path.read_bytes()
    rng = random.Random(5)
    refused = 0
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(len(changed))
            changed[at] = rng.choice([0, 1, 0x28, 0x2E, 0x52, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.2:
            at = rng.randrange(len(changed))
            del changed[at : at + rng.randrange(1, 40)]
        path.write_bytes(changed)
        try:
            load(path)
        except CheckpointError:
            refused += 1
    assert refused > 100


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no checkpoint file here: '.*nothing.pt'"):
        load(tmp_path / "nothing.pt")


OTHERS: list[tuple[bytes, type[CheckpointError], str]] = [
    (b"", Truncated, "the file is empty"),
    (b"PK", Truncated, "only 2 bytes"),
    (b"version https://git-lfs.github.com/spec/v1\noid", BadFormat, "Git LFS pointer"),
    (b"<!DOCTYPE html><html>", BadFormat, "a web page"),
    (b"\x93NUMPY\x01\x00v\x00{", Unsupported, "NumPy .npy file"),
    (b"\x89HDF\r\n\x1a\n" + bytes(20), Unsupported, "HDF5"),
    (bytes(257) + b"ustar  \0" + bytes(300), BadFormat, "the tar archive is damaged"),
    (b"some words that are no checkpoint", BadFormat, "starts with b'some wor'"),
]


@pytest.mark.parametrize(("data", "error", "text"), OTHERS)
def test_other_files_are_named(
    tmp_path: Path, data: bytes, error: type[CheckpointError], text: str
) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(data)
    with pytest.raises(error, match=text):
        load(path)


def test_a_pipe_is_refused_without_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unsupported, match="not a regular file"):
        load(tmp_path / "pipe")


def test_errors_are_one_sentence_each(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save({"x": np.ones(2)}, path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Truncated) as caught:
        load(path)
    assert str(caught.value) == (
        f"'{path}', byte 100: the zip archive has no directory at its end. "
        "The download or copy is probably incomplete: fetch the file again."
    )


def test_texts_of_no_length_take_no_memory(tmp_path: Path) -> None:
    array = load(with_pickle(tmp_path / "m.pt", program(numpy_array("S0", (1 << 40,), ""))))
    assert array.shape == (1 << 40,)
    assert array.strides == (0,)


def test_a_text_without_an_end_is_read_once(tmp_path: Path) -> None:
    """Of a script's source: looking for a text in it from each quote takes quadratic time."""
    source = b'class M(Module):\n  __parameters__ = ["' + b'\\"' * 200_000 + b"]\n"
    path = tmp_path / "m.pt"
    with_pickle(path, program(glob("__torch__", "M") + b")\x81}b"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("m/constants.pkl", program(b")"))
        archive.writestr("m/code/__torch__.py", source)
    start = time.monotonic()
    with pytest.raises(BadFormat, match="lacks its parameter or buffer"):
        load(path)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("left", [0, 10, 5000])
def test_a_file_that_becomes_shorter_before_it_is_mapped(tmp_path: Path, left: int) -> None:
    path = tmp_path / "m"
    path.write_bytes(bytes(10_000))
    with open(path, "rb") as file:
        source = FileBytes(file.fileno(), copy=False)
        os.truncate(path, left)
        with pytest.raises(Truncated, match="became shorter while it was read"):
            source.block(4000, 4000)
