"""What the three programs of the recovery bench share: their command line, and the job they
measure.

A program is its own worker: its job starts it again with --worker LOG, and then it trains until it
is killed. Without that option it measures and prints the numbers; recovery.py calls its measure()
instead.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

import steps
from steps import BenchError, Work

Measured = dict[str, list[float]]  # as steps.measure_kills() returns it


class Job(AbstractContextManager, Protocol):
    """A running job. Leaving the context ends all its processes."""

    def check(self) -> None:
        """Raises BenchError if the job cannot go on."""

    def restore(self, pid: int) -> None:
        """Brings back a worker that was killed, unless the job does so by itself."""


class LauncherJob(Job):
    """A job of one launcher, which starts and restores the workers. It gets `grace_s` to end
    them."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        output: Path,
        grace_s: float,
    ) -> None:
        self._name, self._grace_s = name, grace_s
        with output.open("wb") as out:
            self._launcher = steps.start(command, env, out)

    def __exit__(self, *unused: object) -> None:
        if self._grace_s > 0:
            self._launcher.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._launcher.wait(self._grace_s)
        self._launcher.kill()  # nothing happens to one that was reaped
        self._launcher.wait()

    def check(self) -> None:
        if self._launcher.poll() is not None:
            raise BenchError(f"{self._name} ended with status {self._launcher.returncode}")

    def restore(self, pid: int) -> None:
        pass


def worker(program: str, log: Path, work: Work) -> list[str]:
    """The file `program` and the arguments that make it a worker which logs its steps in `log`."""
    size = ["--params-mb", str(work.params_mb), "--compute-ms", str(work.compute_ms)]
    return [program, "--worker", str(log), *size, "--workers", str(work.workers)]


def measure(
    start: Callable[[Path, Path], Job],
    kills: int,
    work: Work,
    seed: int,
    deadline_s: float,
    killed: Callable[[int, int], None] = lambda pid, at_ns: None,
) -> Measured:
    """Calls start(log, output) for a job whose workers log to `log`, kills `kills` times, ends the
    job. Raises BenchError, with the end of `output`, if the job fails or a recovery takes over
    `deadline_s`."""
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        log, output = Path(folder, "steps"), Path(folder, "output")
        log.touch()
        with steps.patient_error(output), start(log, output) as job:
            reader = steps.StepReader(log, job.check)
            return steps.measure_kills(
                reader, kills, work.workers, seed, deadline_s, job.restore, killed
            )


def parser(description: str) -> argparse.ArgumentParser:
    """The options every program has; a program adds its own."""
    options = argparse.ArgumentParser(description=description.splitlines()[0])
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--params-mb", type=float, default=Work.params_mb)
    options.add_argument("--compute-ms", type=float, default=Work.compute_ms)
    options.add_argument("--workers", type=int, default=Work.workers)
    options.add_argument("--worker", metavar="LOG", help=argparse.SUPPRESS)
    return options


def run(
    name: str,
    args: argparse.Namespace,
    train: Callable[[str, Work], None],
    measure: Callable[[int, Work], Measured],
) -> None:
    """A program's main function: train(log, work) in a worker, else measure(kills, work) and
    print."""
    work = Work(args.params_mb, args.compute_ms, args.workers)
    if args.worker:
        train(args.worker, work)
    else:
        steps.print_results(name, measure(args.kills, work))
