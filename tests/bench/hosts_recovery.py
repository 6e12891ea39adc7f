"""Recovery on test hosts: members that kill themselves as in ours_recovery, and agents,
coordinators and links that are taken away from outside, a link also while nobody waits for data of
that host. Hosts are namespaces with veth between them, reached by ssh."""

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import ours_recovery
from common import BIN, ROOT, BenchError, Work
from ours_recovery import Measured, Moment

sys.path.insert(0, str(ROOT / "tests/hosts"))
from hosts import Hosts, until  # noqa: E402
from training import processes  # noqa: E402

PER_HOST = 2
NOBODY = 99  # a job of so many members has no generation of full size: nobody kills itself
SETTLE_S = 1.5  # of training between two events
# One step in which every member computes for 10 s at least, on however many cores, in so small
# pieces that it soon sees that its generation is over.
LONG_STEP, LONG_SHARDS = Work(params_mb=0.1, compute_ms=20.0), 3072
SETTLED_SHARDS = 10  # of each member, and then nothing of the step's beginning is under way
Timelines = dict[str, list[Moment]]  # by host and process


class Job:
    """Six members on three hosts, or so."""

    def __init__(
        self,
        hosts: Hosts,
        work: Work,
        steps: int,
        seed: int,
        suicidal: bool,
        shards: int | None = None,
    ):
        self.hosts, self.members = hosts, PER_HOST * len(hosts)
        self.folder = Path(hosts.folder) / f"recovery-{time.monotonic_ns()}"
        self.folder.mkdir()
        own = f"{self.folder}/$(hostname)"
        whose = self.members if suicidal else NOBODY
        member = (
            f"mkdir -p {own}; exec {BIN}/recovery_member {own} {steps} {seed} {work.params_mb} "
            f"{work.compute_ms} {whose}"
        )
        where = ",".join(f"{host.name}:{PER_HOST}" for host in hosts)
        command = [
            *(str(BIN / "regroup"), "--ssh-command", " ".join(hosts.ssh), "-H", where),
            *(
                "--shards",
                str(shards or self.members),
                "-np",
                f"2:{self.members}",
                "sh",
                "-c",
                member,
            ),
        ]
        self.output = (self.folder / "output").open("w")
        self.process = hosts[0].popen(
            command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output
        )

    def text(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-3000:]

    def timelines(self) -> Timelines:
        found: Timelines = {}
        for host in self.hosts:
            folder = self.folder / host.name
            if folder.is_dir():
                for pid, moments in ours_recovery.read_timelines(folder).items():
                    found[f"{host.name}/{pid}"] = moments
        return found

    def wait(self, deadline_s: float) -> Timelines:
        try:
            status = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"recovery: it goes on for ever: {self.text()}") from None
        if status != 0:
            raise BenchError(f"recovery: regroup ended with {status}: {self.text()}")
        return self.timelines()

    def end(self) -> None:
        """As a user does it; then nothing of it is on any host."""
        if self.process.poll() is None:
            os.kill(self.hosts[0].inner(self.process), signal.SIGTERM)
        until(lambda: not self._left(), "an end of the job on all hosts", 30)

    def _left(self) -> bool:
        names = (
            "regroup-control",
            "regroup-agent",
            "regroup-reaper",
            "regroup-coord",
            "recovery_member",
        )
        return any(processes(host, name) for host in self.hosts for name in names)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.output.close()


def measure(hosts: Hosts, kills: int, work: Work, seed: int = 1) -> Measured:
    """As ours_recovery.measure: seconds by quantity, of members that kill themselves."""
    job = Job(hosts, work, kills * ours_recovery.STEPS_PER_KILL + 60, seed, suicidal=True)
    try:
        timelines = job.wait(60 + 20 * kills)
    finally:
        job.close()
    found = list(ours_recovery.kills_in(timelines))
    if len(found) < kills:
        raise BenchError(
            f"recovery: {len(found)} of {kills} kills happened in the steps that there were"
        )
    everybody = Work(work.params_mb, work.compute_ms, job.members)
    return ours_recovery.quantities(timelines, found, everybody)


def stall(timelines: Timelines, at: int, normal: float, away: str) -> float:
    """How much later than undisturbed the slowest member elsewhere committed the two steps after
    `at`."""
    worst = None
    for key, moments in timelines.items():
        commits = [m.at for m in moments if m.what == "committed"]
        before = [c for c in commits if c <= at]
        after = [c for c in commits if c > at][:2]
        if key.startswith(away) or not before or len(after) < 2:
            continue
        worst = max(worst or 0.0, (after[1] - before[-1]) / 1e9 - 2 * normal)
    if worst is None:
        raise BenchError("recovery: nobody went on after an event")
    return worst


