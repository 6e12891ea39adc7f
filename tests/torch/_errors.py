"""Ways in which an operation fails; rank 0 prints each exception.

usage: _errors.py CASE..., as one of two ranks. A rank that does not form the group of a case forms
none later: "killed" and "late" come last.
"""

import datetime
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions


def wait_until_over(case: str) -> None:
    """Rank 0's operation, which needs this rank."""
    end = time.monotonic() + 60
    while not Path(f"{case}.over").exists() and time.monotonic() < end:
        time.sleep(0.01)


def fail(case: str, rank: int) -> None:
    seconds = datetime.timedelta(seconds=1 if case == "late" else 30)
    store = dist.FileStore(os.path.abspath(case), 2)
    if case == "late" and rank == 1:
        return
    if case == "killed" and rank == 1:
        # Not the end of this process itself, which would end the job: of a child in its place.
        if (child := os.fork()) != 0:
            os.waitpid(child, 0)
            return
        dist.init_process_group("regroup", store=store, rank=rank, world_size=2)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.init_process_group("regroup", store=store, rank=rank, world_size=2, timeout=seconds)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    data = torch.ones(4)
    if case == "mismatch" and rank == 1:
        dist.broadcast(data, 0)
    elif case == "timeout":
        if rank == 1:
            wait_until_over(case)
        backend.set_timeout(datetime.timedelta(seconds=1))
        dist.all_reduce(data)
    elif case == "dtype":
        dist.all_reduce(data.to(torch.float8_e4m3fn))
    elif case == "lists":
        backend.allgather([[data]], [data], AllgatherOptions()).wait()
    elif case == "aborted" and rank == 1:
        wait_until_over(case)
    elif case == "aborted":
        threading.Timer(0.2, backend.abort).start()
        dist.all_reduce(data)
    else:  # killed, mismatch
        dist.all_reduce(data)


if __name__ == "__main__":
    own = int(os.environ["RANK"])
    for one in sys.argv[1:]:
        try:
            fail(one, own)
        except Exception as error:  # noqa: BLE001
            if own == 0:
                print(f"{one}: {type(error).__name__}: {error}", flush=True)
                Path(f"{one}.over").touch()
        if dist.is_initialized():
            dist.destroy_process_group()
    os._exit(0)
