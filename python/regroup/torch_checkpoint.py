"""PyTorch state in checkpoints: whole state_dict()s, and the storage classes of torch.distributed.checkpoint.

    save(directory, step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    state = load(newest_checkpoint(directory))

    torch.distributed.checkpoint.save(state, storage_writer=Writer(directory, step))
    torch.distributed.checkpoint.load(state, storage_reader=Reader(path))

Tensors have their names in the checkpoint ("model.layer.weight"), so that h5py, another number of ranks, and
`regroup checkpoint` find them. A file of torch.save() becomes a checkpoint by

    regroup checkpoint import FILE.pt DIRECTORY --step STEP

or `python -m regroup.torch_checkpoint FILE.pt DIRECTORY STEP`, which is the same, and
which loads it with weights_only=True: nothing in it is executed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from regroup._errors import Error
from regroup._import_limit import ImportLimit
from regroup._torch_state import _bytes_of, _decode, _encode, _name
from regroup.checkpoint import Checkpoint, Piece, Snapshot, newest_checkpoint

__all__ = ["Reader", "Writer", "load", "newest_checkpoint", "save"]

_STATE = "regroup.state"  # the JSON of what is no tensor
_BYTES = "regroup.bytes/"  # before the name of what torch.distributed.checkpoint pickled


def save(directory: str | os.PathLike, step: int, state: Any, **more: Any) -> Path:
    """Writes dictionaries, lists and scalars with CPU tensors in them; the path of the checkpoint, when it is
    on the disk. more: as Snapshot.write()."""
    tensors: dict[str, torch.Tensor] = {}
    encoded = _encode(state, tensors, "state")
    text = json.dumps([encoded, list(tensors)]).encode()
    pieces = [Piece(name, _name(t.dtype), tuple(t.shape)) for name, t in tensors.items()]
    snapshot = Snapshot([*pieces, Piece(_STATE, "uint8", (len(text),))])
    try:
        for index, tensor in enumerate(tensors.values()):
            _fill(snapshot, index, tensor)
        snapshot.memory(len(tensors))[:] = text
        return snapshot.write(directory, step, **more)
    finally:
        snapshot.close()


def load(path: str | os.PathLike) -> Any:
    """What save() was given, out of the checkpoint `path`. Raises Error if a byte is damaged."""
    checkpoint = Checkpoint(str(path))
    described = {name: (dtype, shape) for name, dtype, shape in checkpoint.tensors}
    if _STATE not in described:
        raise Error(f"checkpoint {path}: not written by regroup.torch_checkpoint.save()", "invalid argument")
    encoded, names = json.loads(_read(checkpoint, _STATE, *described[_STATE]).numpy().tobytes())
    return _decode(encoded, [_read(checkpoint, name, *described[name]) for name in names])


class Writer(StorageWriter):
    """Saves of torch.distributed.checkpoint as the checkpoint of `step` in `directory`. A checkpoint_id
    "DIRECTORY/step-N" says both again. With several ranks all of them see the directory."""

    def __init__(self, directory: str | os.PathLike, step: int, keep_last: int = 3):
        self.directory, self.step, self.keep_last = Path(directory), step, keep_last
        self._snapshot: Snapshot | None = None

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id is not None:
            path = Path(checkpoint_id)
            self.directory, self.step = path.parent, int(path.name.removeprefix("step-"))
        self._snapshot = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._commits = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Numbers the writers: the coordinator, who commits, is number 0."""
        name = uuid.uuid4().hex
        return [replace(plan, storage_data=(number, len(plans), name)) for number, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        resolved = [(item, planner.resolve_data(item)) for item in plan.items]
        snapshot = Snapshot([_piece_of(item, data) for item, data in resolved])
        results = []
        for index, (item, data) in enumerate(resolved):
            if isinstance(data, torch.Tensor):
                _fill(snapshot, index, data)
            else:
                snapshot.memory(index)[:] = data.getbuffer()
            results.append(WriteResult(item.index, snapshot.pieces[index].nbytes, None))
        self._snapshot, self._plan = snapshot, plan.storage_data
        if not self._commits:  # the coordinator writes its part when it commits
            self._write(commit=False)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        self._write(commit=True)

    def _write(self, commit: bool) -> None:
        assert self._snapshot is not None
        number, writers, name = self._plan
        more = {"writer": number, "writers": writers, "uuid": name, "job": name, "keep_last": self.keep_last}
        self._snapshot.write(self.directory, self.step, commit=commit, **more)
        self._snapshot.close()
        self._snapshot = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return Path(checkpoint_id).name.removeprefix("step-").isdigit()


class Reader(StorageReader):
    """Loads of torch.distributed.checkpoint out of the checkpoint `path`, whoever wrote it, on any number of
    ranks. Every block is verified; damage raises Error."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._checkpoint = Checkpoint(str(self.path))
        self._described = {name: (dtype, shape) for name, dtype, shape in self._checkpoint.tensors}
        found: dict[str, Any] = {}
        for name, (dtype, shape) in self._described.items():
            if name.startswith(_BYTES):
                found[name.removeprefix(_BYTES)] = BytesStorageMetadata()
                continue
            whole = ChunkStorageMetadata(torch.Size([0] * len(shape)), torch.Size(shape))
            properties = TensorProperties(dtype=getattr(torch, dtype))
            found[name] = TensorStorageMetadata(properties, torch.Size(shape), [whole])
        flat = {name: (name,) for name in found}
        return Metadata(found, planner_data=flat, storage_meta=StorageMeta(checkpoint_id=str(self.path)))

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                content = _read(self._checkpoint, _BYTES + name, *self._described[_BYTES + name])
                planner.load_bytes(item, io.BytesIO(content.numpy().tobytes()))
                continue
            target = planner.resolve_tensor(item).detach()
            into = (
                target
                if target.is_contiguous() and target.device.type == "cpu"
                else torch.empty(target.shape, dtype=target.dtype)
            )
            dtype = self._described[name][0]
            if _name(into.dtype) != dtype:
                into = torch.empty(target.shape, dtype=getattr(torch, dtype))
            start, count = list(item.storage_offsets), list(item.lengths)
            self._checkpoint.read_into(name, _memory_of(into), start, count)
            if into is not target:
                target.copy_(into)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return (Path(checkpoint_id) / "MANIFEST").exists()


def _piece_of(item: WriteItem, data: Any) -> Piece:
    name = item.index.fqn
    if item.type == WriteItemType.BYTE_IO:
        return Piece(_BYTES + name, "uint8", (data.getbuffer().nbytes,))
    about = item.tensor_data
    assert about is not None
    shape, chunk = tuple(about.size), about.chunk
    return Piece(name, _name(about.properties.dtype), shape, tuple(chunk.offsets), tuple(chunk.sizes))


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8)


def _fill(snapshot: Snapshot, index: int, tensor: torch.Tensor) -> None:
    memory = snapshot.memory(index)
    if len(memory) > 0:
        torch.frombuffer(memory, dtype=torch.uint8).copy_(_bytes_of(tensor))


def _read(checkpoint: Checkpoint, name: str, dtype: str, shape: list[int]) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    checkpoint.read_into(name, _memory_of(tensor))
    return tensor


def _main() -> None:
    parser = argparse.ArgumentParser(description="Makes a checkpoint out of a file of torch.save().")
    parser.add_argument("file")
    parser.add_argument("directory")
    parser.add_argument("step", type=int)
    args = parser.parse_args()
    try:
        state = torch.load(args.file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's unpickler lets a damaged file raise anything: KeyError, TypeError
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        _fail(f"{args.file}: no file of torch.save() that loads without executing anything: {reason}")
    try:
        ImportLimit(os.path.getsize(args.file)).check(state)
        print(save(args.directory, args.step, state))
    except (Error, OSError, RuntimeError, TypeError, ValueError) as error:  # a list in itself, for example
        _fail(f"{args.file} into {args.directory}: {error}")


def _fail(why: str) -> NoReturn:
    print(f"regroup checkpoint: {why}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    _main()
