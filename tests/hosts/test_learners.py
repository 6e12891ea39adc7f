"""Members that join learn while the others train: from agents of other hosts, and are admitted with
the same weights; whoever is lost meanwhile harms nobody."""

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator

import pytest
from hosts import Host, Hosts, until
from training import EPOCHS, WHERE, Start, Training, agent_of, kill, ports, processes, weights_alone

LEARN = ("--learner-steps", "8", "--learner-state", "1", "--initial-size", "2")
# A transfer takes seconds: the state is large for the learner's link; the ring holds the steps
# meanwhile.
BALLAST = 3_000_000
RATE = "3mbit"
RATE_OF_TWO = "1500kbit"
LONG = {"pace_us": 300_000, "ballast": BALLAST}
LONG_LEARN = ("--learner-steps", "64", "--learner-state", "1", "--initial-size")


@pytest.fixture(scope="module")
def undisturbed_large(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), EPOCHS, BALLAST)


def sentences(job: Training) -> str:
    return "\n".join(sentence["why"] for sentence in job.status()["history"])


def listening(hosts: Hosts) -> list[int]:
    return [
        port for host in hosts for pid in processes(host, "regroup-agent") for port in ports(pid)
    ]


def learners_of(said: str) -> list[str]:
    """The last learner of each state transfer so far."""
    return re.findall(r"state transfer \d+ for members? (?:\d+, )*(\d+)", said)


def learners(job: Training) -> list[str]:
    return learners_of(sentences(job))


def in_transfer(job: Training, count: int, host: Host, share: float) -> str:
    """Waits until the learner of that state transfer, on `host`, has this share of the state; its
    number."""
    until(lambda: len(learners(job)) >= count, f"transfer {count}")
    here = host.received() + share * BALLAST
    until(lambda: host.received() > here, f"{share} of the state")
    said = sentences(job)
    found = learners_of(said)
    assert len(found) == count, said
    assert f"member {found[-1]} has caught up" not in said, said
    return found[-1]


def expect_learned(job: Training, size: int, lost: list[str], undisturbed: str) -> None:
    """Another than the lost ones has learned, and nobody in the World was the worse for it."""
    job.until_size(size)
    said = sentences(job)
    assert f"member {learners(job)[-1]} has caught up" in said, said
    assert all(f"member {member} has caught up" not in said for member in lost), said
    job.hurry()
    job.expect_weights(undisturbed)


def test_members_on_another_host_learn(hosts: Hosts, start: Start, undisturbed: str):
    job = start(WHERE, "2:6", *LEARN, pace_us=200_000)
    job.reach(3)
    before = hosts[0].sent()
    assert listening(hosts) == []
    job.control("resize", "4")
    job.until_size(4)
    print(sentences(job))
    assert "has caught up" in sentences(job)
    assert listening(hosts), "an agent that serves a state transfer listens"
    assert hosts[0].sent() > before
    job.hurry()
    job.expect_weights(undisturbed)


def test_learners_are_killed_one_after_another(hosts: Hosts, start: Start, undisturbed_large: str):
    job = start("node1:2,node2:1", "2:3", *LONG_LEARN, "2", **LONG)
    job.reach(3)
    hosts[1].slow(RATE)
    try:
        job.control("resize", "3")
        lost = []
        for share in (0.05, 0.5, 0.7):
            lost.append(in_transfer(job, len(lost) + 1, hosts[1], share))
            kill(processes(hosts[1], "chaos_member"))
        # One that stands still while all comes, and has applied nothing of it.
        lost.append(in_transfer(job, len(lost) + 1, hosts[1], 0.05))
        (learner,) = processes(hosts[1], "chaos_member")
        os.kill(learner, signal.SIGSTOP)
        here = hosts[1].received() + BALLAST
        until(lambda: hosts[1].received() > here, "the whole state")
        kill([learner])
    finally:
        hosts[1].slow(None)
    assert job.status()["generation"] == 1, "a learner that is lost is no matter of the World"
    expect_learned(job, 3, lost, undisturbed_large)


def test_a_learners_host_loses_its_power(start_own: Start, undisturbed_large: str):
    job = start_own("node1:2,node2:1,node3:1", "2:3", *LONG_LEARN, "2", **LONG)
    job.reach(3)
    job.hosts[1].slow(RATE)
    job.control("resize", "3")
    lost = in_transfer(job, 1, job.hosts[1], 0.5)
    job.hosts[1].kill()
    expect_learned(job, 3, [lost], undisturbed_large)
    assert "host node2: " in job.text()


