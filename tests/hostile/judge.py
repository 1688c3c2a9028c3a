"""Whether data read from a damaged file is what an honest reader makes of those bytes.

A damaged file that is read must either hold what it held before (the damage hit padding, or a field
that nobody needs), or torch (safetensors, for its files) must read the same from it, at the latest
when it is not made to look at a tensor's ``requires_grad`` and hooks, which are no data. Torch reads in
a process of its own, since damaged files crash it. For ``.pt2`` and DCP torch's readers run code or
need the model, so a few lines here read these with ``zipfile``, ``json`` and Python's unpickler
over a closed list of classes.
"""

import io
import json
import pickle
import shutil
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch._utils import _rebuild_tensor_v2, _rebuild_tensor_v3

import bridge
from tests.corpora.truth import InertUnpickler, Stub, assert_agree, pickle_module, read_by_torch
from tests.hostile.cases import Corpus
from tests.hostile.mutations import write_zip


class _LenientUnpickler(InertUnpickler):
    """Torch's tensors without their ``requires_grad`` and hooks, whatever these are."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        lenient = _LENIENT.get(name) if module == "torch._utils" else None
        return lenient or found


def _tensor(rebuild: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        storage: Any, offset: Any, size: Any, stride: Any, _rg: Any, _hooks: Any, *rest: Any
    ) -> Any:
        return rebuild(storage, offset, size, stride, False, {}, *rest)

    return call


_LENIENT = {
    "_rebuild_tensor_v2": _tensor(_rebuild_tensor_v2),
    "_rebuild_tensor_v3": _tensor(_rebuild_tensor_v3),
    "_rebuild_parameter": lambda data, _rg, _hooks: data,
}


def _torch(path: Path) -> Any:
    try:
        return read_by_torch(path)
    except Exception:
        module = pickle_module(_LenientUnpickler)
        return torch.load(
            _packed(path, _NOTES), map_location="cpu", weights_only=False, pickle_module=module
        )


#: Torch does not ask which version of ZIP a record needs.
zipfile.MAX_EXTRACT_VERSION = 255  # pyright: ignore[reportAttributeAccessIssue]


def _records(path: Path, unwanted: tuple[str, ...] = ()) -> list[tuple[str, bytes, int]]:
    """The records of an archive; whether their checksums hold is not asked by default."""
    rows = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.partition("/")[2].startswith(unwanted):
                continue
            with archive.open(info) as record:
                record._expected_crc = None  # pyright: ignore[reportAttributeAccessIssue]
                rows.append((info.filename, record.read(), info.compress_type))
    return rows


def _packed(path: Path, unwanted: tuple[str, ...]) -> Any:
    """The archive packed again, with right checksums, without the ``unwanted`` records."""
    if not zipfile.is_zipfile(path):
        return path
    return io.BytesIO(write_zip(_records(path, unwanted)))


#: What torch parses of an archive and an honest reader of tensors may leave alone.
_NOTES = (".format_version", ".storage_alignment", ".data/")
_PROGRAM = ("constants", "code/", "traced_inputs")


def _safetensors(path: Path) -> Any:
    with safetensors.safe_open(path, "pt") as file:
        names = list(json.loads(_header(path)))
        return {name: file.get_tensor(name) for name in names if name != "__metadata__"}


def _header(path: Path) -> bytes:
    data = path.read_bytes()
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def _torchscript(path: Path) -> Any:
    records = {name.partition("/")[2]: data for name, data, _ in _records(path, ("code/",))}
    if "constants.pkl" not in records:
        return _torch(path)
    try:
        # torch.jit.load does not heed the byte order; torch.load does.
        if records.get("byteorder") == b"big":
            raise ValueError("big-endian")
        return torch.jit.load(path, map_location="cpu").state_dict()
    except Exception:
        # Torch compiles the program first. Without it, the attributes remain.
        packed = _packed(path, (*_NOTES, *_PROGRAM))
        module = pickle_module(_LenientUnpickler)
        root = torch.load(packed, map_location="cpu", weights_only=False, pickle_module=module)
        return Attributes(root)


class Attributes:
    """The tensors of a TorchScript file by the path of their attribute, parameters and others."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def __getitem__(self, name: str) -> Any:
        value = self._root
        for part in name.split("."):
            value = value.stub_state[part]
        return value


def _index(path: Path) -> Any:
    (index,) = path.glob("*.index.json")
    table = json.loads(index.read_bytes())["weight_map"]
    read = _safetensors if ".safetensors." in index.name else _torch
    parts = {name: read(path / name) for name in dict.fromkeys(table.values())}
    merged = {name: value for part in parts.values() for name, value in part.items()}
    return {name: merged[name] for name in merged}


