"""One random schedule: an elastic job of C++ members, killed, joined and given notice at random moments.

The verdict uses only what the members wrote down: final weights, and every shard that was handed to
somebody to compute. Nothing of the runtime's own bookkeeping is asked.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

SAMPLES = 1797
BATCH = 64
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)
JOB_DEADLINE_S = 120.0


class Broken(Exception):
    """The promise that this schedule broke."""


@dataclass
class Schedule:
    """What happens to the job, all drawn from `seed`."""

    seed: int
    shards: int
    start: int
    smallest: int = 1
    largest: int = 6
    epochs: int = 4
    pace_us: int = 500
    replace: str = "auto"
    events: list[tuple[float, str]] = field(default_factory=list)  # (seconds after the first shard, what)

    @staticmethod
    def draw(seed: int) -> "Schedule":
        rng = random.Random(seed)
        schedule = Schedule(seed, rng.choice([4, 6, 16]), rng.randint(1, 6))
        schedule.replace = rng.choice(["auto", "never"])
        length = schedule.epochs * STEPS_PER_EPOCH * schedule.shards * schedule.pace_us / 1e6 / 2
        for _ in range(rng.randint(1, 6)):
            what = rng.choice(["kill", "kill", "join", "notice"])
            schedule.events.append((rng.uniform(-0.02, 1.0) * length, what))
        schedule.events.sort()
        return schedule

    def __str__(self) -> str:
        events = " ".join(f"{what}@{at:.2f}" for at, what in self.events)
        what = f"V={self.shards} start={self.start} replace={self.replace}"
        return f"seed {self.seed}: {what} {events or 'no events'}"


class Job:
    """A running `regroup` with its own runtime directory, so that control commands find it alone."""

    def __init__(self, schedule: Schedule, program: list[str], folder: Path, regroup: str) -> None:
        self.regroup = regroup
        self.folder = folder
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        self.output = (folder / "output").open("wb")
        self.process = subprocess.Popen(
            [
                *(regroup, "--oversubscribe", "--shards", str(schedule.shards), "--seed", "7"),
                *("--start", str(schedule.start), "--replace", schedule.replace),
                *("-np", f"{schedule.smallest}:{schedule.largest}", *program),
            ],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
        )

    def control(self, *words: str) -> str | None:
        """Output of a control command; nothing if the job is over or not up yet."""
        done = subprocess.run(
            [self.regroup, *words], env=self.env, capture_output=True, text=True, timeout=20, check=False
        )
        return done.stdout if done.returncode == 0 else None

    def members(self) -> list[int]:
        """Processes that joined and live; they are named by their audit trails."""
        pids = [int(path.suffix[1:]) for path in self.folder.glob("computed.*")]
        return [pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and not is_zombie(pid)]

    def staying(self) -> list[int]:
        """Members of the World that were not given notice, as the job says; only to choose one of them."""
        listed = json.loads(self.control("status", "--json") or '{"members": []}')["members"]
        return [m["id"] for m in listed if m["state"] == "active" and "leave_wanted" not in m]

    def wait(self) -> int:
        try:
            return self.process.wait(JOB_DEADLINE_S)
        except subprocess.TimeoutExpired:
            status = self.control("status", "--json")
            self.process.kill()
            self.process.wait()
            raise Broken(f"hang: {status}\n{self.text()}") from None

    def text(self) -> str:
        self.output.flush()
        return (self.folder / "output").read_text(errors="replace")[-4000:]


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for_training(job: Job) -> float:
    """When somebody wrote down the first shard, or the job ended, or nothing happened for too long."""
    end = time.monotonic() + JOB_DEADLINE_S
    while time.monotonic() < end and job.process.poll() is None:
        if any(path.stat().st_size for path in job.folder.glob("computed.*")):
            break
        time.sleep(0.002)
    return time.monotonic()


def holders(job: Job) -> list[int]:
    """Living processes that computed something, so they have the state. Without one the job is over."""
    return [pid for pid in job.members() if (job.folder / f"computed.{pid}").stat().st_size]


def perform(job: Job, what: str, rng: random.Random, noticed: int) -> bool:
    """True if it happened: the last with the state is left alone (`noticed` of them may be leaving)."""
    if what == "join":
        return job.control("resize", str(min(6, len(job.members()) + 1))) is not None
    able = holders(job)
    if len(able) - noticed < 2:
        return False
    if what == "notice":
        staying = job.staying()
        return bool(staying) and job.control("notice", str(rng.choice(staying))) is not None
    try:
        os.kill(rng.choice(able), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def read_trails(folder: Path) -> list[tuple[int, int, tuple[int, ...]]]:
    """(step, leaf, samples) of every shard handed out; a line cut by SIGKILL was not computed."""
    found = []
    for path in folder.glob("computed.*"):
        for line in path.read_text().split("\n")[:-1]:
            step, leaf, *samples = map(int, line.split())
            found.append((step, leaf, tuple(samples)))
    return found


def check_epochs(used: Iterable[tuple[int, int]], epochs: int) -> None:
    """`used`: (step, sample), each once. Every sample belongs to exactly one step of each epoch."""
    per_epoch = [Counter() for _ in range(epochs)]
    for step, sample in used:
        if not 1 <= step <= epochs * STEPS_PER_EPOCH:
            raise Broken(f"sample {sample} was used in step {step}")
        per_epoch[(step - 1) // STEPS_PER_EPOCH][sample] += 1
    for epoch, counts in enumerate(per_epoch):
        once = sum(1 for sample, n in counts.items() if n == 1 and sample < SAMPLES)
        if once != SAMPLES or len(counts) != SAMPLES:
            raise Broken(f"epoch {epoch}: {SAMPLES - once} samples not used exactly once")


def check_trails(folder: Path, schedule: Schedule, kills: int) -> int:
    """Every sample once per epoch, and no more computed twice than the kills explain. Returns the excess."""
    trails = read_trails(folder)
    shards = {(step, leaf): samples for step, leaf, samples in trails}
    if any(shards[step, leaf] != samples for step, leaf, samples in trails):
        raise Broken("two members computed different samples for one shard")
    check_epochs(((step, i) for (step, _), samples in shards.items() for i in samples), schedule.epochs)
    excess = len(trails) - len(shards)
    # A kill can cost the one shard that its victim had not sealed yet; leaves and joins cost nothing.
    if excess > kills:
        raise Broken(f"{excess} shards computed again, {kills} kills explain one each")
    return excess


def check_accesses(folder: Path, schedule: Schedule, kills: int) -> int:
    """The same of what __getitem__ handed out, over all processes. Returns the excess, in shards."""
    lines = [line for path in folder.glob("computed.*") for line in path.read_text().split("\n")[:-1]]
    accesses = Counter(tuple(map(int, line.split())) for line in lines)
    check_epochs(accesses, schedule.epochs)
    largest = -(-BATCH // schedule.shards)
    excess = accesses.total() - len(accesses)
    if excess > kills * largest:
        raise Broken(f"{excess} samples computed again, {kills} kills explain {largest} each")
    return -(-excess // largest)


@dataclass
class Outcome:
    """What a schedule that kept its promises came to."""

    weights: str
    happened: Counter  # of the events; the others found nobody to happen to
    excess: int  # shards computed again
    seconds: float

    def __str__(self) -> str:
        done = " ".join(f"{n} {what}" for what, n in self.happened.items() if n)
        return f"{done or 'nothing'}, {self.excess} shards computed again, {self.seconds:.1f} s"


def run(schedule: Schedule, program: list[str], regroup: str, check=check_trails) -> Outcome:
    """Runs the schedule. Raises Broken."""
    with tempfile.TemporaryDirectory(prefix="regroup-chaos-") as name:
        folder = Path(name)
        command = [word.format(folder=name) for word in program]
        command += [str(schedule.epochs), str(schedule.pace_us)]
        job = Job(schedule, command, folder, regroup)
        rng = random.Random(schedule.seed + 1)
        began = time.monotonic()
        first_shard = wait_for_training(job)
        happened = Counter()
        for at, what in schedule.events:
            try:
                job.process.wait(max(0.0, first_shard + at - time.monotonic()))
                break  # over already
            except subprocess.TimeoutExpired:
                happened[what] += perform(job, what, rng, happened["notice"])
        status = job.wait()
        if status != 0:
            raise Broken(f"exit status {status}\n{job.text()}")
        if left := job.members():
            raise Broken(f"processes left behind: {left}")
        excess = check(folder, schedule, happened["kill"])
        weights = (folder / "weights").read_text()
    return Outcome(weights, happened, excess, time.monotonic() - began)
