"""Distributed checkpoints: what torch puts together from them, and tables of contents that lie."""

import os
import pickle
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta

import bridge
from bridge._verify_files import verify
from bridge.checkpoint import BadFormat, CheckpointError, Damaged, Truncated, Unsafe, Unsupported, load
from bridge.checkpoint._chunks import Chunked
from bridge.checkpoint._dcp import read_dcp
from purestate import nn
from tests.checkpoint.agree import assert_agree
from tests.checkpoint.dcp_job import model as job_model, tensors
from tests.checkpoint.test_parts import read_so_far


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning:torch")


def saved(folder: Path, value: dict[str, Any]) -> Path:
    state_dict_saver.save(value, checkpoint_id=folder, no_dist=True)
    return folder


def by_torch(folder: Path) -> Any:
    """What torch makes of a distributed checkpoint."""
    whole = folder.with_suffix(".whole.pt")
    dcp_to_torch_save(folder, whole)
    return torch.load(whole, weights_only=False)


def plain(value: Any) -> Any:
    """Without the kinds of dictionaries, which are not kept, and sorted, as torch mixes the order."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    return [plain(item) for item in value] if isinstance(value, list) else value


def everything() -> dict[str, Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return {
        "model": net.state_dict(),
        "optim": optimizer.state_dict(),
        "epoch": 3,
        "list": [torch.ones(2), {"a": 5, "b": [1.5, torch.zeros(1, 0)]}],
        "tuple": (1, "two", None),
        "text": "a.b",
        "view": torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2),
        "half": torch.arange(5).to(torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "scalar": torch.tensor(2**40),
    }


def test_a_nested_checkpoint(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ck", everything())
    ours = load(folder)
    assert_agree(plain(ours), plain(by_torch(folder)))
    assert list(ours) == list(everything())
    assert list(ours["model"]) == list(everything()["model"])


def test_a_flat_checkpoint(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ck", tensors())
    ours = load(folder)
    assert type(ours) is bridge.StateDict
    assert_agree(dict(ours), tensors())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that two processes have written."""
    folder = tmp_path_factory.mktemp("job") / "ck"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "tests.checkpoint.dcp_job"]
    workers = [
        subprocess.Popen([*command, str(rank), port, str(folder)], stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return folder


def test_a_checkpoint_of_two_processes(job: Path) -> None:
    ours = load(job)
    assert_agree(plain(ours), plain(by_torch(job)))
    assert_agree(dict(ours["tensors"]), tensors())
    assert list(ours["model"]) == list(job_model().state_dict())
    state = ours["optim"]["state"]
    assert set(state["0.weight"]) == {"step", "exp_avg", "exp_avg_sq"}
    assert len({path for path in os.listdir(job) if path.endswith(".distcp")}) == 2
    lazily = read_dcp(str(job), together=False).value["tensors"]
    assert [len(lazily[name].chunks) for name in ("rows", "columns", "replicated")] == [2, 2, 1]


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))


@pytest.mark.parametrize("sharding", [None, "rows", "columns"])
def test_into_a_model(job: Path, sharding: str | None) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
    specs = {"rows": jax.P("x"), "columns": jax.P(None, "x")}
    placed = None if sharding is None else jax.NamedSharding(mesh, specs[sharding])
    model, report = bridge.load_checkpoint(Net(), job, sharding=placed)
    assert report.inside == ("model",)
    assert [Path(file).name for file in report.files] == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    expected = by_torch(job)["model"]
    ours = bridge.state_dict(model)
    assert list(ours) == list(job_model().state_dict())
    for name, tensor in expected.items():
        assert np.array_equal(np.asarray(ours[name]), tensor.numpy()), name


def test_hooks_and_upgrades_see_whole_arrays(job: Path) -> None:
    class Doubled(Net):
        def upgrade_state_dict(self, state, version):
            return state

    def double(module, sd, *rest):
        sd["0.weight"] = sd["0.weight"] * 2

    hooked, _ = bridge.register_load_state_dict_pre_hook(Net(), double)
    for model in (hooked, bridge.register_load_state_dict_pre_hook(Doubled(), double)[0]):
        loaded, _ = bridge.load_checkpoint(model, job)
        expected = by_torch(job)["model"]["0.weight"].numpy() * 2
        assert np.array_equal(np.asarray(bridge.state_dict(loaded)["0.weight"]), expected)


