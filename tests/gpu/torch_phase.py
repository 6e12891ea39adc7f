"""PyTorch on one GPU: bits, costs and recovery. Needs torch and the standard library only.

usage: torch_phase.py [--device cuda|cpu] [--json FILE] [--budget S] [--part NAME]... [--tiny]
PATH has `regroup`, and PYTHONPATH the folder of its Python package. Each part has its own limit, at
most what is left of the budget, and is written to FILE when it is over.

bits       the weights after at least six kills and the joins of replacements have the SHA-256 of
           an undisturbed member's
prepared   the same in a loop of DistributedDataParallel made elastic, with one kill
overhead   time of a step of a GPT of 124 million parameters, elastic and plain in turn
cuda bits, cuda overhead
           the first and the third with --plane cuda: sums on the GPU, of the same weights
recovery   SIGKILL of one of three members to the next committed step, and torchrun's to its next
Without a GPU: --device cpu --tiny, for plane cuda with REGROUP_FAKE_DEVICE=1 and LD_LIBRARY_PATH of
the fake driver.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from common import summarize  # noqa: E402

MEMBER = Path(__file__).with_name("torch_member.py")
SHARDS, KILLS = 6, 6
NS = 1e9


class Failure(Exception):
    """What a part saw instead of what was promised."""


@dataclass
class Event:
    at: int  # ns, of the clock that all processes share
    what: str
    step: int
    generation: int
    size: int


class Job:
    """A launcher with its members, in a folder of its own."""

    def __init__(self, phase: "Phase", name: str, command: list[str]):
        self.folder = phase.folder_of(name)
        self.log = self.folder / "log"
        self.end = phase.end
        command = [word.replace("FOLDER", str(self.folder)) for word in command]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                env=phase.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        phase.jobs.append(self)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def timelines(self) -> dict[int, list[Event]]:
        found = {}
        for path in self.folder.glob("timeline.*"):
            lines = [line.split() for line in path.read_text().splitlines()]
            events = [Event(int(a), w, *map(int, rest)) for a, w, *rest in lines]
            if events:
                found[int(path.suffix[1:])] = events
        return found

    def living(self) -> dict[int, list[Event]]:
        return {pid: e for pid, e in self.timelines().items() if _lives(pid)}

    def until(self, seen: Callable[[], Any], what: str, pause: float = 0.005) -> Any:
        while not (found := seen()):
            if time.monotonic() > self.end:
                raise Failure(f"{what}: not seen in time; the job said: {self.text()[-3000:]}")
            if self.process.poll() is not None and not (found := seen()):
                raise Failure(f"{what}: the job ended before; it said: {self.text()[-3000:]}")
            time.sleep(pause)
        return found

    def ends_well(self) -> str:
        self.until(lambda: self.process.poll() is not None, "the end of the job")
        if self.process.returncode != 0:
            raise Failure(f"status {self.process.returncode}: {self.text()[-3000:]}")
        return self.text()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in self.timelines():
            if _lives(pid):
                os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    """Whether the process runs one of our programs: not ended, and its id not taken by another."""
    try:
        return MEMBER.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Phase:
    def __init__(self, args: argparse.Namespace, root: Path):
        self.args, self.root = args, root
        self.end = 0.0
        self.jobs: list[Job] = []
        (root / "run").mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(root / "run"), "OMP_NUM_THREADS": "1"}
        for name in ("REGROUP_AGENT", "REGROUP_SHARDS", "REGROUP_SEED"):
            self.env.pop(name, None)

    def folder_of(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))

    def regroup(self, name: str, options: str, program: str, *words: str) -> Job:
        launcher = f"regroup --oversubscribe --seed 3 --shards {SHARDS} {options}".split()
        member = [sys.executable, str(MEMBER), program, "FOLDER", self.args.device, *words]
        return Job(self, name, [*launcher, *member])

    def width(self) -> str:
        return "width=64" if self.args.tiny else "width=1024"


def _weights(text: str) -> tuple[str, int]:
    """The digest that all members print, and the step that it is of."""
    found = set(re.findall(r"weights (\w{64}) step (\d+)", text))
    if len(found) != 1:
        raise Failure(f"expected one digest, got {sorted(found)}: {text[-3000:]}")
    ((digest, step),) = found
    return digest, int(step)


def _settled(job: Job, size: int, steps: int = 5) -> dict[int, list[Event]] | None:
    """The living members, if they are `size` and have taken some steps in one World of theirs."""
    living = job.living()
    if len(living) != size:
        return None
    for events in living.values():
        last = events[-1]
        if last.size != size:
            return None
        own = [e.step for e in events if (e.generation, e.what) == (last.generation, "committed")]
        if not own or own[-1] - own[0] < steps:
            return None
    return living if len({e[-1].generation for e in living.values()}) == 1 else None


def _kill_one(job: Job, living: dict[int, list[Event]], draw: random.Random) -> dict[str, float]:
    """Kills a member at a random moment. Returns what it took until a survivor committed a step of
    the next generation and, if the program says that, until it had applied it."""
    time.sleep(draw.uniform(0, 0.08))
    pid = draw.choice(sorted(living))
    generation = max(events[-1].generation for events in living.values())
    at = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    survivors = [other for other in living if other != pid]

    def next_step() -> dict[str, float] | None:
        found = {}
        timelines = job.timelines()
        applies = any(e.what == "applied" for events in living.values() for e in events)
        for what in ("committed", "applied") if applies else ("committed",):
            times = [
                e.at
                for other in survivors
                for e in timelines[other]
                if e.what == what and e.generation > generation and e.at > at
            ]
            if not times:
                return None
            found[what] = (min(times) - at) / NS
        return found

    return job.until(next_step, "a step after a kill", pause=0.02)


def bits(phase: Phase, options: str = "") -> dict:
    draw = random.Random(7)
    began = time.monotonic()
    options += " -np 1:3 --initial-size 3 --max-restarts 100"
    job = phase.regroup("bits", options, "elastic", "pace=20", phase.width())
    after = []
    for number in range(KILLS):
        size = 3 - number % 2  # every second kill finds a World that has just lost one
        living = job.until(lambda size=size: _settled(job, size), f"a World before kill {number}")
        after.append(_kill_one(job, living, draw))
    last = job.until(lambda: _settled(job, 3), "a full World after the last kill")
    generation = next(iter(last.values()))[-1].generation
    (job.folder / "stop").touch()
    digest, steps = _weights(job.ends_well())
    took = time.monotonic() - began
    alone = phase.regroup("alone", "-np 1:1", "elastic", f"steps={steps}", phase.width())
    undisturbed = _weights(alone.ends_well())
    if undisturbed != (digest, steps):
        raise Failure(f"weights {digest} of step {steps} after kills, {undisturbed} undisturbed")
    return {
        "kills": KILLS,
        "generations": generation,
        "steps": steps,
        "sha256": digest,
        "seconds": took,
        "kill to next step, shards of 20 ms": {
            what: _summary([one[what] for one in after]) for what in after[0]
        },
    }


def prepared(phase: Phase) -> dict:
    job = phase.regroup(
        "prepared", "-np 1:3 --initial-size 3", "prepared", "pace=12", "epochs=30", phase.width()
    )
    living = job.until(lambda: _settled(job, 3), "a World before the kill")
    _kill_one(job, living, random.Random(9))
    digest, steps = _weights(job.ends_well())
    alone = phase.regroup("alone", "-np 1:1", "prepared", "epochs=30", phase.width())
    undisturbed = _weights(alone.ends_well())
    if undisturbed != (digest, steps):
        raise Failure(f"weights {digest} of step {steps} after a kill, {undisturbed} undisturbed")
    return {"steps": steps, "sha256": digest}


def overhead(phase: Phase, options: str = "") -> dict:
    shards = 4
    seconds = max(3.0, phase.end - time.monotonic() - 15)
    words = [f"shards={shards}", f"seconds={seconds:.0f}", f"tiny={int(phase.args.tiny)}"]
    launcher = f"regroup --oversubscribe --shards {shards} -np 1:1 {options}".split()
    member = [sys.executable, str(MEMBER), "gpt", "FOLDER", phase.args.device, *words]
    job = Job(phase, "overhead", [*launcher, *member])
    job.ends_well()
    result = json.loads((job.folder / "gpt.json").read_text())
    times = result.pop("seconds")
    rows = {name: _summary(values) for name, values in times.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {
        f"elastic / {name}": medians["elastic"] / medians[name]
        for name in ("plain, deterministic", "plain")
    }
    return {**result, "ms per step": rows, "ratios of the medians": ratios}


def recovery(phase: Phase) -> dict:
    draw = random.Random(11)
    ours = []
    job = phase.regroup(
        "ours", "-np 1:3 --initial-size 3 --replace never", "elastic", phase.width()
    )
    for size in (3, 2):
        living = job.until(lambda size=size: _settled(job, size, 20), f"a World of {size}")
        ours.append(_kill_one(job, living, draw))
    job.close()
    rival = _torchrun(phase)
    return {
        "ours": {what: [one[what] for one in ours] for what in ours[0]},
        "torchrun": rival,
        "torchrun / ours": rival["kill to next step"] / max(one["applied"] for one in ours),
    }


def _torchrun(phase: Phase) -> dict:
    """DistributedDataParallel over gloo, three ranks on one GPU; torchrun restarts them all. They
    load no checkpoint, which would take longer."""
    # By default the restarted ranks meet in the store of those before, and wait for dead ones.
    phase.env |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--local-addr", "127.0.0.1"]
    launcher += ["--nproc-per-node", "3", "--max-restarts", "3", "--monitor-interval", "0.1"]
    words = ["ddp", "FOLDER", phase.args.device, phase.width()]
    began = time.monotonic()
    job = Job(phase, "torchrun", [*launcher, str(MEMBER), *words])

    def stepped(apart_from: set[int], steps: int) -> dict[int, list[Event]] | None:
        found = {pid: e for pid, e in job.living().items() if pid not in apart_from}
        return (
            found if len(found) == 3 and min(e[-1].step for e in found.values()) > steps else None
        )

    first = job.until(lambda: stepped(set(), 20), "steps under torchrun")
    started = time.monotonic() - began
    at = time.monotonic_ns()
    os.kill(min(first), signal.SIGKILL)
    again = job.until(lambda: stepped(set(first), 0), "steps after torchrun's restart")
    applied = [e.at for events in again.values() for e in events if e.what == "applied"]
    job.close()
    return {"kill to next step": (min(applied) - at) / NS, "start": started}


def _summary(seconds: list[float]) -> dict[str, float]:
    """In milliseconds."""
    stats = summarize([value * 1e3 for value in seconds])
    return {**stats.to_json(), "max": stats.max}


PARTS: dict[str, tuple[float, Callable[[Phase], dict]]] = {
    "bits": (60, bits),
    "prepared": (90, prepared),
    "overhead": (35, overhead),
    "recovery": (35, recovery),
    "cuda bits": (60, lambda phase: bits(phase, "--plane cuda")),
    "cuda overhead": (35, lambda phase: overhead(phase, "--plane cuda")),
}


def versions(device: str) -> dict:
    show = """
