"""A rank of the frameworks bench: times one case over Regroup and over Gloo by turns.

usage: ours_frameworks.py CASE BLOCKS FILE; rank 0 writes {side: [seconds]} to FILE.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
import torch
import torch.distributed as dist
from torch import nn

BUCKET = 24 << 20  # float32 elements: 96 MiB
RATE = 1e-3


def timed(step: Callable[[], object], group: dist.ProcessGroup, count: int) -> list[float]:
    """Seconds of each of `count` steps, which all ranks begin together."""
    dist.barrier(group=group)
    out = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        out.append(time.perf_counter() - began)
    return out


class AllReduce:
    """A sum of `elements` floats; `bucket`: in the memory that DistributedDataParallel gets."""

    def __init__(self, group: dist.ProcessGroup, elements: int, bucket: bool, count: int):
        self.group, self.count = group, count
        cpu = torch.device("cpu")
        backend = group._get_backend(cpu)
        if bucket and backend.supports_tensor_alloc(cpu):
            self.data = backend.allocate_tensor(elements, dtype=torch.float32, device=cpu)
        else:
            self.data = torch.empty(elements)
        self.data.zero_()

    def verify(self) -> None:
        self.data.copy_(torch.arange(self.data.numel()) % 1000 + dist.get_rank())
        dist.all_reduce(self.data, group=self.group)
        size = dist.get_world_size()
        expected = size * (torch.arange(self.data.numel()) % 1000) + size * (size - 1) / 2
        if not torch.equal(self.data, expected):
            raise common.BenchError("all_reduce: a wrong sum")
        self.data.zero_()

    def block(self) -> list[float]:
        step = lambda: dist.all_reduce(self.data, group=self.group)  # noqa: E731
        return timed(step, self.group, self.count)


class Training:
    """Steps of a model that `wrap` distributes over the group. `small`: what a rank computes is
    little."""

    def __init__(self, group: dist.ProcessGroup, layers: int, width: int, wrap: Callable):
        self.group = group
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.model = wrap(model, group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.x = torch.randn(1, width, generator=torch.Generator().manual_seed(dist.get_rank()))

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).square().mean().backward()
        self.optimizer.step()

    def weights(self) -> torch.Tensor:
        whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in self.parameters()]
        return torch.cat([p.detach().flatten() for p in whole])

    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def block(self) -> list[float]:
        return timed(self.step, self.group, 1)


def ddp(model: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, process_group=group)


def fsdp2(model: nn.Module, group: dist.ProcessGroup) -> nn.Module:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


CASES: dict[str, Callable] = {
    "all_reduce 64 B": lambda group: AllReduce(group, 16, False, 200),
    "all_reduce 96 MiB, a bucket of DDP": lambda group: AllReduce(group, BUCKET, True, 1),
    "all_reduce 96 MiB, ordinary memory": lambda group: AllReduce(group, BUCKET, False, 1),
    "DDP, 24 M parameters": lambda group: Training(group, 6, 2000, ddp),
    "FSDP2, 24 layers, 19 M parameters": lambda group: Training(group, 24, 890, fsdp2),
}


def verify_training(ours: Training, rival: Training) -> None:
    """The weights after two steps are close."""
    for _ in range(2):
        ours.step()
        rival.step()
    torch.testing.assert_close(ours.weights(), rival.weights())


def main() -> None:
    case, blocks, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("regroup")
    groups = {"regroup": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    made = {name: CASES[case](group) for name, group in groups.items()}
    if isinstance(made["gloo"], Training):
        verify_training(made["regroup"], made["gloo"])
    verify = {name: getattr(one, "verify", lambda: None) for name, one in made.items()}
    sides = [common.Side(name, verify[name], one.block) for name, one in made.items()]
    samples = common.alternate(sides, blocks)
    if dist.get_rank() == 0:
        file.write_text(json.dumps(samples))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
