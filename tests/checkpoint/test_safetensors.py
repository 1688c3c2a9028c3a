"""safetensors files, in both directions against the safetensors package."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from bridge import StateDict
from bridge.checkpoint import (
    BadFormat,
    Truncated,
    Unsafe,
    Unsupported,
    Unwritable,
    load,
    read_safetensors_metadata,
    save,
)
from bridge.checkpoint._dtypes import SAFETENSORS_CODE_OF, TORCH_DTYPES
from tests.checkpoint.agree import assert_agree, tensor_bytes
from tests.checkpoint.test_read_torch import numbers


DTYPES = [name for name, dtype in TORCH_DTYPES.items() if dtype in SAFETENSORS_CODE_OF]


def every_dtype() -> dict[str, torch.Tensor]:
    tensors = {f"{name}.x": numbers(getattr(torch, name), 6).reshape(2, 3) for name in DTYPES}
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.empty(0, 3)
    return tensors


def test_every_dtype_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(every_dtype(), path, metadata={"format": "pt", "note": "hello"})
    ours = load(path)
    assert type(ours) is StateDict
    assert ours.metadata == {}
    assert_agree(dict(ours), {name: load_file(path)[name] for name in ours})
    assert read_safetensors_metadata(path) == {"format": "pt", "note": "hello"}


def test_every_dtype_is_written(tmp_path: Path) -> None:
    source = tmp_path / "source.safetensors"
    save_file(every_dtype(), source)
    arrays = load(source)
    path = tmp_path / "m.safetensors"
    save(arrays, path)
    theirs = load_file(path)
    assert set(theirs) == set(every_dtype())
    for name, tensor in every_dtype().items():
        assert theirs[name].dtype == tensor.dtype
        assert tensor_bytes(theirs[name]) == tensor_bytes(tensor)
    assert_agree(dict(load(path)), {name: theirs[name] for name in arrays})


def test_order_of_names_is_kept_and_data_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    arrays = {
        "z": np.ones(16, np.float32),
        "odd": np.ones(3, np.int8),
        "a": np.ones(32, np.float16),
        "half": np.ones(1, np.float16),
    }
    save(arrays, path)
    assert list(load(path)) == list(arrays)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 64 == 0
    header = json.loads(data[8 : 8 + length])
    for name, array in arrays.items():
        begin = header[name]["data_offsets"][0]
        assert begin % (64 if array.nbytes % 64 == 0 else array.itemsize) == 0


def test_hugging_face_finds_the_format(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save({"x": jnp.ones(2)}, path)
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    save({"x": jnp.ones(2)}, path, metadata={"a": "b"})
    assert read_safetensors_metadata(path) == {"a": "b"}


def test_ties_are_written_for_each_name(tmp_path: Path) -> None:
    array = np.ones((2, 3), np.float32)
    save({"a": array, "b": array, "t": array.T}, tmp_path / "m.safetensors")
    theirs = load_file(tmp_path / "m.safetensors")
    assert theirs["a"].tolist() == theirs["b"].tolist() == array.tolist()
    assert theirs["t"].tolist() == array.T.tolist()


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save_file({"x": torch.ones(2)}, path)
    assert load(path)["x"].tolist() == [1, 1]
    other = tmp_path / "m.safetensors"
    torch.save({"x": torch.ones(2)}, tmp_path / "zip")
    other.write_bytes((tmp_path / "zip").read_bytes())
    assert load(other)["x"].tolist() == [1, 1]
    with pytest.raises(BadFormat, match="not a safetensors file"):
        read_safetensors_metadata(other)


def test_bfloat16_needs_no_jax(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"x": torch.ones(2, dtype=torch.bfloat16)}, path)
    code = (
        "import sys; from bridge.checkpoint import load;"
        f"print(load({str(path)!r})['x'].dtype, 'jax' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["bfloat16", "False"]


UNWRITABLE: list[tuple[Any, str]] = [
    ([np.ones(1)], "holds a mapping of names to arrays, not a list"),
    ({"a": {"b": np.ones(1)}}, "entry 'a': a .safetensors file has no place for a dict"),
    ({"a": 1.5}, "no place for a float"),
    ({"a": np.ones(1, np.complex128)}, "no place for a complex128 array"),
    ({1: np.ones(1)}, "1 cannot name a tensor"),
    ({"__metadata__": np.ones(1)}, "cannot name a tensor"),
    ({"\ud800": np.ones(1)}, "no valid text"),
]


@pytest.mark.parametrize(("value", "text"), UNWRITABLE)
def test_what_cannot_be_written_is_named(tmp_path: Path, value: Any, text: str) -> None:
    with pytest.raises(Unwritable, match=text):
        save(value, tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


def build(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with the given header text."""
    raw = header.encode() if isinstance(header, str) else header
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def entry(dtype: str = '"U8"', shape: str = "[1]", offsets: str = "[0,1]") -> str:
    return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


