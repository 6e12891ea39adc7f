"""Saving, restoring and verifying checkpoints, against the raw device and what frameworks save
with.

./dev bench checkpoint [--quick] [--mib M] [--folder DIR] [--json FILE]. A model of M MiB of fp32
parameters with Adam's two moments (3 M MiB in all; default 512, --quick 32), on one disk, by turns:
our snapshot and regroup-persist, bytes with O_DIRECT and fsync (raw), torch.save, safetensors and
h5py with fsync, and torch.distributed.checkpoint.async_save. "stall" is for how long training
waits: for our fused AdamW what a step with a snapshot takes more than one without; in jobs of one
and two members, which share it, from the sum of the gradients until the next step may begin. Cold
restores drop the files from the page cache first. Everything of one thread, as members are. What
was asked of it stands below the table. At the end (not with --quick): what each side says of a save
killed half-way, and of one flipped bit.
"""

import os
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

import common
import h5py
import numpy as np
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

os.environ["PATH"] = f"{common.BIN}:{os.environ['PATH']}"
sys.path.insert(0, str(common.ROOT / "tests/checkpoint"))
sys.path.insert(0, str(common.BIN.parent / "python"))
os.environ.setdefault("REGROUP_BIN_DIR", str(common.BIN))
import saving
from regroup import checkpoint, optim, torch_checkpoint

CHUNK = 4 << 20
NAMES = ("parameter", "exp_avg", "exp_avg_sq")
RAW = "raw O_DIRECT"
FUSED_LIMIT, RAW_LIMIT, VERIFY_GBS, LOAD_GBS = 0.3, 0.9, 10.0, 5.0  # as issue 7 asks


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def drop(path: Path) -> None:
    """Out of the page cache, once it is clean."""
    for file in [path] if path.is_file() else path.iterdir():
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_plainly(path: Path) -> None:
    """Into the page cache as any program does that reads: in larger pages than hints leave
    there."""
    drop(path)
    for file in path.iterdir():
        with open(file, "rb", buffering=0) as opened:
            while opened.read(CHUNK):
                pass


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def save_torch(path: Path, tensors: dict) -> None:
    torch.save(tensors, path)


def save_safetensors(path: Path, tensors: dict) -> None:
    safetensors.torch.save_file(tensors, path)


def save_h5py(path: Path, tensors: dict) -> None:
    with h5py.File(path, "w") as file:
        for name, tensor in tensors.items():
            file[name] = tensor.numpy()


def load_h5py(path: Path) -> dict:
    with h5py.File(path) as file:
        return {name: torch.from_numpy(file[name][()]) for name in file}


def load_safetensors(path: Path) -> dict:
    """Read, and not only mapped."""
    return {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items()}


FILES = {
    "torch.save": (save_torch, torch.load),
    "safetensors": (save_safetensors, load_safetensors),
    "h5py": (save_h5py, load_h5py),
}


def ours_path(folder: Path) -> Path:
    return Path(checkpoint.newest_checkpoint(str(folder / "ours")) or folder / "none")


def load_ours(path: Path, into: dict | None = None) -> dict:
    opened = checkpoint.Checkpoint(str(path))
    into = into or {name: torch.empty(shape) for name, _, shape in opened.tensors}
    for name, tensor in into.items():
        opened.read_into(name, tensor)
    return into


def load_dcp(path: Path, into: dict) -> dict:
    dcp.load(into, checkpoint_id=path)
    return into