def test_a_part_reads_only_its_blocks(tmp_path: Path) -> None:
    tensor = torch.arange(4_000_000.0).reshape(4000, 1000)
    folder = saved(tmp_path / "ck", {"x": tensor, "other": torch.ones(1_000_000)})
    value = read_dcp(str(folder), together=False).value["x"]
    assert isinstance(value, Chunked)
    before = read_so_far()
    part = value.part((slice(1000, 1500), slice(None)))
    assert read_so_far() - before < part.nbytes + 100_000
    assert np.array_equal(part, tensor[1000:1500].numpy())


def test_skimming_reads_no_numbers(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ck", {"x": torch.ones(1000, 1000), "n": 3})
    before = read_so_far()
    value = read_dcp(str(folder), skim=True).value
    assert read_so_far() - before < 100_000
    assert (value["x"].shape, value["x"].dtype, value["n"]) == ((1000, 1000), np.float32, 3)


def change(folder: Path, edit: Callable[[Any], Any]) -> None:
    """Rewrite a checkpoint's table of contents."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    edit(metadata)
    path.write_bytes(pickle.dumps(metadata, protocol=4))


def info(metadata: Any, name: str = "x") -> Any:
    return next(value for key, value in metadata.storage_data.items() if key.fqn == name)


def entry(metadata: Any, name: str = "x") -> Any:
    return metadata.state_dict_metadata[name]


def put(target: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(target, name, value)


LIES: dict[str, tuple[Callable[[Any], Any], type[CheckpointError], str]] = {
    "a path": (lambda m: put(info(m), relative_path="../x/__0_0.distcp"), Unsafe, "is a path"),
    "an absolute path": (lambda m: put(info(m), relative_path="/etc/passwd"), Unsafe, "is a path"),
    "no file": (lambda m: put(info(m), relative_path="gone.distcp"), Truncated, "is missing"),
    "the table itself": (
        lambda m: put(info(m), relative_path=".metadata"),
        CheckpointError,
        "ck",
    ),
    "beyond the end": (lambda m: put(info(m), offset=10**9), Truncated, "are needed"),
    "a negative byte": (lambda m: put(info(m), offset=-1), BadFormat, "natural number"),
    "a byte off": (
        lambda m: put(info(m, "y"), offset=info(m, "y").offset + 4),
        CheckpointError,
        "ck",
    ),
    "two at one place": (lambda m: put(info(m), offset=info(m, "y").offset), BadFormat, "two items"),
    "too short": (lambda m: put(info(m), length=8), BadFormat, "is said to lie in 8"),
    "another": (
        lambda m: (
            (a := info(m), b := info(m, "y"), o := a.offset, n := a.length)
            and (put(a, offset=b.offset, length=b.length), put(b, offset=o, length=n))
        ),
        BadFormat,
        r"is float32 \(2, 6\), not float32 \(3, 4\)",
    ),
    "another dtype": (
        lambda m: put(entry(m).properties, dtype=torch.int32),
        BadFormat,
        r"is float32 \(3, 4\), not int32",
    ),
    "a hole": (lambda m: put(entry(m), size=torch.Size([4, 4])), BadFormat, "have 12 of its elements"),
    "outside": (lambda m: put(entry(m), size=torch.Size([2, 4])), BadFormat, "outside of the shape"),
    "too large": (lambda m: put(entry(m), size=torch.Size([2**62, 4])), BadFormat, "than any array"),
    "a block twice": (lambda m: put(entry(m), chunks=entry(m).chunks * 2), BadFormat, "overlap"),
    "no block": (lambda m: put(entry(m), chunks=[]), BadFormat, "have 0 of its elements"),
    "no place": (
        lambda m: m.storage_data.pop(MetadataIndex("x", torch.Size([0, 0]))),
        BadFormat,
        "is not said",
    ),
    "through something": (
        lambda m: put(info(m), transform_descriptors=["zstd"]),
        Unsupported,
        "stored through",
    ),
    "a long list": (lambda m: m.planner_data.update(x=("l", 10**12)), BadFormat, "a list of"),
    "inside a value": (
        lambda m: m.planner_data.update(x=("y",), y=("y", "z")),
        BadFormat,
        "at a place inside",
    ),
    "two at one key": (lambda m: m.planner_data.update(x=("y",)), BadFormat, "at one place"),
    "a list and a dictionary": (
        lambda m: m.planner_data.update(x=("l", 0), y=("l", "a")),
        BadFormat,
        "at once",
    ),
    "no tuple": (lambda m: m.planner_data.update(x="y"), BadFormat, "must be a tuple"),
    "a deep place": (lambda m: m.planner_data.update(x=("y",) * 10**5), BadFormat, "must be a tuple"),
    "many dimensions": (
        lambda m: put(entry(m), size=torch.Size([1] * 100)),
        Unsupported,
        "100 dimensions",
    ),
    "a block of other dimensions": (
        lambda m: put(entry(m).chunks[0], sizes=torch.Size([12])),
        BadFormat,
        "has other dimensions",
    ),
    "sparse": (lambda m: put(entry(m).properties, layout=torch.sparse_coo), Unsupported, "layout"),
    "code": (lambda m: put(m, storage_meta=os.system), Unsafe, "asks Python for"),
    "another key": (lambda m: m.storage_data.update({m.storage_meta: 1}), BadFormat, "is expected"),
    "no dictionary": (lambda m: put(m, storage_data=[1]), BadFormat, "must be a dictionary"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_table_of_contents_that_lies(
    tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, kind, problem = LIES[lie]
    value = {"x": torch.arange(12.0).reshape(3, 4), "y": torch.arange(12.0).reshape(2, 6)}
    folder = saved(tmp_path / "ck", value)
    monkeypatch.setattr(StorageMeta, "__hash__", object.__hash__)
    change(folder, edit)
    with pytest.raises(kind, match=problem) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.99])
def test_a_table_of_contents_that_is_cut(tmp_path: Path, keep: float) -> None:
    folder = saved(tmp_path / "ck", tensors())
    data = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(CheckpointError):
        load(folder)


def test_every_changed_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ck", {"x": torch.arange(6.0).reshape(2, 3), "n": 3})
    data = (folder / ".metadata").read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.permutation(len(data))[:400]:
        changed = bytearray(data)
        changed[place] ^= int(rng.integers(1, 256))
        (folder / ".metadata").write_bytes(changed)
        try:
            load(folder)
        except CheckpointError:
            refused += 1
    assert refused > 200


def test_compressed_archives_are_no_larger_than_they_are(tmp_path: Path) -> None:
    """There may be any number of them, and what each holds is kept."""
    folder = saved(tmp_path / "ck", {"n": [1]})
    file = next(folder.glob("*.distcp"))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "m/data.pkl", b"\x80\x02X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20) + b"."
        )
    size = file.stat().st_size
    change(folder, lambda m: [put(value, offset=0, length=size) for value in m.storage_data.values()])
    with pytest.raises(Unsafe, match="compressed records claim"):
        load(folder)


def test_names_that_share_a_record_are_read_in_time(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ck", {"x": torch.zeros(2)})

    def share(metadata: Any) -> None:
        one = entry(metadata)
        put(one, chunks=one.chunks * 20_000)
        metadata.state_dict_metadata.update((str(n), one) for n in range(20_000))

    change(folder, share)
    start = time.monotonic()
    with pytest.raises(BadFormat, match="overlap"):
        load(folder)
    assert time.monotonic() - start < 10


def test_a_changed_byte_is_told_by_the_checksums_of_the_archives(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", {"w": torch.arange(500.0), "n": 3})
    assert load(folder, verify=True)["n"] == 3
    path = folder / "__0_0.distcp"
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(200, 210, dtype=np.float32).tobytes()) + 6] ^= 1
    path.write_bytes(data)
    assert load(folder)["n"] == 3
    with pytest.raises(Damaged, match=r"__0_0.distcp at byte \d+, .*crc32"):
        load(folder, verify=True)


def test_an_item_whose_start_is_damaged_is_damaged(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", {"w": torch.arange(500.0)})
    path = folder / "__0_0.distcp"
    data = bytearray(path.read_bytes())
    assert data[:4] == b"PK\3\4"
    path.write_bytes(bytes(byte ^ 0xFF for byte in data[:4]) + data[4:])
    for verified in (False, True):
        with pytest.raises(
            BadFormat, match=r"__0_0.distcp', (entry 'w', )?byte 0: an item that is no archive"
        ):
            load(folder, verify=verified)
    assert verify(str(folder)).fault == "damaged"
    # Another format that torch can be told to write is not damage.
    item = safetensors.torch.save({"w": torch.arange(500.0)})
    path.write_bytes(item + bytes(len(data) - len(item)))
    with pytest.raises(Unsupported, match="safetensors"):
        load(folder)
    assert verify(str(folder)).fault == "not supported"
