"""How long TorchFT needs until the survivors commit a step again after one of them was SIGKILLed.

Each worker is a replica group of one process. The survivors go on without the victim once the
lighthouse has formed a new quorum; the victim is then started again, heals from a survivor, and the
next kill follows when all train together. Run by itself it prints the numbers; recovery.py calls
measure().
"""

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import programs
import steps
from programs import Job, Measured, Work
from steps import BenchError


@dataclass(frozen=True)
class Settings:
    """Times of TorchFT. The defaults are those of `torchft_lighthouse`, and of its own train_ddp.py
    example for the timeouts of a collective and of the manager."""

    join_timeout_ms: int = 60_000
    quorum_tick_ms: int = 100
    heartbeat_timeout_ms: int = 5_000
    collective_timeout_s: float = 5.0
    manager_timeout_s: float = 30.0
    heartbeat_interval_ms: int = 100


DEFAULTS = Settings()
TUNED = Settings(
    join_timeout_ms=100,
    quorum_tick_ms=10,
    heartbeat_timeout_ms=300,
    collective_timeout_s=1.0,
    heartbeat_interval_ms=50,  # with 20 the steps took 1.6 times as long on 2 cores
)


def train(log: str, work: Work, replica: str, settings: Settings) -> None:
    """One replica: the loop of TorchFT's example, its forward and backward pass replaced by busy
    time."""
    import torch
    from torch.distributed import ReduceOp, TCPStore
    from torchft import Manager, Optimizer, ProcessGroupGloo

    parameters = torch.nn.Parameter(torch.zeros(work.parameters))
    parameters.grad = torch.empty_like(parameters)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(state: dict) -> None:
        parameters.data.copy_(state["parameters"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=settings.collective_timeout_s)),
        load_state_dict=load,
        state_dict=lambda: {"parameters": parameters.data},
        min_replica_size=1,
        timeout=timedelta(seconds=settings.manager_timeout_s),
        heartbeat_interval=timedelta(milliseconds=settings.heartbeat_interval_ms),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=replica,
        init_sync=False,  # all start from zeros
    )
    optimizer = Optimizer(manager, torch.optim.SGD([parameters], lr=1e-6))
    writer = steps.StepWriter(log)
    while True:
        before = manager.current_step()
        optimizer.zero_grad(set_to_none=False)  # also asks for the quorum of this step
        steps.busy(work.compute_ms)
        parameters.grad.fill_(1.0)
        manager.allreduce(parameters.grad, reduce_op=ReduceOp.SUM).wait()
        optimizer.step()
        # A healing replica joins a step without a share in it and jumps to the survivors' step
        # number.
        if manager.current_step() == before + 1 and manager.errored() is None:
            first, last = parameters.grad[0].item(), parameters.grad[-1].item()
            writer.step(manager._quorum_id, manager.num_participants(), first, last)


def start_lighthouse(settings: Settings, output: Path) -> tuple[subprocess.Popen, str]:
    """Starts the lighthouse on a free port. Returns it and its address, which it tells only in its
    log."""
    command = [str(Path(sysconfig.get_path("scripts"), "torchft_lighthouse"))]
    command += ["--bind", "127.0.0.1:0", "--min_replicas", "1"]
    command += ["--join_timeout_ms", str(settings.join_timeout_ms)]
    command += ["--quorum_tick_ms", str(settings.quorum_tick_ms)]
    command += ["--heartbeat_timeout_ms", str(settings.heartbeat_timeout_ms)]
    with output.open("wb") as out:
        process = steps.start(command, os.environ, out)
    end = time.monotonic() + steps.START_DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"listening on: http://\S+?:(\d+)\s", output.read_text()):
            return process, f"http://127.0.0.1:{found[1]}"
        time.sleep(steps.LOOK_S)
    process.kill()
    process.wait()
    raise BenchError(f"torchft_lighthouse does not listen: {output.read_text()[-500:]}")


class Replicas(Job):
    """The lighthouse and the replicas, each started as the program with `arguments`."""

    def __init__(
        self, workers: int, arguments: list[str], output: Path, settings: Settings
    ) -> None:
        self._lighthouse, address = start_lighthouse(settings, output.with_name("lighthouse"))
        self._env = {**os.environ, "TORCHFT_LIGHTHOUSE": address}
        self._env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        self._arguments = arguments
        self._output = output.open("wb")
        self._replicas = [self._start(f"replica_{number}") for number in range(workers)]

    def __exit__(self, *unused: object) -> None:
        for process in [*(process for _, process in self._replicas), self._lighthouse]:
            process.kill()
            process.wait()
        self._output.close()

    def _start(self, name: str) -> tuple[str, subprocess.Popen]:
        command = [sys.executable, *self._arguments, "--replica", name]
        return name, steps.start(command, self._env, self._output)

    def check(self) -> None:
        for name, process in self._replicas:
            if process.poll() not in (None, -9):
                raise BenchError(f"TorchFT {name} ended with status {process.returncode}")

    def restore(self, pid: int) -> None:
        for number, (name, process) in enumerate(self._replicas):
            if process.pid == pid:
                process.wait()
                self._replicas[number] = self._start(name)


def measure(
    kills: int,
    work: Work,
    seed: int = 1,
    deadline_s: float = 120.0,
    settings: Settings = DEFAULTS,
) -> Measured:
    """Starts a job, kills `kills` times, ends the job. The result is that of steps.measure_kills().
    Blocks: 10 s to start, 15 s a kill. Raises BenchError if a recovery takes over `deadline_s`."""

    def start(log: Path, output: Path) -> Job:
        arguments = programs.worker(__file__, log, work) + (
            ["--tuned"] if settings == TUNED else []
        )
        return Replicas(work.workers, arguments, output, settings)

    return programs.measure(start, kills, work, seed, deadline_s)


def main() -> None:
    options = programs.parser(__doc__)
    options.add_argument(
        "--tuned", action="store_true", help="short timeouts instead of the defaults"
    )
    options.add_argument("--replica", help=argparse.SUPPRESS)
    args = options.parse_args()
    settings = TUNED if args.tuned else DEFAULTS
    programs.run(
        "torchft-tuned" if args.tuned else "torchft",
        args,
        partial(train, replica=args.replica, settings=settings),
        partial(measure, settings=settings),
    )


if __name__ == "__main__":
    main()
