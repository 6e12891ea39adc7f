"""Saving, restoring and verifying checkpoints, against the raw device and what frameworks save with.

./dev bench checkpoint [--quick] [--mib M] [--folder DIR] [--json FILE]. A model of M MiB of fp32 parameters
with Adam's two moments (3 M MiB in all; default 512, --quick 32), on one disk, by turns: our snapshot and
regroup-persist, bytes with O_DIRECT and fsync (raw), torch.save, safetensors and h5py with fsync, and
torch.distributed.checkpoint.async_save. "stall" is for how long training waits: for our fused AdamW what a
step with a snapshot takes more than one without. Cold restores drop the files from the page cache first.
At the end (not with --quick): what each side says of a save killed half-way, and of one flipped bit.
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
        for optimizer in (self.optimizer, self.torch_optimizer):
            optimizer.step()
        state = self.optimizer.state[self.parameter]
        self.tensors = {"parameter": self.parameter.detach()} | {name: state[name] for name in NAMES[1:]}
        self.bytes = sum(tensor.nbytes for tensor in self.tensors.values())
        self.snapshot = checkpoint.Snapshot([checkpoint.Piece(n, "float32", shape) for n in NAMES])
        views = [torch.frombuffer(self.snapshot.memory(i), dtype=torch.float32).view(shape) for i in range(3)]
        self.views = dict(zip(NAMES, views, strict=True))
        self.copy()
        self.into = {name: torch.ones(shape) for name in NAMES}
        self.raw_buffer = np.frombuffer(self.snapshot.memory(0), np.uint8)  # memory like the arena's
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
        calls = {"ours": self.save, "raw O_DIRECT": self.raw}
        calls |= {name: lambda n=name: self.framework(n) for name in FILES}
        calls["async_save"] = lambda: self.async_save(stalls)
        sides = [common.Side(name, lambda: None, lambda c=call: [seconds(c)]) for name, call in calls.items()]
        sides.append(common.Side("fused", lambda: None, lambda: [self.fused()]))
        sides.append(common.Side("copy", lambda: None, lambda: [seconds(self.copy)]))
        sides.append(common.Side("one step", lambda: None, lambda: [self.one_step(False)]))
        sides.append(common.Side("torch's step", lambda: None, lambda: [seconds(self.torch_optimizer.step)]))
        found = common.alternate(sides, rounds)
        stall = {name: common.summarize(found[name]) for name in ("copy", "one step", "torch's step", *FILES)}
        stall["async_save"] = common.summarize(stalls)
        rate = {name: common.summarize([self.bytes / s / 1e9 for s in found[name]]) for name in calls}
        mib = self.bytes >> 20
        return [
            common.Row(
                "checkpoint",
                f"save {mib} MiB until durable",
                "GB/s",
                rate.pop("ours"),
                rate,
                ["raw O_DIRECT"],
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
        self.into_bytes = checkpoint.Snapshot([checkpoint.Piece("x", "uint8", (64 << 20,))]).memory(0)
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
            sides.append(self.restore("dcp.load", path, lambda p=path: load_dcp(p, dict(self.into)), cold))
            if cold:
                sides.append(self.restore("raw O_DIRECT", self.folder / "raw", self.raw_read, True))
            what = f"restore {self.bytes >> 20} MiB, {'cold' if cold else 'from the page cache'}"
            rows.append(row(what, sides, rounds, ["raw O_DIRECT"] if cold else list(FILES)))
        verify = self.restore("ours", newest, lambda: self.verify(newest), False)
        return [*rows, row("verify, from the page cache, one core", [verify], rounds, [])]

    def verify(self, path: Path) -> None:
        done = saving.tool("verify", path)
        if done.returncode != 0:
            raise common.BenchError(done.stdout + done.stderr)


def row(case: str, sides: list[common.Side], rounds: int, bound: list[str]) -> common.Row:
    samples = {name: common.summarize(found) for name, found in common.alternate(sides, rounds).items()}
    return common.Row("checkpoint", case, "GB/s", samples.pop("ours"), samples, bound)


# What each side says of damage. A child saves tensors full of 1, then of 2, and is killed during the second.
CHILD = "import sys; sys.path.insert(0, {here!r}); import checkpoint; checkpoint.child(*sys.argv[1:])"


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
    took = seconds(undisturbed.stdout.readline)  # until "second": leaving Python takes longer than a save
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
        bench = Bench(folder, mib)
        common.report([*bench.saves(rounds), *bench.restores(rounds)], args.json)
        if not args.quick:
            print_damage(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    common.main(main)
