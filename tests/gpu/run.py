"""What needs a GPU: `./dev gpu-test [--programs FOLDER] [--json FILE]`, or this file alone with the
programs of `./dev gpu-test --pack` on a machine without Regroup's packages.

Asks the driver what the design assumes about it, compares the kernels' bits with those of the CPU
and measures them, looks whether Regroup finds what nvidia-smi finds, gives it out and gives it up
as promised, and whether jobs whose gradients come from a GPU survive the loss of members with the
bits of an undisturbed one. Prints a line for each check, and after each writes the figures of all
with the versions of what took part.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests")]
import ours_recovery  # noqa: E402
import waiting  # noqa: E402
from common import Work, machine, summarize  # noqa: E402

WORKERS = 3
MEGABYTES = 8.0  # of a member's weights
FOREVER = 10**9  # steps
SETTLED = 15  # steps of a World of full size between two kills
REFUSED = 213  # as of mpirun: too few slots
SHOW_DEVICES = """
import ctypes, uuid
cuda, count, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for i in range(count.value):
    found = ctypes.create_string_buffer(16)
    assert cuda.cuDeviceGet(ctypes.byref(device), i) == 0
    assert cuda.cuDeviceGetUuid(found, device) == 0
    print(f"GPU-{uuid.UUID(bytes=found.raw)}", end="," if i + 1 < count.value else "\\n")
