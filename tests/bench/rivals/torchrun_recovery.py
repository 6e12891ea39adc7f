"""How long torchrun needs until a job trains again after one of its workers was SIGKILLed.

torchrun stops the other workers and starts all of them again; the new ones meet through Gloo. The
time to the first step of the restarted job is measured. The job reads no checkpoint, which favours
it. Run by itself it prints the numbers; recovery.py calls measure().
"""

import os
import sys
from pathlib import Path

import programs
import steps
from programs import Job, LauncherJob, Measured, Work

# With torchrun's default a restarted job meets in the store of the one before: its workers find the
# addresses of dead ones, time out after 30 s and may never start again. A store of its own for each
# restart cures it.
ENVIRONMENT = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}


def train(log: str, work: Work) -> None:
    """One worker: the loop of a data-parallel job, its forward and backward pass replaced by busy
    time."""
    steps.die_with_parent()
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    restart, members = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_world_size()
    parameters = torch.nn.Parameter(torch.zeros(work.parameters))
    parameters.grad = torch.empty_like(parameters)
    optimizer = torch.optim.SGD([parameters], lr=1e-6)
    writer = steps.StepWriter(log)
    while True:
        steps.busy(work.compute_ms)
        parameters.grad.fill_(1.0)
        dist.all_reduce(parameters.grad)
        optimizer.step()
        writer.step(restart, members, parameters.grad[0].item(), parameters.grad[-1].item())


def measure(kills: int, work: Work, seed: int = 1, deadline_s: float = 120.0) -> Measured:
    """Starts a job, kills `kills` times, ends the job. The result is that of steps.measure_kills().
    Blocks: about 5 s, and 2 to 5 s a kill. Raises BenchError if a recovery takes over
    `deadline_s`."""

    def start(log: Path, output: Path) -> Job:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--local-addr",
            "127.0.0.1",
        ]
        command += ["--nproc-per-node", str(work.workers), "--max-restarts", "1000000"]
        command += programs.worker(__file__, log, work)
        env = {**os.environ, **ENVIRONMENT}
        # Without grace: the workers follow, die_with_parent().
        return LauncherJob("torchrun", command, env, output, grace_s=0)

    return programs.measure(start, kills, work, seed, deadline_s)


if __name__ == "__main__":
    programs.run("torchrun", programs.parser(__doc__).parse_args(), train, measure)