class Bench:
    def __init__(self, folder: Path, mib: int):
        self.folder, self.step = folder, 0
        torch.manual_seed(1)
        shape = (mib << 8, 1024)
        self.parameter = torch.nn.Parameter(torch.randn(shape))
        self.parameter.grad = torch.randn(shape)
        self.optimizer = optim.AdamW([self.parameter])
        self.torch_optimizer = torch.optim.AdamW([self.parameter])
        self.torch_fused = torch.optim.AdamW([self.parameter], fused=True)
        for optimizer in (self.optimizer, self.torch_optimizer, self.torch_fused):
            optimizer.step()
        state = self.optimizer.state[self.parameter]
        self.tensors = {"parameter": self.parameter.detach()} | {
            name: state[name] for name in NAMES[1:]
        }
        self.bytes = sum(tensor.nbytes for tensor in self.tensors.values())
        self.snapshot = checkpoint.Snapshot([checkpoint.Piece(n, "float32", shape) for n in NAMES])
        views = [
            torch.frombuffer(self.snapshot.memory(i), dtype=torch.float32).view(shape)
            for i in range(3)
        ]
        self.views = dict(zip(NAMES, views, strict=True))
        self.copy()
        self.into = {name: torch.ones(shape) for name in NAMES}
        # memory like the arena's
        self.raw_buffer = np.frombuffer(self.snapshot.memory(0), np.uint8)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    # How long training waits, in seconds.
    def copy(self) -> None:
        for name, view in self.views.items():
            view.copy_(self.tensors[name])

    def one_step(self, fused: bool) -> float:
        self.optimizer.snapshot_into({self.parameter: self.views} if fused else None)
        return seconds(self.optimizer.step)

    def fused(self) -> float:
        with_snapshot = statistics.median(self.one_step(True) for _ in range(3))
        return max(1e-9, with_snapshot - statistics.median(self.one_step(False) for _ in range(3)))

    def save(self) -> None:
        self.step += 1
        self.snapshot.write(self.folder / "ours", self.step, keep_last=2)

    def raw(self) -> None:
        path = self.folder / "raw"
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        for at in range(0, self.bytes, CHUNK):
            begin = at % (self.raw_buffer.nbytes - CHUNK + 1) // CHUNK * CHUNK
            os.pwrite(fd, self.raw_buffer[begin : begin + CHUNK], at)
        os.fsync(fd)
        os.close(fd)

    def framework(self, name: str) -> None:
        path = self.folder / name
        path.unlink(missing_ok=True)
        FILES[name][0](path, self.tensors)
        sync(path)

    def async_save(self, stalls: list[float]) -> None:
        path = self.folder / "async_save"
        shutil.rmtree(path, ignore_errors=True)
        begin = time.perf_counter()
        response = dcp.async_save(dict(self.tensors), checkpoint_id=path)
        stalls.append(time.perf_counter() - begin)
        response.result()

    def saves(self, rounds: int) -> list[common.Row]:
        stalls: list[float] = []  # of async_save
        calls = {"ours": self.save, RAW: self.raw}
        calls |= {name: lambda n=name: self.framework(n) for name in FILES}
        calls["async_save"] = lambda: self.async_save(stalls)
        sides = [
            common.Side(name, lambda: None, lambda c=call: [seconds(c)])
            for name, call in calls.items()
        ]
        sides.append(common.Side("fused", lambda: None, lambda: [self.fused()]))
        sides.append(common.Side("copy", lambda: None, lambda: [seconds(self.copy)]))
        sides.append(common.Side("one step", lambda: None, lambda: [self.one_step(False)]))
        torchs = {"torch's step": self.torch_optimizer, "torch's fused": self.torch_fused}
        for name, optimizer in torchs.items():
            sides.append(common.Side(name, lambda: None, lambda o=optimizer: [seconds(o.step)]))
        found = common.alternate(sides, rounds)
        steps = ("copy", "one step", "torch's step", "torch's fused")
        stall = {name: common.summarize(found[name]) for name in (*steps, *FILES)}
        stall["async_save"] = common.summarize(stalls)
        rate = {
            name: common.summarize([self.bytes / s / 1e9 for s in found[name]]) for name in calls
        }
        mib = self.bytes >> 20
        return [
            common.Row(
                "checkpoint",
                f"save {mib} MiB until durable",
                "GB/s",
                rate.pop("ours"),
                rate,
                [RAW],
            ),
            common.Row(
                "checkpoint",
                f"stall of a save of {mib} MiB, fused",
                "s",
                common.summarize(found["fused"]),
                stall,
                ["one step"],
            ),
        ]

    def raw_read(self) -> None:
        fd = os.open(self.folder / "raw", os.O_RDONLY | os.O_DIRECT)
        buffer = memoryview(self.into_bytes)
        for at in range(0, self.bytes, CHUNK):
            begin = at % (len(buffer) - CHUNK + 1) // CHUNK * CHUNK
            os.preadv(fd, [buffer[begin : begin + CHUNK]], at)
        os.close(fd)

    def restore(self, name: str, path: Path, call: Callable[[], object], cold: bool) -> common.Side:
        def block() -> list[float]:
            if cold:
                drop(path)
            return [self.bytes / seconds(call) / 1e9]

        return common.Side(name, lambda: None, block)

    def restores(self, rounds: int) -> list[common.Row]:
        self.into_bytes = checkpoint.Snapshot([checkpoint.Piece("x", "uint8", (64 << 20,))]).memory(
            0
        )
        newest = ours_path(self.folder)
        for name, tensor in load_ours(newest, self.into).items():
            if not torch.equal(tensor, self.views[name]):
                raise common.BenchError(f"{name} does not come back")
        rows = []
        for cold in (True, False):
            sides = [self.restore("ours", newest, lambda: load_ours(newest, self.into), cold)]
            for name, (_, load) in FILES.items():
                path = self.folder / name
                sides.append(self.restore(name, path, lambda p=path, one=load: one(p), cold))
            path = self.folder / "async_save"
            sides.append(
                self.restore("dcp.load", path, lambda p=path: load_dcp(p, dict(self.into)), cold)
            )
            if cold:
                sides.append(self.restore(RAW, self.folder / "raw", self.raw_read, True))
            what = f"restore {self.bytes >> 20} MiB, {'cold' if cold else 'from the page cache'}"
            rows.append(row(what, sides, rounds, [RAW] if cold else list(FILES)))
        allowed = os.sched_getaffinity(0)
        one = set(list(allowed)[:1])
        cases = [(one, "small pages of the page cache, one core")]  # as loading leaves them there
        cases += [(one, "the page cache, one core"), (allowed, "the page cache, all cores")]
        for number, (cores, word) in enumerate(cases):
            if number == 1:
                read_plainly(newest)
            side = self.restore("ours", newest, lambda c=cores: self.verify(newest, c), False)
            rows.append(row(f"verify, from {word}", [side], rounds, []))
        return rows

    def verify(self, path: Path, cores: set[int]) -> None:
        """As a program, its start and all."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            done = saving.tool("verify", path)
        finally:
            os.sched_setaffinity(0, allowed)
        if done.returncode != 0:
            raise common.BenchError(done.stdout + done.stderr)


def row(case: str, sides: list[common.Side], rounds: int, bound: list[str]) -> common.Row:
    samples = {
        name: common.summarize(found) for name, found in common.alternate(sides, rounds).items()
    }
    return common.Row("checkpoint", case, "GB/s", samples.pop("ours"), samples, bound)


@dataclass
class InJob:
    """What checkpoints cost the members of a job, in seconds; of several the slowest, save by
    save."""

    step: float  # without one
    stalls: list[float]  # of each save, the first one first
    bytes: int  # of one snapshot


def in_job(folder: Path, mib: int, members: int, kind: str, saves: int) -> InJob:
    """A job of members that only step, with `saves` checkpoints."""
    place = folder / f"job-{kind}-{members}"
    place.mkdir()
    words = [
        common.BIN / "regroup",
        "--shards",
        members,
        "--checkpoint-interval",
        10,
        "--checkpoint",
        place / "ckpt",
    ]
    words += ["-np", f"{members}:{members}", "--oversubscribe", sys.executable]
    words += [
        Path(__file__).with_name("checkpoint_member.py"),
        place,
        mib,
        kind,
        saves,
        0.5 + mib / 150,
    ]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=900)
    if done.returncode != 0 or "failed" in done.stderr:
        raise common.BenchError(f"a job of {members} members: {done.stderr[-2000:]}")
    stalls, steps, sizes = [], [], []
    for path in sorted(place.glob("steps.*")):
        lines = [line.split() for line in path.read_text().splitlines()]
        plain = statistics.median(float(took) for what, took, *_ in lines[1:] if what == "plain")
        saved = [line for line in lines if line[0] == "save"]
        if kind == "fused" and any(int(fused) < 100 * int(copied) for *_, copied, fused in saved):
            raise common.BenchError(f"what was to be fused was copied: {saved}")
        steps.append(plain)
        stalls.append([max(0.0, float(took) - plain) for _, took, *_ in saved])
        sizes.append(max(int(copied) + int(fused) for *_, copied, fused in saved))
    shutil.rmtree(place)
    return InJob(max(steps), [max(at) for at in zip(*stalls, strict=True)], sum(sizes))


def job_rows(jobs: dict[str, InJob]) -> list[common.Row]:
    rows = []
    for name, job in jobs.items():
        rivals = {
            "the first": common.summarize(job.stalls[:1]),
            "one step": common.summarize([job.step]),
        }
        what, later = f"stall in {name}, {job.bytes >> 20} MiB", common.summarize(job.stalls[1:])
        rows.append(common.Row("checkpoint", what, "s", later, rivals, ["one step"]))
    return rows


def judge(rows: list[common.Row], jobs: dict[str, InJob]) -> None:
    """What was asked beside what was measured: medians."""

    def line(what: str, value: float, limit: float, unit: str = "", most: bool = False) -> None:
        good = value <= limit if most else value >= limit
        asked = f"{'<=' if most else '>='} {limit:g}"
        print(f"{'met' if good else 'MISSED':7} {what}: {value:.2f}{unit} (asked: {asked})")

    save, stall = rows[0], rows[1]
    line("write, of raw O_DIRECT", save.ours.p50 / save.rivals[RAW].p50, RAW_LIMIT)
    for side in ("one step", "torch's fused", "torch's step"):
        of = {"one step": "our own step"}.get(side, side)
        line(
            f"fused stall, of {of}", stall.ours.p50 / stall.rivals[side].p50, FUSED_LIMIT, most=True
        )
    for name, job in jobs.items():
        later, copy = statistics.median(job.stalls[1:]), stall.rivals["copy"].p50
        if "copied" in name:
            line(f"stall in {name}, of one memory copy", later / copy, 1.0, most=True)
            continue
        line(f"stall in {name}, of our own step", later / job.step, FUSED_LIMIT, most=True)
        fused = stall.rivals["torch's fused"].p50
        line(f"stall in {name}, of torch's fused", later / fused, FUSED_LIMIT, most=True)
        line(
            f"first stall in {name}, of later ones",
            job.stalls[0] / max(later, 1e-9),
            1.5,
            most=True,
        )
    for row in rows:
        case = row.case
        if case.startswith("restore") and RAW in row.rivals:
            line("cold restore, of raw read", row.ours.p50 / row.rivals[RAW].p50, RAW_LIMIT)
        elif case.startswith("restore"):
            line("loading by pread from the page cache", row.ours.p50, LOAD_GBS, " GB/s")
        elif case.startswith("verify"):
            line(case, row.ours.p50, VERIFY_GBS, " GB/s")


# What each side says of damage. A child saves tensors full of 1, then of 2, and is killed during
# the second.
CHILD = (
    "import sys; sys.path.insert(0, {here!r}); import checkpoint; checkpoint.child(*sys.argv[1:])"
)


def save_small(name: str, folder: Path, value: int, mib: int = 64) -> None:
    tensors = {"w": torch.full((mib << 8, 1024), float(value))}
    if name == "ours":
        torch_checkpoint.save(folder / "ours", value, tensors)
    elif name == "async_save":
        dcp.async_save(tensors, checkpoint_id=folder / name).result()
    else:
        FILES[name][0](folder / name, tensors)
        sync(folder / name)


def load_small(name: str, folder: Path, mib: int = 64) -> str:
    """What a user sees: the value, or that it was noticed."""
    try:
        if name == "ours":
            verified = saving.newest(folder / "ours")  # as a job does when it starts
            value = torch_checkpoint.load(ours_path(folder))["w"]
            noticed = "noticed, the one before is used" if "damaged" in verified.stderr else ""
        elif name == "async_save":
            value, noticed = load_dcp(folder / name, {"w": torch.zeros(mib << 8, 1024)})["w"], ""
        else:
            value, noticed = FILES[name][1](folder / name)["w"], ""
    except (Exception, dcp.CheckpointException) as error:  # the latter is none of the former
        return f"an error, nothing is left ({type(error).__name__})"
    values = torch.unique(value)
    if noticed:
        return noticed
    if len(values) > 1 or int(values[0]) not in (1, 2):
        return "SILENT: loads other numbers"
    return "the one before is there" if int(values[0]) == 1 else "the new one is there"


def child(name: str, folder: str) -> None:
    if name == "async_save":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    save_small(name, Path(folder), 1)
    print("first", flush=True)
    save_small(name, Path(folder), 2)
    print("second", flush=True)


def start_child(name: str, folder: Path) -> subprocess.Popen:
    words = [sys.executable, "-c", CHILD.format(here=str(Path(__file__).parent)), name, str(folder)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"first\n":
        raise common.BenchError(f"{name}: the child does not save")
    return process


def killed(name: str, folder: Path) -> str:
    """The child and what it started, at some moments of its second save: all that was met."""
    undisturbed = start_child(name, folder)
    assert undisturbed.stdout is not None
    # until "second": leaving Python takes longer than a save
    took = seconds(undisturbed.stdout.readline)
    undisturbed.wait(120)
    said = []
    for part in (0.3, 0.5, 0.7):
        shutil.rmtree(folder)
        folder.mkdir()
        process = start_child(name, folder)
        time.sleep(part * took)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        said.append(load_small(name, folder))
    return "; ".join(sorted(set(said)))


def flipped(name: str, folder: Path) -> str:
    for value in (1, 2) if name == "ours" else (2,):
        save_small(name, folder, value)
    place = ours_path(folder) if name == "ours" else folder / name
    files = [place] if place.is_file() else [f for f in place.iterdir() if f.is_file()]
    largest = max(files, key=lambda file: file.stat().st_size)
    with open(largest, "r+b") as file:
        file.seek(largest.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return load_small(name, folder)


def print_damage(folder: Path) -> None:
    print(f"\n{'':12} {'killed half-way':44} one flipped bit")
    for name in ("ours", *FILES, "async_save"):
        said = []
        for what in (killed, flipped):
            place = folder / "damage"
            place.mkdir()
            said.append(what(name, place))
            shutil.rmtree(place)
        print(f"{name:12} {said[0]:44} {said[1]}", flush=True)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--mib", type=int)
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is measured (default: the temporary folder)"
    )
    args = parser.parse_args()
    mib, rounds = args.mib or (32 if args.quick else 512), 3 if args.quick else 5
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=args.folder))
    try:
        torch.set_num_threads(1)
        saves = 3 if args.quick else 6
        jobs = {  # while this process has no memory yet
            "a job of one member, fused": in_job(folder, mib, 1, "fused", saves),
            "a job of two members, fused": in_job(folder, mib, 2, "fused", saves),
            "a job of one member, copied": in_job(folder, mib, 1, "copied", saves),
        }
        bench = Bench(folder, mib)
        rows = [*bench.saves(rounds), *bench.restores(rounds)]
        common.report([*rows, *job_rows(jobs)], args.json)
        judge(rows, jobs)
        if not args.quick:
            print_damage(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    common.main(main)
