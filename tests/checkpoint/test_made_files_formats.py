"""Every layout of file that torch has written or accepts: read as torch reads it."""

import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._utils import _rebuild_tensor_v2 as rebuild_tensor
from torch.nn.utils.prune import random_unstructured

import bridge
from bridge import StateDict
from bridge.checkpoint import BadFormat, CheckpointError, Unsupported
from tests.corpora.truth import assert_agree, read_by_torch
from tests.hostile.mutations import read_zip, write_tar
from tests.hostile.seeds import tar_file


class Block(torch.nn.Module):
    """A module with everything that a state dict must, and must not, hold."""

    def __init__(self) -> None:
        super().__init__()
        self.plain: torch.Tensor
        self.kept: torch.Tensor
        self.lost: torch.Tensor
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
        self.inner[2].weight = self.inner[0].weight
        self.again = self.inner[0]
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("lost", torch.arange(4.0), persistent=False)
        self.register_buffer("nothing", None)
        self.register_parameter("missing", None)
        self.scale = torch.nn.Parameter(torch.tensor(0.5), requires_grad=False)
        self.plain = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x)).mean((2, 3))
        return (
            self.again(self.inner(y)) * self.scale
            + self.plain.sum()
            + self.kept.sum()
            + self.lost.sum()
        )


def values() -> dict[str, Any]:
    base = torch.arange(12.0)
    return {
        "state": Block().state_dict(),
        "views": [base, base[2:5], base.reshape(3, 4).t(), base.half(), base > 3],
        "complex": torch.complex(base, -base).conj(),
        "wide": base.to(torch.uint16),
        "double": base.double(),
        "n": 3,
    }


def old_values() -> dict[str, Any]:
    """What the legacy stream can hold: no dtype of torch 2."""
    return {name: value for name, value in values().items() if name != "wide"}


def repacked(
    path: Path, keep: Any = lambda name: True, rename: Any = lambda name: name, **extra: bytes
) -> Path:
    """The archive, written again by ``zipfile`` with records left out, renamed or added."""
    target = path.with_name("again-" + path.name)
    with zipfile.ZipFile(target, "w") as archive:
        for name, data, _ in read_zip(path.read_bytes()):
            folder, _, short = name.partition("/")
            if keep(short):
                archive.writestr(f"{folder}/{short}", extra.pop(short, data))
    assert not extra
    return target


def test_files_without_the_records_of_later_versions(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save(values(), path)
    first = repacked(path, lambda name: name in ("data.pkl", "version") or name.startswith("data/"))
    assert_agree(bridge.load(first), read_by_torch(first))


def test_records_named_by_pointers_in_any_order(tmp_path: Path) -> None:
    """As torch 1.6 wrote: keys are addresses, in the order of a hash table."""
    path = tmp_path / "m.pt"
    torch.save(values(), path)
    rows = read_zip(path.read_bytes())
    keys = [name.rpartition("/")[2] for name, *_ in rows if "/data/" in name]
    pointers = {key: str(94743424565712 + 64 * int(key)) for key in keys}
    (pickled,) = (data for name, data, _ in rows if name.endswith("data.pkl"))
    for key, pointer in sorted(pointers.items(), key=lambda pair: -int(pair[0])):
        old = b"X" + struct.pack("<I", len(key)) + key.encode()
        new = b"X" + struct.pack("<I", len(pointer)) + pointer.encode()
        pickled = pickled.replace(old + b"q", new + b"q")
    target = tmp_path / "old.pt"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("archive/version", b"3\n")
        for name, data, _ in reversed(rows):
            key = name.rpartition("/")[2]
            if "/data/" in name:
                archive.writestr(f"archive/data/{pointers[key]}", data)
        archive.writestr("archive/data.pkl", pickled)
    assert_agree(bridge.load(target), read_by_torch(target))
    assert_agree(bridge.load(target), read_by_torch(path))


def test_records_in_the_order_of_text(tmp_path: Path) -> None:
    """As torch 1.8 to 2.5 wrote: data/0, data/1, data/10, data/11, data/2."""
    path = tmp_path / "m.pt"
    torch.save({str(n): torch.full((n + 1,), float(n)) for n in range(23)}, path)
    target = tmp_path / "old.pt"
    with zipfile.ZipFile(target, "w") as archive:
        for name, data, _ in sorted(read_zip(path.read_bytes())):
            archive.writestr(name, data)
    assert_agree(bridge.load(target), read_by_torch(target))


def test_a_compressed_pickle(tmp_path: Path) -> None:
    """Other writers deflate the pickle and store the numbers."""
    path = tmp_path / "m.pt"
    torch.save(values(), path)
    target = tmp_path / "deflated.pt"
    with zipfile.ZipFile(target, "w") as archive:
        for name, data, _ in read_zip(path.read_bytes()):
            method = zipfile.ZIP_STORED if "/data/" in name else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name), data, method)
    assert_agree(bridge.load(target), read_by_torch(target))


