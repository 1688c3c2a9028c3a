"""Files written here are PyTorch's own, byte for byte, and PyTorch reads them."""

import os
import re
import subprocess
import sys
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random
import ml_dtypes
import numpy as np
import pytest
import torch

from bridge import StateDict
from bridge.checkpoint import CheckpointError, Unwritable, load, save
from bridge.checkpoint._dtypes import TORCH_DTYPES
from bridge.checkpoint._write_zip import ZipWriter, folder_name, write_torch_zip
from tests.checkpoint.agree import assert_agree, tensor_bytes
from tests.checkpoint.test_read_torch import CONTAINERS, Net, numbers


def without_id(data: bytes) -> bytes:
    """The bytes of a .pt file, less its serialization id and that record's two checksums."""
    data = re.sub(rb"(?<=Z)\d{40}PK\x07\x08....", b"", data, flags=re.DOTALL)
    at = data.rindex(b"PK\x01\x02")
    return data[: at + 16] + data[at + 20 :]


def rewritten(tmp_path: Path, value: Any) -> tuple[Path, Path]:
    """torch's file of ``value``, and ours of what we read from it, under the same name."""
    theirs, ours = tmp_path / "theirs" / "m.v1.pt", tmp_path / "ours" / "m.v1.pt"
    for path in (theirs, ours):
        path.parent.mkdir()
    torch.save(value, theirs)
    save(load(theirs), ours)
    return theirs, ours


def same_bytes(tmp_path: Path, value: Any) -> None:
    theirs, ours = rewritten(tmp_path, value)
    pickles = [zipfile.ZipFile(path).read("m.v1/data.pkl") for path in (theirs, ours)]
    assert pickles[0] == pickles[1]
    assert without_id(theirs.read_bytes()) == without_id(ours.read_bytes())


def test_state_dict_has_the_same_bytes(tmp_path: Path) -> None:
    same_bytes(tmp_path, Net().state_dict())


def test_many_layers_have_the_same_bytes(tmp_path: Path) -> None:
    layers = [torch.nn.Linear(2, 2) for _ in range(600)]
    same_bytes(tmp_path, torch.nn.Sequential(*layers).state_dict())


def test_training_checkpoint_has_the_same_bytes(tmp_path: Path) -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.head(model.norm(model.embed(torch.arange(5)))).sum().backward()
    optimizer.step()
    same_bytes(tmp_path, {"model": model.state_dict(), "opt": optimizer.state_dict(), "epoch": 7})


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", [name for name in TORCH_DTYPES if name != "float4_e2m1fn_x2"])
def test_every_dtype_has_the_same_bytes(tmp_path: Path, name: str) -> None:
    tensor = numbers(getattr(torch, name))
    same_bytes(
        tmp_path, OrderedDict(a=tensor, b=tensor[:6].clone().reshape(2, 3), c=tensor[:0].clone())
    )


@pytest.mark.parametrize("name", sorted(set(CONTAINERS) - {"device", "scalars", "size"}))
def test_every_container_has_the_same_bytes(tmp_path: Path, name: str) -> None:
    same_bytes(tmp_path, CONTAINERS[name])


def test_dense_layouts_have_the_same_bytes(tmp_path: Path) -> None:
    image = torch.arange(48.0).reshape(2, 2, 3, 4)
    layouts = [image.to(memory_format=torch.channels_last), image.permute(3, 1, 0, 2), image[0].mT]
    same_bytes(tmp_path, [layout.clone() for layout in layouts])


def test_scalars_and_bytes_survive(tmp_path: Path) -> None:
    _, ours = rewritten(tmp_path, CONTAINERS["scalars"])
    assert torch.load(ours, weights_only=True) == CONTAINERS["scalars"]


