"""Two processes of a training job that save a distributed checkpoint (run by test_dcp)."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def tensors() -> dict[str, torch.Tensor]:
    """What the job shards in several ways; 7 rows do not divide by two."""
    return {
        "rows": torch.arange(28.0).reshape(7, 4),
        "columns": torch.arange(40).reshape(5, 8),
        "replicated": torch.arange(6.0).to(torch.bfloat16),
        "one row": torch.arange(4.0).reshape(1, 4),
    }


def model() -> torch.nn.Module:
    """A network whose parameters FSDP shards."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))


def main(rank: int, port: str, folder: str) -> None:
    """Save a checkpoint as one of two processes."""
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    kinds = {"rows": Shard(0), "columns": Shard(1), "replicated": Replicate(), "one row": Shard(0)}
    sharded = {name: distribute_tensor(t, mesh, [kinds[name]]) for name, t in tensors().items()}
    net = model()
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    torch.manual_seed(1)
    net(torch.randn(6, 5)).square().sum().backward()
    optimizer.step()
    state, optimizer_state = get_state_dict(net, optimizer)
    value = {"model": state, "optim": optimizer_state, "tensors": sharded}
    state_dict_saver.save(value, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
