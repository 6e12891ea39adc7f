"""Members are killed and replaced over three hosts, again and again: descriptors, threads and memory of hub,
coordinator, agents and of a member that stays do not grow. 12 times; 200 with REGROUP_TEST_FULL."""

import contextlib
import dataclasses
import os
from pathlib import Path

from hosts import Hosts, until
from training import WHERE, Training, kill, processes

CYCLES = 200 if os.environ.get("REGROUP_TEST_FULL") else 12
SETTLED = CYCLES // 3  # from then on nothing grows
STEPS_TO_SETTLE = 5  # of the generation that was seen last
MOST_MIB = 4.0  # of memory, which allocators take in pieces


@dataclasses.dataclass(frozen=True)
class Usage:
    descriptors: int
    threads: int
    mib: float

    def exceeds(self, before: "Usage") -> bool:
        return (
            self.descriptors > before.descriptors
            or self.threads > before.threads
            or self.mib > before.mib + MOST_MIB
        )


def usage_of(pid: int) -> Usage:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Usage(
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(status["Threads"]),
        mib=int(status["RssAnon"].split()[0]) / 1024,
    )


def lasting(hosts: Hosts, stays: int) -> dict[str, int]:
    found = {
        "hub": processes(hosts[0], "regroup-hub")[0],
        "coordinator": processes(hosts[0], "regroup-coord")[0],
        "a member": stays,
    }
    return found | {f"agent of {host.name}": processes(host, "regroup-agent")[-1] for host in hosts}


def test_nothing_grows(hosts: Hosts):
    job = Training(hosts, WHERE, "2:6", epochs=100_000, pace_us=1000)
    try:
        job.reach(10)
        job.until_size(6)
        stays = processes(hosts[0], "chaos_member")[0]
        who = lasting(hosts, stays)
        before = {}
        for cycle in range(CYCLES):
            generation = job.status()["generation"]
            host = hosts[cycle % len(hosts)]
            kill([pid for pid in processes(host, "chaos_member") if pid != stays][:1])

            def whole(than: int = generation) -> bool:
                status = job.status()
                return status["generation"] >= than + 2 and status["size"] == 6

            until(whole, f"six members again in cycle {cycle}", 60)
            if cycle == SETTLED:
                job.reach(job.trails.furthest() + STEPS_TO_SETTLE)
                before = {name: usage_of(pid) for name, pid in who.items()}

        def grown() -> dict[str, tuple[Usage, Usage]]:
            after = {name: usage_of(pid) for name, pid in who.items()}
            return {name: (before[name], after[name]) for name in who if after[name].exceeds(before[name])}

        # A member that changes from one generation to the next has threads of both.
        with contextlib.suppress(TimeoutError):
            until(lambda: not grown(), "the release of the generation before", 20)
        assert not grown()
    finally:
        job.close()