import json, sys, torch
found = {"python": sys.version.split()[0], "torch": torch.__version__}
if sys.argv[1] == "cuda":
    import regroup.torch
    found["fingerprint"] = regroup.torch.fingerprint(torch.device("cuda", 0))
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", show, device], capture_output=True, text=True, timeout=60
    )
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-2000:]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--budget", type=float, default=120, help="seconds for all parts together")
    parser.add_argument("--part", action="append", choices=PARTS, help="only these parts")
    parser.add_argument("--tiny", action="store_true", help="models for a machine without a GPU")
    args = parser.parse_args()
    stop = time.monotonic() + args.budget
    root = Path(tempfile.mkdtemp(prefix="rgt"))  # short: sockets are in it
    phase = Phase(args, root)
    results: dict[str, Any] = {"machine": versions(args.device), "parts": {}}
    failed = []
    try:
        for name in args.part or PARTS:
            limit, run = PARTS[name]
            began = time.monotonic()
            phase.end = min(stop, began + limit)
            try:
                if phase.end - began < 5:
                    raise Failure("cut off: no budget is left")
                result = {"passed": True, **run(phase)}
            # whatever it is, the other parts run and the figures are written
            except Exception as error:
                failed.append(name)
                result = {"passed": False, "why": f"{type(error).__name__}: {error}"}
            finally:
                for job in phase.jobs:
                    job.close()
            took = result["took"] = round(time.monotonic() - began, 1)
            results["parts"][name] = result
            verdict = "ok    " if result["passed"] else "FAILED"
            print(f"{verdict} {name} ({took} s) {result.get('why', '')}", flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1) + "\n")
    finally:
        for job in phase.jobs:
            job.close()
        shutil.rmtree(root, ignore_errors=True)
    for name, result in results["parts"].items():
        print(name, json.dumps({k: v for k, v in result.items() if k != "why"}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
