"""Train embeddings on a parameter server, kill the server again and again, and count the updates.

Runs itself under `regroup --role ps=1 --role worker=3`. Each worker trains an embedding of the
pixels of scikit-learn's digits, and with each step adds 1 to a counter on the server. Whenever
worker 0 has done a quarter of its steps, it waits until the server is killed with SIGKILL, while
the others train. At the end the counter must be the number of steps, exactly.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKERS = 3
KILLS = 3
STEPS = 240  # of each worker


def work(kills: Path) -> None:
    """A worker. `kills`: of the folder where a file says that a kill is done."""
    import numpy as np
    import regroup.ps as ps
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.set_num_threads(1)
    digits = load_digits()
    ids = torch.tensor(digits.data, dtype=torch.int64) + 17 * torch.arange(64)  # pixel and value
    labels = torch.tensor(digits.target)
    client = ps.join()
    counter = client.table("counter", dim=1, dtype="int64", optimizer=ps.Sum())
    torch.manual_seed(0)
    pixel = ps.torch.EmbeddingBag(
        client, "pixel", dim=32, mode="sum",
        init=ps.Uniform(-0.01, 0.01), optimizer=ps.RowAdagrad(lr=0.01),
    )  # fmt: skip
    network = nn.Sequential(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    top = ps.torch.Dense(client, "top", network, optimizer=ps.Adam(lr=3e-3))
    one = np.ones((1, 1), np.int64)
    for step in range(1, STEPS + 1):
        batch = torch.randint(360, len(labels), (64,))
        loss = nn.functional.cross_entropy(top(pixel(ids[batch])), labels[batch])
        client.push(loss)
        counter.push(np.array([0]), one)
        if step % (STEPS // (KILLS + 1)) == 0 and step < STEPS and os.environ["RANK"] == "0":
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
            while not (kills / str(step)).exists():
                time.sleep(0.01)
    client.flush()
    counter.push(np.array([1]), one)  # this worker is through
    client.flush()
    while counter.pull(np.array([1]))[0, 0] < WORKERS:
        time.sleep(0.01)
    with torch.no_grad():
        right = (top(pixel(ids[:360])).argmax(dim=1) == labels[:360]).sum().item()
    print(f"counter {counter.pull(np.array([0]))[0, 0]} accuracy {right / 360:.3f}", flush=True)


def server(environment: dict[str, str]) -> dict:
    told = subprocess.run(
        ["regroup", "status", "--json"], env=environment, capture_output=True, text=True
    )
    servers = json.loads(told.stdout or "{}").get("parameter_server", {}).get("servers", [])
    return servers[0] if servers else {}


def kill_server(job: subprocess.Popen, environment: dict[str, str], killed: list[int]) -> None:
    """Kills the server that serves now; `killed`: those before it."""
    while job.poll() is None:
        pid = server(environment).get("pid", 0)
        if pid not in (0, *killed):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            break
        time.sleep(0.01)


def watch(runtime: str, deadline: int) -> int:
    """Starts the job and kills its server. Exit status 0: the counter is exact."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": runtime}
    words = ["--role", "ps=1", "--role", f"worker={WORKERS}", "--ps-memory", "128M"]
    words += ["--timeout", str(deadline), sys.executable, __file__, "--worker", runtime]
    job = subprocess.Popen(["regroup", *words], env=environment, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    killed: list[int] = []
    counters: list[int] = []
    began = time.monotonic()
    for line in job.stdout:
        print(f"{time.monotonic() - began:5.1f} s  {line}", end="", flush=True)
        if line.startswith("counter"):
            counters.append(int(line.split()[1]))
        if line.startswith("step"):
            kill_server(job, environment, killed)
            Path(runtime, line.split()[1].rstrip(":")).touch()
            print(f"{time.monotonic() - began:5.1f} s  killed so far: {killed}")
    status = job.wait()
    wanted = WORKERS * STEPS
    print(f"{len(killed)} servers killed; {wanted} pushes to the counter, counted {counters}")
    exact = status == 0 and counters == [wanted] * WORKERS and len(killed) == KILLS
    print("The count of updates is exact." if exact else "The count of updates is NOT exact.")
    return 0 if exact else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deadline", type=int, default=140, help="seconds of the job")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker)
        return 0
    with tempfile.TemporaryDirectory(prefix="rg") as runtime:
        Path(runtime).chmod(0o700)
        return watch(runtime, args.deadline)


if __name__ == "__main__":
    sys.exit(main())
