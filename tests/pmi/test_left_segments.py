"""Shared memory that ranks have in /dev/shm, however they end: nothing of it is left."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from mpi_peers import BIN, Mpi, Runner
from waiting import until

SHM = Path("/dev/shm")

# Ranks that say that they are connected, then wait.
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int own = 1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("ready\\n");
  fflush(stdout);
  sleep(600);
  return 0;
}
"""


@pytest.fixture
def waiting(mpi: Mpi, tmp_path: Path) -> str:
    """The program, built with the MPI."""
    source, program = tmp_path / "waiting.c", tmp_path / "waiting"
    source.write_text(PROGRAM)
    done = subprocess.run(
        [mpi.mpicc, "-o", program, source], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return str(program)


class Job:
    """Two ranks of the program, and what they have in /dev/shm."""

    def __init__(self, runner: Runner, mpi: Mpi, program: str, output: Path):
        before = set(SHM.iterdir())
        with open(output, "wb") as out:
            self.process = subprocess.Popen(
                [BIN / "regroup", *mpi.options, "--oversubscribe", "-np", "2", program],
                env={**runner.env, **mpi.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        until(lambda: output.read_text().count("ready") == 2, "both ranks", 120)
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in self.processes())
        self.segments = [p for p in set(SHM.iterdir()) - before if f"{p}\n" in maps]

    def processes(self) -> list[int]:
        """The launcher's processes and the ranks."""
        found, todo = [], [self.process.pid]
        while todo:
            found.append(todo.pop())
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        return found

    def left(self) -> list[Path]:
        return [path for path in self.segments if path.exists()]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def test_nothing_is_left_in_shared_memory_of_ranks_that_are_killed(runner, mpi, waiting, tmp_path):
    """One rank; then all processes of a job at once, after which the next job clears up. A job that
    lives keeps what it has."""
    living = Job(runner, mpi, waiting, tmp_path / "living")
    one = Job(runner, mpi, waiting, tmp_path / "one")
    rank = next(pid for pid in one.processes() if os.readlink(f"/proc/{pid}/exe") == waiting)
    os.kill(rank, signal.SIGKILL)
    one.process.wait(60)
    assert not one.left()
    dead = Job(runner, mpi, waiting, tmp_path / "dead")
    assert (len(dead.segments) == 2) == mpi.name.startswith("openmpi"), dead.segments
    pids = dead.processes()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees the others die
        for pid in pids:
            os.kill(pid, number)
    dead.process.wait(60)
    until(lambda: not any(map(runs, pids)), "the end of all processes", 60)
    assert dead.left() == dead.segments, "libpmix removes them only while it runs"
    runner.regroup("-np", "1", "true")
    until(lambda: not dead.left(), "the next job to remove the segments", 60)
    assert living.left() == living.segments
    living.end()
    assert not living.left()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
