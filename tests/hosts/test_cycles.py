"""Members and, each fourth time, agents are killed and replaced over four hosts, again and again:
descriptors, threads and memory of what stays (the launcher's processes, agents, a member) do not
grow, nor do processes and files of any host. 12 times; 200 with REGROUP_TEST_FULL."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import started
from hosts import Hosts, until
from leftovers import files
from training import Training, agent_of, kill, processes

CYCLES = 200 if os.environ.get("REGROUP_TEST_FULL") else 12
SETTLED = CYCLES // 3  # from then on nothing grows
STEPS_TO_SETTLE = 50  # of the generation that was seen last: its members are all connected
WHERE = "node1:2,node2:2,node3:1,node4:1"
LOSE_AGENTS = (2, 3)  # in turn: those of the other hosts stay
MEMBER = "the member that stays"
LINE = 2464  # KiB that a member's line of the arena holds
# KiB that there may be more: allocators take memory in pieces, in a member with UCX of 2 MiB.
MOST = {"private": 1024, "shared": 256, "arena": 256}
# Who comes while the line of the one before is still needed takes the next free one, whose memory
# stays. One member at a time is killed: so these are all that a host with two ever needs, however
# many are.
LINES = 3
# Its place among the ranks decides to how many others it is connected.
MOST_OF_MEMBER = {**MOST, "private": 4096, "descriptors": 2}

Usage = dict[tuple[str, str], int]


@pytest.fixture
def four_hosts() -> Iterator[Hosts]:
    with started(4) as hosts:
        yield hosts


def arena_kib(pid: int) -> int:
    """Memory of the arenas that the process holds, whoever has touched it."""
    kib = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(fd).startswith("/memfd:regroup-arena"):
                kib += fd.stat().st_blocks // 2
    return kib


def usage_of(pid: int) -> dict[str, int]:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "private": int(status["RssAnon"].split()[0]),
        "shared": int(status["RssShmem"].split()[0]),
        "arena": arena_kib(pid),
    }


def lasting(hosts: Hosts, stays: int) -> dict[str, int]:
    one = {
        "regroup-control": "controller",
        "regroup-coord": "coordinator",
        "regroup-reaper": "reaper",
    }
    found = {MEMBER: stays, "guardian": processes(hosts[0], "regroup")[0]}
    found |= {what: processes(hosts[0], name)[0] for name, what in one.items()}
    return found | {f"agent of {host.name}": agent_of(host)[0] for host in list(hosts)[:2]}


def usage(hosts: Hosts, who: dict[str, int]) -> Usage:
    found = {(name, what): n for name, pid in who.items() for what, n in usage_of(pid).items()}
    for host in hosts:
        found[host.name, "processes"] = len(host.pids())
        found[host.name, "files"] = len(files(host))
    return found


def growth(before: Usage, after: Usage) -> dict[tuple[str, str], tuple[int, int]]:
    def most(name: str, what: str) -> int:
        return (MOST_OF_MEMBER if name == MEMBER else MOST).get(what, 0)

    def lines_to_come(what: str, kib: int) -> int:
        return max(LINES - kib // LINE, 0) * LINE if what == "arena" and kib else 0

    return {
        key: (n, after[key])
        for key, n in before.items()
        if after[key] > n + most(*key) + lines_to_come(key[1], n)
    }


def victims(hosts: Hosts, cycle: int, stays: int) -> list[int]:
    if cycle % 4 == 3:
        return agent_of(hosts[LOSE_AGENTS[cycle // 4 % len(LOSE_AGENTS)]])
    members = processes(hosts[cycle % len(hosts)], "chaos_member")
    return [pid for pid in members if pid != stays][:1]


def test_nothing_grows(four_hosts: Hosts):
    hosts = four_hosts
    job = Training(hosts, WHERE, "2:6", epochs=100_000, pace_us=1000)

    def settle() -> None:
        job.reach(job.trails.furthest() + STEPS_TO_SETTLE)

    try:
        settle()
        job.until_size(6)
        stays = processes(hosts[0], "chaos_member")[0]
        who = lasting(hosts, stays)
        before: Usage = {}
        for cycle in range(CYCLES):
            generation = job.status()["generation"]
            kill(victims(hosts, cycle, stays))

            def whole(than: int = generation) -> bool:
                status = job.status()
                # than + 1 where the survivors were slow and the new member came meanwhile
                return status["generation"] > than and status["size"] == 6

            until(whole, f"six members again in cycle {cycle}", 60)
            if cycle == SETTLED:
                settle()
                before = usage(hosts, who)
        settle()
        after: Usage = {}

        def released() -> bool:
            """A member that changes from one generation to the next has threads of both."""
            after.update(usage(hosts, who))
            return not growth(before, after)

        with contextlib.suppress(TimeoutError):
            until(released, "the release of the generation before")
        print(
            "\n".join(
                f"{name}, {what}: {n}, {after[name, what]}" for (name, what), n in before.items()
            )
        )
        assert not growth(before, after)
    finally:
        job.close()
