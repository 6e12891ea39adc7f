"""Random faults on several hosts: members, agents, coordinators, whole hosts and links, two at once
and again while the job recovers, and the guardian at the end of some jobs. Every other job ends
with the undisturbed weights; none leaves a process, a socket or a file; in each, hosts talk to each
other. A run goes on until each kind, two at once and another one while the job recovers have come,
and one of many faults fails if any came too seldom.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))
from hosts import Host, Hosts, until  # noqa: E402
from leftovers import Leftovers  # noqa: E402
from talk import TALK_BYTES, expect_talk, heard_since  # noqa: E402
from training import Training, left_on, processes, weights_alone  # noqa: E402

EPOCHS = 12
PACE_US = 3000
# Bytes beside the model's: of the state, which newcomers copy, and of each gradient, of which a
# part is on its way when something is lost.
BALLASTS = ((0, 0), (0, 0), (3_000_000, 0), (0, 1_500_000))
MODEL_BYTES = 4 * 650  # of a gradient
FROM_STEP = 3
MOST_PER_JOB = 8
MOST_COORDINATORS = 3
HOLD_S = 2  # --orphan-timeout
WHOLE_S = 5  # for all hosts to come; a job without one of them is not disturbed
KINDS = (
    ("member",) * 8
    + ("agent",) * 4
    + ("coordinator",) * 3
    + ("members",) * 2
    + ("link", "stop", "host")
)
MORE_AT_ONCE = 0.3  # how often a second fault comes with the first ...
AGAIN = 0.4  # ... and how often another one while the job recovers, within ...
RECOVERY_S = 0.15
EACH = tuple(dict.fromkeys(KINDS))
FIRST = 2  # faults of a job that are of the kinds whose turn it is, so that each comes soon
GUARDIAN = 5  # one job in so many ends with the loss of its guardian ...
# ... has no more faults before that, and takes its time, so that it lives until then
BEFORE_GUARDIAN = 3
GUARDIAN_PACE_US = 20_000
CHAIN = 0.4  # how often each agent but the first two is below the one before it
FEW, MANY = 40, 400  # faults from which on each of these must have come, and from which on ...
OFTEN = {  # ... once in so many, on average
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
    """Faults of one job. One host, another in each job, is left alone, so that somebody has the
    state."""

    def __init__(self, hosts: Hosts, rng: random.Random, first: Sequence[str] = ()):
        self.hosts, self.rng, self.first = hosts, rng, list(first)
        self.safe = rng.randrange(len(hosts))
        self.happened: list[str] = []
        self.ways: Counter = Counter()  # of OFTEN, those that are no kind
        self.late = False  # a fault came when the last step was open, or over
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
        """One that finds somebody to happen to, found before it is to happen: two can come at
        once."""
        kind = self.first.pop(0) if self.first else self.rng.choice(KINDS)
        if kind == "coordinator":
            if sum(what.startswith(kind) for what in self.happened) == MOST_COORDINATORS:
                return None
            host = self.hosts[0]
            victims = processes(host, "regroup-coord")
            return Fault(kind, host, lambda: end(victims)) if victims else None
        # Not that of the launcher: without it there is no job.
        far = kind in ("link", "stop", "host")
        if not (able := [host for host in self.able() if host.index > 0 or not far]):
            return None
        host = self.rng.choice(able)
        if kind in ("member", "members", "agent"):
            victims = processes(host, "regroup-agent" if kind == "agent" else "chaos_member")
            victims = (
                victims if kind == "members" else victims[-1:] if kind == "agent" else victims[:1]
            )
            return Fault(kind, host, lambda: end(victims)) if victims else None
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
    """Up to `most` faults at random moments, until what can be mended is mended or the job is
    over."""
    rng = faults.rng
    while len(faults.happened) < most and job.process.poll() is None:
        before = len(faults.happened)
        faults.blow(most - before)
        if len(faults.happened) > before and rng.random() < AGAIN:
            faults.rest(rng.uniform(0, RECOVERY_S))
            if (so_far := len(faults.happened)) < most:
                faults.blow(most - so_far)
                faults.ways["again"] += len(faults.happened) > so_far
        faults.late |= job.trails.furthest() >= job.steps
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
    until(
        lambda: not left_on(job.hosts), f"an end without the guardian of {left_on(job.hosts)}", 25
    )
    job.trails.shards()


def status_due(said: str, late: bool) -> int:
    """Exit status of a job that went well. Who is killed, or whose host is lost, behind its
    finish() had work of its own left: the job says so and has its status."""
    after_finish = (
        re.search(r"a member ended with status (1|137) after finish\(\)", said) if late else None
    )
    return int(after_finish[1]) if after_finish else 0


def first_kinds(seed: int) -> list[str]:
    return [EACH[(seed * FIRST + i) % len(EACH)] for i in range(FIRST)]


def run_job(
    hosts: Hosts, seed: int, most: int, weights: dict[tuple[int, int], str]
) -> tuple[str, Counter]:
    """One job with up to `most` faults; what happened, and how often each of OFTEN. Raises
    AssertionError."""
    rng = random.Random(seed)
    where = ",".join(f"{host.name}:2" for host in hosts)
    learn = ("--learner-steps", "8", "--learner-state", "1") if rng.random() < 0.5 else ()
    chain = ("--tree-radix", "1") if rng.random() < CHAIN else ()
    hold = ("--orphan-timeout", str(HOLD_S))
    ballast, gradient = rng.choice(BALLASTS)
    without_guardian = seed % GUARDIAN == 0
    if without_guardian:
        most = min(most, BEFORE_GUARDIAN)
    before, said_before = Leftovers(hosts), hosts.heard()
    members = f"2:{2 * len(hosts)}"
    options = (*learn, *chain, *hold)
    pace_us = GUARDIAN_PACE_US if without_guardian else PACE_US
    sizes = {"ballast": ballast, "gradient": gradient}
    job = Training(hosts, where, members, options, epochs=EPOCHS, pace_us=pace_us, **sizes)
    faults = Faults(hosts, rng, first_kinds(seed))
    try:
        job.reach(FROM_STEP)
        if together := whole(job):
            disturb(job, faults, most)
        if without_guardian:
            lose_guardian(job, faults)
        if "guardian@node1" not in faults.happened:
            job.wait()
            job.expect_weights(weights[ballast, gradient], status_due(job.text(), faults.late))
        until(lambda: not left_on(hosts), f"an end of {left_on(hosts)}", 20)
        until(lambda: not before.new(), f"nothing left behind of {before.new()}", 20)
        heard = heard_since(said_before, hosts)
        expect_talk([heard], FROM_STEP * MODEL_BYTES if together else TALK_BYTES)
    except BaseException as failure:
        how = " ".join((*options, *faults.happened))
        raise AssertionError(f"{how}\n{failure}\n{job.text()}") from failure
    finally:
        faults.mend(all_of_them=True)
        job.close(shown=False)
    kinds = Counter(what.split("@")[0] for what in faults.happened)
    carried = f"{sum(heard) / 1e6:.1f} MB heard"
    return " ".join(
        (*(["chain:"] if chain else []), *faults.happened, carried)
    ), kinds + faults.ways


def absent(totals: Counter, faults: int) -> list[str]:
    """Those of OFTEN that have not come at all, among some."""
    return [what for what in OFTEN if faults >= FEW and totals[what] == 0]


def too_rare(totals: Counter, faults: int) -> list[str]:
    """Those of OFTEN that came too seldom among so many."""
    few = [what for what, n in OFTEN.items() if faults >= MANY and totals[what] * n < faults]
    return few or absent(totals, faults)


def weights_of(ballast: int, gradient: int) -> str:
    with tempfile.TemporaryDirectory(prefix="regroup-alone-") as name:
        return weights_alone(Path(name), EPOCHS, ballast, gradient)


def play(count: int, wanted: int, seed: int) -> int:
    """Jobs until so many faults have happened, of each kind one if they are not very few; the
    number of failures, 0 or 1."""
    weights = {sizes: weights_of(*sizes) for sizes in set(BALLASTS)}
    totals: Counter = Counter()
    jobs, faults = 0, 0
    while faults < wanted or (faults < 2 * wanted and absent(totals, faults)):
        jobs += 1
        with Hosts(count) as hosts:
            began = time.monotonic()
            try:
                most = min(MOST_PER_JOB, max(FIRST, wanted - faults))
                text, happened = run_job(hosts, seed + jobs - 1, most, weights)
            except AssertionError as failure:
                print(f"FAILED seed {seed + jobs - 1}: {failure}", flush=True)
                return 1
        totals.update(happened)
        faults += text.count("@")
        took = time.monotonic() - began
        print(f"ok seed {seed + jobs - 1}: {text}, {took:.1f} s", flush=True)
    print(f"{jobs} jobs on {count} hosts: " + ", ".join(f"{totals[what]} {what}" for what in OFTEN))
    for what in (rare := too_rare(totals, faults)):
        print(
            f"FAILED {totals[what]} of {faults} faults, fewer than 1 in {OFTEN[what]}, came as: "
            f"{what}"
        )
    return 1 if rare else 0
