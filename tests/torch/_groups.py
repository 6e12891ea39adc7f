"""Groups of fewer ranks, from a group of four.

usage: _groups.py [HOSTS [python]], as a rank of a job; HOSTS: as if the ranks were on so many.
python: expects the group in Python, which cannot shrink.
"""

import datetime
import os
import sys

import _without_compiler  # noqa: F401
import torch
import torch.distributed as dist


def total(group: dist.ProcessGroup | None = None) -> float:
    """Of the ranks of the job that are in the group."""
    data = torch.tensor([float(RANK)])
    dist.all_reduce(data, group=group)
    return data.item()


def refusal(call, *arguments, **options) -> str:
    try:
        call(*arguments, **options)
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("expected a refusal")


def check_a_group_without_a_rank() -> None:
    """Of a group whose ranks are those of the job: torch 2.13 mixes them up for others."""
    three = dist.new_group([0, 1, 2])
    if RANK in (0, 2):
        two = dist.shrink_group([1], group=three)
        assert dist.get_process_group_ranks(two) == [0, 2]
        assert dist.get_rank(two) == RANK // 2 and total(two) == 2


def check_the_world_without_a_rank_that_hangs() -> None:
    if RANK == 3:
        STORE.wait(["over"])
        STORE.set("seen", "1")
        return
    work = dist.all_reduce(torch.ones(1), async_op=True)
    dist.shrink_group([3], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    assert "the group was aborted" in refusal(work.wait)
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, 3)
    assert total() == 3
    dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=60))
    found = [None] * 3
    dist.all_gather_object(found, RANK)
    assert found == [0, 1, 2]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    model(torch.full((1, 2), float(RANK))).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.0, 1.0]]
    dist.barrier()
    dist.destroy_process_group()
    if RANK == 0:
        STORE.set("over", "1")  # the store is in this process
        STORE.wait(["seen"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ["REGROUP_TORCH_HOST"] = f"host {int(os.environ['RANK']) % int(sys.argv[1])}"
    dist.init_process_group("regroup", timeout=datetime.timedelta(seconds=60))
    RANK = dist.get_rank()
    STORE = dist.distributed_c10d._get_default_store()
    if not torch.accelerator.is_available():
        said = refusal(dist.split_group, split_ranks=[[0, 1], [2, 3]])
        assert said.startswith("RuntimeError: No device associated with the default pg"), said
    if "python" in sys.argv:
        said = refusal(dist.shrink_group, [3 - RANK])
        assert said.endswith("does not support shrinking operations."), said
    else:
        check_a_group_without_a_rank()
        check_the_world_without_a_rank_that_hangs()
    print(f"rank {RANK}: all right", flush=True)
