"""The ssh session that has started an agent stays open, and says nothing, as long as the job runs.
When it ends, its host is lost; when nothing comes through it any more, nobody minds."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, Hosts, until
from test_run import Done, nothing_is_left  # noqa: F401
from test_run import start as start_rigid
from training import WHERE, Start, kill, processes

PACE_US, LONG_PACE_US = 50_000, 300_000  # of a shard, until a test has done what it is about
LOST = "host node2: the connection to its agent is lost: "


def session(host: Host, name: str) -> int:
    """Who has started the agent of that host from this one: a child of the launcher, or of an
    agent."""

    def there(pid: int) -> bool:
        return Path(f"/proc/{pid}/cmdline").read_bytes().endswith(f"\0{name}\0/bin/sh\0".encode())

    (pid,) = [pid for pid in processes(host, "ssh") if there(pid)]
    parent = re.search(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert Path(f"/proc/{parent[1]}/comm").read_text().startswith("regroup"), "it is not ours"
    return pid


@contextlib.contextmanager
def forgotten(host: Host) -> Iterator[None]:
    """A firewall before the host takes nothing of ssh any more, and does not say so."""
    rules = ("INPUT -i eth0 -p tcp --dport 22 -j DROP", "OUTPUT -o eth0 -p tcp --sport 22 -j DROP")
    for rule in rules:
        host.network("iptables", "-A", *rule.split())
    try:
        yield
    finally:
        for rule in rules:
            host.network("iptables", "-D", *rule.split())


def test_a_session_ends_and_its_host_comes_back(hosts: Hosts, start: Start, undisturbed: str):
    job = start(pace_us=LONG_PACE_US)
    job.reach(5)
    kill([session(hosts[0], "node2")])
    job.until_said("its host was lost): 6 -> 4 members", 60)
    job.until_said("-> 6 members", 60)
    session(hosts[0], "node2")  # another one
    job.hurry()
    job.expect_weights(undisturbed)
    assert LOST in job.text()


def test_a_session_from_another_host_is_needed_no_more(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = start(WHERE, "2:6", "--tree-radix", "1", pace_us=PACE_US)
    job.reach(10)
    kill([session(hosts[1], "node3")])
    job.reach(job.trails.furthest() + 10)
    job.hurry()
    job.expect_weights(undisturbed)
    assert "lost" not in job.text()


@pytest.mark.parametrize("tree", [(), ("--tree-radix", "1")], ids=["star", "chain"])
def test_a_session_ends_and_a_job_of_n_members_with_it(hosts: Hosts, tree: tuple[str, ...]):
    """In the chain node3 is below node2, and is not named."""
    job = start_rigid(
        hosts, *tree, "-H", "node1,node2,node3", "sh", "-c", "echo ready; exec sleep 1000"
    )
    assert [job.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    kill([session(hosts[0], "node2")])
    done = Done(job)
    assert done.status == 1
    assert done.err.startswith(f"regroup: {LOST}") and done.err.count("\n") == 1, done.err
    until(lambda: not any(processes(host, "sleep") for host in hosts), "an end of all members")


def test_a_session_that_a_firewall_has_forgotten_costs_nothing(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = start(pace_us=PACE_US)
    job.reach(10)
    with forgotten(hosts[1]):
        job.reach(job.trails.furthest() + 10)
        job.hurry()
        job.expect_weights(undisturbed)
        assert "lost" not in job.text()
        # TCP would give up after minutes
        until(lambda: not processes(hosts[0], "ssh"), "an end of the sessions", 60)
