"""Ends while a thread of the backend waits for the GIL, to free a tensor."""

import os
import sys
import time

import _without_compiler  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("regroup")
sys.setswitchinterval(1000)  # the main thread keeps the GIL to the end of Python
dist.all_reduce(torch.ones(256), async_op=True)
end = time.monotonic() + 0.2
while time.monotonic() < end:
    pass
if os.fork() == 0:
    sys.exit()  # it has no thread of the backend
_, status = os.wait()
print("the child's exit status is", status)
