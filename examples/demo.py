"""Lose a worker, gain one, let one leave; compare the weights with an undisturbed run.

Runs examples/pytorch/digits.py under regroup with three members, kills one with SIGKILL in the
middle of a step, adds one, gives one notice, and then trains the same model alone. The victim is
stopped first, at whatever instruction it is; it is killed there if the job's status shows that its
step is open, and goes on otherwise, to be stopped again. Writes the picture demo.png.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "pytorch" / "digits.py"
DEADLINE_S = 140.0  # of each of the two jobs: the demo ends within five minutes, whatever happens
LOOK_S = 0.05
GENERATION = re.compile(r"^regroup: generation (\d+): (\d+) members \((.*)\)$", re.MULTILINE)


class Trouble(Exception):
    """The reason why the demo cannot continue."""


@dataclass
class Change:
    """The beginning of a generation."""

    number: int
    size: int  # members of its World
    why: str
    step: int  # of the job, and its seconds, when it was seen
    seconds: float


@dataclass
class Recording:
    """The output of `regroup` and `regroup status` while the job ran."""

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


class Job:
    """`regroup` with a runtime directory of its own, so that `regroup status` finds this job alone.
    As a context: whatever happens inside, the job is over afterwards."""

    def __init__(self, options: list[str], script: list[str], log: Path, deadline: float) -> None:
        self.runtime = tempfile.TemporaryDirectory(prefix="regroup-demo-")
        self.env = {**os.environ, "XDG_RUNTIME_DIR": self.runtime.name}
        self.command = ["regroup", *options, sys.executable, *script]
        self.log = log
        self.deadline = deadline
        self.end = time.monotonic() + deadline
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                self.command, env=self.env, stdout=out, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()  # nothing, if it has ended
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.runtime.cleanup()

    def control(self, *words: str) -> subprocess.CompletedProcess:
        """Runs a control command; the caller checks its exit status."""
        try:
            return subprocess.run(
                ["regroup", *words], env=self.env, capture_output=True, text=True, timeout=20
            )
        except subprocess.TimeoutExpired:
            raise Trouble(f"regroup {' '.join(words)}: no answer within 20 s") from None

    def states(self) -> Iterator[dict]:
        """Yields the status repeatedly until the job ends."""
        while self.process.poll() is None:
            if time.monotonic() > self.end:
                raise self.too_late()
            done = self.control("status", "--json")
            if done.returncode == 0:
                yield json.loads(done.stdout)
            time.sleep(LOOK_S)

    def generations(self) -> list[tuple[int, int, str]]:
        """(number, members, why) of every World that regroup has reported."""
        told = GENERATION.findall(self.log.read_text(errors="replace"))
        return [(int(number), int(size), why) for number, size, why in told]

    def pid_of(self, member: int) -> int | None:
        """The running process of this member."""
        marks = {
            f"REGROUP_MEMBER={member}".encode(),
            f"XDG_RUNTIME_DIR={self.runtime.name}".encode(),
        }
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if marks <= set((path / "environ").read_bytes().split(b"\0")):
                    return int(path.name)
        return None

    def open_step(self, member: int) -> int | None:
        """The step that this member has begun but not committed; None if there is none. The member
        must be stopped."""
        first = None
        for state in self.states():
            found = [m for m in state["members"] if m["id"] == member]
            if not found:
                return None
            # from the arena; one may have been under way before the stop
            reports = found[0]["reports"]
            first = reports if first is None else first
            if reports >= first + 2:
                at = found[0]["position"]
                return at["step"] if found[0]["phase"] == "open" and at["region"] == 0 else None
        return None

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def too_late(self) -> Trouble:
        return Trouble(f"the job did not end within {self.deadline:.0f} s:\n{self.output()}")

    def weights(self) -> str:
        """Returns the SHA-256 that the script printed; raises Trouble on failure."""
        try:
            status = self.process.wait(max(0.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self.too_late() from None
        found = re.findall(r"weights sha256:? ([0-9a-f]{64})", self.output())
        if status != 0 or not found:
            raise Trouble(f"{' '.join(self.command)} ended with status {status}:\n{self.output()}")
        return found[-1]


class Screen:
    """Shows progress: on a terminal one line that changes in place, otherwise some plain lines."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty()
        self.last = 0.0

    def say(self, text: str) -> None:
        print(("\r\033[K" if self.live else "") + text, flush=True)

    def show(self, text: str) -> None:
        if self.live:
            print(f"\r\033[K{text}", end="", flush=True)
        elif time.monotonic() - self.last > 2.0:
            self.last = time.monotonic()
            print(text, flush=True)