def test_compressed_numbers_are_read_or_named(tmp_path: Path) -> None:
    """Torch reads these, except through a map, where it takes the compressed bytes for weights."""
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(1000)}, path)
    target = tmp_path / "deflated.pt"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, _ in read_zip(path.read_bytes()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    try:
        ours = bridge.load(target)
    except Unsupported as error:
        refusal = str(error)
    else:
        assert_agree(ours, read_by_torch(target))
        return
    assert "compressed" in refusal


@pytest.mark.parametrize("alignment", [1, 64, 256, 4096])
def test_every_alignment(tmp_path: Path, alignment: int) -> None:
    from torch.utils.serialization import config

    path = tmp_path / "m.pt"
    with config.patch("save.storage_alignment", alignment):  # pyright: ignore[reportAttributeAccessIssue]
        torch.save(values(), path)
    assert_agree(bridge.load(path), read_by_torch(path))


def test_no_checksums(tmp_path: Path) -> None:
    """Zeros stand where they would be: such a file is not damaged."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(values(), tmp_path / "m.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    for verify in (False, True):
        assert_agree(bridge.load(tmp_path / "m.pt", verify=verify), read_by_torch(tmp_path / "m.pt"))


@pytest.mark.parametrize(
    "name", ["m.v1.pt", ".hidden.pt", "noextension", "käse.pt", "a b.ckpt", "m.pth.tar"]
)
def test_any_name_and_any_folder_inside(tmp_path: Path, name: str) -> None:
    torch.save(values(), tmp_path / name)
    assert_agree(bridge.load(tmp_path / name), read_by_torch(tmp_path / name))
    (tmp_path / name).rename(tmp_path / "renamed")
    assert_agree(bridge.load(tmp_path / "renamed"), read_by_torch(tmp_path / "renamed"))


def test_a_file_object_makes_an_archive_of_its_own_name(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(values(), buffer)
    path = tmp_path / "m.bin"
    path.write_bytes(buffer.getvalue())
    assert_agree(bridge.load(path), read_by_torch(path))


ENDIAN = [torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]
ENDIAN += [torch.float64, torch.complex64, torch.complex128, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", ENDIAN, ids=str)
def test_big_endian_archives(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = (torch.arange(24) - 5).to(dtype)
    path = tmp_path / "m.pt"
    torch.save({"x": tensor, "turned": tensor.reshape(4, 6).t()}, path)
    swapped = {}
    for name, data, _ in read_zip(path.read_bytes()):
        if "/data/" in name:
            width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
            swapped[name.partition("/")[2]] = np.frombuffer(data, f"u{width}").byteswap().tobytes()
    big = repacked(path, byteorder=b"big", **swapped)
    assert_agree(bridge.load(big), read_by_torch(big))
    assert_agree(bridge.load(big), {"x": tensor, "turned": tensor.reshape(4, 6).t()})


def test_big_endian_legacy_files(tmp_path: Path) -> None:
    tensor = torch.arange(6.0)
    path = tmp_path / "m.pt"
    torch.save({"x": tensor}, path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    little = struct.pack("<q6f", 6, *range(6))
    assert data.count(little) == 1
    assert data.count(b"little_endianq\x02\x88") == 1
    data = data.replace(little, struct.pack(">q6f", 6, *range(6)))
    path.write_bytes(data.replace(b"little_endianq\x02\x88", b"little_endianq\x02\x89"))
    assert_agree(bridge.load(path), {"x": tensor})


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_legacy_stream(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "m.pt"
    torch.save(old_values(), path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    assert_agree(bridge.load(path), read_by_torch(path))


def test_the_legacy_stream_with_views_of_storages(tmp_path: Path) -> None:
    """Before 1.0 a storage could be a part of another: (key, offset, length) in the sixth place."""
    storage = torch.FloatStorage
    pickled = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            if obj is root:
                return ("storage", storage, "1", "cpu", 6, None)
            return ("storage", storage, "1", "cpu", 6, ("2", 2, 3)) if obj is part else None

    class Opaque:
        pass

    class Call:
        def __init__(self, *args: Any) -> None:
            self.args = args

        def __reduce__(self) -> Any:
            return rebuild_tensor, self.args

    root, part = Opaque(), Opaque()
    hooks: OrderedDict[str, Any] = OrderedDict()
    value = {
        "root": Call(root, 0, (2, 3), (3, 1), False, hooks),
        "part": Call(part, 1, (2,), (1,), False, hooks),
    }
    Pickler(pickled, 2).dump(value)
    facts = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps(facts, 2)
    tail = pickle.dumps(["1"], 2) + struct.pack("<q6f", 6, *range(6))
    path = tmp_path / "m.pt"
    path.write_bytes(magic + pickled.getvalue() + tail)
    assert_agree(bridge.load(path), read_by_torch(path))
    assert bridge.load(path)["part"].tolist() == [3, 4]


def test_tar_files(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(tar_file())
    assert_agree(bridge.load(path), read_by_torch(path))


def test_tar_files_in_any_order_of_members(tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(tar_file())) as archive:
        members = [(info.name, archive.extractfile(info).read()) for info in archive]  # pyright: ignore
    path = tmp_path / "m.pt"
    path.write_bytes(write_tar(list(reversed(members))))
    assert_agree(bridge.load(path), read_by_torch(path))


@pytest.fixture
def above_4_gib(tmp_path: Path) -> Path:
    """A sparse file with a storage of 4.4 GiB, and two behind it: both ways of ZIP64."""
    path = tmp_path / "large.pt"
    value = {
        "before": torch.empty(3),
        "large": torch.empty(4_500, 1 << 20, dtype=torch.uint8),
        "after": torch.empty(2, 2),
        "last": torch.empty(5, dtype=torch.int64),
    }
    with torch.serialization.skip_data():
        torch.save(value, path)
    if path.stat().st_blocks * 512 > 1 << 26:
        pytest.skip("the file system does not keep holes")
    return path


def test_a_file_above_4_gib(above_4_gib: Path) -> None:
    assert above_4_gib.stat().st_size > 4 << 30
    ours = bridge.load(above_4_gib)
    assert {name: (value.shape, value.dtype.name) for name, value in ours.items()} == {
        "before": ((3,), "float32"),
        "large": ((4_500, 1 << 20), "uint8"),
        "after": ((2, 2), "float32"),
        "last": ((5,), "int64"),
    }
    assert not ours["large"][::500, ::65536].any()


def test_numbers_behind_4_gib(above_4_gib: Path) -> None:
    theirs = torch.load(above_4_gib, mmap=True)
    with open(above_4_gib, "r+b") as file:
        head = file.read(1 << 16)
        name = head.index(b"large/data/0")
        (extra,) = struct.unpack_from("<H", head, name - 2)
        first = name + len(b"large/data/0") + extra
        for key, numbers in {
            "after": np.arange(4, dtype="f4"),
            "last": np.arange(5, dtype="i8"),
        }.items():
            file.seek(first + theirs[key].data_ptr() - theirs["before"].data_ptr())
            file.write(numbers.tobytes())
    theirs = torch.load(above_4_gib, mmap=True)
    assert theirs["last"].tolist() == [0, 1, 2, 3, 4]
    ours = bridge.load(above_4_gib)
    small = ("before", "after", "last")
    assert_agree({key: ours[key] for key in small}, {key: theirs[key] for key in small})


def test_a_zip_that_says_zip64_though_small(tmp_path: Path) -> None:
    """Every file of torch ends with the ZIP64 records; some writers use its fields early too."""
    path = tmp_path / "m.pt"
    torch.save({"w": torch.arange(4.0)}, path)
    target = tmp_path / "wide.pt"
    with zipfile.ZipFile(target, "w") as archive:
        for name, data, _ in read_zip(path.read_bytes()):
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as record:
                record.write(data)
    assert_agree(bridge.load(target), read_by_torch(target))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("how", ["script", "trace", "freeze"])
def test_torchscript(tmp_path: Path, how: str) -> None:
    model = Block().eval()
    x = torch.ones(1, 3, 5, 5)
    script = torch.jit.trace(model, x) if how == "trace" else torch.jit.script(model)
    if how == "freeze":
        script = torch.jit.freeze(script)
    path = tmp_path / "m.pt"
    torch.jit.save(script, path)
    ours = bridge.load(path)
    theirs = OrderedDict(torch.jit.load(path).state_dict().items())
    assert isinstance(ours, StateDict)
    assert_agree(ours, theirs)
    assert ("lost" in ours) == (how != "freeze")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_with_attributes_of_every_kind(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        words: dict[str, int]
        pairs: list[tuple[int, float]]

        def __init__(self) -> None:
            super().__init__()
            self.state = torch.arange(4.0)
            self.list = [1, 2, 3]
            self.floats = [0.5]
            self.tensors = [torch.ones(1), torch.zeros(2)]
            self.words = {"a": 1}
            self.pairs = [(1, 0.5)]
            self.text = "words"
            self.flag = True
            self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])
            self.table = torch.nn.ModuleDict({"a b": torch.nn.Embedding(2, 2)})
            self.register_buffer("b", torch.ones(2).half())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x + self.state.sum() + len(self.list) + self.tensors[0]

    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Odd()), path)
    theirs = OrderedDict(torch.jit.load(path).state_dict().items())
    assert_agree(bridge.load(path), theirs)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_torchscript_does_not_declare_is_not_dropped(tmp_path: Path) -> None:
    """Torch reads the rest without a word."""
    whole, part = tmp_path / "m.pt", tmp_path / "part.pt"
    torch.jit.save(torch.jit.script(Block()), whole)
    with zipfile.ZipFile(part, "w") as archive:
        for name, data, _ in read_zip(whole.read_bytes()):
            # The text of the class ends before this attribute.
            archive.writestr(name, re.sub(rb"\n  inner : .*", b"\n", data, flags=re.DOTALL))
    assert not any(name.startswith("inner.") for name in torch.jit.load(part).state_dict())
    with pytest.raises(BadFormat, match=r"Block does not declare its attribute 'inner'"):
        bridge.load(part)


class Buffer(torch.nn.Module):
    """A module with buffers ``b`` and ``name``, and a parameter and a buffer that are None."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_parameter("none", None)
        self.register_buffer("nothing", None)
        self.register_buffer("b", torch.zeros(1))
        self.register_buffer(name, torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\", '"', 'b", "b', 'b", ]\n', '", "none'])
def test_names_that_a_script_cannot_tell_are_not_dropped(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Buffer(name)), path)
    with pytest.raises(RuntimeError):
        torch.jit.load(path)
    with pytest.raises(BadFormat):
        bridge.load(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["a'b", "a\rb", "a\tb", "é", "a b", "a]", "[a", ", ", "\u2028"])
def test_odd_names_in_a_script(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Buffer(name)), path)
    ours = bridge.load(path)
    assert list(ours) == ["b", name]
    assert_agree(ours, OrderedDict(torch.jit.load(path).state_dict().items()))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_a_script_lists_and_lacks(tmp_path: Path) -> None:
    whole, part = tmp_path / "m.pt", tmp_path / "part.pt"
    torch.jit.save(torch.jit.script(Buffer("name")), whole)
    with zipfile.ZipFile(part, "w") as archive:
        for name, data, _ in read_zip(whole.read_bytes()):
            archive.writestr(name, data.replace(b'"nothing", ', b'"nothing", "c", '))
    with pytest.raises(BadFormat, match="lacks its parameter or buffer 'c'"):
        bridge.load(part)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_may_be_none_in_a_script_as_torch_counts_it(tmp_path: Path) -> None:
    """Torch's state dict has such a parameter, but no such buffer."""

    class Perhaps(torch.nn.Module):
        weight: torch.Tensor | None
        bias: torch.Tensor | None
        buffer: torch.Tensor | None
        other: torch.Tensor | None

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.register_parameter("bias", None)
            self.register_buffer("buffer", torch.ones(3))
            self.register_buffer("other", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Perhaps()), path)
    ours = bridge.load(path)
    assert list(ours) == ["weight"]
    assert_agree(ours, OrderedDict(torch.jit.load(path).state_dict().items()))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_whole_modules(tmp_path: Path, zipped: bool, protocol: int) -> None:
    model = Block()
    path = tmp_path / "m.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(model, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    ours = bridge.load(path)
    assert isinstance(ours, StateDict)
    assert_agree(ours, model.state_dict())
    assert_agree(ours, read_by_torch(path))
    assert ours["inner.0.weight"].ctypes.data == ours["again.weight"].ctypes.data


