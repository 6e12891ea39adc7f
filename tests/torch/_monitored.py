"""Monitored barriers that all pass, then one that two of four ranks do not enter."""

import datetime

import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("regroup")
    rank, world = dist.get_rank(), dist.group.WORLD
    for wait_all in (False, True):
        world.monitored_barrier(datetime.timedelta(seconds=60), wait_all_ranks=wait_all)
        print(f"rank {rank}: all passed")
    store = dist.FileStore("over", 4)
    try:
        if rank in (1, 3):
            store.get("over")
        else:
            world.monitored_barrier(datetime.timedelta(seconds=3), wait_all_ranks=True)
    except RuntimeError as error:
        print(error)
    if rank == 0:
        store.set("over", "yes")
    dist.barrier()
    dist.destroy_process_group()
