"""How long torchrun needs until a job trains again after one of its workers was SIGKILLed.

torchrun stops the other workers and starts all of them again; the new ones meet through Gloo. The time
to the first step of the restarted job is measured. The job reads no checkpoint, which favours it.
Run by itself it prints the numbers; recovery.py calls measure().
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import steps
from steps import BenchError

# With torchrun's default a restarted job meets in the store of the one before: its workers find the addresses
# of dead ones, time out after 30 s and may never start again. A store of its own for each restart cures it.
ENVIRONMENT = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}


def work(log: str, params_mb: float, compute_ms: float) -> None:
    """One worker: the loop of a data-parallel job, its forward and backward pass replaced by busy time."""
    steps.die_with_parent()
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    restart, members = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_world_size()
    parameters = torch.nn.Parameter(torch.zeros(int(params_mb * steps.FLOATS_PER_MB)))
    parameters.grad = torch.empty_like(parameters)
    optimizer = torch.optim.SGD([parameters], lr=1e-6)
    writer = steps.StepWriter(log)
    while True:
        steps.busy(compute_ms)
        parameters.grad.fill_(1.0)
        dist.all_reduce(parameters.grad)
        optimizer.step()
        writer.step(restart, members, parameters.grad[0].item(), parameters.grad[-1].item())


def command(workers: int, log: Path, params_mb: float, compute_ms: float) -> list[str]:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    run += ["--nproc-per-node", str(workers), "--max-restarts", "1000000", __file__, "--worker", str(log)]
    return [*run, "--params-mb", str(params_mb), "--compute-ms", str(compute_ms)]


def measure(
    kills: int,
    params_mb: float = 25.0,
    compute_ms: float = 2.0,
    workers: int = 4,
    seed: int = 1,
    deadline_s: float = 120.0,
) -> dict[str, list[float]]:
    """Starts a job, kills `kills` times, ends the job. The result is that of steps.measure_kills().
    Blocks: about 5 s, and 2 to 5 s a kill. Raises BenchError if a recovery takes over `deadline_s`."""
    with tempfile.TemporaryDirectory(prefix="torchrun-") as folder:
        log, output = Path(folder, "steps"), Path(folder, "output")
        log.touch()
        env = {**os.environ, **ENVIRONMENT}
        with output.open("wb") as out, steps.patient_error(output):
            agent = steps.start(command(workers, log, params_mb, compute_ms), env, out)

            def check() -> None:
                if agent.poll() is not None:
                    raise BenchError(f"torchrun ended with status {agent.returncode}")

            try:
                return steps.measure_kills(steps.StepReader(log, check), kills, workers, seed, deadline_s)
            finally:
                agent.kill()  # its workers follow: die_with_parent()
                agent.wait()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--params-mb", type=float, default=25.0)
    options.add_argument("--compute-ms", type=float, default=2.0)
    options.add_argument("--worker", metavar="LOG", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.worker:
        work(args.worker, args.params_mb, args.compute_ms)
    else:
        steps.print_results("torchrun", measure(args.kills, args.params_mb, args.compute_ms, args.workers))


if __name__ == "__main__":
    main()
