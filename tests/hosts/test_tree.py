"""Agents as a tree: started by each other, what members say and hear through them, and who is
lost."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import ROOT, Host, Hosts, missing_rights, until
from strangers import expect_refused, send
from training import ports, processes

REGROUP = Path(shutil.which("regroup") or ROOT / "build/bin/regroup").resolve()
DEADLINE_S = 180.0
# With radix 2 node2 and node3 are of the controller, node4 and node5 of node2; with radix 1 they
# are a chain.
ALL = "node1,node2,node3,node4,node5"
SLEEP = ["sh", "-c", "echo ready; exec sleep 1000"]


@pytest.fixture(scope="module")
def five_hosts() -> Iterator[Hosts]:
    assert not missing_rights()
    with Hosts(5) as hosts:
        yield hosts


@pytest.fixture
def four_hosts() -> Iterator[Hosts]:
    """Four for one test, which may break them."""
    assert not missing_rights()
    with Hosts(4) as hosts:
        yield hosts


started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def _end_jobs() -> Iterator[None]:
    yield
    for job in started:
        job.kill()
        job.wait(DEADLINE_S)
    started.clear()


def start(hosts: Hosts, *args: str, **popen) -> subprocess.Popen:
    command = [REGROUP, "--ssh-command", " ".join(hosts.ssh), *args]
    popen = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **popen,
    }
    started.append(hosts[0].popen(command, text=True, **popen))
    return started[-1]


class Done:
    def __init__(self, process: subprocess.Popen, text: str | None = None):
        try:
            self.out, self.err = process.communicate(text, timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        self.status = process.returncode


def run(hosts: Hosts, *args: str, **popen) -> Done:
    return Done(start(hosts, *args, **popen))


def sleeping(hosts: Hosts, *args: str) -> subprocess.Popen:
    """A job whose members have started, one on each host."""
    job = start(hosts, *args, *SLEEP)
    assert [job.stdout.readline() for _ in range(len(hosts))] == ["ready\n"] * len(hosts), (
        job.stderr.read()
    )
    return job


def reached_from(host: Host) -> set[str]:
    """The hosts to which an ssh of this one leads."""
    lines = host.run(["ps", "-ww", "-eo", "args="]).stdout.splitlines()
    return {
        words[-2]
        for line in lines
        if (words := line.split())[0] == "ssh" and words[-1] == "/bin/sh"
    }


def left_on(hosts: Hosts) -> list[str]:
    """Processes of regroup and members on any host."""
    of_jobs = ("regroup", "sleep")
    return [
        f"{host.name}: {name}"
        for host in hosts
        for name in host.names()
        if name.startswith(of_jobs)
    ]


@pytest.mark.parametrize(
    ("radix", "started"),
    [
        ("1", [{"node2"}, {"node3"}, {"node4"}, {"node5"}, set()]),
        ("2", [{"node2", "node3"}, {"node4", "node5"}, set(), set(), set()]),
        ("0", [{"node2", "node3", "node4", "node5"}, set(), set(), set(), set()]),
    ],
)
def test_agents_are_started_by_those_above_and_leave_with_the_job(
    five_hosts: Hosts, radix, started
):
    job = sleeping(five_hosts, "-H", ALL, "--tree-radix", radix)
    assert [reached_from(host) for host in five_hosts] == started
    five_hosts[0].run(["pkill", "-INT", "-x", "-o", "regroup"])
    Done(job)
    until(lambda: not left_on(five_hosts), "an end of all processes")


@pytest.mark.parametrize("radix", ["1", "2"])
def test_output_of_all_is_whole_and_ends_well(five_hosts: Hosts, radix: str):
    script = "for i in $(seq 300); do echo line $i; echo error $i >&2; done"
    done = run(five_hosts, "-H", ALL, "--tree-radix", radix, "--tag-output", "sh", "-c", script)
    assert done.status == 0, done.err
    for rank in range(5):
        wanted = [f"[1,{rank}]<stdout>:line {i}" for i in range(1, 301)]
        assert [line for line in done.out.splitlines() if line.startswith(f"[1,{rank}]")] == wanted
    assert len(done.err.splitlines()) == 5 * 300
    until(lambda: not left_on(five_hosts), "an end of all processes")


def test_volume_from_the_last_of_a_chain_waits_for_its_reader(five_hosts: Hosts):
    size = 16 << 20
    script = (
        f"import os\nfor i in range({size >> 16}): os.write(1, b'%07d' % i + b'.' * 65528 + b'\\n')"
    )
    where = ["-H", "node2,node3,node4,node5", "--tree-radix", "1"]
    job = start(five_hosts, *where, "/usr/bin/python3", "-c", script)
    seen = {}
    for line in job.stdout:
        seen[line[:7]] = seen.get(line[:7], 0) + 1
        assert line[7:] == "." * 65528 + "\n"
    assert job.wait(DEADLINE_S) == 0
    assert seen == {f"{i:07d}": 4 for i in range(size >> 16)}


def test_standard_input_goes_down_the_chain(five_hosts: Hosts):
    text = "".join(f"line {i}\n" for i in range(200_000))
    job = start(
        five_hosts,
        *["-H", ALL, "--tree-radix", "1", "--stdin", "4"],
        *["sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(wc -c)"],
        stdin=subprocess.PIPE,
    )
    done = Done(job, text)
    assert sorted(done.out.splitlines()) == ["0 0", "1 0", "2 0", "3 0", f"4 {len(text)}"], done.err


def test_signals_go_down_and_an_exit_status_comes_up(five_hosts: Hosts):
    script = (
        "trap 'echo got it; exit $OMPI_COMM_WORLD_RANK' USR1; echo ready; while :; do sleep 0.1; "
        "done"
    )
    job = start(five_hosts, "-H", ALL, "--tree-radix", "2", "sh", "-c", script)
    assert [job.stdout.readline() for _ in range(5)] == ["ready\n"] * 5
    five_hosts[0].run(["pkill", "-USR1", "-x", "-o", "regroup"])
    done = Done(job)
    assert done.out.splitlines().count("got it") >= 1
    assert re.search(r"rank (\d) \(pid \d+ on node\d\) exited with code \1: ending", done.err), (
        done.err
    )
    assert done.status in range(1, 5)


@pytest.mark.parametrize("radix", ["1", "2"])
def test_a_host_that_cannot_be_started_is_named_by_who_tried(five_hosts: Hosts, radix: str):
    done = run(
        five_hosts, "-H", "node1,node2,node3,no-such-host,node5", "--tree-radix", radix, *SLEEP
    )
    assert done.status == 1
    parent = {"1": "node3", "2": "node2"}[radix]
    said = [line for line in done.err.splitlines() if line.startswith("regroup: host")]
    assert len(said) == 1, done.err
    assert re.fullmatch(
        rf"regroup: host no-such-host: ssh failed: Could not resolve hostname.* \(from {parent}\)",
        said[0],
    )
    until(lambda: not left_on(five_hosts), "an end of all processes")


@pytest.mark.no_wire("the job may end before any agent comes up")
def test_one_whose_parent_does_not_come_up_is_not_blamed(five_hosts: Hosts):
    done = run(
        five_hosts, "-H", "node1,no-such-host,node3,node4,node5", "--tree-radix", "2", *SLEEP
    )
    assert done.status == 1
    assert [line for line in done.err.splitlines() if line.startswith("regroup: host")] == [
        line for line in done.err.splitlines() if "host no-such-host: ssh failed" in line
    ]
    until(lambda: not left_on(five_hosts), "an end of all processes")


def one_line_names(done: Done, host: str, what: str) -> None:
    assert done.status == 1
    said = [line for line in done.err.splitlines() if line.startswith("regroup: host")]
    assert len(said) == 1, done.err
    assert said[0].startswith(f"regroup: host {host}: ") and what in said[0], done.err


@pytest.mark.parametrize("victim", [1, 3])  # with others below it; a leaf
def test_an_agent_that_dies_ends_the_job_and_is_named(five_hosts: Hosts, victim: int):
    job = sleeping(five_hosts, "-H", ALL, "--tree-radix", "2")
    five_hosts[victim].run(["pkill", "-KILL", "-x", "regroup-agent"])
    one_line_names(Done(job), f"node{victim + 1}", "the connection to its agent is lost")
    until(lambda: not left_on(five_hosts), "an end of all processes")


def test_an_inner_agent_that_stops_is_named_and_those_below_it_leave(five_hosts: Hosts):
    job = sleeping(five_hosts, "-H", ALL, "--tree-radix", "2")
    five_hosts[1].run(["pkill", "-STOP", "-x", "regroup-agent"])
    one_line_names(Done(job), "node2", "no message from its agent for 5 s")
    others = [five_hosts[0], *list(five_hosts)[2:]]
    until(lambda: not left_on(others), "an end of all but the one that is stopped")
    five_hosts[1].run(["pkill", "-CONT", "-x", "regroup-agent"])
    until(lambda: not left_on(five_hosts), "an end of all processes")


def test_an_inner_host_without_its_link_is_named_and_nothing_is_left(four_hosts: Hosts):
    job = sleeping(four_hosts, "-H", "node1,node2,node3,node4", "--tree-radix", "1")
    four_hosts[1].link(False)
    one_line_names(Done(job), "node2", "")
    until(lambda: not left_on(four_hosts), "an end of all processes")


def test_a_leaf_without_its_link_is_named(four_hosts: Hosts):
    job = sleeping(four_hosts, "-H", "node1,node2,node3,node4", "--tree-radix", "1")
    four_hosts[3].link(False)
    one_line_names(Done(job), "node4", "")
    until(lambda: not left_on(list(four_hosts)[:3]), "an end of all processes")


@pytest.mark.parametrize("victim", ["regroup-agent", "regroup"])
def test_nothing_is_left_when_the_launcher_dies(five_hosts: Hosts, victim: str):
    job = sleeping(five_hosts, "-H", ALL, "--tree-radix", "1")
    five_hosts[0].run(["pkill", "-KILL", "-x", "-o", victim])
    Done(job)
    until(lambda: not left_on(five_hosts), "an end of all processes")


def test_strangers_at_an_inner_agent_get_nowhere(five_hosts: Hosts):
    job = sleeping(five_hosts, "-H", ALL, "--tree-radix", "2")
    (agent,) = processes(five_hosts[1], "regroup-agent")
    (port,) = ports(agent)
    expect_refused(send(five_hosts[2], five_hosts[1].address, port))
    for leaf in list(five_hosts)[2:]:
        assert [ports(pid) for pid in processes(leaf, "regroup-agent")] == [[]]
    five_hosts[0].run(["pkill", "-INT", "-x", "-o", "regroup"])
    assert "host" not in Done(job).err
    until(lambda: not left_on(five_hosts), "an end of all processes")


def test_mpi_ranks_meet_through_the_tree(five_hosts: Hosts):
    program = five_hosts.folder / "mpi_program"
    command = ["/usr/bin/mpicc.openmpi", "-O1", "-o", program, ROOT / "tests/pmi/mpi_program.c"]
    subprocess.run(command, check=True, timeout=DEADLINE_S, capture_output=True)
    where = ["-H", "node1:2,node2:2,node3:2,node4:2,node5:2", "-np", "10"]
    done = run(five_hosts, *where, "--tree-radix", "2", str(program), "hello")
    assert (done.status, done.err) == (0, "")
    assert sorted(done.out.splitlines()) == sorted(
        f"rank {rank} of 10 app 0 universe 10 sum 10" for rank in range(10)
    )


def test_many_agents_on_one_host_are_a_deep_tree():
    where = ",".join(f"host{i}" for i in range(14))
    command = [REGROUP, "--launcher", "fork", "--tree-radix", "2", "-H", where, "--tag-output"]
    done = subprocess.run(
        [*command, "echo", "hi"], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[1,{rank}]<stdout>:hi" for rank in range(14)
    )
