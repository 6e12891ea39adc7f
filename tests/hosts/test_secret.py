"""The job's secret is in no argument, environment variable, log or file of any process of a job:
launcher, agents, guards, coordinator, what serves MPI, members, ssh and sshd; nor in arenas and
what else they have open. With agents that the launcher starts, with a chain in which each gives it
to the next, and with `regroup join`, which is told it by the job and gives it to the agents of its
own allocation."""

import base64
import contextlib
import os
import signal
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hosts import ROOT, Hosts, until
from leftovers import files
from tapping import tap
from training import BIN, Training, agent_of, kill, left_on, ports, processes

PIECE, OVERLAP = 64 << 20, 256  # overlap: more than the secret in any form takes
CHAIN = ("--tree-radix", "1")


def forms(secret: bytes) -> list[bytes]:
    text = [secret.hex(), secret.hex().upper(), base64.b64encode(secret).decode().rstrip("=")]
    return [secret, secret[:16], secret[16:], *(form.encode() for form in text)]


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
            if len(piece) == PIECE:
                file.seek(-OVERLAP, os.SEEK_CUR)


def of_process(pid: int, seen: set[tuple[int, int]]) -> Iterator[tuple[str, bytes]]:
    """Arguments, environment, and what it has open that can be read again and nobody else had:
    files, deleted ones, memfds."""
    for name in ("cmdline", "environ"):
        yield name, Path(f"/proc/{pid}/{name}").read_bytes()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            what = fd.stat()
            if stat.S_ISREG(what.st_mode) and (which := (what.st_dev, what.st_ino)) not in seen:
                seen.add(which)
                yield from ((f"{fd.name} ({os.readlink(fd)})", piece) for piece in pieces(fd))


def places(hosts: Hosts) -> Iterator[tuple[str, bytes]]:
    """All that is searched, with its name; what is large in pieces."""
    seen: set[tuple[int, int]] = set()
    for host in hosts:
        for pid in host.pids():
            with contextlib.suppress(OSError):
                comm = Path(f"/proc/{pid}/comm").read_text().strip()
                mine = of_process(pid, seen)
                yield from ((f"{host.name}: {comm} {pid}: {what}", text) for what, text in mine)
        for path in files(host):
            with contextlib.suppress(OSError):
                full = Path(f"/proc/{host.pid}/root{path}")
                if stat.S_ISREG(full.stat().st_mode):
                    yield f"{host.name}: {path}", full.read_bytes()
    for path in Path(hosts.folder).rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()


def found(hosts: Hosts, needles: list[bytes]) -> tuple[set[str], set[str]]:
    """Where one of them is, and the hosts of whose arenas a piece with something in it was
    searched."""
    where, arenas = set(), set()
    for name, text in places(hosts):
        if "/memfd:regroup" in name and text.strip(b"\0"):
            arenas.add(name.split(":")[0])
        if any(needle in text for needle in needles):
            where.add(name)
    return where, arenas


class Tap:
    """A prefix for jobs whose agent on one host writes down the secret that it is given."""

    def __init__(self, hosts: Hosts, host: str):
        self.hosts = hosts
        self.folder, self.file = tap(hosts, host)

    def expect_it_nowhere_else(self, with_arenas: bool = False) -> None:
        needles = forms(
            until(lambda: self.file.exists() and self.file.read_bytes(), "the secret was tapped")
        )
        assert len(needles[0]) == 32
        where, arenas = found(self.hosts, needles)
        assert where == {str(self.file)}, "the search finds what is there, and only that"
        assert not with_arenas or arenas == {host.name for host in self.hosts}


# In a tree node2 gives it to node3.
@pytest.mark.parametrize(("tree", "tapped", "victim"), [((), "node2", 2), (CHAIN, "node3", 1)])
def test_the_secret_is_nowhere(hosts: Hosts, tree: Sequence[str], tapped: str, victim: int):
    tap = Tap(hosts, tapped)
    learn = ("--learner-steps", "8", "--learner-state", "1")
    options = ("--prefix", str(tap.folder), "-v", *learn, *tree)
    job = Training(hosts, "node1:2,node2:2,node3:2", "2:6", options, epochs=6, pace_us=300_000)
    try:
        job.reach(3)
        expect_tree(hosts, bool(tree))
        tap.expect_it_nowhere_else(with_arenas=True)
        kill(agent_of(hosts[victim]))
        job.until_said("6 -> 4 members", 60)
        job.until_said("-> 6 members", 60)
        kill(processes(hosts[0], "regroup-coord"))
        job.until_said("incarnation 2", 60)
        tap.expect_it_nowhere_else(with_arenas=True)
        job.hurry()
        assert job.wait() == 0, job.text()
        tap.expect_it_nowhere_else()
    finally:
        job.close()


