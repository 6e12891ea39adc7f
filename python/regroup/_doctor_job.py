"""What `regroup doctor` runs as a job: python3 -m regroup._doctor_job ranks|training [kill]. Rank 0
prints the result as a line of JSON."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import statistics
import sys
import time

import torch

_SIZES = (("64 B", 16, 200), ("1 MiB", 1 << 18, 40), ("16 MiB", 1 << 22, 10))  # elements, times
_EPOCHS = 3


def ranks() -> None:
    """Times all_reduce over both backends, in turns, and compares the sums."""
    import regroup_torch
    import torch.distributed as dist

    regroup_torch.register()  # torch may have been told not to
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "regroup": dist.new_group(backend="regroup")}
    rows, equal = [], True
    for name, elements, times in _SIZES:
        samples: dict[str, list[float]] = {backend: [] for backend in groups}
        sums = {}
        for turn in range(times + 2):
            for backend, group in groups.items():
                generator = torch.Generator().manual_seed(dist.get_rank())
                values = torch.randint(-1000, 1000, (elements,), generator=generator).float()
                dist.barrier(group)
                begin = time.perf_counter()
                dist.all_reduce(values, group=group)
                if turn >= 2:  # the first ones set up
                    samples[backend].append(time.perf_counter() - begin)
                sums[backend] = values
        equal = equal and torch.equal(sums["gloo"], sums["regroup"])
        median = {backend: statistics.median(each) * 1e6 for backend, each in samples.items()}
        rows.append((name, median["regroup"], median["gloo"]))
    if dist.get_rank() == 0:
        print(json.dumps({"all_reduce": rows, "equal": equal}))
    dist.destroy_process_group()


def training(fault: str) -> None:
    """Trains for a few steps; with "kill" the member of rank 1 kills itself in the second."""
    import regroup.torch

    torch.manual_seed(0)
    inputs = torch.randn(96, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    session = regroup.torch.join(model, optimizer, data, batch_size=16, epochs=_EPOCHS)
    for step in session:
        for x, y in step:
            if fault == "kill" and step.number == 2 and session.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            step.backward(torch.nn.functional.mse_loss(model(x), y))
        step.apply()
    session.finish()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    if session.rank == 0:
        world = session.world
        result = {"weights": digest.hexdigest()[:16], "members": world.size}
        print(json.dumps({**result, "generation": world.generation}))


if __name__ == "__main__":
    if sys.argv[1] == "ranks":
        ranks()
    else:
        training(sys.argv[2] if len(sys.argv) > 2 else "")
