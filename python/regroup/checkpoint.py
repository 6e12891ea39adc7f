"""Writes and reads checkpoints outside of a job. Needs no framework.

    snapshot = Snapshot([Piece("weight", "float32", (1000, 1000))])
    snapshot.memory(0)[:] = ...                  # uint8; a regroup.optim optimizer may fill it
    path = snapshot.write("ckpt", step=100)      # ckpt/step-00000100: complete and on disk

    checkpoint = Checkpoint(newest_checkpoint("ckpt"))
    checkpoint.read_into("weight", array)        # verifies what it reads

docs/reference/formats/checkpoint.md describes the format. The process regroup-persist writes; only
it loads HDF5.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import subprocess
import sys
import uuid as uuids
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regroup import _native
from regroup._errors import Error, Refused, shown
from regroup._native import Checkpoint

__all__ = ["Checkpoint", "Piece", "Snapshot", "newest_checkpoint"]

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14
# alignment of large pieces, which are then written without a copy, and of small ones
_PAGE, _LINE = 4096, 64


def newest_checkpoint(directory: str | os.PathLike) -> str | None:
    """Returns the path of the newest complete checkpoint in `directory`, None if there is none.
    Reads only names."""
    return _native.newest_checkpoint(os.fspath(directory))


@dataclass(frozen=True)
class Piece:
    """A tensor, or a box of one: `count` elements from `start` on, in C order."""

    name: str
    dtype: str  # as torch names it: "float32", "bfloat16"
    shape: Sequence[int]  # of the whole tensor
    start: Sequence[int] | None = None
    count: Sequence[int] | None = None

    @property
    def nbytes(self) -> int:
        """The size of its memory in bytes."""
        size = _native.DTYPES.get(self.dtype, 0)
        if size == 0:
            raise Refused(
                f"tensor {shown(self.name)} has type {shown(self.dtype)}, which checkpoints cannot "
                f"hold; "
                f"expected one of {', '.join(_native.DTYPES)}",
                "invalid argument",
            )
        for extent in self.shape if self.count is None else self.count:
            size *= extent
        return size


class Snapshot:
    """Memory for the pieces of one writer, laid out so that writing needs no copy.

    It can be filled and written repeatedly, by one thread at a time: fill it only between writes.
    """

    def __init__(self, pieces: Sequence[Piece]):
        self.pieces = list(pieces)
        self._offsets: list[int] = []
        end = 0
        for piece in self.pieces:
            end += -end % (_PAGE if piece.nbytes >= _PAGE else _LINE)
            self._offsets.append(end)
            end += piece.nbytes
        self._fd = os.memfd_create("regroup-snapshot", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, max(end, _PAGE))
        self._map = mmap.mmap(self._fd, max(end, _PAGE))
        # old kernels cannot: the first write then waits for pages
        with contextlib.suppress(OSError):
            self._map.madvise(_POPULATE_WRITE)

    def close(self) -> None:
        """Releases the memory once no view of it exists."""
        os.close(self._fd)
        with contextlib.suppress(BufferError):  # a view keeps the mapping
            self._map.close()

    def memory(self, index: int) -> memoryview:
        """Returns the bytes of pieces[index], for the caller to fill."""
        begin = self._offsets[index]
        return memoryview(self._map)[begin : begin + self.pieces[index].nbytes]

    def write(
        self,
        directory: str | os.PathLike,
        step: int,
        *,
        writer: int = 0,
        writers: int = 1,
        uuid: str | None = None,
        commit: bool = True,
        keep_last: int = 3,
        job: str | None = None,
        model: str = "",
        timeout: float = 3600,
    ) -> Path:
        """Writes the pieces. With `commit`, it then makes the checkpoint of `step` in `directory`
        from the parts of all writers with the same uuid and job, and returns its path once no crash
        can undo it. Without `commit` it returns the path of the folder with this writer's part. Of
        the older checkpoints it keeps the `keep_last` with the highest steps, and it always keeps
        the new one. Blocks on the disk; raises Error if that takes longer than `timeout`
        seconds."""
        uuid = uuid or uuids.uuid4().hex
        Path(directory).mkdir(parents=True, exist_ok=True)
        description = {
            "directory": str(directory),
            "uuid": uuid,
            "step": step,
            "job": job or f"process {os.getpid()}",
            "model": model,
            "writer": writer,
            "writers": writers,
            "commit": commit,
            "keep_last": keep_last,
            "tensors": [
                _described(piece, at) for piece, at in zip(self.pieces, self._offsets, strict=True)
            ],
        }
        with _locked(Path(directory)) if commit else contextlib.nullcontext():
            self._persist(json.dumps(description).encode(), timeout)
        return Path(directory) / (f"step-{step:08d}" if commit else f".stage-{step}-{uuid}")

    def _persist(self, description: bytes, timeout: float) -> None:
        words = [_program("regroup-persist"), "write", str(self._fd)]
        try:
            done = subprocess.run(
                words, input=description, pass_fds=[self._fd], capture_output=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise Error(
                f"checkpoint: not written within {timeout} s", "deadline exceeded"
            ) from None
        if done.returncode != 0:
            why = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
            raise Error(f"checkpoint: {why}", "internal")


def _described(piece: Piece, offset: int) -> dict[str, Any]:
    out = {"name": piece.name, "dtype": piece.dtype, "shape": list(piece.shape), "offset": offset}
    if piece.start is not None:
        out |= {"start": list(piece.start), "count": list(piece.count or ())}
    return out


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lets only one job at a time commit in a directory."""
    with open(directory / "LOCK", "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise Error(
                f"{lock.name}: {shown(lock.read().strip())} has it", "unavailable"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        lock.flush()
        yield


def _program(name: str) -> str:
    sibling = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(sibling) if sibling.exists() else None)
    if found is None:
        raise Error(
            f"{name}: not in PATH nor next to {sys.executable}: install regroup with HDF5",
            "not found",
        )
    return found