@pytest.mark.parametrize("size", [999, 1000, 1001, 2000])
def test_batches_follow_pythons_pickler(tmp_path: Path, size: int) -> None:
    keys = [f"k{i}" for i in range(size)]
    same_bytes(tmp_path, {"d": dict.fromkeys(keys), "o": OrderedDict.fromkeys(keys), "l": keys})


@pytest.mark.parametrize("number", [-1, -128, -129, 2**31, -(2**31) - 1, 2**63, -(2**63), 2**100])
def test_integers_follow_pythons_pickler(tmp_path: Path, number: int) -> None:
    same_bytes(tmp_path, number)


def test_ties_share_storage(tmp_path: Path) -> None:
    array = np.ones((2, 3), np.float32)
    twin = array.view()
    content = {"a": array, "b": array, "twin": twin, "copy": array.copy(), "part": array[0]}
    save(content, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    pointers = {key: value.untyped_storage().data_ptr() for key, value in theirs.items()}
    assert pointers["a"] == pointers["b"] == pointers["twin"] == pointers["part"]
    assert pointers["copy"] != pointers["a"]


ARRAYS: dict[str, Any] = {
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "reversed": np.arange(6)[::-1],
    "every other": np.arange(10, dtype=np.int16)[::2],
    "broadcast": np.broadcast_to(np.float32(2), (3, 2)),
    "scalar": np.array(3.0),
    "numpy scalar": np.float32(0.1),
    "empty": np.zeros((0, 3), np.int8),
    "big endian": np.arange(3, dtype=">i4"),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "bfloat16": np.arange(3).astype(ml_dtypes.bfloat16),
    "jax": jnp.arange(6.0).reshape(2, 3),
    "jax bfloat16": jnp.ones(3, jnp.bfloat16),
    "jax float8": jnp.ones(3, jnp.float8_e4m3fn),
    "jax scalar": jnp.float32(2),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_every_array_reaches_torch(tmp_path: Path, name: str) -> None:
    value = ARRAYS[name]
    save({"x": value}, tmp_path / "m.pt")
    tensor = torch.load(tmp_path / "m.pt", weights_only=True)["x"]
    array = np.asarray(value)
    native = array.astype(array.dtype.newbyteorder("="))
    assert tuple(tensor.shape) == array.shape
    assert tensor_bytes(tensor) == native.tobytes()
    assert_agree(load(tmp_path / "m.pt")["x"], tensor)


def test_state_dict_metadata_reaches_torch(tmp_path: Path) -> None:
    metadata = {"": {"version": 1}, "norm": {"version": 2}}
    save(StateDict({"norm.weight": np.ones(2)}, metadata=metadata), tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert type(theirs) is OrderedDict
    assert dict(theirs._metadata) == metadata  # pyright: ignore[reportAttributeAccessIssue]


def test_memory_mapping_reads_it(tmp_path: Path) -> None:
    save({"x": np.arange(1000.0)}, tmp_path / "m.pt")
    tensor = torch.load(tmp_path / "m.pt", weights_only=True, mmap=True)["x"]
    assert tensor.tolist() == list(range(1000))
    assert tensor.data_ptr() % 64 == 0


def test_equal_objects_give_equal_files(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        name = "".join(["wei", "ght"])
        save({name: np.ones(3), "set": {"x", "y", "z"}, "again": name}, tmp_path / folder / "m.pt")
    assert (tmp_path / "a/m.pt").read_bytes() == (tmp_path / "b/m.pt").read_bytes()


@pytest.mark.parametrize("name", ["m.v1.pt", ".hidden.pt", "plain", "käse.pt", "a.tar.gz"])
def test_folder_is_called_as_torch_calls_it(tmp_path: Path, name: str) -> None:
    torch.save({}, tmp_path / name)
    assert zipfile.ZipFile(tmp_path / name).namelist()[0] == f"{folder_name(name)}/data.pkl"


def test_records_beyond_4_gib(tmp_path: Path) -> None:
    """The 64-bit fields, met early: readers take them at any size."""
    small = tmp_path / "m.pt"
    save({"x": np.arange(500.0), "y": np.ones(3)}, small)
    names = zipfile.ZipFile(small).namelist()
    wide = tmp_path / "wide.pt"
    with open(wide, "wb") as file:
        archive = ZipWriter(file, "m", wide=2000)
        for name in names:
            archive.add(name.partition("/")[2], zipfile.ZipFile(small).read(name))
        archive.close()
    assert zipfile.ZipFile(wide).testzip() is None
    theirs = torch.load(wide, weights_only=True)
    assert theirs["x"].tolist() == list(range(500))
    assert_agree(load(wide), theirs)


UNWRITABLE: list[tuple[Any, str]] = [
    (object(), r"entry \"object\['a'\]\[1\]\": a builtins.object cannot be saved"),
    (np.array(["a"]), "an array of <U1, for which PyTorch has no tensor"),
    (np.array([None]), "an array of object"),
    (np.zeros(2, ml_dtypes.int4), "an array of int4"),
    (1 << 5000, "an integer beyond 255 bytes"),
    ({object(): 1}, "a dictionary key of type object"),
    (np.dtype("datetime64[s]"), "PyTorch has no dtype"),
    (np.linalg.norm, "cannot be saved"),
    (jax.random.key(0), r"entry \"object\['a'\]\[1\]\": .*jax.random.key_data"),
    (np.ma.masked_array([1.0, 2.0], [True, False]), "a masked array"),
]


@pytest.mark.parametrize(("value", "text"), UNWRITABLE)
def test_what_cannot_be_written_is_named(tmp_path: Path, value: Any, text: str) -> None:
    path = tmp_path / "m.pt"
    path.write_text("old")
    with pytest.raises(Unwritable, match=text) as caught:
        save({"a": [1, value]}, path)
    assert isinstance(caught.value, CheckpointError | TypeError)
    assert "m.pt" in str(caught.value)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["m.pt"]


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    with pytest.raises(Unwritable, match="nested more than 100 deep"):
        save(value, tmp_path / "m.pt")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pt"
    save({"x": np.ones(2)}, path)
    before = path.read_bytes()

    def fail(*args: Any, **options: Any) -> None:
        write_torch_zip(*args, **options)
        raise OSError("disk full")

    monkeypatch.setattr("bridge.checkpoint._write_zip.write_torch_zip", fail)
    with pytest.raises(OSError, match="disk full"):
        save({"x": np.zeros(2)}, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.pt"]


def test_mode_follows_the_umask_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "m.pt"
    link.symlink_to(tmp_path / "real" / "target.pt")
    old = os.umask(0o027)
    try:
        save({"x": np.ones(2)}, link)
    finally:
        os.umask(old)
    assert link.is_symlink()
    assert (tmp_path / "real/target.pt").stat().st_mode & 0o777 == 0o640


def test_counter_is_a_counter(tmp_path: Path) -> None:
    save(Counter("abca"), tmp_path / "m.pt")
    assert torch.load(tmp_path / "m.pt", weights_only=True) == Counter("abca")


def test_neither_jax_nor_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys, numpy, bridge.checkpoint as c;"
        f"c.save({{'x': numpy.ones(2)}}, {str(tmp_path / 'm.pt')!r});"
        f"c.load({str(tmp_path / 'm.pt')!r});"
        "print([m for m in ('jax', 'torch', 'purestate', 'equinox') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_deepest_nesting_that_is_written_is_read(tmp_path: Path) -> None:
    value: Any = np.ones(2)
    for _ in range(50):
        value = {"a": (value, 1, 2, 3)}
    save(value, tmp_path / "m.pt")
    assert_agree(load(tmp_path / "m.pt"), torch.load(tmp_path / "m.pt", weights_only=True))
    with pytest.raises(Unwritable, match="nested more than 100 deep"):
        save([value], tmp_path / "m.pt")
