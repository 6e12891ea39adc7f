"""Parts of torch.distributed over the backend and over Gloo, whose results must be close.

usage: _peers.py CASE..., as a rank of a job; prints a line for each case that is right.
"""

import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

STEPS = 3


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 8))


def plain_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(4, 16, generator=generator), torch.randn(4, 8, generator=generator)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(STEPS):
        x, y = batch(step)
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()


def weights(model: nn.Module) -> torch.Tensor:
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in full])


def ddp() -> torch.Tensor:
    model = nn.parallel.DistributedDataParallel(model_of(), bucket_cap_mb=0.002)
    train(model, torch.optim.AdamW(model.parameters()))
    return weights(model)


def ddp_hooks() -> torch.Tensor:
    """A communication hook, unused parameters and a static graph."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = nn.parallel.DistributedDataParallel(plain_model(), static_graph=True)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    unused = plain_model()
    unused.add_module("unused", nn.Linear(2, 2))
    unused.forward = lambda x: nn.Sequential(*list(unused.children())[:3])(x)
    second = nn.parallel.DistributedDataParallel(unused, find_unused_parameters=True)
    train(second, torch.optim.SGD(second.parameters(), lr=0.1))
    return torch.cat([weights(model), weights(second)])


def ddp_sparse() -> torch.Tensor:
    """The gradient of an embedding has the rows that its rank has looked up."""
    torch.manual_seed(0)
    table = nn.EmbeddingBag(50, 16, mode="sum", sparse=True)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(table, nn.Linear(16, 8)))
    optimizers = [
        torch.optim.SparseAdam(table.parameters()),
        torch.optim.SGD(model.module[1].parameters(), lr=0.1),
    ]
    for step in range(STEPS):
        _, y = batch(step)
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        index = torch.randint(50, (4, 3 + dist.get_rank()), generator=generator)
        model.zero_grad()
        functional.mse_loss(model(index), y).backward()
        assert table.weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
    return weights(model)


def ddp_compiled() -> torch.Tensor:
    model = nn.parallel.DistributedDataParallel(plain_model())
    train(torch.compile(model, backend="aot_eager"), torch.optim.SGD(model.parameters(), lr=0.1))
    return weights(model)


def fsdp1() -> torch.Tensor:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(plain_model(), device_id=torch.device("cpu"))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with FullyShardedDataParallel.summon_full_params(model):
        return weights(model).clone()


def fsdp2() -> torch.Tensor:
    from torch.distributed.fsdp import fully_shard

    model = plain_model()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    train(model, torch.optim.AdamW(model.parameters()))
    return weights(model)


def hsdp() -> torch.Tensor:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = plain_model()
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.AdamW(model.parameters()))
    return weights(model)


def zero1() -> torch.Tensor:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(plain_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    train(model, optimizer)
    optimizer.consolidate_state_dict(to=0)
    return weights(model)


def dtensor() -> torch.Tensor:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(64.0).view(8, 8)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = torch.mm(rows, columns.redistribute(mesh, [Replicate()]))
    return torch.cat([columns.full_tensor().flatten(), product.full_tensor().flatten()])


def tensor_parallel() -> torch.Tensor:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = plain_model()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(4, 16)).sum().backward()
        optimizer.step()
    return weights(model)


def pipelining() -> torch.Tensor:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layer = nn.Linear(16, 16)
    stage = PipelineStage(layer, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=functional.mse_loss)
    x, target = torch.ones(8, 16), torch.zeros(8, 16)
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=target) if rank == size - 1 else schedule.step()
    return layer.weight.grad.flatten().clone()


def checkpoint() -> torch.Tensor:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        set_model_state_dict,
    )
    from torch.distributed.fsdp import fully_shard

    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    model = plain_model()
    fully_shard(model)
    expected = weights(model)
    dcp.save(get_model_state_dict(model), checkpoint_id=folder[0] + "/a")
    saving = dcp.async_save(get_model_state_dict(model), checkpoint_id=folder[0] + "/b")
    saving.result()
    for name in ("/a", "/b"):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        state = get_model_state_dict(model)
        dcp.load(state, checkpoint_id=folder[0] + name)
        assert torch.equal(weights(model), expected)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    from_rank_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    set_model_state_dict(model, whole, options=from_rank_0)
    assert torch.equal(weights(model), expected)
    return expected


def functional_collectives() -> torch.Tensor:
    """What torch.compile sees."""
    from torch.distributed import _functional_collectives as collectives

    group = dist.group.WORLD

    @torch.compile(backend="aot_eager", fullgraph=True)
    def body(x: torch.Tensor) -> torch.Tensor:
        y = collectives.all_reduce(x * 2, "sum", group)
        z = collectives.all_gather_tensor(y, 0, group)
        return collectives.reduce_scatter_tensor(z, "avg", 0, group) + 1

    return body(torch.arange(8.0) + dist.get_rank())


def run(case: str, backend: str) -> torch.Tensor:
    """With a store of its own: keys of an earlier group may outlive it in that of the job."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(f"{case}-{backend.replace(':', '-')}", size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        return copy.deepcopy(globals()[case]())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[1:]:
        ours = run(case, "cpu:regroup,cuda:gloo" if case == "fsdp2" else "regroup")
        torch.testing.assert_close(ours, run(case, "gloo"))
        print(f"{case}: rank {os.environ['RANK']} is close to Gloo", flush=True)
