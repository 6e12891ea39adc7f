"""Lose a worker, gain one, let one leave; compare the weights with an undisturbed run. Writes demo.png.

Runs examples/pytorch/digits.py under regroup with three members, kills one with SIGKILL in the middle of a
step, adds one, gives one notice, and then trains the same model alone.
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
DEADLINE_S = 240.0
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
    """`regroup` with a runtime directory of its own, so that `regroup status` finds this job alone."""

    def __init__(self, options: list[str], script_options: list[str], log: Path) -> None:
        self.runtime = tempfile.TemporaryDirectory(prefix="regroup-demo-")
        self.env = {**os.environ, "XDG_RUNTIME_DIR": self.runtime.name}
        self.command = ["regroup", *options, sys.executable, str(SCRIPT), *script_options]
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(self.command, env=self.env, stdout=out, stderr=subprocess.STDOUT)

    def control(self, *words: str) -> str | None:
        done = subprocess.run(["regroup", *words], env=self.env, capture_output=True, text=True, timeout=20)
        return done.stdout if done.returncode == 0 else None

    def states(self) -> Iterator[dict]:
        """The status, again and again, until the job ends."""
        end = time.monotonic() + DEADLINE_S
        try:
            while self.process.poll() is None:
                if time.monotonic() > end:
                    raise Trouble(f"the job did not end within {DEADLINE_S:.0f} s")
                text = self.control("status", "--json")
                if text is not None:
                    yield json.loads(text)
                time.sleep(LOOK_S)
        finally:
            self.process.terminate()  # nothing, if it has ended

    def weights(self) -> str:
        """SHA-256 that the script printed; raises Trouble with its output if it failed."""
        status = self.process.wait(DEADLINE_S)
        output = self.log.read_text(errors="replace")
        found = re.findall(r"weights sha256:? ([0-9a-f]{64})", output)
        if status != 0 or not found:
            raise Trouble(f"{' '.join(self.command)} ended with status {status}:\n{output[-3000:]}")
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


def record(recording: Recording, state: dict) -> str | None:
    """Adds a look at the job; returns the sentence of a generation seen for the first time."""
    losses = [m["loss"] for m in state["members"] if m["loss"] is not None and m["step"] > 0]
    if losses and (not recording.step or state["step"] > recording.step[-1]):
        recording.step.append(state["step"])
        recording.loss.append(losses[0])
    recording.at.append(state["seconds"])
    recording.members.append(state["size"])
    if state["generation"] > len(recording.changes):
        why = state["why"]
        while len(recording.changes) < state["generation"]:
            recording.changes.append((state["step"], state["seconds"], why))
        return why
    return None


def running(state: dict) -> list[int]:
    return [m["id"] for m in state["members"] if m["rank"] is not None and m["state"] == "active"]


def disturb(job: Job, state: dict, done: list[str], total: int, screen: Screen) -> None:
    """The three things that happen to the job, each when enough steps are behind it."""
    step, size = state["step"], state["size"]
    if not done and size == 3 and step > 0.15 * total:
        victim = running(state)[1]
        screen.say(f"* SIGKILL for member {victim}")
        done.append("kill")
        job.control("kill-member", str(victim))
    elif done == ["kill"] and size == 2 and step > 0.25 * total:
        screen.say("* regroup resize 3")
        done.append("join")
        job.control("resize", "3")
    elif done == ["kill", "join"] and size == 3 and step > state["resume_step"] + 0.1 * total:
        leaver = running(state)[0]
        screen.say(f"* regroup notice {leaver}")
        done.append("leave")
        job.control("notice", str(leaver))


def plot(recording: Recording, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(9, 7), height_ratios=[3, 1], layout="constrained")
    top.semilogy(recording.step, recording.loss, linewidth=1.0)
    sentences = []
    for number, (step, seconds, why) in enumerate(recording.changes, start=1):
        top.axvline(step, color="tab:red", linewidth=0.8, linestyle="--")
        height = 0.97 - 0.05 * (number % 2)  # neighbours do not cover each other
        top.text(step, height, f" {number}", transform=top.get_xaxis_transform(), color="tab:red")
        sentences.append(f"generation {number}, step {step}, {seconds:.1f} s: {why}")
    top.set(xlabel="step", ylabel="training loss", title="One training run; dashed: a new generation")
    bottom.step(recording.at, recording.members, where="post")
    bottom.set(ylabel="members", ylim=(0, max(recording.members, default=1) + 0.5))
    bottom.yaxis.get_major_locator().set_params(integer=True)
    bottom.set_xlabel("seconds\n\n" + "\n".join(sentences))
    figure.savefig(path, dpi=120)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--epochs", type=int, default=80)
    options.add_argument("--output", type=Path, default=ROOT / "demo.png")
    args = options.parse_args()
    total = args.epochs * -(-1437 // 64)
    script_options = ["--epochs", str(args.epochs)]
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="regroup-demo-") as folder:
        disturbed = ["--oversubscribe", "--start", "3", "--replace", "never", "-np", "2:4"]
        job = Job(disturbed, script_options, Path(folder) / "disturbed")
        print(f"$ {' '.join(job.command)}")
        recording, done = Recording(), []
        for state in job.states():
            if (why := record(recording, state)) is not None:
                screen.say(f"  generation {state['generation']}: {why}")
            screen.show(line_of(state, total))
            disturb(job, state, done, total, screen)
        first = job.weights()
        screen.say(f"  done: {len(recording.changes)} generations")
        if done != ["kill", "join", "leave"]:
            raise Trouble(f"the job ended after {done}: give it more --epochs")

        job = Job(["--shards", "4", "-np", "1:1"], script_options, Path(folder) / "alone")
        print(f"\n$ {' '.join(job.command)}\n  the same training, undisturbed, with one member")
        second = job.weights()
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
