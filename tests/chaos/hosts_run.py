"""Random faults on several hosts: members, agents, coordinators, whole hosts and links, two at once and again
while the job recovers. Every job ends with the undisturbed weights and nothing left."""

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))
from hosts import Hosts, until  # noqa: E402
from training import Training, kill, left_on, processes, weights_alone  # noqa: E402

EPOCHS = 12
PACE_US = 3000
MOST_PER_JOB = 8
KINDS = ("member",) * 8 + ("agent",) * 4 + ("coordinator",) * 3 + ("members",) * 2 + ("link", "stop")


class Faults:
    """Faults of one job. One host, another in each job, is left alone, so that somebody has the state."""

    def __init__(self, hosts: Hosts, rng: random.Random):
        self.hosts, self.rng = hosts, rng
        self.safe = rng.randrange(len(hosts))
        self.happened: list[str] = []
        self.heal: list[tuple[float, int, str]] = []  # when, which host, what

    def others(self) -> list[int]:
        hurt = {host for _, host, _ in self.heal}
        return [i for i in range(len(self.hosts)) if i != self.safe and i not in hurt]

    def mend(self, *, all_of_them: bool = False) -> None:
        for what in [h for h in self.heal if all_of_them or h[0] <= time.monotonic()]:
            self.heal.remove(what)
            _, host, kind = what
            if kind == "link":
                self.hosts[host].link(up=True)
            else:
                self.hosts[host].resume()

    def one(self) -> bool:
        """Tries one fault; False if it found nobody to happen to."""
        kind = self.rng.choice(KINDS)
        if kind == "coordinator":
            return self.end(kind, 0, processes(self.hosts[0], "regroup-coord"))
        if not (able := self.others()):
            return False
        host = self.rng.choice(able)
        if kind == "agent":
            return self.end(kind, host, processes(self.hosts[host], "regroup-agent")[-1:])
        if kind in ("member", "members"):
            found = processes(self.hosts[host], "chaos_member")
            return self.end(kind, host, found if kind == "members" else found[:1])
        if host == 0:  # where the launcher is: without it there is no job
            return False
        if kind == "link":
            self.hosts[host].link(up=False)
        else:
            self.hosts[host].stop()
        self.heal.append((time.monotonic() + self.rng.choice([0.3, 2.0, 7.0]), host, kind))
        self.happened.append(f"{kind}@{self.hosts[host].name}")
        return True

    def end(self, kind: str, host: int, pids: list[int]) -> bool:
        if not pids:
            return False
        try:
            kill(pids)
        except ProcessLookupError:
            return False
        self.happened.append(f"{kind}@{self.hosts[host].name}")
        return True


def run_job(hosts: Hosts, rng: random.Random, most: int, weights: str) -> list[str]:
    """One job with up to `most` faults; what happened. Raises AssertionError."""
    where = ",".join(f"{host.name}:2" for host in hosts)
    learn = ("--learner-steps", "8", "--learner-state", "1") if rng.random() < 0.5 else ()
    job = Training(hosts, where, f"2:{2 * len(hosts)}", learn, epochs=EPOCHS, pace_us=PACE_US)
    faults = Faults(hosts, rng)
    try:
        job.reach(3)
        while len(faults.happened) < most and job.process.poll() is None:
            faults.one()
            pause = rng.choice([0.0, 0.02, rng.uniform(0, 0.3), rng.uniform(0, 1.5)])
            end = time.monotonic() + pause
            while time.monotonic() < end:
                faults.mend()
                time.sleep(0.01)
        while faults.heal and job.process.poll() is None:
            faults.mend()
            time.sleep(0.05)
        faults.mend(all_of_them=True)
        job.expect_weights(weights)
        until(lambda: not left_on(hosts), f"an end of {left_on(hosts)}", 20)
    except BaseException as failure:
        raise AssertionError(f"{' '.join(faults.happened)}\n{failure}\n{job.text()}") from failure
    finally:
        faults.mend(all_of_them=True)
        job.close()
    return faults.happened


def play(count: int, wanted: int, seed: int) -> int:
    """Jobs until so many faults have happened; the number of failures, 0 or 1."""
    with tempfile.TemporaryDirectory(prefix="regroup-alone-") as name:
        weights = weights_alone(Path(name), EPOCHS)
    totals: Counter = Counter()
    jobs = 0
    while totals.total() < wanted:
        rng = random.Random(seed + jobs)
        jobs += 1
        with Hosts(count) as hosts:
            began = time.monotonic()
            try:
                happened = run_job(hosts, rng, min(MOST_PER_JOB, wanted - totals.total()), weights)
            except AssertionError as failure:
                print(f"FAILED seed {seed + jobs - 1}: {failure}", flush=True)
                return 1
        totals.update(what.split("@")[0] for what in happened)
        print(
            f"ok seed {seed + jobs - 1}: {' '.join(happened)}, {time.monotonic() - began:.1f} s", flush=True
        )
    print(f"{jobs} jobs on {count} hosts: " + ", ".join(f"{n} {what}" for what, n in totals.items()))
    return 0
