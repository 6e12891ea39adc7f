"""Power failures: what is on the disk at every moment of some saves is mounted, and must load.

./dev chaos crash_images [--images N] [--seed S]: an ext4 on a loop device whose file recorder.py
serves. Images are prefixes of its log, and such with only some of the writes since the last flush,
in any order. Each is mounted: the newest checkpoint must be at least the last one acknowledged at
that moment. The recorder is proved by saves of which fsync() is taken out: some image must lose an
acknowledged one. Root.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "checkpoint"))
import reader
from recorder import read_log
from saving import newest, save

HERE = Path(__file__).resolve().parent
SIZE = 24 << 20
DEADLINE_S = 60
NO_SYNC = "int fsync(int fd) { return 0 * fd; }\nint fdatasync(int fd) { return 0 * fd; }\n"


def take_own_mounts() -> None:
    """A mount namespace made while the recorder is mounted, as those of tests/hosts are, would keep
    it."""
    if os.environ.get("CRASH_IMAGES_MOUNTS") is None:
        words = ["unshare", "--mount", "--propagation=private", sys.executable, *sys.argv]
        os.execvpe(words[0], words, os.environ | {"CRASH_IMAGES_MOUNTS": "own"})


def command(*words, **more) -> None:
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=DEADLINE_S, **more
    )
    if done.returncode != 0:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")


def tensors_of(step: int) -> dict:
    return {
        "w": ("float32", np.full((300, 100), step, np.float32)),
        "b": ("float32", np.full((7,), step, np.float32)),
        "s": ("int64", np.array(step, np.int64)),
    }


def unmount(where: Path) -> None:
    """Whoever looks at all mounts of a machine, df for one, makes this one busy for a moment."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            return command("umount", where)
        except RuntimeError as error:
            if "busy" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def mounted(file: Path, where: Path):
    where.mkdir(exist_ok=True)
    command("mount", "-o", "loop,noatime", file, where)
    try:
        yield where
    finally:
        unmount(where)


@contextlib.contextmanager
def recording(folder: Path):
    """The file that is recorded; its log is in `folder`."""
    point = folder / "fuse"
    point.mkdir()
    words = [sys.executable, HERE / "recorder.py", point, str(SIZE), folder / "log"]
    process = subprocess.Popen(
        list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + DEADLINE_S
    try:
        while not (point / "disk").exists():
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError("the recorder does not start: is there /dev/fuse?")
            time.sleep(0.01)
        yield point / "disk"
    finally:
        unmount(point)
        process.wait(DEADLINE_S)


def entries_in(log: Path) -> int:
    """How many records there are by now."""
    return len(read_log(str(log)))


def record(folder: Path, steps: int, env: dict) -> tuple[list, list[int]]:
    """The log, and its length when each step had been acknowledged (the first: before any)."""
    with recording(folder) as disk:
        command(
            "mkfs.ext4",
            "-q",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            "-O",
            "^metadata_csum",
            disk,
        )
        with mounted(disk, folder / "mnt") as root:
            os.sync()
            acknowledged = [entries_in(folder / "log")]
            before = dict(os.environ)
            os.environ.update(env)
            for step in range(1, steps + 1):
                save(root / "ckpt", step, tensors_of(step), writers=1 + step % 2, keep_last=2)
                acknowledged.append(entries_in(folder / "log"))
                time.sleep(0.2 if env else 0)  # time for the kernel to write this and that
            os.environ.clear()
            os.environ.update(before)
        log = read_log(str(folder / "log"))
    return log, acknowledged


def image_of(log: list, upto: int, chance: random.Random | None) -> bytearray:
    """The disk after `upto` records; with `chance` only some writes since the last flush, in any
    order."""
    content = bytearray(SIZE)
    last_flush = max((i for i in range(upto) if log[i] is None), default=-1)
    since = [w for w in log[last_flush + 1 : upto] if w]
    if chance is not None:
        chance.shuffle(since)
        since = since[: chance.randrange(len(since) + 1)]
    for offset, data in [*(w for w in log[: last_flush + 1] if w), *since]:
        content[offset : offset + len(data)] = data
    return content


def step_in(image: Path, where: Path) -> int:
    """The step of the newest good checkpoint, which holds its numbers; 0: none."""
    with mounted(image, where) as root:
        done = newest(root / "ckpt")
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        if done.stdout == "{}\n":
            return 0
        manifest, arrays = reader.load(reader.newest(str(root / "ckpt")))
        if not all(np.all(arrays[name] == manifest["step"]) for name in ("w", "b", "s")):
            raise RuntimeError(f"step {manifest['step']} holds other numbers")
        return manifest["step"]


def lost(folder: Path, log: list, acknowledged: list[int], images: int, seed: int) -> list[str]:
    """Images, spread over the whole log, in which an acknowledged checkpoint is not there."""
    chance, found = random.Random(seed), []
    moments = [
        acknowledged[0] + i * (len(log) - acknowledged[0]) // images for i in range(1, images + 1)
    ]
    for number, upto in enumerate(moments):
        # A file for each: a mount namespace that somebody made meanwhile keeps the one before
        # mounted, and the same file again would then show what it was.
        path = folder / f"image-{number}"
        path.write_bytes(image_of(log, upto, chance if number % 2 else None))
        wanted = sum(upto >= moment for moment in acknowledged[1:])
        step = step_in(path, folder / "look")
        path.unlink()
        if step < wanted:
            found.append(
                f"image {number}, {upto} of {len(log)} records: step {step}, acknowledged {wanted}"
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    take_own_mounts()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crash-images-") as name:
        good, bad = Path(name) / "good", Path(name) / "bad"
        good.mkdir()
        bad.mkdir()
        log, acknowledged = record(good, 8, {})
        found = lost(good, log, acknowledged, args.images, args.seed)
        print(
            f"{args.images} images of {len(log)} records, {len(found)} lost an acknowledged "
            f"checkpoint"
        )
        for line in found[:10]:
            print(" ", line)
        source, shim = bad / "nosync.c", bad / "nosync.so"
        source.write_text(NO_SYNC)
        command("cc", "-shared", "-fPIC", "-o", shim, source)
        log, acknowledged = record(bad, 4, {"LD_PRELOAD": str(shim)})
        few = min(25, args.images)
        without = lost(bad, log, acknowledged, few, args.seed)
        print(
            f"without fsync: {len(without)} of {few} images lost one; "
            f"{time.monotonic() - begin:.0f} s"
        )
    return 1 if found or not without else 0


if __name__ == "__main__":
    sys.exit(main())