"""
T = TypeVar("T")
Timelines = dict[int, list[ours_recovery.Moment]]  # by process


class Failure(Exception):
    """What a check saw instead of what was promised, and the figures that it has all the same."""


def want(seen: bool, what: str) -> None:
    if not seen:
        raise Failure(what)


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def ask_driver(fields: str) -> list[list[str]]:
    """Of each GPU, as nvidia-smi tells them."""
    told = output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    return [line.split(", ") for line in told.splitlines()]


class Bench:
    """The programs, and a runtime folder of this run's own."""

    def __init__(self, programs: Path, folder: Path):
        self.programs, self.folder = programs, folder
        (folder / "run").mkdir(mode=0o700)
        self.env = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{programs}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        }
        self.uuids = [uuid for (uuid,) in ask_driver("uuid")]
        # Compiles the packed Python module for this machine's Python, beside the first checks.
        build = programs / "build_module.sh"
        self.building: subprocess.Popen | None = None
        if build.exists():
            with (folder / "module.log").open("wb") as out:
                self.building = subprocess.Popen(
                    ["bash", str(build), str(programs), str(folder / "module")],
                    env={**os.environ, "PYTHON": sys.executable},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )

    def module(self) -> Path:
        """A folder to import regroup from."""
        if self.building is None:
            return self.programs.parent / "python"
        want(self.building.wait(240) == 0, f"build_module.sh: {tail(self.folder / 'module.log')}")
        return self.folder / "module"

    def close(self) -> None:
        if self.building is not None and self.building.poll() is None:
            os.killpg(self.building.pid, signal.SIGKILL)
            self.building.wait()

    def run(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["regroup", *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def output(self, *words: str, timeout: float = 120) -> str:
        done = self.run(*words, timeout=timeout)
        want(
            done.returncode == 0,
            f"regroup {' '.join(words)}: status {done.returncode}: {done.stderr}",
        )
        return done.stdout

    @contextmanager
    def job(self, *words: str) -> Iterator["Job"]:
        job = Job(self, words)
        try:
            yield job
        finally:
            job.close()


class Job:
    def __init__(self, bench: Bench, words: tuple[str, ...]):
        self.bench = bench
        self.log = Path(tempfile.mkstemp(dir=bench.folder)[1])
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["regroup", *words], env=bench.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, seen: Callable[[], T | None], what: str, timeout: float = 60) -> T:
        def look() -> T | None:
            if (found := seen()) or self.process.poll() is None:
                return found
            raise Failure(f"{what}: not seen before the job ended; it said: {self.text()[-2000:]}")

        try:
            return waiting.until(look, what, timeout, pause_s=0.02)
        except TimeoutError as error:
            raise Failure(f"{error}; the job said: {self.text()[-2000:]}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failure(f"SIGTERM did not end the job: {self.text()[-2000:]}") from None


def topology(bench: Bench) -> dict:
    """`regroup topo` shows each GPU of nvidia-smi, with its bus id and memory."""
    bench.output("topo", "--fresh")
    kept = (bench.folder / "run/regroup/machine.json").read_text().split("\n", 1)[1]
    ours = {gpu["uuid"]: gpu for gpu in json.loads(kept)["gpus"]}
    for uuid, name, bus, mib, capability in ask_driver(
        "uuid,name,pci.bus_id,memory.total,compute_cap"
    ):
        want(uuid in ours, f"{uuid} is missing in {kept}")
        gpu = ours[uuid]
        domain, rest = bus.lower().split(":", 1)
        want(gpu["bus_id"] == f"{int(domain, 16):04x}:{rest}", f"{gpu['bus_id']} is not {bus}")
        want(
            gpu["arch"] == "sm" + capability.replace(".", ""), f"{gpu['arch']} is not {capability}"
        )
        want(gpu["product"] == name, f"{gpu['product']} is not {name}")
        want(
            abs(gpu["memory_bytes"] / 2**20 - int(mib)) < 1024,
            f"{gpu['memory_bytes']} B is not {mib} MiB",
        )
    want(len(ours) == len(bench.uuids), f"{sorted(ours)} are not {bench.uuids}")
    return {"gpus": len(ours), "text": bench.output("topo")}


def placement(bench: Bench) -> dict:
    """Each rank of --placement sees one GPU, in CUDA itself; one rank more than GPUs is refused in
    words."""
    count = len(bench.uuids)
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    seen = bench.output("-np", str(count), "--placement", "best", *show).splitlines()
    want(sorted(seen) == sorted(bench.uuids), f"CUDA_VISIBLE_DEVICES {seen}, GPUs {bench.uuids}")
    in_cuda = bench.output(
        "-np", str(count), "--placement", "best", sys.executable, "-c", SHOW_DEVICES
    )
    want(sorted(in_cuda.splitlines()) == sorted(bench.uuids), f"CUDA shows {in_cuda}")
    refused = bench.run("-np", str(count + 1), "--placement", "best", "--oversubscribe", *show)
    want(
        refused.returncode == REFUSED and "GPU" in refused.stderr,
        f"{refused.returncode}: {refused.stderr}",
    )
    return {"refused": refused.stderr.strip()}


def claims(bench: Bench) -> dict:
    """What one job has, another does not get, and does when the first is over."""
    mine = ["-np", str(len(bench.uuids)), "--placement", "best"]
    show = 'echo "agent $PPID has $CUDA_VISIBLE_DEVICES"'
    with bench.job(*mine, "sh", "-c", f"{show}; sleep 100") as job:
        agent = job.until(
            lambda: re.search(r"agent (\d+) has GPU-", job.text()), "a job on all GPUs"
        )[1]
        refused = bench.run(*mine, "true")
        named = f"(process {agent})" in refused.stderr
        want(
            refused.returncode == REFUSED and named,
            f"{agent}, {refused.returncode}: {refused.stderr}",
        )
        shared = bench.run(*mine, "--oversubscribe", "sh", "-c", show)
        want(
            shared.returncode == 0 and "has GPU-" in shared.stdout,
            f"--oversubscribe: {shared.stderr}",
        )
    bench.output(*mine, "true")
    return {"refused": refused.stderr.strip(), "shared": shared.stderr.strip()}


def member(bench: Bench, steps: int, held: float, *memory: str) -> list[str]:
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    program = str(bench.programs / "gpu_member")
    return [program, str(folder), str(steps), str(MEGABYTES), str(held), *memory]


def usage(bench: Bench) -> dict:
    """`regroup status` tells how busy a member's GPU is, its memory and power."""
    held = held_gib(0.06)
    words = ["--shards", "4", "-np", "1:1", "--placement", "best", *member(bench, FOREVER, held)]
    with bench.job(*words) as job:

        def used() -> dict | None:
            told = bench.run("status", "--json")
            gpus = [
                gpu
                for m in json.loads(told.stdout or "{}").get("members", [])
                for gpu in m.get("gpus", [])
            ]
            found = [g for g in gpus if g["busy_percent"] > 0 and g["memory_used"] >= held * 2**30]
            return found[0] if found else None

        gpu = job.until(used, "a busy GPU in the status")
        mib = dict(ask_driver("uuid,memory.used"))[gpu["uuid"]]
        want(
            abs(gpu["memory_used"] / 2**20 - int(mib)) < 2048, f"{gpu}: nvidia-smi tells {mib} MiB"
        )
        want(gpu["watts"] > 10, f"{gpu}")
        other = ["--oversubscribe", "--shards", "4", "-np", "1:1", "--placement", "best"]
        with bench.job(*other, *member(bench, FOREVER, 2 * held)) as second:

            def shared() -> list[dict] | None:
                jobs = re.findall(r"\b[0-9a-f]{8}\b", bench.run("status").stderr)
                told = [
                    json.loads(bench.run("status", "--json", job).stdout or "{}") for job in jobs
                ]
                gpus = [
                    gpu for one in told for m in one.get("members", []) for gpu in m.get("gpus", [])
                ]
                known = [gpu for gpu in gpus if gpu.get("rank_memory_used", 0) > held * 2**30]
                return sorted(known, key=lambda gpu: gpu["rank_memory_used"]) if known[1:] else None

            two = second.until(shared, "two jobs on one GPU, each with its own memory")
        want(
            two[1]["rank_memory_used"] - two[0]["rank_memory_used"] > held * 2**30 * 0.9,
            f"ranks that hold {held} and {2 * held} GiB: {two}",
        )
        return {**gpu, "table": bench.output("status"), "two jobs": two}


def held_gib(share: float) -> float:
    """So much of what is free on the first GPU."""
    ((free,), *_) = ask_driver("memory.free")
    return round(share * float(free) / 1024, 1)


def training(members: str, command: list[str]) -> list[str]:
    return [
        "--oversubscribe",
        "--shards",
        "6",
        "--initial-size",
        members.split(":")[-1],
        "-np",
        members,
        *command,
    ]


def weights_of(timelines: Timelines) -> dict[int, str]:
    """Their CRC after each 50th step; members that differ are a failure."""
    found: dict[int, set[str]] = {}
    for moments in timelines.values():
        for m in moments:
            if m.what.startswith("weights-"):
                found.setdefault(m.step, set()).add(m.what)
    for step, crcs in found.items():
        want(len(crcs) == 1, f"after step {step} members have {crcs}")
    return {step: crcs.pop() for step, crcs in found.items()}


def settled(timelines: Timelines) -> bool:
    """All living members are in one World of full size, and have been for some steps."""
    last = [moments[-1] for moments in timelines.values()]
    if (
        len(last) != WORKERS
        or {m.size for m in last} != {WORKERS}
        or len({m.generation for m in last}) > 1
    ):
        return False
    joined = [
        m.step for moments in timelines.values() for m in moments if m.what in ("entered", "joined")
    ]
    return min(m.step for m in last) > max(joined) + SETTLED


def recovery(bench: Bench, kills: int, held: float, *memory: str, plane: str = "auto") -> dict:
    """Members are killed in the middle of steps; the weights are those of an undisturbed member
    alone, whose gradients go through the host."""
    command = member(bench, FOREVER, held, *memory)
    folder = Path(command[1])
    gone: dict[int, float] = {}
    killed: list[ours_recovery.Kill] = []

    def living() -> Timelines | None:
        found = {
            pid: m
            for pid, m in ours_recovery.read_timelines(folder).items()
            if pid not in gone and m
        }
        return found if settled(found) else None

    def last_of(pid: int) -> ours_recovery.Moment:
        moments = ours_recovery.read_timelines(folder)[pid]
        return [m for m in moments if not m.what.startswith("weights-")][-1]

    requested = [] if plane == "auto" else ["--plane", plane]
    with bench.job(*requested, *training(f"{WORKERS - 1}:{WORKERS}", command)) as job:
        for number in range(kills):
            pid = sorted(job.until(living, f"a settled World before kill {number + 1}", 120))[
                number % WORKERS
            ]
            time.sleep(number % 7 * 0.003)
            at = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            gone[pid] = gone_after(pid)
            killed.append(ours_recovery.kill_during(at, pid, last_of(pid)))
        last_kill = max(
            moments[-1].step for moments in ours_recovery.read_timelines(folder).values() if moments
        )

        def compared() -> bool:
            return (
                max(weights_of(ours_recovery.read_timelines(folder)), default=0)
                > last_kill + SETTLED
            )

        job.until(compared, "weights after the last kill", 120)
    timelines = ours_recovery.read_timelines(folder)
    weights = weights_of(timelines)
    alone = member(bench, max(weights), 0)
    bench.output(*training("1:1", alone), timeout=400)
    undisturbed = weights_of(ours_recovery.read_timelines(Path(alone[1])))
    want(weights == undisturbed, f"weights {weights} after {kills} kills, {undisturbed} alone")
    found = ours_recovery.quantities(timelines, killed, Work(MEGABYTES, 0, WORKERS))
    found["kill_to_process_gone"] = list(gone.values())
    rows = {
        name: summarize([v * 1e3 for v in values]).to_json()
        for name, values in found.items()
        if values
    }
    return {
        "unit": "ms",
        "held_gib": held,
        "steps_with_equal_weights": len(weights),
        "last": weights[max(weights)],
        "rows": rows,
    }


def gone_after(pid: int) -> float:
    """Seconds until the process has given up all that it had and its agent has reaped it."""
    began = time.monotonic()
    waiting.until(
        lambda: not Path(f"/proc/{pid}").exists(), f"the end of killed {pid}", 60, pause_s=0.001
    )
    return time.monotonic() - began


def recordings(bench: Bench) -> dict:
    """This machine for tests/machines: sysfs as `regroup topo` reads it, and nvidia-smi's
    matrix."""
    record = [sys.executable, str(ROOT / "tests/record_sysfs.py")]
    return {"sysfs": output_of(*record), "topo -m": output_of("nvidia-smi", "topo", "-m")}


def commit_of(programs: Path) -> str:
    """The commit that the programs are of: what --pack wrote, or this checkout's."""
    told = programs / "commit"
    if told.exists():
        return told.read_text().strip()
    return output_of("git", "-C", str(ROOT), "describe", "--always", "--dirty").strip()


def versions(bench: Bench) -> dict:
    ((gpu, driver), *_) = ask_driver("name,driver_version")
    return {
        **machine(),
        "gpu": gpu,
        "driver": driver,
        "nvcc": output_of("nvcc", "--version").splitlines()[-1] if shutil.which("nvcc") else None,
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "regroup": bench.output("--version").strip(),
        "commit": commit_of(bench.programs),
    }


def reported(bench: Bench, command: list[str], limit: float, env: dict | None = None) -> dict:
    """Runs a program that takes `--json FILE`, and returns what it wrote there, also if it did not
    end in time or failed."""
    report = bench.folder / f"{Path(command[-1]).stem}.json"
    log = bench.folder / f"{report.stem}.log"
    ended: int | str
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--json", str(report)],
            env={**bench.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = process.wait(limit)
        except subprocess.TimeoutExpired:
            ended = f"not within {limit:.0f} s"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    written = parsed(report.read_text()) if report.exists() else None
    found = {"report": written, "ended": ended}
    if ended != 0 or written is None:
        raise Failure(f"{Path(command[-1]).name} ended with {ended}: {tail(log)}", found)
    return found


def parsed(text: str) -> object:
    """One JSON value, or a list of those of all lines."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def truths(bench: Bench) -> dict:
    """What the driver and the device do, of what the design assumes."""
    return reported(bench, [str(bench.programs / "gpu_truths")], 200)


def kernels(bench: Bench) -> dict:
    """The kernels' bits against the CPU's, and their speed against a copy on the device."""
    return reported(bench, [str(bench.programs / "gpu_kernels")], 70)


def health(bench: Bench) -> dict:
    """The check of --health finds no fault; members that make it are admitted, and train with the
    bits of those that do not."""
    rows = reported(bench, [str(bench.programs / "gpu_health"), "6"], 60)["report"]
    for row in rows:
        want(row["gpu"].startswith(("GPU-", "MIG-")) and not row["faults"], f"{row}")
    weights = []
    for checked in (["--health"], []):
        command = member(bench, 50, 0)
        with bench.job(*checked, *training("2:2", command)) as job:
            status = job.process.wait(120)
            want(status == 0, f"{checked}: exit status {status}: {job.text()[-2000:]}")
        want("refused" not in job.text(), job.text()[-2000:])
        weights.append(weights_of(ours_recovery.read_timelines(Path(command[1]))))
    want(
        weights[0] == weights[1] != {}, f"weights {weights[0]} with --health, {weights[1]} without"
    )
    first, *others = [row["ms"] for row in rows]
    figures = {"first check": [first], "check": others}
    return {
        "chip": rows[0]["chip"],
        "weights": weights[0][50],
        "rows": {name: summarize(values).to_json() for name, values in figures.items()},
    }


def nccl(bench: Bench) -> dict:
    """What the NCCL of this machine's torch has and does on one GPU."""
    return reported(bench, [sys.executable, str(ROOT / "tests/gpu/nccl_phase.py")], 60)


def pytorch(bench: Bench, *parts: str) -> dict:
    """regroup.torch on CUDA: equal weights after kills and joins, overhead, torchrun beside it."""
    script = [str(ROOT / "tests/gpu/torch_phase.py")]
    for part in parts or ("bits", "prepared", "overhead", "recovery"):
        script += ["--part", part]
    found = {"PYTHONPATH": str(bench.module())}
    return reported(bench, [sys.executable, *script], 180, found)


# In this order: what nobody has seen comes first. The last number: seconds that it may take.
CHECKS: dict[str, tuple[Callable[[Bench], dict], float]] = {
    "truths": (truths, 120),
    "kernels": (kernels, 70),
    "pytorch": (pytorch, 180),
    "pytorch, plane cuda": (lambda bench: pytorch(bench, "cuda bits", "cuda overhead"), 100),
    "nccl": (nccl, 60),
    "health": (health, 60),
    "recovery": (lambda bench: recovery(bench, kills=20, held=0), 180),
    "recovery, gradients in memory of the GPU": (
        lambda bench: recovery(bench, 10, 0, "device"),
        120,
    ),
    "recovery, plane cuda": (
        lambda bench: recovery(bench, 10, 0, "device", plane="cuda"),
        120,
    ),
    "topology": (topology, 10),
    "placement": (placement, 20),
    "claims": (claims, 20),
    "usage": (usage, 20),
    "recovery, a seventh of the memory held by each": (
        lambda b: recovery(b, kills=12, held=held_gib(1 / 7)),
        60,
    ),
    "recordings": (recordings, 10),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev gpu-test",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--programs", type=Path, default=ROOT / "build-gpu/bin", help="regroup and gpu_member"
    )
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument(
        "--only", action="append", metavar="CHECK", help=f"one of: {', '.join(CHECKS)}"
    )
    parser.add_argument(
        "--budget", type=float, default=3600, metavar="S", help="begin no check that may take more"
    )
    args = parser.parse_args()
    if unknown := set(args.only or []) - set(CHECKS):
        parser.error(f"--only: no check is called {unknown.pop()!r}")
    end = time.monotonic() + args.budget
    with tempfile.TemporaryDirectory(prefix="regroup-gpu-") as folder:
        bench = Bench(args.programs.resolve(), Path(folder))
        results: dict = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": versions(bench),
            "checks": {},
        }
        try:
            for name, (check, limit) in CHECKS.items():
                if args.only and name not in args.only:
                    continue
                results["checks"][name] = perform(bench, check, end - time.monotonic() - limit)
                show(name, results["checks"][name])
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1) + "\n")
        finally:
            bench.close()
    checks = results["checks"]
    failed = [name for name, told in checks.items() if not told["passed"]]
    print(
        f"{len(checks) - len(failed)} passed, {len(failed)} failed"
        + "".join(f"; failed: {name}" for name in failed)
    )
    return 1 if failed else 0


def perform(bench: Bench, check: Callable[[Bench], dict], left: float) -> dict:
    began = time.monotonic()
    try:
        want(left > 0, "not begun: the budget may not suffice")
        told = {"passed": True, **check(bench)}
    # whatever it is, the other checks are made and the figures written
    except Exception as error:
        more = error.args[1] if isinstance(error, Failure) and len(error.args) > 1 else {}
        text = error.args[0] if isinstance(error, Failure) else error
        told = {"passed": False, "why": f"{type(error).__name__}: {text}", **more}
    return {"seconds": round(time.monotonic() - began, 1), **told}


def show(name: str, told: dict) -> None:
    verdict = "ok    " if told["passed"] else "FAILED"
    print(f"{verdict} {name} ({told['seconds']} s) {told.get('why', '')}", flush=True)
    for row, of in told.get("rows", {}).items():
        figures = f"min {of['min']:.2f}, p50 {of['p50']:.2f}, p99 {of['p99']:.2f}"
        print(f"{name}: {row}: {figures} ms, {of['samples']} samples", flush=True)


if __name__ == "__main__":
    sys.exit(main())