_PT2_DTYPES = {1: torch.uint8, 2: torch.int8, 4: torch.int32, 5: torch.int64, 7: torch.float32}


def _pt2(path: Path) -> Any:
    records = {name.partition("/")[2]: data for name, data, _ in _records(path)}
    if not any(name.startswith("data/weights/") for name in records):
        return _torch(path)
    table = json.loads(records["data/weights/model_weights_config.json"])["config"]
    storages: dict[str, torch.Tensor] = {}
    turned: dict[tuple[str, int], torch.Tensor] = {}
    result = {}
    for name, entry in table.items():
        meta, record = entry["tensor_meta"], entry["path_name"]
        if record not in storages:
            data = bytearray(records[f"data/weights/{record}"])
            storages[record] = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0)
        sizes = [item["as_int"] for item in meta["sizes"]]
        strides = [item["as_int"] for item in meta["strides"]]
        dtype = _PT2_DTYPES[meta["dtype"]]
        raw = storages[record][: len(storages[record]) // dtype.itemsize * dtype.itemsize]
        if records.get("byteorder") == b"big":
            # Torch itself takes these for this machine's order, which no writer of them means.
            width = dtype.itemsize // (2 if dtype.is_complex else 1)
            if (record, width) not in turned:
                turned[record, width] = raw.reshape(-1, width).flip(1).reshape(-1)
            raw = turned[record, width]
        flat = raw.view(dtype)
        result[name] = flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])
    return result


_DCP_CLASSES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        others = [("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath")]
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        plain = module in _DCP_CLASSES and not name.startswith("__") and "." not in name
        if dtype or plain or (module, name) in others:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


def _dcp(path: Path) -> Any:
    metadata = _MetadataUnpickler(io.BytesIO((path / ".metadata").read_bytes())).load()
    result: dict[str, Any] = {}
    for index, place in metadata.storage_data.items():
        with open(path / place.relative_path, "rb") as file:
            file.seek(place.offset)
            data = file.read(place.length)
        value = torch.load(io.BytesIO(data), weights_only=True)
        known = metadata.state_dict_metadata[index.fqn]
        if isinstance(value, torch.Tensor):
            whole = result.setdefault(index.fqn, torch.empty(known.size, dtype=known.properties.dtype))
            offset = index.offset if index.offset is not None else [0] * value.dim()
            part = tuple(slice(o, o + n) for o, n in zip(offset, value.shape, strict=True))
            whole[part] = value
        else:
            result[index.fqn] = value
    nested: dict[str, Any] = {}
    for name in metadata.state_dict_metadata:
        *above, last = metadata.planner_data.get(name, (name,))
        holder = nested
        for key in above:
            holder = holder.setdefault(key, {})
        holder[last] = result[name]
    return nested


TRUTHS: dict[str, Callable[[Path], Any]] = {
    "zip": _torch,
    "legacy": _torch,
    "tar": _torch,
    "safetensors": _safetensors,
    "torchscript": _torchscript,
    "pt2": _pt2,
    "index": _index,
    "dcp": _dcp,
}


def judge(format: str, path: Path) -> tuple[str, str]:
    """Return "agrees", "differs" or "refuses" (torch does not read the file), and why."""
    try:
        theirs = TRUTHS[format](path)
        if isinstance(theirs, Stub | torch.nn.Module):
            _walkable(theirs)
    except Exception as error:
        return "refuses", f"{type(error).__name__}: {str(error)[:200]}"
    try:
        ours = bridge.load(path)
        if isinstance(theirs, Attributes):
            theirs = {name: theirs[name] for name in ours}
        if format in ("safetensors", "index", "pt2", "torchscript", "dcp"):
            # These readers of torch keep no _metadata, and not all of them an order.
            ours, theirs = _plain(ours), _plain(theirs)
        assert_agree(ours, theirs)
    except (AssertionError, LookupError, AttributeError) as error:
        return "differs", str(error)[:300] or traceback.format_exc()[-300:]
    return "agrees", ""


def _walkable(value: Any) -> None:
    """Raise if torch itself cannot make the state dict of a module."""
    if "_modules" in value.__dict__:
        value.state_dict()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value, key=repr)}
    return value


def main() -> None:
    """Judge one key a line."""
    setup = json.loads(sys.stdin.readline())
    corpus = Corpus(Path(setup["folder"]), setup["seeds"])
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=setup["work"]) as work:
        warnings.simplefilter("ignore")
        for line in sys.stdin:
            key = json.loads(line)
            folder = Path(tempfile.mkdtemp(dir=work))
            verdict, why = judge(key.split()[0], corpus.case(key).write(folder))
            shutil.rmtree(folder)
            print(json.dumps({"verdict": verdict, "why": why}), flush=True)


if __name__ == "__main__":
    main()
