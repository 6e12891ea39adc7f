"""Elastic jobs whose agents are a tree: an agent with others below it is lost, and these go on."""

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import started
from hosts import Host, Hosts, until
from training import Start, agent_of, kill, left_on, processes, starter

THREE = "node1:2,node2:2,node3:2"
PACE_US = 200_000  # longer than what a test waits for takes; each hurries once it has seen that
FIVE = "node1:1,node2:1,node3:1,node4:1,node5:1"


@pytest.fixture(scope="module")
def five_hosts() -> Iterator[Hosts]:
    with started(5) as hosts:
        yield hosts


@pytest.fixture
def start(five_hosts: Hosts) -> Iterator[Start]:
    with starter(five_hosts) as begin:
        yield begin


@pytest.mark.parametrize("radix", ["1", "2"])
def test_a_job_runs_through_inner_agents(
    five_hosts: Hosts, start: Start, undisturbed: str, radix: str
):
    job = start(FIVE, "2:5", "--tree-radix", radix, pace_us=0)
    job.expect_weights(undisturbed)
    assert len(job.trails.weights()) == 5
    assert "generation 1: 5 members" in job.text()


@pytest.mark.parametrize("radix", ["1", "2"])
def test_an_inner_agent_dies_and_those_below_it_go_on(
    five_hosts: Hosts, start: Start, undisturbed: str, radix: str
):
    """With radix 2 node4 and node5 are below node2; with radix 1 node3, below it node4, then
    node5."""
    job = start(FIVE, "2:5", "--tree-radix", radix, pace_us=PACE_US)
    job.reach(5)
    below = [processes(host, "chaos_member") for host in list(five_hosts)[2:]]
    assert all(below)
    kill(agent_of(five_hosts[1]))
    job.until_said("5 -> 4 members", 60)
    job.until_said("-> 5 members", 60)
    assert [processes(host, "chaos_member") for host in list(five_hosts)[2:]] == below
    job.hurry()
    job.expect_weights(undisturbed)
    lost = [line for line in job.text().splitlines() if "host node" in line and "lost" in line]
    assert all("node2" in line for line in lost), job.text()


def test_two_inner_agents_of_a_chain_die_at_once(five_hosts: Hosts, start: Start, undisturbed: str):
    job = start(FIVE, "2:5", "--tree-radix", "1", pace_us=PACE_US)
    job.reach(5)
    below = [processes(host, "chaos_member") for host in list(five_hosts)[3:]]
    kill(agent_of(five_hosts[1]) + agent_of(five_hosts[2]))
    # As one that had come to the controller before it died, that has not come, or that others miss,
    # too.
    job.until_said("host node3: ", 60)
    job.until_said("-> 5 members", 60)
    assert [processes(host, "chaos_member") for host in list(five_hosts)[3:]] == below
    job.hurry()
    job.expect_weights(undisturbed)


def test_those_that_were_taken_in_are_lost_like_others(
    five_hosts: Hosts, start: Start, undisturbed: str
):
    job = start(FIVE, "2:5", "--tree-radix", "2", pace_us=PACE_US)
    job.reach(5)
    kill(agent_of(five_hosts[1]))
    job.until_said("5 -> 4 members", 60)
    job.until_said("4 -> 5 members", 60)
    kill(agent_of(five_hosts[4]))
    until(lambda: job.text().count("5 -> 4 members") == 2, "the loss of one that was taken in")
    job.hurry()
    job.expect_weights(undisturbed)


def test_an_inner_agent_and_the_coordinator_die_together(
    five_hosts: Hosts, start: Start, undisturbed: str
):
    job = start(FIVE, "2:5", "--tree-radix", "2", pace_us=PACE_US)
    job.reach(5)
    kill(processes(five_hosts[0], "regroup-coord") + agent_of(five_hosts[1]))
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_member_below_dies_together_with_the_inner_agent(
    five_hosts: Hosts, start: Start, undisturbed: str
):
    job = start(FIVE, "2:5", "--tree-radix", "1", pace_us=PACE_US)
    job.reach(5)
    kill(processes(five_hosts[3], "chaos_member") + agent_of(five_hosts[1]))
    job.hurry()
    job.expect_weights(undisturbed)