REFUSED: dict[str, tuple[bytes, str]] = {
    "trailing byte": (build(f'{{"a":{entry()}}}', b"12"), "belong to no tensor"),
    "short data": (build(f'{{"a":{entry()}}}'), "tensors take 1 bytes, but 0 are left"),
    "gap": (build(f'{{"a":{entry(offsets="[1,2]")}}}', b"12"), "leave a gap"),
    "overlap": (build(f'{{"a":{entry()},"b":{entry()}}}', b"1"), "overlap"),
    "duplicate": (build(f'{{"a":{entry()},"a":{entry()}}}', b"1"), "'a' occurs twice"),
    "backwards": (build(f'{{"a":{entry(offsets="[1,0]")}}}', b"1"), "needs 1 bytes, but has -1"),
    "three offsets": (build(f'{{"a":{entry(offsets="[0,1,2]")}}}', b"1"), "must be two numbers"),
    "negative": (build(f'{{"a":{entry(shape="[-1]")}}}', b"1"), "natural number, not -1"),
    "float": (build(f'{{"a":{entry(shape="[1.0]")}}}', b"1"), "natural number"),
    "bool": (build(f'{{"a":{entry(shape="[true]")}}}', b"1"), "natural number, not True"),
    "text shape": (build(f'{{"a":{entry(shape="[[1]]")}}}', b"1"), "natural number"),
    "huge": (build(f'{{"a":{entry(shape=f"[{2**70}]")}}}', b"1"), "needs"),
    "endless": (build(f'{{"a":{entry(shape="[" + "9" * 5000 + "]")}}}', b"1"), "not valid JSON"),
    "huge empty": (
        build(f'{{"a":{entry(shape=f"[0,{2**62},8]", offsets="[0,0]")}}}'),
        "larger than any array",
    ),
    "unknown dtype": (build(f'{{"a":{entry(dtype=chr(34) + "u8" + chr(34))}}}', b"1"), "unknown"),
    "list dtype": (build(f'{{"a":{entry(dtype="[]")}}}', b"1"), "unknown dtype"),
    "metadata value": (build('{"__metadata__":{"a":1}}'), "must map text to text"),
    "metadata list": (build('{"__metadata__":[]}'), "must map text to text"),
    "no entry": (build('{"a":1}'), "dtype, shape and data_offsets"),
    "array": (build('{"a":[]} '), "dtype, shape and data_offsets"),
    "nan": (build('{"a":NaN}'), "NaN is not JSON"),
    "long numbers": (
        build(f'{{"a":{entry(shape="[" + ",".join(["9" * 4000] * 2) + "]")}}}', b"1"),
        "a whole number of 4000 digits",
    ),
    "deep": (build('{"a":' + "[" * 100_000), "not valid JSON"),
    "bad utf-8": (build(b'{"a\xff":1}'), "not valid JSON"),
    "surrogate": (build(f'{{"\\ud800":{entry()}}}', b"1"), "no valid text"),
    "nul after json": (build("{}\0"), "not valid JSON"),
    "length beyond file": (build("{}", length=1000), "header has 1000 bytes"),
    "length beyond cap": (build("{}", length=1 << 40), "no checkpoint"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forged_files_are_refused(tmp_path: Path, name: str) -> None:
    data, text = REFUSED[name]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(BadFormat, match=text) as caught:
        load(path)
    assert str(path) in str(caught.value)
    # Nothing is refused here that the reference accepts, but for repeated names and huge shapes.
    if name not in ("duplicate", "huge empty"):
        with pytest.raises(SafetensorError):
            load_file(path)


def test_numbers_packed_across_bytes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(build(f'{{"a":{entry(dtype=chr(34) + "F6_E2M3" + chr(34))}}}', b"1"))
    with pytest.raises(Unsupported, match=r"entry 'a'.*type F6_E2M3"):
        load(path)


ACCEPTED = {
    "spaces": build(f' \n\t{{"a":{entry()}}}  \n', b"1"),
    "null metadata": build(f'{{"__metadata__":null,"a":{entry()}}}', b"1"),
    "odd name": build(f'{{"../x\\u0000":{entry()}}}', b"1"),
    "empty name": build(f'{{"":{entry()}}}', b"1"),
    "no tensors": build("{}"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_files_are_read_as_the_reference_reads_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(ACCEPTED[name])
    assert_agree(dict(load(path)), load_file(path))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"x": torch.ones(3), "y": torch.ones(2)}, path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(Truncated):
            load(path)


def test_a_shape_of_many_sizes_is_refused_before_they_are_multiplied(tmp_path: Path) -> None:
    shape = "[" + ",".join(["9" * 19] * 60_000) + "]"
    (tmp_path / "m.safetensors").write_bytes(build(f'{{"a":{entry(shape=shape)}}}', b"1"))
    with pytest.raises(Unsupported, match="60000 dimensions; NumPy has 64 at most"):
        load(tmp_path / "m.safetensors")


def test_a_header_of_brackets_is_refused(tmp_path: Path) -> None:
    shape = "[" + "[]," * 400_000 + "[]]"
    (tmp_path / "m.safetensors").write_bytes(build(f'{{"a":{entry(shape=shape)}}}', b"1"))
    with pytest.raises(Unsafe, match=r"lists and objects in 12000.. bytes of JSON"):
        load(tmp_path / "m.safetensors")