def test_a_spare_is_killed_while_it_learns(hosts: Hosts, start: Start, undisturbed_large: str):
    job = start("node1:2,node2:2", "1:4", *LONG_LEARN, "2", "--spares", "1", **LONG)
    job.reach(3)
    (spare,) = until(lambda: processes(hosts[1], "chaos_member"), "a spare")
    hosts[1].slow(RATE)
    try:
        kill(processes(hosts[0], "chaos_member")[:1])
        lost = in_transfer(job, 1, hosts[1], 0.5)
        assert lost == "2", sentences(job)
        kill([spare])
    finally:
        hosts[1].slow(None)
    expect_learned(job, 2, [lost], undisturbed_large)


@contextlib.contextmanager
def heard_from(host: Host, others: list[Host]) -> Iterator[Callable[[], list[int]]]:
    """Counts the bytes over TCP that come to `host` from each of the others."""
    rules = [f"INPUT -p tcp -s {other.address}".split() for other in others]
    for rule in rules:
        host.network("iptables", "-A", *rule)

    def count() -> list[int]:
        said = host.network("iptables", "-L", "INPUT", "-n", "-v", "-x").splitlines()
        return [
            int(
                next(
                    line.split()[1]
                    for line in said
                    if re.search(rf"\b{re.escape(other.address)}\b", line)
                )
            )
            for other in others
        ]

    try:
        yield count
    finally:
        for rule in rules:
            host.network("iptables", "-D", *rule)


def lose_a_source(job: Training, index: int, strike: Callable[[], None], undisturbed: str) -> None:
    """node1 and node2 serve their state to node3 in the job's first or second World; in the middle
    of the transfer `strike` removes one of them."""
    sources, learner = [job.hosts[0], job.hosts[1]], job.hosts[2]
    job.reach(3)
    if job.status()["size"] == 3:
        job.control("resize", "2")
        job.until_size(2)
        until(lambda: not processes(learner, "chaos_member"), "the end of who left")
    assert job.status()["generation"] <= 2
    with heard_from(learner, sources) as heard:
        for source in sources:  # their parts come equally fast
            source.slow(RATE_OF_TWO)
        try:
            before = heard()
            job.control("resize", "3")
            learner_id = in_transfer(job, 1, learner, 0.4)
            (pid,) = processes(learner, "chaos_member")
            strike()
            half = [now - then for now, then in zip(heard(), before, strict=True)]
            assert all(BALLAST * 0.1 < given < BALLAST * 0.45 for given in half), f"halfway: {half}"
            until(lambda: len(learners(job)) >= 2, "another transfer")
            before = heard()
        finally:
            for source in sources:
                source.slow(None)
        until(
            lambda: f"member {learner_id} has caught up" in sentences(job),
            "the end of the transfer",
        )
        after = [now - then for now, then in zip(heard(), before, strict=True)]
        assert after[1 - index] > BALLAST / 2 > BALLAST / 10 > after[index], (
            "the remaining source serves the rest"
        )
    said = sentences(job)
    print(said)
    transfers = re.findall(rf"state transfer (\d+) for members? (?:\d+, )*{learner_id}\b", said)
    assert len(transfers) == 2, "it learns anew, and once"
    over = (
        f"state transfer {transfers[0]} ended: host {sources[index].name} was lost while it served "
        f"the state"
    )
    cannot = (
        f"state transfer {transfers[0]}: member {learner_id} failed: host {sources[index].name}: "
    )
    assert over in said or cannot in said, said
    until(lambda: job.status()["size"] >= 2, "a World with it")
    assert processes(learner, "chaos_member") == [pid]
    job.hurry()
    job.expect_weights(undisturbed)


@pytest.mark.parametrize(("index", "size"), [(0, 2), (1, 2), (1, 3)])
def test_the_agent_of_one_of_two_sources_dies(
    start: Start, undisturbed_large: str, index: int, size: int
):
    job = start("node1:1,node2:1,node3:1", "1:3", *LONG_LEARN, str(size), **LONG)
    lose_a_source(job, index, lambda: kill(agent_of(job.hosts[index])), undisturbed_large)


def test_the_host_of_one_of_two_sources_loses_its_power(start_own: Start, undisturbed_large: str):
    job = start_own("node1:1,node2:1,node3:1", "1:3", *LONG_LEARN, "3", **LONG)
    lose_a_source(job, 1, job.hosts[1].kill, undisturbed_large)
