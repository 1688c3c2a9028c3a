"""A sharded load: what each process reads, and how much memory it takes.

A file is written by torch or safetensors, and loaded by ``bridge.load_checkpoint(sharding=...)`` on
eight virtual devices of one process, and of two processes with four each (``jax.distributed``). Each
process counts the bytes it read (``/proc/self/io``) and how far its memory grew at most, next to the
bytes of the slices that its devices hold. The exit status is 1 when a process read more than its
slices and the tables of contents, or had a whole array in memory besides.
"""

import argparse
import gc
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table


DEVICES = 8
COLUMNS = 4096
LAYERS = 4
#: What reading tables of contents and running Python takes.
HEADERS = 1 << 20
#: Memory for everything but arrays: buffers, the table of a file, compiled programs.
ROOM = 24 << 20

KINDS = ("pt", "safetensors", "folder", "dcp")
LAYOUTS = ("rows", "columns", "replicas", "one device")


def numbers(layer: int, rows: Any, columns: Any) -> np.ndarray:
    """The values of a layer at these rows and columns, exact in float32."""
    places = np.asarray(rows)[:, None] * COLUMNS + np.asarray(columns) + layer * 1_000_003
    return (places % (1 << 20)).astype(np.float32)


def tensors(rows: int) -> dict[str, Any]:
    """The state dict, in torch: big weights, a bias each, and one array that no axis divides."""
    import torch

    result = {}
    for layer in range(LAYERS):
        weight = numbers(layer, range(rows), range(COLUMNS))
        result[f"layers.{layer}.weight"] = torch.from_numpy(weight)
        result[f"layers.{layer}.bias"] = torch.arange(COLUMNS, dtype=torch.float32)
    return result | {"odd": torch.arange(21.0).reshape(7, 3)}


def write(kind: str, folder: Path, rows: int) -> Path:
    """Write the state dict, with the library whose format it is."""
    import safetensors.torch
    import torch
    from torch.distributed.checkpoint import state_dict_saver

    sd = tensors(rows)
    path = folder / kind
    if kind == "pt":
        torch.save(sd, path)
    elif kind == "safetensors":
        safetensors.torch.save_file(sd, path, {"format": "pt"})
    elif kind == "dcp":
        state_dict_saver.save(sd, checkpoint_id=path, no_dist=True)
    else:
        path.mkdir()
        names = (f"model-{number:05d}-of-00002.safetensors" for number in itertools.cycle((1, 2)))
        home = dict(zip(sd, names, strict=False))
        for file in sorted(set(home.values())):
            part = {name: tensor for name, tensor in sd.items() if home[name] == file}
            safetensors.torch.save_file(part, path / file)
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": home}))
    return path


def io_read() -> int:
    """How many bytes this process has read."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def memory(field: str) -> int:
    """A figure of this process's memory, in bytes: VmRSS now, VmHWM at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def forget_peak() -> None:
    """Let VmHWM start from now."""
    Path("/proc/self/clear_refs").write_text("5")


def worker(process: int, processes: int, port: int, rows: int, paths: list[str]) -> None:
    """Load each file in each layout and print what it took, as JSON."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES // processes}"
    import jax

    if processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process, initialization_timeout=60)
    import bridge
    from purestate import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(jax.ShapeDtypeStruct((rows, COLUMNS), np.float32))
            self.bias = nn.Parameter(jax.ShapeDtypeStruct((COLUMNS,), np.float32))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
            self.odd = nn.Parameter(jax.ShapeDtypeStruct((7, 3), np.float32))

    mesh = jax.make_mesh(
        (2, DEVICES // 2), ("twice", "x"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    both = ("twice", "x")
    # "replicas": two devices have each slice; with two processes, each process has all slices.
    specs = {"rows": jax.P(both), "columns": jax.P(None, both), "replicas": jax.P("x")}
    for path in paths:
        for layout in LAYOUTS:
            sharding = jax.NamedSharding(mesh, specs[layout]) if layout in specs else None
            # The first time, JAX and Python load parts of themselves.
            for measured in (False, True):
                before, resident = io_read(), memory("VmRSS")
                forget_peak()
                start = time.perf_counter()
                model, report = bridge.load_checkpoint(Net(), path, sharding=sharding)
                seconds = time.perf_counter() - start
                if measured:
                    figures = {
                        "file": Path(path).name,
                        "layout": layout,
                        "process": process,
                        "read": io_read() - before,
                        "own": owned(model),
                        "reported": report.bytes,
                        "grown": memory("VmHWM") - resident,
                        "largest": rows * COLUMNS * 4,
                        "seconds": seconds,
                        "right": is_right(model),
                    }
                    print(json.dumps(figures), flush=True)
                del model
                gc.collect()


def owned(model: Any) -> int:
    """How many bytes the distinct slices have that this process's devices hold."""
    import jax

    return sum(
        sum({str(shard.index): shard.data.nbytes for shard in array.addressable_shards}.values())
        for array in jax.tree.leaves(model)
    )