def test_a_whole_module_from_before_some_attributes(tmp_path: Path) -> None:
    model = Block()
    for module in model.modules():
        for name in ("_non_persistent_buffers_set", "_backward_pre_hooks", "_state_dict_pre_hooks"):
            del module.__dict__[name]
    path = tmp_path / "m.pt"
    torch.save(model, path)
    assert_agree(bridge.load(path), read_by_torch(path))


def test_a_deep_module_of_many_tensors(tmp_path: Path) -> None:
    one = torch.zeros(1)
    model: torch.nn.Module = torch.nn.ParameterList(one.detach() for _ in range(25_000))
    for _ in range(12):
        model = torch.nn.Sequential(model)
    torch.save(model, tmp_path / "m.pt")
    assert list(bridge.load(tmp_path / "m.pt")) == list(model.state_dict())


MODULES = {
    "lstm": lambda: torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "transformer": lambda: torch.nn.TransformerEncoderLayer(8, 2, 16),
    "lists": lambda: torch.nn.ModuleList(
        [torch.nn.Linear(1, 1), torch.nn.ModuleDict({"a": torch.nn.Linear(1, 1)})]
    ),
    "parameters": lambda: torch.nn.ParameterList([torch.ones(1), torch.zeros(2)]),
    "parameter table": lambda: torch.nn.ParameterDict({"b": torch.ones(1), "a": torch.zeros(2)}),
    "instance norm": lambda: torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "empty": torch.nn.Identity,
    "data parallel": lambda: torch.nn.DataParallel(torch.nn.Linear(1, 1)),
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(torch.nn.Linear(1, 1)),
    "pruned": lambda: random_unstructured(torch.nn.Linear(3, 3), "weight", 0.5),
    "tied": lambda: _tied(),
}