def line_of(state: dict, total: int) -> str:
    if state["generation"] == 0:
        return "  the members start and import PyTorch"
    ids = " ".join(str(m["id"]) for m in state["members"] if m["rank"] is not None)
    losses = [m["loss"] for m in state["members"] if m["loss"] is not None and m["step"] > 0]
    loss = f"{losses[0]:.4f}" if losses else "-"
    return (
        f"  generation {state['generation']:<2}  members [{ids}]".ljust(36)
        + f"  step {state['step']:>4}/{total}  loss {loss}"
    )


def record(recording: Recording, state: dict) -> None:
    """Adds a reading of the job's status."""
    losses = [m["loss"] for m in state["members"] if m["loss"] is not None and m["step"] > 0]
    if losses and (not recording.step or state["step"] > recording.step[-1]):
        recording.step.append(state["step"])
        recording.loss.append(losses[0])
    recording.at.append(state["seconds"])
    recording.members.append(state["size"])


def record_changes(recording: Recording, job: Job) -> list[str]:
    """Adds the generations reported since the last call; returns a line for each."""
    step = recording.step[-1] if recording.step else 0
    seconds = recording.at[-1] if recording.at else 0.0
    new = [Change(*told, step, seconds) for told in job.generations()[len(recording.changes) :]]
    recording.changes += new
    return [f"  generation {change.number}: {change.why}" for change in new]


class Events:
    """The three things that happen to the job, each when enough steps are behind it. One counts as
    done when a later generation with the expected number of members has begun."""

    ORDER = ("kill", "join", "leave")

    def __init__(self, total: int, screen: Screen) -> None:
        self.total = total
        self.screen = screen
        self.done: list[str] = []
        self.awaited: tuple[int, int] | None = None  # generation before the event, members after it

    def look(self, job: Job, state: dict, changes: list[Change]) -> None:
        self.see(changes)
        if self.awaited is None and len(self.done) < len(self.ORDER):
            self.start(job, state, self.ORDER[len(self.done)])

    def see(self, changes: list[Change]) -> None:
        if self.awaited is None:
            return
        before, size = self.awaited
        if any(change.number > before and change.size == size for change in changes):
            self.done.append(self.ORDER[len(self.done)])
            self.awaited = None

    def start(self, job: Job, state: dict, event: str) -> None:
        step = state["step"] / self.total
        active = [
            m["id"] for m in state["members"] if m["rank"] is not None and m["state"] == "active"
        ]
        if event == "kill" and len(active) == 3 and step > 0.15:
            self.kill(job, state, active[1])
        elif event == "join" and step > 0.25:
            self.order(job, state, 3, "resize", 3)
        elif (
            event == "leave" and len(active) == 3 and step > state["resume_step"] / self.total + 0.1
        ):
            self.order(job, state, 2, "notice", active[0])

    def kill(self, job: Job, state: dict, member: int) -> None:
        """Sends SIGKILL within a step. If the member is between steps, the next call retries."""
        pid = job.pid_of(member)
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)
        step = job.open_step(member)
        if step is None:
            os.kill(pid, signal.SIGCONT)
            return
        where = f"member {member}, stopped in the middle of step {step}: its state word says open"
        self.screen.say(f"* kill -KILL {pid}  ({where})")
        os.kill(pid, signal.SIGKILL)
        self.awaited = (state["generation"], 2)

    def order(self, job: Job, state: dict, size: int, verb: str, number: int) -> None:
        self.screen.say(f"* regroup {verb} {number}")
        reply = job.control(verb, str(number))
        if reply.returncode != 0:
            raise Trouble(f"regroup {verb} {number}: {reply.stderr.strip()}")
        self.awaited = (state["generation"], size)

    def check(self) -> None:
        """After the job's end."""
        if self.awaited is not None:
            before, size = self.awaited
            event = self.ORDER[len(self.done)]
            raise Trouble(f"{event}: no generation after {before} with {size} members began")
        if len(self.done) < len(self.ORDER):
            raise Trouble(f"the job ended after {self.done}: give it more --epochs")


