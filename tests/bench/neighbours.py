"""Processes beside those that are measured, and what the kernel says of those that are."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from common import BenchError


@contextlib.contextmanager
def neighbours() -> Iterator[list[subprocess.Popen]]:
    """Processes that compute, of which one has no core for itself beside two ranks that each have
    one."""
    program = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100000))"
    count = max(1, len(os.sched_getaffinity(0)) - 1)
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def turn_us(processes: int, turns: int) -> float:
    """What the kernel takes to let each of so many processes run once, bound evenly to the
    cores."""
    cores = sorted(os.sched_getaffinity(0))
    reader, writer = os.pipe()
    children = [fork_yielder(cores[i % len(cores)], turns, writer) for i in range(processes)]
    os.close(writer)
    with os.fdopen(reader) as lines:
        took = [float(line) for line in lines]
    for child in children:
        os.waitpid(child, 0)
    if len(took) != processes:
        raise BenchError(f"{processes - len(took)} of {processes} processes that yield failed")
    return sum(took) / processes / turns * 1e6


def fork_yielder(core: int, turns: int, writer: int) -> int:
    """A child that yields so often, once all have had the time to begin, and writes the seconds it
    took."""
    if child := os.fork():
        return child
    try:
        os.sched_setaffinity(0, {core})
        time.sleep(0.3)
        begin = time.monotonic()
        for _ in range(turns):
            os.sched_yield()
        os.write(writer, f"{time.monotonic() - begin}\n".encode())
    finally:
        os._exit(0)


def members_of(launcher: int) -> list[int]:
    """Processes called regroup-bench below the launcher."""
    found, todo = [], [launcher]
    while todo:
        pid = todo.pop()
        try:
            todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            if Path(f"/proc/{pid}/comm").read_text().strip() == "regroup-bench":
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


def wait_for(look: Callable[[], list[int]], count: int, what: str) -> list[int]:
    end = time.monotonic() + 30
    while len(found := look()) != count:
        if time.monotonic() > end:
            raise BenchError(f"{len(found)} of {count} {what} after 30 s")
        time.sleep(0.01)
    return found


def running_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
