"""Our side of the recovery bench through PyTorch: the rivals' loop, log and kills, under regroup.

Run by itself it prints the numbers; recovery.py calls measure().
"""

import os
import sys
from pathlib import Path

import common

sys.path.insert(0, str(Path(__file__).resolve().parent / "rivals"))
import programs  # noqa: E402
import steps  # noqa: E402
from programs import Job, LauncherJob, Measured, Work  # noqa: E402


def train(log: str, work: Work) -> None:
    """One member: forward and backward are busy time and the gradient of a sum, which is all ones."""
    import regroup.torch
    import torch
    from torch import nn

    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(work.parameters))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    samples = torch.utils.data.TensorDataset(torch.zeros(work.workers))
    session = regroup.torch.join(model, optimizer, samples, batch_size=work.workers, epochs=1_000_000)
    writer = steps.StepWriter(log)
    for step in session:
        for _ in step:
            steps.busy(work.compute_ms)
            model.weight.sum().backward()
        optimizer.step()
        # The mean over the batch of ones is one: times the members it is what the rivals' sums are.
        first, last = (model.weight.grad[i].item() * session.size for i in (0, -1))
        writer.step(session.generation, session.size, first, last)


def measure(kills: int, work: Work, seed: int = 1, deadline_s: float = 120.0) -> Measured:
    """Starts a job, kills `kills` times, ends the job. The result is that of steps.measure_kills()."""
    workers = str(work.workers)

    def start(log: Path, output: Path) -> Job:
        command = [str(common.BIN / "regroup"), "--oversubscribe", "--start", workers, "--shards", workers]
        command += ["-np", f"{work.workers - 1}:{workers}", sys.executable]
        command += programs.worker(__file__, log, work)
        env = {**os.environ, "XDG_RUNTIME_DIR": str(log.parent)}
        return LauncherJob("regroup", command, env, output, grace_s=20)

    return programs.measure(start, kills, work, seed, deadline_s)


if __name__ == "__main__":
    programs.run("regroup-torch", programs.parser(__doc__).parse_args(), train, measure)
