"""A member for test_divergence.py whose state goes apart from that of the others, or does not.

usage: _diverging.py numpy FAULT [DIR] | _diverging.py torch
FAULT: buffer=RANK,STEP (one value is another after that step) | export (rank 0 changes its weights
before finish()) | leave=STEP (rank 0 does so behind a break in that step). torch: member 1 dies in
step 12, and a scheduler is forgotten in join(). With DIR as a third word all wait in step 12 for a
checkpoint there.
"""

import os
import pathlib
import signal
import sys
import time

import numpy as np

STEPS = 100
member = int(os.environ.get("REGROUP_MEMBER", "0"))


def await_checkpoint(directory: str) -> None:
    end = time.monotonic() + 60
    while not list(pathlib.Path(directory).glob("step-*")):
        assert time.monotonic() < end, "no checkpoint in 60 s"
        time.sleep(0.01)


def train_numpy(fault: str, directory: str | None = None) -> None:
    import regroup

    weight, buffer = np.zeros(8, np.float32), np.zeros(4, np.float32)
    state = regroup.TrackedState(weight=weight, buffer=buffer)
    session = regroup.Session(state, elements=weight.size, samples=16, batch=16, epochs=STEPS)
    name, _, numbers = fault.partition("=")
    place = tuple(map(int, numbers.split(","))) if name == "buffer" else None
    for step in session:
        for shard in step:
            shard.gradient[:] = len(shard.samples) / step.samples
        weight -= 0.1 * step.gradient
        if directory and step.number == 12:
            await_checkpoint(directory)
        if name == "buffer" and place == (session.rank, step.number):
            buffer[2] += 1
        if name == "leave" and step.number == int(numbers):
            break
    if name in ("export", "leave") and session.rank == 0:
        weight[:] = 0
    session.finish()


def train_torch() -> None:
    import regroup.torch
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(32, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k))
    session = regroup.torch.join(model, optimizer, data, batch_size=16, epochs=10**6)
    for step in session:
        if member == 1 and step.number == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        for a, b in step:
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
        optimizer.step()
        scheduler.step()
        time.sleep(0.002)
    session.finish()


if sys.argv[1] == "numpy":
    train_numpy(*sys.argv[2:])
else:
    train_torch()
print("finished", flush=True)