def plot(recording: Recording, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(9, 7), height_ratios=[3, 1], layout="constrained"
    )
    top.semilogy(recording.step, recording.loss, linewidth=1.0)
    captions = []
    for change in recording.changes:
        top.axvline(change.step, color="tab:red", linewidth=0.8, linestyle="--")
        height = 0.97 - 0.05 * (change.number % 2)  # neighbours do not cover each other
        text = f" {change.number}"
        top.text(change.step, height, text, transform=top.get_xaxis_transform(), color="tab:red")
        when = f"step {change.step}, {change.seconds:.1f} s"
        captions.append(f"generation {change.number}, {when}: {change.why}")
    top.set(
        xlabel="step", ylabel="training loss", title="One training run; dashed: a new generation"
    )
    bottom.step(recording.at, recording.members, where="post")
    bottom.set(ylabel="members", ylim=(0, max(recording.members, default=1) + 0.5))
    bottom.yaxis.get_major_locator().set_params(integer=True)
    bottom.set_xlabel("seconds\n\n" + "\n".join(captions))
    figure.savefig(path, dpi=120)


def run_disturbed(
    script: list[str], total: int, log: Path, deadline: float
) -> tuple[str, Recording]:
    """Returns the hash of the weights and the readings of the job."""
    screen, recording = Screen(), Recording()
    events = Events(total, screen)
    options = ["--oversubscribe", "--initial-size", "3", "--replace", "never", "-np", "2:4"]
    with Job(options, script, log, deadline) as job:
        print(f"$ {' '.join(job.command)}")
        for state in job.states():
            record(recording, state)
            for line in record_changes(recording, job):
                screen.say(line)
            screen.show(line_of(state, total))
            events.look(job, state, recording.changes)
        weights = job.weights()
        for line in record_changes(recording, job):
            screen.say(line)
    screen.say(f"  done: {len(recording.changes)} generations")
    events.see(recording.changes)
    events.check()
    return weights, recording


def run_alone(script: list[str], log: Path, deadline: float) -> str:
    with Job(["--shards", "4", "-np", "1:1"], script, log, deadline) as job:
        print(f"\n$ {' '.join(job.command)}\n  the same training, undisturbed, with one member")
        return job.weights()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--epochs", type=int, default=80)
    options.add_argument("--output", type=Path, default=ROOT / "demo.png")
    options.add_argument(
        "--script", type=Path, default=SCRIPT, help="what to train, with digits.py's options"
    )
    options.add_argument(
        "--deadline", type=float, default=DEADLINE_S, help="seconds, of each of the two jobs"
    )
    args = options.parse_args()
    total = args.epochs * -(-1437 // 64)
    script = [str(args.script), "--epochs", str(args.epochs)]
    with tempfile.TemporaryDirectory(prefix="regroup-demo-") as folder:
        first, recording = run_disturbed(script, total, Path(folder) / "disturbed", args.deadline)
        second = run_alone(script, Path(folder) / "alone", args.deadline)
    plot(recording, args.output)
    print(f"\nweights with a kill, a join and a leave  {first}")
    print(f"weights undisturbed                      {second}")
    print(f"wrote {args.output}")
    if first != second:
        raise Trouble("the weights differ")
    print("the weights are equal, bit for bit")


if __name__ == "__main__":
    try:
        main()
    except Trouble as trouble:
        sys.exit(f"demo: {trouble}")
