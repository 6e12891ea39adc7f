"""Saves arrays as an agent does: a memfd, a description, regroup-persist."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np

BUILT = Path(__file__).resolve().parents[2] / "build/bin/regroup-persist"
BIN = Path(
    os.environ.get("REGROUP_BIN_DIR") or Path(shutil.which("regroup-persist") or BUILT).parent
)
DEADLINE_S = 120.0


def share_of_rows(rows: int, part: int, parts: int) -> tuple[int, int]:
    """Begin and length of an uneven share."""
    each, more = divmod(rows, parts)
    return part * each + min(part, more), each + (part < more)


def pieces_of(tensors: dict, writer: int, writers: int) -> list[tuple[dict, bytes]]:
    """What `writer` has of {name: (dtype, array)}: its rows, and scalars if it is the first."""
    out = []
    for name, (dtype, array) in tensors.items():
        about = {"name": name, "dtype": dtype, "shape": list(array.shape)}
        if array.ndim == 0:
            if writer == 0:
                out.append((about, array.tobytes()))
            continue
        begin, rows = share_of_rows(array.shape[0], writer, writers)
        about["start"] = [begin] + [0] * (array.ndim - 1)
        about["count"] = [rows, *array.shape[1:]]
        out.append((about, np.ascontiguousarray(array[begin : begin + rows]).tobytes()))
    return out


class Save:
    """One writer's part in a checkpoint: the memory, and what is said about it."""

    def __init__(
        self, directory, step: int, tensors: dict, writer=0, writers=1, commit=None, **more
    ):
        self.memory = os.memfd_create("arena")
        described, offset = [], 64
        for about, content in pieces_of(tensors, writer, writers):
            # as elastic/checkpointing.cc
            offset += -offset % (4096 if len(content) >= 4096 else 64)
            for at in range(0, len(content), 1 << 30):  # Linux writes at most 2 GiB at once
                os.pwrite(self.memory, memoryview(content)[at : at + (1 << 30)], offset + at)
            described.append(about | {"offset": offset})
            offset += len(content)
        os.ftruncate(self.memory, max(offset, 4096))
        self.description = {
            "directory": str(directory),
            "uuid": "try1",
            "step": step,
            "job": "test",
            "seed": 7,
            "shards": 4,
            "model": "m",
            "fingerprint": "f",
            "writer": writer,
            "writers": writers,
            "commit": writer == writers - 1 if commit is None else commit,
            "keep_last": 100,
            "tensors": described,
        } | more

    def run(self, env=None, prefix=()) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*prefix, str(BIN / "regroup-persist"), "write", str(self.memory)],
            input=json.dumps(self.description).encode(),
            pass_fds=[self.memory],
            env=os.environ | (env or {}),
            capture_output=True,
            timeout=DEADLINE_S,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.memory)


def save(directory, step: int, tensors: dict, writers=1, **more) -> Path:
    """All writers' parts, one after the other; the checkpoint."""
    for writer in range(writers):
        with Save(directory, step, tensors, writer, writers, **more) as part:
            done = part.run()
            assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == [str(step)]
    return Path(directory) / f"step-{step:08d}"


def tool(*words) -> subprocess.CompletedProcess:
    """`regroup checkpoint WORDS`."""
    return subprocess.run(
        [str(BIN / "regroup-checkpoint"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def persist(*words) -> subprocess.CompletedProcess:
    """`regroup-persist WORDS`, without its signs of life: an empty line each second."""
    done = subprocess.run(
        [str(BIN / "regroup-persist"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    done.stdout = done.stdout.lstrip("\n")
    return done


def newest(directory) -> subprocess.CompletedProcess:
    return persist("newest", directory)


def sample_tensors(seed=1) -> dict:
    """Of every kind that is written differently: large, packed, scalar, empty, without a type in
    HDF5."""
    random = np.random.default_rng(seed)
    return {
        "layer.weight": ("float32", random.standard_normal((65, 33), np.float32)),
        "layer/bias": ("float64", random.standard_normal(33)),
        "large": ("float32", random.standard_normal((5, 600_000), np.float32)),  # over one block
        "half": ("bfloat16", random.integers(0, 65536, (4, 4096), np.uint16)),
        "eighth": ("float8_e4m3fn", random.integers(0, 256, (9, 3), np.uint8)),
        "steps": ("int64", np.array(seed, np.int64)),
        "mask": ("bool", np.array([True, False, True])),
        "complex": ("complex64", random.standard_normal((3, 2)).astype(np.complex64)),
        "nothing": ("float32", np.empty((0, 4), np.float32)),
        "one.row": ("int32", np.arange(2000, dtype=np.int32).reshape(1, 2000)),
    }
