"""Random faults on several hosts: members, agents, coordinators, whole hosts and links, two at once and again
while the job recovers, and the guardian at the end of some jobs. Every other job ends with the undisturbed
weights; none leaves a process, a socket or a file. A run of many faults fails, too, if a kind, two at once or
another one while the job recovers came too seldom.
"""

import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))
from hosts import Host, Hosts, until  # noqa: E402
from leftovers import Leftovers  # noqa: E402
from training import Training, left_on, processes, weights_alone  # noqa: E402

EPOCHS = 12
PACE_US = 3000
BALLASTS = (0, 0, 3_000_000)  # bytes of state that newcomers copy beside the model's
MOST_PER_JOB = 8
MOST_COORDINATORS = 3
HOLD_S = 2  # --orphan-timeout
WHOLE_S = 5  # for all hosts to come; a job without one of them is not disturbed
KINDS = ("member",) * 8 + ("agent",) * 4 + ("coordinator",) * 3 + ("members",) * 2 + ("link", "stop", "host")
MORE_AT_ONCE = 0.3  # how often a second fault comes with the first ...
AGAIN = 0.4  # ... and how often another one while the job recovers, within ...
RECOVERY_S = 0.15
CHAIN = 0.4  # how often each agent but the first two is below the one before it
MANY = 400  # faults from which on ...
OFTEN = {  # ... each of these must have come once in so many, on average
    "member": 6,
    "agent": 8,
    "coordinator": 12,
    "members": 25,
    "link": 60,
    "stop": 80,
    "host": 200,
    "guardian": 200,
    "two at once": 20,
    "again": 12,
}


@dataclass
class Fault:
    kind: str
    host: Host
    strike: Callable[[], None]


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # who is gone already was nobody's victim


class Faults:
    """Faults of one job. One host, another in each job, is left alone, so that somebody has the state."""

    def __init__(self, hosts: Hosts, rng: random.Random):
        self.hosts, self.rng = hosts, rng
        self.safe = rng.randrange(len(hosts))
        self.happened: list[str] = []
        self.ways: Counter = Counter()  # of OFTEN, those that are no kind
        self.heal: list[tuple[float, Host, str]] = []  # when, which host, what

    def able(self) -> list[Host]:
        hurt = [host for _, host, _ in self.heal]
        return [h for h in self.hosts if h.index != self.safe and h not in hurt and not h.dead]

    def mend(self, *, all_of_them: bool = False) -> None:
        for what in [h for h in self.heal if all_of_them or h[0] <= time.monotonic()]:
            self.heal.remove(what)
            _, host, kind = what
            if kind == "link":
                host.link(up=True)
            else:
                host.resume()

    def draw(self) -> Fault | None:
        """One that finds somebody to happen to, found before it is to happen: two can come at once."""
        kind = self.rng.choice(KINDS)
        if kind == "coordinator":
            if sum(what.startswith(kind) for what in self.happened) == MOST_COORDINATORS:
                return None
            host = self.hosts[0]
            victims = processes(host, "regroup-coord")
            return Fault(kind, host, lambda: end(victims)) if victims else None
        if not (able := self.able()):
            return None
        host = self.rng.choice(able)
        if kind in ("member", "members", "agent"):
            victims = processes(host, "regroup-agent" if kind == "agent" else "chaos_member")
            victims = victims if kind == "members" else victims[-1:] if kind == "agent" else victims[:1]
            return Fault(kind, host, lambda: end(victims)) if victims else None
        if host.index == 0:  # where the launcher is: without it there is no job
            return None
        strikes = {"link": lambda: host.link(up=False), "stop": host.stop, "host": host.kill}
        return Fault(kind, host, strikes[kind])

    def strike(self, faults: list[Fault]) -> None:
        before = len(self.happened)
        for fault in faults:
            if fault.host.dead or any(fault.host is host for _, host, _ in self.heal):
                continue
            try:
                fault.strike()
            except ProcessLookupError:
                continue
            self.happened.append(f"{fault.kind}@{fault.host.name}")
            if fault.kind in ("link", "stop"):
                when = time.monotonic() + self.rng.choice([0.3, 2.0, 7.0])
                self.heal.append((when, fault.host, fault.kind))
        self.ways["two at once"] += len(self.happened) > before + 1

    def blow(self, room: int) -> None:
        """One fault or two at once."""
        count = 2 if room > 1 and self.rng.random() < MORE_AT_ONCE else 1
        self.strike([fault for fault in (self.draw() for _ in range(count)) if fault])

    def rest(self, seconds: float) -> None:
        until_then = time.monotonic() + seconds
        while time.monotonic() < until_then:
            self.mend()
            time.sleep(0.005)


