"""Two faults at once, and the second while the job recovers from the first: same weights, every
sample once. With the guardian among the victims the job holds, then ends, and what it did until
then is right."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Hosts, until
from training import WHERE, Start, Training, agent_of, kill, left_on, processes

HOLD_S = 2  # --orphan-timeout
# Of a shard: faults meet a job that trains, however late they are. It hurries after them.
PACE_US = 100_000
VICTIMS = ("member", "host")


def begin(hosts: Hosts, start: Start, *options: str, pace_us: int = PACE_US) -> Training:
    """node2 has announced a pause: it is lost after two minutes of silence instead of 5 s."""
    notice = Path(hosts.folder) / f"notice-{time.monotonic_ns()}"
    notice.write_text("pause within=0 for=60 hosts=node2\n")
    job = start(WHERE, "2:6", "--notice-file", str(notice), *options, pace_us=pace_us)
    job.until_found(r"host node2: .*: a pause of this host in 0 s, for 60 s: the job continues", 60)
    job.reach(5)
    return job


def coordinator(job: Training) -> list[int]:
    return processes(job.hosts[0], "regroup-coord")


def guardian(job: Training) -> list[int]:
    return [job.hosts[0].inner(job.process)]


def on_node3(job: Training, victim: str) -> list[int]:
    """A host is lost at once when its agent dies."""
    host = job.hosts[2]
    return agent_of(host) if victim == "host" else processes(host, "chaos_member")[:1]


def waits_for(job: Training, name: str) -> bool:
    status = job.status()
    nodes = [node["id"] for node in status["nodes"] if node["name"] == name]
    return status["stage"] == "regrouping" and status["round"]["waiting_for_nodes"] == nodes


@contextlib.contextmanager
def regroup_of(job: Training, victims: list[int]) -> Iterator[None]:
    """The regroup that the end of these begins. It waits for the report of node2 until the block is
    left."""
    (agent,) = agent_of(job.hosts[1])
    os.kill(agent, signal.SIGSTOP)
    try:
        kill(victims)
        until(lambda: waits_for(job, "node2"), "a regroup that waits for node2", 60)
        yield
        assert "generation 2" not in job.text(), "the regroup was over before"
    finally:
        os.kill(agent, signal.SIGCONT)


def expect_recovery(job: Training, undisturbed: str) -> None:
    """A coordinator that comes while generation 1 is being left does not go on with it."""
    job.hurry()
    job.expect_weights(undisturbed)
    assert "continues with generation 1\n" not in job.text()
    assert "generation 2: " in job.text()


@pytest.mark.parametrize("victim", VICTIMS)
def test_the_coordinator_dies_while_a_regroup_runs(
    hosts: Hosts, start: Start, undisturbed: str, victim: str
):
    job = begin(hosts, start)
    with regroup_of(job, on_node3(job, victim)):
        kill(coordinator(job))
    expect_recovery(job, undisturbed)


def test_the_coordinator_dies_twice_while_a_regroup_runs(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = begin(hosts, start)
    with regroup_of(job, on_node3(job, "member")):
        (first,) = coordinator(job)
        kill([first])
        until(lambda: set(coordinator(job)) - {first}, "another coordinator", 60)
        kill(list(set(coordinator(job)) - {first}))
    expect_recovery(job, undisturbed)


def test_another_member_and_the_coordinator_die_while_a_regroup_runs(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = begin(hosts, start)
    others = processes(hosts[2], "chaos_member")[1:] + processes(hosts[1], "chaos_member")[:1]
    with regroup_of(job, on_node3(job, "member")):
        kill(others + coordinator(job))
    expect_recovery(job, undisturbed)


def test_a_host_loses_its_power_together_with_the_coordinator(start_own: Start, undisturbed: str):
    job = start_own(pace_us=PACE_US)
    job.reach(5)
    kill(coordinator(job))
    job.hosts[2].kill()
    job.hurry()
    job.expect_weights(undisturbed)
    assert "host node3: " in job.text()


def test_a_host_loses_its_power_with_the_coordinator_while_a_regroup_runs(
    own_trio: Hosts, start_own: Start, undisturbed: str
):
    job = begin(own_trio, start_own)
    with regroup_of(job, on_node3(job, "member")):
        kill(coordinator(job))
        job.hosts[2].kill()
    expect_recovery(job, undisturbed)
    assert "host node3: " in job.text()


def expect_hold_and_end(job: Training, began: float, who_hold: list[int]) -> None:
    """`who_hold`, on node1, live for a while; then nothing does. Shards begun twice had the same
    samples."""
    hosts = job.hosts
    job.process.wait(60)

    def holding() -> bool:
        return set(who_hold) <= set(processes(hosts[0], "chaos_member"))

    until(lambda: not holding(), "the end of those that held", 60)
    assert time.monotonic() - began > HOLD_S * 0.75, f"they did not hold\n{job.text()}"
    until(lambda: not left_on(hosts), "an end of all processes", 60)
    assert job.trails.shards()
    assert not job.trails.weights(), "it was over before"


def orphaned(hosts: Hosts, start: Start) -> Training:
    return begin(hosts, start, "--orphan-timeout", str(HOLD_S), pace_us=2 * PACE_US)


@pytest.mark.parametrize("victim", [*VICTIMS, "coordinator"])
def test_the_guardian_dies_together_with_another(hosts: Hosts, start: Start, victim: str):
    job = orphaned(hosts, start)
    others = processes(hosts[0], "chaos_member")
    victims = coordinator(job) if victim == "coordinator" else on_node3(job, victim)
    began = time.monotonic()
    kill(guardian(job) + victims)
    expect_hold_and_end(job, began, others)


@pytest.mark.parametrize("with_coordinator", [False, True])
def test_the_guardian_dies_while_a_regroup_runs(hosts: Hosts, start: Start, with_coordinator: bool):
    job = orphaned(hosts, start)
    others = processes(hosts[0], "chaos_member")
    with regroup_of(job, on_node3(job, "member")):
        began = time.monotonic()
        kill(guardian(job) + (coordinator(job) if with_coordinator else []))
    expect_hold_and_end(job, began, others)


def test_the_guardian_dies_together_with_a_host_that_loses_its_power(
    own_trio: Hosts, start_own: Start
):
    job = orphaned(own_trio, start_own)
    others = processes(job.hosts[0], "chaos_member")
    began = time.monotonic()
    kill(guardian(job))
    job.hosts[2].kill()
    expect_hold_and_end(job, began, others)
