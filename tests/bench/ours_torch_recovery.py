"""Our side of the recovery bench through PyTorch: the rivals' loop, log and kills, under regroup.

Run by itself it prints the numbers; recovery.py calls measure().
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build-release" / "bin"
sys.path.insert(0, str(Path(__file__).resolve().parent / "rivals"))
import steps  # noqa: E402
from steps import BenchError  # noqa: E402


def work(log: str, params_mb: float, compute_ms: float, workers: int) -> None:
    """One member: forward and backward are busy time and the gradient of a sum, which is all ones."""
    import regroup.torch
    import torch
    from torch import nn

    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(int(params_mb * steps.FLOATS_PER_MB)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    samples = torch.utils.data.TensorDataset(torch.zeros(workers))
    session = regroup.torch.join(model, optimizer, samples, batch_size=workers, epochs=1_000_000)
    writer = steps.StepWriter(log)
    for step in session:
        for _ in step:
            steps.busy(compute_ms)
            model.weight.sum().backward()
        optimizer.step()
        # The mean over the batch of ones is one: times the members it is what the rivals' sums are.
        first, last = (model.weight.grad[i].item() * session.size for i in (0, -1))
        writer.step(session.generation, session.size, first, last)


def measure(
    kills: int,
    params_mb: float = 25.0,
    compute_ms: float = 2.0,
    workers: int = 4,
    seed: int = 1,
    deadline_s: float = 120.0,
) -> dict[str, list[float]]:
    """Starts a job, kills `kills` times, ends the job. The result is that of steps.measure_kills()."""
    with tempfile.TemporaryDirectory(prefix="regroup-torch-") as folder:
        log, output = Path(folder, "steps"), Path(folder, "output")
        log.touch()
        command = [str(BIN / "regroup"), "--oversubscribe", "--start", str(workers), "--shards", str(workers)]
        command += ["-np", f"{workers - 1}:{workers}", sys.executable, __file__, "--worker", str(log)]
        command += ["--params-mb", str(params_mb), "--compute-ms", str(compute_ms), "--workers", str(workers)]
        env = {**os.environ, "XDG_RUNTIME_DIR": folder}
        with output.open("wb") as out:
            job = steps.start(command, env, out)

        def check() -> None:
            if job.poll() is not None:
                raise BenchError(f"regroup ended with status {job.returncode}")

        try:
            with steps.patient_error(output):
                reader = steps.StepReader(log, check)
                return steps.measure_kills(reader, kills, workers, seed, deadline_s)
        finally:
            job.terminate()
            try:
                job.wait(20)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--params-mb", type=float, default=25.0)
    options.add_argument("--compute-ms", type=float, default=2.0)
    options.add_argument("--worker", metavar="LOG", help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.worker:
        work(args.worker, args.params_mb, args.compute_ms, args.workers)
    else:
        found = measure(args.kills, args.params_mb, args.compute_ms, args.workers)
        steps.print_results("regroup-torch", found)


if __name__ == "__main__":
    main()