def disturb(job: Training, faults: Faults, most: int) -> None:
    """Up to `most` faults at random moments, until what can be mended is mended or the job is over."""
    rng = faults.rng
    while len(faults.happened) < most and job.process.poll() is None:
        before = len(faults.happened)
        faults.blow(most - before)
        if len(faults.happened) > before and rng.random() < AGAIN:
            faults.rest(rng.uniform(0, RECOVERY_S))
            if (so_far := len(faults.happened)) < most:
                faults.blow(most - so_far)
                faults.ways["again"] += len(faults.happened) > so_far
        faults.rest(rng.choice([0.02, rng.uniform(0, 0.3), rng.uniform(0, 1.5)]))
    while faults.heal and job.process.poll() is None:
        faults.rest(0.05)
    faults.mend(all_of_them=True)


def whole(job: Training) -> bool:
    """All members were in one World: none of the hosts that are left alone was too slow to come."""

    def said() -> bool:
        return re.search(rf"generation \d+: {2 * len(job.hosts)} members", job.text()) is not None

    with contextlib.suppress(TimeoutError):
        until(lambda: said() or job.process.poll() is not None, "all members", WHOLE_S)
    return said()


def lose_guardian(job: Training, faults: Faults) -> None:
    """The job holds, then ends; what it did until then is right."""
    if job.process.poll() is not None:
        return
    os.kill(job.hosts[0].inner(job.process), signal.SIGKILL)
    faults.happened.append("guardian@node1")
    job.process.wait(10)
    until(lambda: not left_on(job.hosts), f"an end without the guardian of {left_on(job.hosts)}", 25)
    job.trails.shards()


def run_job(hosts: Hosts, rng: random.Random, most: int, weights: dict[int, str]) -> tuple[str, Counter]:
    """One job with up to `most` faults; what happened, and how often each of OFTEN. Raises AssertionError."""
    where = ",".join(f"{host.name}:2" for host in hosts)
    learn = ("--learner-steps", "8", "--learner-state", "1") if rng.random() < 0.5 else ()
    chain = ("--tree-radix", "1") if rng.random() < CHAIN else ()
    hold = ("--orphan-timeout", str(HOLD_S))
    ballast = rng.choice(BALLASTS)
    without_guardian = rng.random() < 0.2
    before = Leftovers(hosts)
    members = f"2:{2 * len(hosts)}"
    options = (*learn, *chain, *hold)
    job = Training(hosts, where, members, options, epochs=EPOCHS, pace_us=PACE_US, ballast=ballast)
    faults = Faults(hosts, rng)
    try:
        job.reach(3)
        if whole(job):
            disturb(job, faults, most)
        if without_guardian:
            lose_guardian(job, faults)
        if "guardian@node1" not in faults.happened:
            job.expect_weights(weights[ballast])
        until(lambda: not left_on(hosts), f"an end of {left_on(hosts)}", 20)
        until(lambda: not before.new(), f"nothing left behind of {before.new()}", 20)
    except BaseException as failure:
        how = " ".join((*options, *faults.happened))
        raise AssertionError(f"{how}\n{failure}\n{job.text()}") from failure
    finally:
        faults.mend(all_of_them=True)
        job.close(shown=False)
    kinds = Counter(what.split("@")[0] for what in faults.happened)
    return " ".join((*(["chain:"] if chain else []), *faults.happened)), kinds + faults.ways


def too_rare(totals: Counter, faults: int) -> list[str]:
    """Those of OFTEN that came too seldom among so many."""
    return [what for what, n in OFTEN.items() if faults >= MANY and totals[what] * n < faults]


def weights_of(ballast: int) -> str:
    with tempfile.TemporaryDirectory(prefix="regroup-alone-") as name:
        return weights_alone(Path(name), EPOCHS, ballast)


def play(count: int, wanted: int, seed: int) -> int:
    """Jobs until so many faults have happened; the number of failures, 0 or 1."""
    weights = {ballast: weights_of(ballast) for ballast in set(BALLASTS)}
    totals: Counter = Counter()
    jobs, faults = 0, 0
    while faults < wanted:
        rng = random.Random(seed + jobs)
        jobs += 1
        with Hosts(count) as hosts:
            began = time.monotonic()
            try:
                text, happened = run_job(hosts, rng, min(MOST_PER_JOB, wanted - faults), weights)
            except AssertionError as failure:
                print(f"FAILED seed {seed + jobs - 1}: {failure}", flush=True)
                return 1
        totals.update(happened)
        faults += text.count("@")
        took = time.monotonic() - began
        print(f"ok seed {seed + jobs - 1}: {text}, {took:.1f} s", flush=True)
    print(f"{jobs} jobs on {count} hosts: " + ", ".join(f"{totals[what]} {what}" for what in OFTEN))
    for what in (rare := too_rare(totals, faults)):
        print(f"FAILED fewer than one in {OFTEN[what]} faults, on average, was or came as: {what}")
    return 1 if rare else 0