def _table() -> torch.nn.Module:
    return torch.nn.ModuleDict({"b": torch.nn.Linear(1, 1), "a": torch.nn.Linear(1, 2)})


def _tied() -> torch.nn.Module:
    model: Any = torch.nn.Sequential(OrderedDict(a=torch.nn.Linear(2, 2), b=torch.nn.Linear(2, 2)))
    model.b.weight = model.a.weight
    return model


@pytest.mark.parametrize("name", MODULES)
def test_whole_modules_of_torch_itself(tmp_path: Path, name: str) -> None:
    model = MODULES[name]()
    path = tmp_path / "m.pt"
    torch.save({"model": model, "epoch": 3}, path)
    ours = bridge.load(path)
    assert ours["epoch"] == 3
    assert_agree(ours["model"], model.state_dict())


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_exported_programs(tmp_path: Path, strict: bool) -> None:
    model = Block().eval()
    exported = torch.export.export(model, (torch.ones(1, 3, 5, 5),), strict=strict)
    path = tmp_path / "m.pt2"
    torch.export.save(exported, path)
    ours = bridge.load(path)
    theirs = torch.export.load(path).state_dict
    assert set(ours) == set(theirs)
    assert_agree(dict(ours), {name: theirs[name] for name in ours})


@pytest.mark.parametrize("more", [b"", b"x"], ids=["whole numbers", "and a byte"])
def test_exported_programs_of_the_other_byte_order(tmp_path: Path, more: bytes) -> None:
    """Torch says so in the archive, and reads none itself."""
    model = torch.nn.BatchNorm1d(3).eval()
    model.running_var = torch.tensor([1.5, 2.5, 3.5])
    torch.export.save(torch.export.export(model, (torch.ones(2, 3),)), tmp_path / "m.pt2")
    with zipfile.ZipFile(tmp_path / "m.pt2") as archive:
        content = {info.filename: archive.read(info) for info in archive.infolist()}
    config = next(json.loads(data) for name, data in content.items() if name.endswith("s_config.json"))
    for name, entry in config["config"].items():
        width = 8 if name == "num_batches_tracked" else 4
        record = next(key for key in content if key.endswith("data/weights/" + entry["path_name"]))
        content[record] = np.frombuffer(content[record], f"u{width}").byteswap().tobytes() + more
    mark = next(key for key in content if key.endswith("/byteorder"))
    assert content[mark] == b"little"
    content[mark] = b"big"
    with zipfile.ZipFile(tmp_path / "big.pt2", "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    theirs = model.state_dict()
    ours = bridge.load(tmp_path / "big.pt2")
    assert set(ours) == set(theirs)
    assert_agree(dict(ours), {name: theirs[name] for name in ours})


@pytest.mark.parametrize("junk", [b"x", b"\0" * 1000])
def test_bytes_behind_an_archive(tmp_path: Path, junk: bytes) -> None:
    """Torch tolerates a few; a file that went on being written is refused or read right."""
    path = tmp_path / "m.pt"
    torch.save({"w": torch.arange(4.0)}, path)
    path.write_bytes(path.read_bytes() + junk)
    try:
        ours = bridge.load(path)
    except BadFormat:
        return
    assert_agree(ours, {"w": torch.arange(4.0)})


def test_a_truncated_map_is_noticed_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"w": torch.arange(100_000.0)}, path)
    copied = bridge.load(path, copy=True)
    os.truncate(path, 1000)
    assert copied["w"][-1] == 99_999
    with pytest.raises(CheckpointError):
        bridge.load(path)


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save(Block(), path)
    code = "import sys, bridge.checkpoint as c; sd = c.load(sys.argv[1]); print(len(sd)); "
    code += "print([m for m in ('torch', 'jax') if m in sys.modules])"
    command = [sys.executable, "-c", code, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[:2] == [str(len(Block().state_dict())), "[]"]