def is_right(model: Any) -> bool:
    """Whether every slice here has the numbers that were written."""
    for layer, part in enumerate(model.layers):
        for shard in part.weight.addressable_shards:
            rows, columns = (
                range(n)[along] for n, along in zip(part.weight.shape, shard.index, strict=True)
            )
            for at in range(0, len(rows), 512):
                expected = numbers(layer, rows[at : at + 512], columns)
                if not np.array_equal(np.asarray(shard.data[at : at + 512]), expected):
                    return False
        for shard in part.bias.addressable_shards:
            if not np.array_equal(shard.data, np.arange(COLUMNS, dtype=np.float32)[shard.index]):
                return False
    return bool(np.array_equal(model.odd.addressable_data(0), np.arange(21.0).reshape(7, 3)))


def run(processes: int, rows: int, paths: list[Path], timeout: float) -> list[dict[str, Any]]:
    """Run the workers, and return what each printed for each file and layout."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        __name__ if __name__ != "__main__" else "tests.benchmarks.files_sharded",
    ]
    common = ["--processes", str(processes), "--port", str(port), "--rows", str(rows)]
    workers = [
        subprocess.Popen(
            [*command, "--worker", str(process), *common, *map(str, paths)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # What is freed goes back at once, so that memory says what is held.
            env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
        )
        for process in range(processes)
    ]
    figures = []
    try:
        for process in workers:
            output, errors = process.communicate(timeout=timeout)
            if process.returncode:
                raise RuntimeError(f"a worker ended with {process.returncode}:\n{errors[-4000:]}")
            figures += [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    finally:
        for process in workers:
            process.kill()
            process.wait()
    return figures


def faults(figures: dict[str, Any]) -> list[str]:
    """What is wrong with the figures of one load."""
    result = [] if figures["right"] else ["wrong numbers"]
    if figures["read"] > figures["own"] + HEADERS:
        result.append("read more than its slices")
    if figures["grown"] > figures["own"] + ROOM:
        result.append("held more than its slices")
    return result


def main(arguments: list[str]) -> None:
    """Write the files, run the workers, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--folder", help="where to write the files; a temporary folder if not given")
    options = parser.parse_args(arguments)
    rows = (options.megabytes << 20) // (LAYERS * COLUMNS * 4) // DEVICES * DEVICES
    table = Table("file", "layout", "process", "own MB", "read MB", "peak MB", "largest MB", "s", "")
    missed = False
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = write(kind, Path(folder), rows)
            for processes in (1, 2):
                for line in run(processes, rows, [path], timeout=600):
                    wrong = faults(line)
                    missed = missed or bool(wrong)
                    sizes = [f"{line[name] / 1e6:.1f}" for name in ("own", "read", "grown", "largest")]
                    who = f"{line['process'] + 1} of {processes}"
                    time = f"{line['seconds']:.2f}"
                    table.add_row(kind, line["layout"], who, *sizes, time, ", ".join(wrong) or "ok")
    Console().print(table)
    if missed:
        sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--worker", "--processes", "--port", "--rows"):
        parser.add_argument(name, type=int)
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    worker(options.worker, options.processes, options.port, options.rows, options.paths)
