"""Lose a worker, gain one, let one leave; compare the weights with an undisturbed run. Writes demo.png.

Runs examples/pytorch/digits.py under regroup with three members, kills one with SIGKILL, adds one, gives one
notice, and then trains the same model alone. The kill comes at a moment unrelated to the steps; they follow
each other without a pause, so that it meets the victim somewhere inside one.
"""

import argparse
import json
import os
import re
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


class Trouble(Exception):
    """What kept the demo from showing what it promises."""


@dataclass
class Recording:
    """What `regroup status` said while the job ran."""

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    changes: list[tuple[int, float, str]] = field(default_factory=list)  # (step, seconds, why)


class Job:
    """`regroup` with a runtime directory of its own, so that `regroup status` finds this job alone. As a
    context: whatever happens inside, the job is over afterwards."""

    def __init__(self, options: list[str], script_options: list[str], log: Path) -> None:
        self.runtime = tempfile.TemporaryDirectory(prefix="regroup-demo-")
        self.env = {**os.environ, "XDG_RUNTIME_DIR": self.runtime.name}
        self.command = ["regroup", *options, sys.executable, str(SCRIPT), *script_options]
        self.log = log
        self.end = time.monotonic() + DEADLINE_S
        with log.open("wb") as out:
            self.process = subprocess.Popen(self.command, env=self.env, stdout=out, stderr=subprocess.STDOUT)

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
        """A control command, done; its exit status is for the caller to look at."""
        try:
            return subprocess.run(
                ["regroup", *words], env=self.env, capture_output=True, text=True, timeout=20
            )
        except subprocess.TimeoutExpired:
            raise Trouble(f"regroup {' '.join(words)}: no answer within 20 s") from None

    def states(self) -> Iterator[dict]:
        """The status, again and again, until the job ends."""
        while self.process.poll() is None:
            if time.monotonic() > self.end:
                raise Trouble(f"the job did not end within {DEADLINE_S:.0f} s:\n{self.output()}")
            done = self.control("status", "--json")
            if done.returncode == 0:
                yield json.loads(done.stdout)
            time.sleep(LOOK_S)

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def weights(self) -> str:
        """SHA-256 that the script printed; raises Trouble with its output if it failed."""
        try:
            status = self.process.wait(max(0.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Trouble(f"the job did not end within {DEADLINE_S:.0f} s:\n{self.output()}") from None
        found = re.findall(r"weights sha256:? ([0-9a-f]{64})", self.output())
        if status != 0 or not found:
            raise Trouble(f"{' '.join(self.command)} ended with status {status}:\n{self.output()}")
        return found[-1]


class Screen:
    """One line that changes in place on a terminal, plain lines now and then elsewhere."""

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
    ids = " ".join(str(m["id"]) for m in state["members"] if m["rank"] is not None)
    losses = [m["loss"] for m in state["members"] if m["loss"] is not None and m["step"] > 0]
    loss = f"{losses[0]:.4f}" if losses else "-"
    return (
        f"  generation {state['generation']:<2}  members [{ids}]".ljust(36)
        + f"  step {state['step']:>4}/{total}  loss {loss}"
    )


def sentences(state: dict) -> list[tuple[float, str]]:
    """(seconds, why) of the generations after the first that the job's history tells of, oldest first.

    A World is told as "...: 3 -> 2 members", with the same words when the round before it opens; should more
    happen during the round, the World's words differ and only they fit the next "2 -> ...".
    """
    found: list[tuple[float, str]] = []
    size = state["size"]
    history = state["history"]
    while history and history[-1]["why"] != state["why"]:
        history = history[:-1]  # younger than the World, of a round that is open
    for event in reversed(history):
        sizes = re.search(r": (\d+) -> (\d+) members?$", event["why"])
        if sizes and found and found[-1][1] == event["why"]:
            continue
        if sizes and int(sizes[2]) == size:
            found.append((event["at"], event["why"]))
            size = int(sizes[1])
    return found[::-1]


def record(recording: Recording, state: dict) -> list[str]:
    """Adds a look at the job; returns a line for each generation seen for the first time."""
    losses = [m["loss"] for m in state["members"] if m["loss"] is not None and m["step"] > 0]
    if losses and (not recording.step or state["step"] > recording.step[-1]):
        recording.step.append(state["step"])
        recording.loss.append(losses[0])
    recording.at.append(state["seconds"])
    recording.members.append(state["size"])
    return [f"  generation {number}: {why}" for number, why in new_generations(recording, state)]


def new_generations(recording: Recording, state: dict) -> Iterator[tuple[int, str]]:
    """Those since the last look, each with its own sentence: more than one may have passed between two."""
    newest, told = state["generation"], sentences(state)
    for number in range(len(recording.changes) + 1, newest + 1):
        back = newest - number  # how many Worlds were formed after it
        at, why = state["seconds"], "not in the job's history"
        if number == newest:
            why = state["why"]
        if number > 1 and back < len(told):
            at, why = told[-1 - back]
        recording.changes.append((state["step"], at, why))
        yield number, why


class Events:
    """The three things that happen to the job, each when enough steps are behind it. One counts as done when
    a later generation with the expected number of members is there."""

    ORDER = ("kill", "join", "leave")

    def __init__(self, total: int, screen: Screen) -> None:
        self.total = total
        self.screen = screen
        self.done: list[str] = []
        self.awaited: tuple[int, int] | None = None  # generation before the event, members after it

    def look(self, job: Job, state: dict) -> None:
        if self.awaited is not None:
            before, size = self.awaited
            if state["generation"] > before and state["size"] == size:
                self.done.append(self.ORDER[len(self.done)])
                self.awaited = None
        elif len(self.done) < len(self.ORDER):
            self.start(job, state, self.ORDER[len(self.done)])

    def start(self, job: Job, state: dict, event: str) -> None:
        step = state["step"] / self.total
        active = [m["id"] for m in state["members"] if m["rank"] is not None and m["state"] == "active"]
        if event == "kill" and len(active) == 3 and step > 0.15:
            self.order(job, state, 2, "kill-member", active[1])
        elif event == "join" and step > 0.25:
            self.order(job, state, 3, "resize", 3)
        elif event == "leave" and len(active) == 3 and step > state["resume_step"] / self.total + 0.1:
            self.order(job, state, 2, "notice", active[0])

    def order(self, job: Job, state: dict, size: int, verb: str, number: int) -> None:
        note = "  (SIGKILL, wherever in a step it is)" if verb == "kill-member" else ""
        self.screen.say(f"* regroup {verb} {number}{note}")
        reply = job.control(verb, str(number))
        if reply.returncode != 0:
            raise Trouble(f"regroup {verb} {number}: {reply.stderr.strip()}")
        self.awaited = (state["generation"], size)

    def check(self) -> None:
        """After the job's end."""
        if self.awaited is not None:
            before, size = self.awaited
            event = self.ORDER[len(self.done)]
            raise Trouble(f"{event}: no generation after {before} with {size} members was seen")
        if len(self.done) < len(self.ORDER):
            raise Trouble(f"the job ended after {self.done}: give it more --epochs")


def plot(recording: Recording, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(9, 7), height_ratios=[3, 1], layout="constrained")
    top.semilogy(recording.step, recording.loss, linewidth=1.0)
    captions = []
    for number, (step, seconds, why) in enumerate(recording.changes, start=1):
        top.axvline(step, color="tab:red", linewidth=0.8, linestyle="--")
        height = 0.97 - 0.05 * (number % 2)  # neighbours do not cover each other
        top.text(step, height, f" {number}", transform=top.get_xaxis_transform(), color="tab:red")
        captions.append(f"generation {number}, step {step}, {seconds:.1f} s: {why}")
    top.set(xlabel="step", ylabel="training loss", title="One training run; dashed: a new generation")
    bottom.step(recording.at, recording.members, where="post")
    bottom.set(ylabel="members", ylim=(0, max(recording.members, default=1) + 0.5))
    bottom.yaxis.get_major_locator().set_params(integer=True)
    bottom.set_xlabel("seconds\n\n" + "\n".join(captions))
    figure.savefig(path, dpi=120)


def run_disturbed(script_options: list[str], total: int, log: Path) -> tuple[str, Recording]:
    """Hash of the weights, and what was seen on the way."""
    screen, recording = Screen(), Recording()
    events = Events(total, screen)
    options = ["--oversubscribe", "--start", "3", "--replace", "never", "-np", "2:4"]
    with Job(options, script_options, log) as job:
        print(f"$ {' '.join(job.command)}")
        for state in job.states():
            for line in record(recording, state):
                screen.say(line)
            screen.show(line_of(state, total))
            events.look(job, state)
        weights = job.weights()
    screen.say(f"  done: {len(recording.changes)} generations")
    events.check()
    return weights, recording


def run_alone(script_options: list[str], log: Path) -> str:
    with Job(["--shards", "4", "-np", "1:1"], script_options, log) as job:
        print(f"\n$ {' '.join(job.command)}\n  the same training, undisturbed, with one member")
        return job.weights()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--epochs", type=int, default=80)
    options.add_argument("--output", type=Path, default=ROOT / "demo.png")
    args = options.parse_args()
    total = args.epochs * -(-1437 // 64)
    script_options = ["--epochs", str(args.epochs)]
    with tempfile.TemporaryDirectory(prefix="regroup-demo-") as folder:
        first, recording = run_disturbed(script_options, total, Path(folder) / "disturbed")
        second = run_alone(script_options, Path(folder) / "alone")
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
