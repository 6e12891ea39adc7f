"""One way in which an operation fails; rank 0 prints the exception.

usage: _errors.py CASE, as one of two ranks.
"""

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist


def run(case: str, rank: int) -> None:
    if case == "late":
        if rank == 1:
            return
        second = datetime.timedelta(seconds=1)
        store = dist.FileStore(os.environ["STORE"], 2)
        dist.init_process_group("regroup", store=store, rank=0, world_size=2, timeout=second)
    dist.init_process_group("regroup", timeout=datetime.timedelta(seconds=30))
    data = torch.ones(4)
    if case == "mismatch":
        dist.all_reduce(data) if rank == 0 else dist.broadcast(data, 0)
    elif case == "timeout":
        if rank == 1:
            time.sleep(3)
        group = dist.group.WORLD
        group._get_backend(torch.device("cpu")).set_timeout(datetime.timedelta(seconds=1))
        dist.all_reduce(data)
    elif case == "killed":
        # Not the end of this process itself, which would end the job: of a child in its place.
        dist.destroy_process_group()
        store = dist.FileStore(os.environ["STORE"], 2)
        child = os.fork() if rank == 1 else 0
        if rank == 1 and child != 0:
            os.waitpid(child, 0)
            return
        dist.init_process_group("regroup", store=store, rank=rank, world_size=2)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(data)
    elif case == "dtype":
        dist.all_reduce(data.to(torch.float8_e4m3fn))
    elif case == "lists":
        dist.group.WORLD._get_backend(torch.device("cpu")).allgather([[data]], [data]).wait()
    elif case == "aborted" and rank == 1:
        time.sleep(2)
    elif case == "aborted":
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        threading.Timer(0.2, backend.abort).start()
        dist.all_reduce(data)


if __name__ == "__main__":
    os.environ["STORE"] = os.path.abspath("store")
    own = int(os.environ["RANK"])
    try:
        run(sys.argv[1], own)
    except Exception as error:  # noqa: BLE001
        if own == 0:
            print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)
