"""The work of a step, the log of steps, and the kill: by these the programs of the recovery bench
compare.

Each worker appends one line per finished step to one file; the driver reads it, kills a worker at a
random moment and finds in the log when training went on. All times are CLOCK_MONOTONIC, taken by
the worker itself, so that how often the driver looks does not enter a number.
"""

import ctypes
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import BenchError, Work  # noqa: E402, F401

T = TypeVar("T")
SETTLED_STEPS = 12  # of every worker, after a start or a recovery, before the next kill
START_DEADLINE_S = 120.0
LOOK_S = 0.005


# ---- in the worker


def die_with_parent() -> None:
    """Has the kernel kill this process when the one that started it ends."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def busy(milliseconds: float) -> None:
    """Keeps a core busy for that much processor time, which is not shortened by losing the core."""
    end = time.thread_time_ns() + int(milliseconds * 1e6)
    while time.thread_time_ns() < end:
        pass


class StepWriter:
    """Appends finished steps to the log. One write per line: lines of different workers do not
    mix."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def step(self, generation: int, members: int, first: float, last: float) -> None:
        """`first` and `last` are two elements of the reduced gradient, each a sum of ones over
        members."""
        line = f"{time.monotonic_ns()} {os.getpid()} {generation} {members} {first} {last}\n"
        os.write(self._fd, line.encode())


# ---- in the driver


def start(command: Sequence[str], env: Mapping[str, str], output: BinaryIO) -> subprocess.Popen:
    """Starts a process that the kernel kills when this one ends, however it ends."""
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=die_with_parent,
    )


@dataclass(frozen=True)
class Step:
    """A step that a worker finished, and the membership (restart or quorum) that it belonged to."""

    at_ns: int
    pid: int
    generation: int
    members: int


def parse_step(line: str) -> Step:
    """Raises BenchError if the reduction of the step gave a wrong sum."""
    at_ns, pid, generation, members, first, last = line.split()
    if float(first) != int(members) or float(last) != int(members):
        raise BenchError(
            f"worker {pid}: all-reduce of ones over {members} members gave {first} and {last}"
        )
    return Step(int(at_ns), int(pid), int(generation), int(members))


@dataclass
class StepReader:
    """Follows a log; `steps` grows with it. `check` raises if the job cannot go on."""

    path: Path
    check: Callable[[], None]
    steps: list[Step] = field(default_factory=list)
    _offset: int = 0

    def poll(self) -> None:
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")
        self._offset += len(whole[0]) + len(whole[1])
        self.steps += [parse_step(line) for line in whole[0].decode().splitlines()]

    def wait(self, what: str, deadline_s: float, find: Callable[[list[Step]], T | None]) -> T:
        """Reads on until `find` returns something. Raises BenchError after `deadline_s`."""
        end = time.monotonic() + deadline_s
        while True:
            self.poll()
            if (found := find(self.steps)) is not None:
                return found
            self.check()
            if time.monotonic() > end:
                raise BenchError(
                    f"{what}: not within {deadline_s:g} s; {len(self.steps)} steps in the log"
                )
            time.sleep(LOOK_S)


def settled(workers: int) -> Callable[[list[Step]], set[int] | None]:
    """Finds the workers' process ids, once the newest membership is complete and has run for a
    while."""

    def find(steps: list[Step]) -> set[int] | None:
        if not steps:
            return None
        newest = max(step.generation for step in steps)
        done: dict[int, int] = {}
        for step in steps:
            if step.generation == newest and step.members == workers:
                done[step.pid] = done.get(step.pid, 0) + 1
        return set(done) if len(done) == workers and min(done.values()) >= SETTLED_STEPS else None

    return find


def undisturbed(steps: list[Step]) -> list[float]:
    """Seconds between consecutive steps of each worker that were both of one generation, that
    generation's first steps left out."""
    lanes: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        lanes.setdefault((step.pid, step.generation), []).append(step.at_ns)
    pairs = (pair for lane in lanes.values() for pair in zip(lane[2:], lane[3:], strict=False))
    return [(after - before) / 1e9 for before, after in pairs]


def measure_kills(
    reader: StepReader,
    kills: int,
    workers: int,
    seed: int,
    deadline_s: float,
    restore: Callable[[int], None] = lambda pid: None,
    killed: Callable[[int, int], None] = lambda pid, at_ns: None,
) -> dict[str, list[float]]:
    """SIGKILLs one random worker at a uniformly random moment of the step, `kills` times, and says
    so to `killed`; `restore(pid)` brings a worker back for the next kill. Returns seconds:
      kill_to_commit     to the next step that any other worker finished, be it
                         the one open at the kill
      kill_to_regrouped  to the first step of the membership without the victim
      step               between the steps of an undisturbed worker
    """
    rng = random.Random(seed)
    results: dict[str, list[float]] = {"kill_to_commit": [], "kill_to_regrouped": [], "step": []}
    for number in range(kills):
        pids = reader.wait(f"start before kill {number}", START_DEADLINE_S, settled(workers))
        newest = max(step.generation for step in reader.steps)
        calm = undisturbed([step for step in reader.steps if step.generation == newest])
        results["step"] += calm
        time.sleep(rng.uniform(0, 4 * statistics.median(calm)))
        victim = rng.choice(sorted(pids))
        killed_ns = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        killed(victim, killed_ns)

        def first_after(steps, condition, killed_ns=killed_ns, victim=victim):
            times = (
                s.at_ns for s in steps if s.at_ns > killed_ns and s.pid != victim and condition(s)
            )
            return min(times, default=None)

        regrouped = reader.wait(
            f"step after kill {number}",
            deadline_s,
            lambda steps, g=newest, first=first_after: first(steps, lambda s: s.generation > g),
        )
        results["kill_to_regrouped"].append((regrouped - killed_ns) / 1e9)
        results["kill_to_commit"].append(
            (first_after(reader.steps, lambda s: True) - killed_ns) / 1e9
        )
        if number + 1 < kills:
            restore(victim)
    return results


@contextmanager
def patient_error(log: Path) -> Iterator[None]:
    """Adds the end of the job's own output to a BenchError, since the folder is removed
    afterwards."""
    try:
        yield
    except BenchError as error:
        tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
        raise BenchError(f"{error}\n{tail}") from error


def print_results(name: str, results: dict[str, list[float]]) -> None:
    """For a rival's program run by itself."""
    for key, values in results.items():
        ordered = sorted(values)
        shown = " ".join(f"{value:.3f}" for value in values) if len(values) <= 20 else ""
        print(
            f"{name} {key}: min {ordered[0]:.4f} p50 {statistics.median(ordered):.4f} max "
            f"{ordered[-1]:.4f} s"
            f" of {len(values)}  {shown}"
        )
