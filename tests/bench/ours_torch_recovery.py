"""Our side of the recovery bench through PyTorch: the rivals' loop, log and kills, under regroup.

Run by itself it prints the numbers; recovery.py calls measure().
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import common
import ours_recovery

sys.path.insert(0, str(Path(__file__).resolve().parent / "rivals"))
import programs  # noqa: E402
import steps  # noqa: E402
from programs import Job, LauncherJob, Measured, Work  # noqa: E402

TIMELINES = "REGROUP_BENCH_TIMELINES"  # the folder that members write them to


class Timeline:
    """A member's moments, as tests/bench/timeline.h writes them."""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(
            f"{folder}/timeline.{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        self.session = None

    def note(self, what: str, step: int) -> None:
        at, world = time.monotonic_ns(), self.session.world if self.session else None
        place = f"{world.generation} {world.size}" if world else "0 0"
        os.write(self._fd, f"{at} {what} {step} {place}\n".encode())


def train(log: str, work: Work) -> None:
    """One member: forward and backward are busy time and the gradient of a sum, which is all
    ones."""
    import regroup.torch
    import torch
    from torch import nn

    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(work.parameters))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    samples = torch.utils.data.TensorDataset(torch.zeros(work.workers))
    timeline = Timeline(os.environ[TIMELINES])
    session = regroup.torch.join(
        model, optimizer, samples, batch_size=work.workers, epochs=1_000_000, observer=timeline.note
    )
    timeline.session = session
    timeline.note("entered", 0)
    writer = steps.StepWriter(log)
    for step in session:
        timeline.note("open", step.number)
        for _ in step:
            steps.busy(work.compute_ms)
            model.weight.sum().backward()
        optimizer.step()
        timeline.note("applied", step.number)
        # The mean over the batch of ones is one: times the members it is what the rivals' sums are.
        first, last = (model.weight.grad[i].item() * session.size for i in (0, -1))
        writer.step(session.generation, session.size, first, last)


class SlowlyEnded(LauncherJob):
    """Its members do a few more steps after the last kill."""

    def __exit__(self, *error: object) -> None:
        time.sleep(0.5)
        super().__exit__(*error)


def measure(kills: int, work: Work, seed: int = 1, deadline_s: float = 120.0) -> Measured:
    """Starts a job, kills `kills` times, ends the job. The result is that of steps.measure_kills(),
    and by the same names as of C++ members what their timelines say."""
    workers = str(work.workers)
    killed: list[tuple[int, int]] = []

    def start(log: Path, output: Path) -> Job:
        command = [
            str(common.BIN / "regroup"),
            "--oversubscribe",
            "--initial-size",
            workers,
            "--shards",
            workers,
        ]
        command += ["-np", f"{work.workers - 1}:{work.workers}", sys.executable]
        command += programs.worker(__file__, log, work)
        env = {**os.environ, "XDG_RUNTIME_DIR": str(log.parent), TIMELINES: folder}
        return SlowlyEnded("regroup", command, env, output, grace_s=20)

    with tempfile.TemporaryDirectory(prefix="regroup-torch-") as folder:
        found = programs.measure(
            start, kills, work, seed, deadline_s, lambda *kill: killed.append(kill)
        )
        timelines = ours_recovery.read_timelines(Path(folder))
    listed = [ours_recovery.kill_during(at, pid, timelines[pid][-1]) for pid, at in killed]
    return ours_recovery.quantities(timelines, listed, work) | found


if __name__ == "__main__":
    programs.run("regroup-torch", programs.parser(__doc__).parse_args(), train, measure)
