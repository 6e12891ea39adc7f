"""Writing, restoring and verifying a checkpoint against the raw device and what frameworks save with.

./dev bench checkpoint [--quick] [--mib M] [--folder DIR] [--json FILE]. A model of M MiB of fp32 parameters
with Adam's two moments (3 M MiB in all; default 256, --quick 32), saved to one disk by turns: by regroup-
persist out of a memfd until it is acknowledged, as bytes with O_DIRECT and fsync (raw), torch.save + fsync,
safetensors + fsync, h5py + fsync. Restoring drops the files from the page cache first. Each side is
verified before.
"""

import mmap
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import common
import h5py
import numpy as np
import safetensors.torch
import torch

sys.path.insert(0, str(common.ROOT / "tests/checkpoint"))
os.environ.setdefault("REGROUP_BIN_DIR", str(common.BIN))
import reader
import saving

CHUNK = 4 << 20


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


class Bench:
    def __init__(self, folder: Path, mib: int):
        self.folder = folder
        rows = mib << 8
        random = np.random.default_rng(1)
        names = ("weight", "exp_avg", "exp_avg_sq")
        self.arrays = {name: random.standard_normal((rows, 1024), np.float32) for name in names}
        self.torch = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        self.bytes = sum(array.nbytes for array in self.arrays.values())
        self.part = saving.Save(folder / "ours", 1, {k: ("float32", a) for k, a in self.arrays.items()})
        self.buffer = mmap.mmap(-1, CHUNK)
        self.buffer.write(os.urandom(CHUNK))
        self.step = 0

    def rate(self, begin: float) -> float:
        return self.bytes / (time.perf_counter() - begin) / 1e9

    def ours(self) -> list[float]:
        self.step += 1
        self.part.description |= {"step": self.step, "uuid": f"u{self.step}", "keep_last": 2}
        begin = time.perf_counter()
        done = self.part.run()
        rate = self.rate(begin)
        if done.returncode != 0:
            raise common.BenchError(done.stderr.decode())
        return [rate]

    def raw(self) -> list[float]:
        path = self.folder / "raw"
        path.unlink(missing_ok=True)
        begin = time.perf_counter()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        for at in range(0, self.bytes, CHUNK):
            os.pwrite(fd, self.buffer, at)
        os.fsync(fd)
        os.close(fd)
        return [self.rate(begin)]

    def framework(self, name: str, write) -> list[float]:
        path = self.folder / name
        path.unlink(missing_ok=True)
        begin = time.perf_counter()
        write(path)
        sync(path)
        return [self.rate(begin)]

    def h5py(self, path: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, array in self.arrays.items():
                file[name] = array

    def writers(self) -> list[common.Side]:
        return [
            common.Side("ours", self.verify, self.ours),
            common.Side("raw O_DIRECT", lambda: None, self.raw),
            common.Side(
                "torch.save",
                lambda: None,
                lambda: self.framework("torch", lambda p: torch.save(self.torch, p)),
            ),
            common.Side(
                "safetensors",
                lambda: None,
                lambda: self.framework("safe", lambda p: safetensors.torch.save_file(self.torch, p)),
            ),
            common.Side("h5py", lambda: None, lambda: self.framework("h5", self.h5py)),
        ]

    def verify(self) -> None:
        self.ours()
        arrays = reader.load(reader.newest(str(self.folder / "ours")))[1]
        for name, array in self.arrays.items():
            if not np.array_equal(arrays[name], array):
                raise common.BenchError(f"{name} does not come back")

    def timed(self, path: Path, read, warm: bool = False) -> list[float]:
        if not warm:
            drop(path)
        begin = time.perf_counter()
        read(path)
        return [self.rate(begin)]

    def raw_read(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        for at in range(0, self.bytes, CHUNK):
            os.preadv(fd, [self.buffer], at)
        os.close(fd)

    def verify_ours(self, path: Path) -> None:
        done = saving.tool("verify", path)
        if done.returncode != 0:
            raise common.BenchError(done.stdout + done.stderr)

    def readers(self, warm: bool) -> list[common.Side]:
        newest = Path(reader.newest(str(self.folder / "ours")))
        sides = [("ours", newest, self.verify_ours), ("torch.load", self.folder / "torch", torch.load)]
        sides.append(("safetensors", self.folder / "safe", safetensors.torch.load_file))
        if not warm:
            sides.append(("raw O_DIRECT", self.folder / "raw", self.raw_read))
        return [
            common.Side(name, lambda: None, lambda p=path, r=read: self.timed(p, r, warm))
            for name, path, read in sides
        ]


def row(case: str, sides: list[common.Side], rounds: int, bound: list[str]) -> common.Row:
    samples = {name: common.summarize(found) for name, found in common.alternate(sides, rounds).items()}
    return common.Row("checkpoint", case, "GB/s", samples.pop("ours"), samples, bound)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--mib", type=int)
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is measured (default: the temporary folder)"
    )
    args = parser.parse_args()
    mib, rounds = args.mib or (32 if args.quick else 256), 3 if args.quick else 7
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=args.folder))
    try:
        bench = Bench(folder, mib)
        rows = [
            row(f"save {3 * mib} MiB until durable", bench.writers(), rounds, ["raw O_DIRECT"]),
            row(f"read and verify {3 * mib} MiB, cold", bench.readers(False), rounds, ["raw O_DIRECT"]),
            row(f"verify {3 * mib} MiB in the page cache", bench.readers(True), rounds, []),
        ]
        common.report(rows, args.json)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    common.main(main)