def test_an_inner_agent_that_stops_is_left(five_hosts: Hosts, start: Start, undisturbed: str):
    """Those below it notice, and come to the controller; once it goes on it finds that it is not
    wanted."""
    job = start(FIVE, "2:5", "--tree-radix", "2", pace_us=PACE_US)
    job.reach(5)
    below = [processes(host, "chaos_member") for host in list(five_hosts)[3:]]
    (agent,) = agent_of(five_hosts[1])
    os.kill(agent, signal.SIGSTOP)
    try:
        job.until_said("member 1 was lost", 60)
        job.until_said("host node2: no message from its agent for 5 s", 60)
        reached = job.trails.furthest()
        job.reach(reached + 5)
        assert [processes(host, "chaos_member") for host in list(five_hosts)[3:]] == below
    finally:
        os.kill(agent, signal.SIGCONT)
    job.until_said("-> 5 members", 60)  # from 4, or from 5 where its host was back so soon
    job.hurry()
    job.expect_weights(undisturbed)


def test_an_inner_host_loses_its_link_and_comes_back(start_own: Start, undisturbed: str):
    job = start_own(THREE, "2:6", "--tree-radix", "1", pace_us=PACE_US)
    job.reach(5)
    below = processes(job.hosts[2], "chaos_member")
    job.hosts[1].link(up=False)
    job.until_said("6 -> 4 members", 60)
    reached = job.trails.furthest()
    job.reach(reached + 3)
    assert processes(job.hosts[2], "chaos_member") == below
    until(
        lambda: not processes(job.hosts[1], "chaos_member"),
        "the end of members that nobody hears",
    )
    job.hosts[1].link(up=True)
    job.until_said("-> 6 members", 60)
    job.hurry()
    job.expect_weights(undisturbed)


def all_of(hosts: Hosts, name: str) -> set[int]:
    return {pid for host in hosts for pid in processes(host, name)}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ways(hosts: Hosts, names: dict[str, Host]) -> str:
    """An ssh command by which these names reach these hosts, by connections that are there: dozens
    of handshakes at once would take two cores longer than they may."""
    config = hosts.folder / "ways"
    blocks = "".join(f"Host {name}\nHostName {host.name}\n" for name, host in names.items())
    options = "ControlPath /tmp/way-%h\nControlPersist yes\n"
    config.write_text(options + (hosts.folder / "ssh_config").read_text() + blocks)
    for near in list(hosts)[:2]:
        for far in hosts:
            done = near.run(
                ["ssh", "-F", config, "-o", "ControlMaster=yes", "-f", "-N", far.name],
                stderr=None,
                stdout=None,
            )
            assert done.returncode == 0
    return f"ssh -F {config}"


def test_seventy_agents_are_a_tree_of_the_usual_radix(
    five_hosts: Hosts, start: Start, undisturbed: str
):
    """64 are started from here, six by the first of these, which is lost. Five have a member."""
    others = [five_hosts[0], *list(five_hosts)[2:]]
    names = {f"name{i}": others[i % len(others)] for i in range(70)} | {"name0": five_hosts[1]}
    where = ",".join(f"{name}:1" for name in names)
    job = start(
        where,
        "2:70",
        "--ssh-command",
        ways(five_hosts, names),
        "--initial-size",
        "5",
        pace_us=PACE_US,
    )
    job.reach(5)
    (inner,) = agent_of(five_hosts[1])
    started = Counter(
        parent(ssh) for host in list(five_hosts)[:2] for ssh in processes(host, "ssh")
    )
    assert started[inner] == 6 and 64 in started.values()
    agents, members = all_of(five_hosts, "regroup-agent"), all_of(five_hosts, "chaos_member")
    assert len(agents) == 70
    kill([inner])
    job.until_said("member 0 was lost", 60)
    step = job.trails.furthest()
    job.reach(step + 5)
    assert all_of(five_hosts, "regroup-agent") >= agents - {inner}
    assert len(all_of(five_hosts, "chaos_member") & members) == 4
    job.hurry()
    job.expect_weights(undisturbed)
    lost = [line for line in job.text().splitlines() if line.startswith("regroup: host ")]
    assert lost and all("host name0: " in line for line in lost), job.text()


def test_nothing_is_left_when_the_launcher_dies(five_hosts: Hosts, start: Start):
    job = start(FIVE, "2:5", "--tree-radix", "1", "--orphan-timeout", "2", pace_us=PACE_US)
    job.reach(5)
    launcher = five_hosts[0].inner(job.process)
    kill(processes(five_hosts[0], "regroup-control"))
    with contextlib.suppress(ProcessLookupError):  # it may have noticed, and ended
        os.kill(launcher, signal.SIGKILL)
    job.process.wait(60)
    until(lambda: not left_on(five_hosts), "an end of all processes", 60)