def expect_tree(hosts: Hosts, wanted: bool) -> None:
    """Only an agent that has others below it listens before there are state transfers."""
    found = []
    for pid in processes(hosts[1], "regroup-agent"):
        with contextlib.suppress(FileNotFoundError):  # it may start something just now
            found += ports(pid)
    assert bool(found) == wanted


@pytest.mark.parametrize("tree", [(), CHAIN])
def test_the_secret_of_a_job_of_ranks_is_nowhere(hosts: Hosts, tree: Sequence[str]):
    """They have met by MPI and stay, and so does what served them."""
    tap = Tap(hosts, "node3")
    program = tap.folder / "mpi_program"
    compiler = ["/usr/bin/mpicc.openmpi", "-O1", "-o", program, ROOT / "tests/pmi/mpi_program.c"]
    subprocess.run(compiler, check=True, timeout=60, capture_output=True)
    rank = f"{program} hello && touch {tap.folder}/met.$OMPI_COMM_WORLD_RANK; exec sleep 600"
    command = [
        *(
            BIN / "regroup",
            "--ssh-command",
            " ".join(hosts.ssh),
            "--prefix",
            tap.folder,
            "-v",
            *tree,
        ),
        *("-H", "node1,node2,node3", "sh", "-c", rank),
    ]
    with (tap.folder / "output").open("w") as out:
        job = hosts[0].popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        until(lambda: len(list(tap.folder.glob("met.*"))) == 3, "three ranks that have met")
        expect_tree(hosts, bool(tree))
        assert all(processes(host, "regroup-pmi") for host in hosts)
        tap.expect_it_nowhere_else()
        os.kill(hosts[0].inner(job), signal.SIGINT)
        job.wait(60)
        until(lambda: not left_on(hosts), "an end of all processes")
        tap.expect_it_nowhere_else()
    finally:
        job.kill()
        job.wait(60)


def lend(hosts: Hosts, folder: Path, index: int, through: Sequence[str]) -> subprocess.Popen:
    """`regroup join` of a job of LSF that has node3, run on hosts[index]. ssh stands for
    blaunch."""
    blaunch = folder / "blaunch"
    ssh = " ".join(hosts.ssh)
    blaunch.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/launched; host=$1; shift\nexec {ssh} $host "$@"\n'
    )
    blaunch.chmod(0o755)
    job = ("LSB_JOBID=8", "LSB_MCPU_HOSTS=node3 2", "LSB_DJOB_NUMPROC=2")
    words = ["env", f"PATH={folder}:{os.environ['PATH']}", *job, BIN / "regroup", "join", *through]
    with (folder / "output-join").open("w") as out:
        return hosts[index].popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


# beside the launcher, by its Unix socket; from afar, by a relay
@pytest.mark.parametrize("index", [0, 1])
def test_the_secret_of_a_job_that_is_lent_hosts_is_nowhere(hosts: Hosts, index: int):
    tap = Tap(hosts, "node3")
    relay = ("--through", *hosts.ssh, "node1", BIN / "regroup", "join", "--relay") if index else ()
    job = Training(
        hosts, "node1:2,node2:2", "2:6", ("--prefix", str(tap.folder), "-v"), pace_us=300_000
    )
    lent = None
    try:
        job.reach(3)
        lent = lend(hosts, tap.folder, index, relay)
        job.until_said("-> 6 members", 60)
        assert (tap.folder / "launched").read_text() == "node3 /bin/sh\n", (
            "it has started the agent"
        )
        tap.expect_it_nowhere_else()
        os.kill(hosts[index].inner(lent), signal.SIGTERM)
        assert lent.wait(60) == 0, (tap.folder / "output-join").read_text()
        tap.expect_it_nowhere_else()
        job.hurry()
        assert job.wait() == 0, job.text()
        tap.expect_it_nowhere_else()
    finally:
        if lent:
            lent.kill()
            lent.wait(60)
        job.close()
