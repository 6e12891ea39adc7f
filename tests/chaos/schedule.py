"""One random schedule: an elastic job, its members killed, joined and given notice at random
moments."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SAMPLES = 1797
BATCH = 64
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)
# newcomer: one more, killed before it computes
KINDS = ("kill", "kill", "join", "notice", "newcomer")
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
    learn: bool = False  # who joins learns while the others train, though the state is small
    # (share of the steps behind it, what)
    events: list[tuple[float, str]] = field(default_factory=list)

    @staticmethod
    def draw(seed: int) -> "Schedule":
        rng = random.Random(seed)
        schedule = Schedule(seed, rng.choice([4, 6, 16]), rng.randint(1, 6))
        schedule.replace = rng.choice(["auto", "never"])
        schedule.events = [(rng.random(), rng.choice(KINDS)) for _ in range(rng.randint(1, 6))]
        schedule.events.sort()
        schedule.learn = rng.random() < 0.5
        return schedule

    @property
    def steps(self) -> int:
        return self.epochs * STEPS_PER_EPOCH

    def __str__(self) -> str:
        events = " ".join(f"{what}@{at:.2f}" for at, what in self.events)
        what = (
            f"V={self.shards} start={self.start} "
            f"replace={self.replace}{' learn' if self.learn else ''}"
        )
        return f"seed {self.seed}: {what} {events or 'no events'}"


class Job:
    """A running `regroup` with its own runtime directory, so that control commands find it
    alone."""

    def __init__(
        self,
        schedule: Schedule,
        program: list[str],
        folder: Path,
        regroup: str,
        words: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.regroup = regroup
        self.folder = folder
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), **(env or {})}
        self.output = (folder / "output").open("wb")
        self.process = subprocess.Popen(
            [
                *(regroup, "--oversubscribe", "--shards", str(schedule.shards), "--seed", "7"),
                *("--initial-size", str(schedule.start), "--replace", schedule.replace),
                *(("--learner-steps", "8", "--learner-state", "1") if schedule.learn else ()),
                *words,
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
            [self.regroup, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return done.stdout if done.returncode == 0 else None

    def members(self) -> list[int]:
        """Processes that joined and live; they are named by their audit trails."""
        return [pid for pid in named(self.folder, "computed") if state_of(pid) not in "XZ"]

    def staying(self) -> list[int]:
        """Members of the World that were not given notice, as the job says; only to choose one of
        them."""
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


def state_of(pid: int) -> str:
    """As /proc says: Z of a zombie, T of a stopped process; X of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def named(folder: Path, kind: str) -> dict[int, Path]:
    """The files KIND.PID of the members."""
    found = folder.glob(f"{kind}.*")
    return {int(path.suffix[1:]): path for path in found if path.suffix[1:].isdigit()}


def wait_for_training(job: Job) -> None:
    """Until somebody wrote down the first shard, or the job ended, or nothing happened for too
    long."""
    end = time.monotonic() + JOB_DEADLINE_S
    while time.monotonic() < end and job.process.poll() is None and not furthest(job.folder):
        time.sleep(0.002)


def furthest(folder: Path) -> int:
    """The highest step of which somebody has begun a shard."""
    step = 0
    for path in named(folder, "computed").values():
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().split(b"\n")
        if len(lines) > 1:
            step = max(step, int(lines[-2].split()[0]))
    return step


def member_of(pid: int) -> int | None:
    """The member that a process was started as."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next(
        (int(v.split(b"=")[1]) for v in variables if v.startswith(b"REGROUP_MEMBER=")), None
    )


class Disturber:
    """Performs the events of a schedule, and remembers what really happened."""

    def __init__(self, job: Job, schedule: Schedule) -> None:
        self.job = job
        self.schedule = schedule
        self.rng = random.Random(schedule.seed + 1)
        self.happened = Counter()
        self.killed: set[int] = set()
        self.noticed: set[int] = set()  # the processes
        self.killed_late = False  # when the last step was open, or over
        self.first = set(named(job.folder, "computed"))
        self.hunts: list[set[int]] = []  # newcomers to kill; of each, the processes that are none
        self.began = time.monotonic()
        self.planes: set[str] = set()  # that the job was seen to use, if anybody wants to know

    def play(self, look: Callable[[Job], set[str]] | None = None) -> None:
        for at, what in self.schedule.events:
            if look is not None:
                self.planes |= look(self.job)
            if not self.reach(at * self.schedule.steps):
                return
            self.happened[what] += self.perform(what)
        if self.hunts:
            self.reach(float("inf"))

    def reach(self, moment: float) -> bool:
        """Waits for a moment of training, 7.5 in the middle of step 8. False: the job ended
        before."""
        while self.job.process.poll() is None:
            if furthest(self.job.folder) > moment:
                time.sleep(moment % 1 * self.step_time())
                return True
            self.happened["newcomer"] += self.hunt()
            time.sleep(0.0002 if self.hunts else 0.002)
        return False

    def step_time(self) -> float:
        return (time.monotonic() - self.began) / max(1, furthest(self.job.folder))

    def perform(self, what: str) -> bool:
        """True if it happened: the last with the state is left alone."""
        if what == "join":
            return self.add_one()
        if what == "newcomer":
            self.hunts.append(set(named(self.job.folder, "computed")))
            self.add_one()
            return False  # reach() tells
        able = self.holders()
        faulty = named(self.job.folder, "faulty")  # may end at any time by themselves
        if len(set(able) - faulty.keys()) - self.happened["notice"] < 2:
            return False
        if what == "notice":
            staying = self.job.staying()
            return bool(staying) and self.notice(self.rng.choice(staying))
        return self.kill(self.rng.choice(able))

    def notice(self, member: int) -> bool:
        self.noticed |= {pid for pid in self.job.members() if member_of(pid) == member}
        return self.job.control("notice", str(member)) is not None

    def add_one(self) -> bool:
        return self.job.control("resize", str(min(6, len(self.job.members()) + 1))) is not None

    def kill(self, pid: int) -> bool:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.killed.add(pid)
        self.killed_late |= furthest(self.job.folder) >= self.schedule.steps
        return True

    def holders(self) -> list[int]:
        """Living processes that computed something, so they have the state. Without one the job is
        over."""
        return [pid for pid in self.job.members() if self.size_of(pid)]

    def size_of(self, pid: int) -> int:
        return (self.job.folder / f"computed.{pid}").stat().st_size

    def hunt(self) -> bool:
        """Kills a newcomer that has computed nothing: before it connects, while it copies or proves
        the state, or before its first step."""
        for others in self.hunts:
            for pid in sorted(set(self.job.members()) - others - self.killed):
                others.add(pid)
                time.sleep(self.rng.uniform(0, min(0.02, self.step_time())))
                if self.kill_idle(pid):
                    self.hunts.remove(others)
                    return True
                self.add_one()  # too late for this one
        return False

    def kill_idle(self, pid: int) -> bool:
        """Kills it if it lives, has computed nothing and is not needed: it is stopped to be sure of
        that."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            while (state := state_of(pid)) not in "TXZ":
                time.sleep(0)
            needed = len(self.holders()) <= self.happened["notice"]
            if state == "T" and not self.size_of(pid) and not needed:
                return self.kill(pid)
            os.kill(pid, signal.SIGCONT)
        return False