def kill_one(hosts: Hosts, host: int, name: str) -> None:
    found = processes(hosts[host], name)
    if not found:
        raise BenchError(f"recovery: no {name} on {hosts[host].name}")
    os.kill(found[-1], signal.SIGKILL)


def events(hosts: Hosts, rounds: int, work: Work) -> Measured:
    """Seconds that each kind of event adds to a step of the members that it leaves."""
    job = Job(hosts, work, 1_000_000, 1, suicidal=False)
    last = len(hosts) - 1
    kinds: dict[str, tuple[str, Callable[[], None], Callable[[], None]]] = {
        "agent": (hosts[last].name, lambda: kill_one(hosts, last, "regroup-agent"), lambda: None),
        "coordinator": ("-", lambda: kill_one(hosts, 0, "regroup-coord"), lambda: None),
        "link": (
            hosts[last].name,
            lambda: hosts[last].link(up=False),
            lambda: hosts[last].link(up=True),
        ),
    }
    moments: list[tuple[str, int]] = []
    try:
        for _ in range(rounds):
            for kind, (away, begin, end) in kinds.items():
                until(lambda: size(job) == job.members, f"all members, before a lost {kind}", 60)
                time.sleep(SETTLE_S)
                at = time.monotonic_ns()
                begin()
                moments.append((kind, at))
                until(
                    lambda a=at, h=away: committed_after(job, a, h) >= 3,
                    f"steps after a lost {kind}",
                    60,
                )
                end()
        timelines = job.timelines()
    finally:
        job.close()
    normal = statistics.median(ours_recovery.undisturbed_steps(timelines, job.members))
    out: Measured = defaultdict(list)
    for kind, at in moments:
        out[kind].append(stall(timelines, at, normal, kinds[kind][0]))
    out["step"] = ours_recovery.undisturbed_steps(timelines, job.members)
    return dict(out)


def regrouped(timelines: Timelines, at: int, away: str) -> float | None:
    """Seconds from `at` until the last member elsewhere is in a later World; None: not all are."""
    joined = []
    for key, moments in timelines.items():
        if key.startswith(away) or moments[0].at > at:
            continue
        found = ours_recovery.first_after(moments, "joined", at)
        if found is None:
            return None
        joined.append(found.at)
    return (max(joined) - at) / 1e9 if joined else None


def all_compute(job: Job) -> bool:
    """Every member is in the first World of all, and has computed for a while."""
    sealed = [
        sum(1 for m in moments if m.what == "sealed" and m.size == job.members)
        for moments in job.timelines().values()
    ]
    return len(sealed) == job.members and min(sealed) >= SETTLED_SHARDS


def unnoticed(hosts: Hosts, rounds: int) -> list[float]:
    """Seconds from a link that goes down while all members compute, so that nobody waits for data
    of that host, until the last member elsewhere is in the next World: only the agent's silence
    tells."""
    return [unnoticed_once(hosts) for _ in range(rounds)]


def unnoticed_once(hosts: Hosts) -> float:
    job = Job(hosts, LONG_STEP, 1, 1, suicidal=False, shards=LONG_SHARDS)
    away = hosts[len(hosts) - 1]
    try:
        until(lambda: all_compute(job), "all members compute", 60)
        at = time.monotonic_ns()
        away.link(up=False)
        took = until(
            lambda: regrouped(job.timelines(), at, away.name), "a next World without a host", 60
        )
        check_unnoticed(job.text(), job.timelines(), at, away.name)
        away.link(up=True)
        job.end()
    except TimeoutError as error:
        raise BenchError(f"recovery: {error}: {job.text()}") from None
    finally:
        away.link(up=True)
        job.close()
    return took


def check_unnoticed(said: str, timelines: Timelines, at: int, away: str) -> None:
    """Raises BenchError unless the agent's link alone told: it has said nothing, or taken nothing,
    for 5 s, whichever comes first."""
    silent = "no message from its agent|the connection to its agent is lost: .*no acknowledgement"
    if not re.search(f"host {away}: ({silent})", said):
        raise BenchError(
            f"recovery: {away} was given up for another reason than its silence: {said}"
        )
    for moments in timelines.values():
        if any(m.what in ("gathered", "reduced", "committed") and m.at > at for m in moments):
            raise BenchError(
                "recovery: a member was done with the step that was to outlast the silence"
            )


def size(job: Job) -> int:
    """Members of the newest generation that somebody has written down."""
    last = [moments[-1] for moments in job.timelines().values() if moments]
    return max(last, key=lambda m: (m.generation, m.at)).size if last else 0


def committed_after(job: Job, at: int, away: str) -> int:
    """Steps that each member elsewhere, if it lives, has committed since."""
    counts = [
        sum(1 for m in moments if m.what == "committed" and m.at > at)
        for key, moments in job.timelines().items()
        if not key.startswith(away) and moments[0].at < at and moments[-1].at > at - 1_000_000_000
    ]
    return min(counts, default=0)
