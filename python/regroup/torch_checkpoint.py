"""Keeps PyTorch state in checkpoints: whole state_dict()s, and by torch.distributed.checkpoint.

    save(directory, step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    state = load(newest_checkpoint(directory))

    torch.distributed.checkpoint.save(state, storage_writer=Writer(directory, step))
    torch.distributed.checkpoint.load(state, storage_reader=Reader(path))

What fails in these two, an Error of Writer or Reader included, reaches the caller inside torch's
CheckpointException, which `except Exception` does not catch: it is a BaseException.

Tensors have their names in the checkpoint ("model.layer.weight"), so that h5py, another number of
ranks, and `regroup checkpoint` find them. A file of torch.save() becomes a checkpoint by

    regroup checkpoint import FILE.pt DIRECTORY --step STEP

or by `python -m regroup.torch_checkpoint FILE.pt DIRECTORY STEP`, which does the same. Both load
the file with weights_only=True, so that no code in it is executed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import uuid
import warnings
import zipfile
from collections.abc import Collection
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

from regroup import _arguments
from regroup._dtypes import holds_all
from regroup._errors import Error, shown
from regroup._import_limit import ImportLimit
from regroup._torch_state import STATE as _STATE
from regroup._torch_state import _bytes_of, _decode, _encode, _name, _names_in, _parse
from regroup.checkpoint import Checkpoint, Piece, Snapshot, newest_checkpoint

__all__ = ["Reader", "Writer", "load", "newest_checkpoint", "save"]

_ALL = 2**32 - 1  # to be kept
_PIECES = "regroup.pieces"  # where in its state's bytes a job's tensors lie
_EXPORT = "/regroup.export"  # the record that only exports have
_BYTES = "regroup.bytes/"  # before the name of what torch.distributed.checkpoint pickled


def save(directory: str | os.PathLike, step: int, state: Any, **more: Any) -> Path:
    """Writes dictionaries, lists and scalars that contain CPU tensors. Returns the path of the
    checkpoint once it is on disk. more: the arguments of Snapshot.write()."""
    tensors: dict[str, torch.Tensor] = {}
    encoded = _encode(state, tensors, "state")
    text = bytearray(json.dumps([encoded, list(tensors)]).encode())
    return _write(
        directory, step, {**tensors, _STATE: torch.frombuffer(text, dtype=torch.uint8)}, **more
    )


def _write(
    directory: str | os.PathLike, step: int, tensors: dict[str, torch.Tensor], **more: Any
) -> Path:
    pieces = [Piece(name, _name(t.dtype), tuple(t.shape)) for name, t in tensors.items()]
    snapshot = Snapshot(pieces)
    try:
        for index, tensor in enumerate(tensors.values()):
            _fill(snapshot, index, tensor)
        return snapshot.write(directory, step, **more)
    finally:
        snapshot.close()


def _is_export(file: str, state: Any) -> bool:
    """Whether `regroup checkpoint export --to torch` made the file: it has tensors under their
    names in a checkpoint."""
    flat = isinstance(state, dict) and all(
        isinstance(name, str) and isinstance(one, torch.Tensor) for name, one in state.items()
    )
    if not flat or _STATE in state:  # older exports had this key in place of a record
        return flat
    if not zipfile.is_zipfile(file):  # torch.load() takes older files, too
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith(_EXPORT) for name in archive.namelist())


def load(path: str | os.PathLike) -> Any:
    """Loads the checkpoint `path`. Returns the state that save() was given. For the checkpoint of a
    job of regroup.torch.join() it returns a dictionary of model (its parameters and buffers),
    optimizer (its state_dict()), extra (a list of state_dict()s) and epoch_loss, and frozen (names
    of parameters) and groups (names of parameters, by optimizer and parameter group) if these have
    changed since join(); for any other checkpoint, a dictionary of its tensors by name. Raises
    Error if a byte is damaged."""
    checkpoint = Checkpoint(_arguments.checkpoint_path("load", path))
    described = {name: (dtype, shape) for name, dtype, shape in checkpoint.tensors}
    if _STATE not in described:
        pickled = [name for name in described if name.startswith(_BYTES)]
        if pickled:
            raise Error(
                f"checkpoint {path}: {shown(pickled[0].removeprefix(_BYTES))} in it is a pickle of "
                "torch.distributed.checkpoint: load it with that and Reader",
                "invalid argument",
            )
        return {
            name: _read(checkpoint, name, *of) for name, of in described.items() if name != _PIECES
        }
    text = _read(checkpoint, _STATE, *described[_STATE]).numpy().tobytes()
    if text.startswith(b"["):
        encoded, names = json.loads(text)
        return _decode(encoded, [_read(checkpoint, name, *described[name]) for name in names])
    encoded, listed, _ = _parse(text)
    tensors = [
        # Checkpoints of older jobs lack tensors without elements.
        _read(checkpoint, name, *described[name])
        if name in described
        else torch.empty(shape, dtype=getattr(torch, dtype))
        for name, (dtype, shape) in zip(_names_in(encoded), listed, strict=True)
    ]
    return _decode(encoded, tensors)


class Writer(StorageWriter):
    """Lets torch.distributed.checkpoint save the checkpoint of `step` in `directory`. A
    checkpoint_id "DIRECTORY/step-N" overrides both. All ranks must share the directory."""

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
        """Numbers the writers. The coordinator, which commits, is number 0."""
        name = uuid.uuid4().hex
        return [
            replace(plan, storage_data=(number, len(plans), name))
            for number, plan in enumerate(plans)
        ]

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
        more = {
            "writer": number,
            "writers": writers,
            "uuid": name,
            "job": name,
            "keep_last": self.keep_last,
        }
        self._snapshot.write(self.directory, self.step, commit=commit, **more)
        self._snapshot.close()
        self._snapshot = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return Path(checkpoint_id).name.removeprefix("step-").isdigit()


class Reader(StorageReader):
    """Lets torch.distributed.checkpoint load a checkpoint of any program, on any number of ranks.

    Verifies every block and raises Error on damage. Raises Error, too, if a tensor's type cannot
    hold all values of the saved type, unless its name is in `lossy`: then values are rounded as by
    Tensor.copy_()."""

    def __init__(self, path: str | os.PathLike, lossy: Collection[str] = ()):
        self.path = Path(path)
        self.lossy = lossy

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
        return Metadata(
            found, planner_data=flat, storage_meta=StorageMeta(checkpoint_id=str(self.path))
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Warns if an object is loaded only in part. torch requests only what the current
        state_dict() lists, and an optimizer before its first step lists no moments: the load would
        drop them silently."""
        asked = {item.storage_index.fqn for plan in plans for item in plan.items}
        objects = {name.split(".")[0] for name in asked}
        stored = {name.removeprefix(_BYTES) for name in self._described}
        left = sorted(name for name in stored - asked if name.split(".")[0] in objects)
        if left:
            warnings.warn(
                f"{self.path} has {len(left)} entries that the state to load does not list, "
                f"{shown(left[0])} first; "
                "they are not loaded (an optimizer: get_optimizer_state_dict() of torch lists its "
                "moments)",
                stacklevel=2,
            )
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
                self._check_type(name, getattr(torch, dtype), target.dtype)
                into = torch.empty(target.shape, dtype=getattr(torch, dtype))
            start, count = list(item.storage_offsets), list(item.lengths)
            self._checkpoint.read_into(name, _memory_of(into), start, count)
            if into is not target:
                target.copy_(into)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _check_type(self, name: str, saved: torch.dtype, target: torch.dtype) -> None:
        if name not in self.lossy and not holds_all(_name(target), _name(saved)):
            raise Error(
                f"checkpoint {self.path}: {shown(name)} is {_name(saved)}, and {_name(target)}, "
                f"into which "
                "it is to be loaded, does not hold all its values; "
                f"Reader(..., lossy=[{name!r}]) loads it all the same",
                "invalid argument",
            )

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
    return Piece(
        name, _name(about.properties.dtype), shape, tuple(chunk.offsets), tuple(chunk.sizes)
    )


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
    parser = argparse.ArgumentParser(
        description="Makes a checkpoint out of a file of torch.save()."
    )
    parser.add_argument("file")
    parser.add_argument("directory")
    parser.add_argument("step", type=int)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's are about its own use, and would mix with ours
    try:
        state = torch.load(args.file, map_location="cpu", weights_only=True)
    # torch's unpickler lets a damaged file raise anything: KeyError, TypeError
    except Exception as error:
        why = _reason_of(error)
        _fail(f"{args.file}: no file of torch.save() that loads without executing anything: {why}")
    try:
        ImportLimit(os.path.getsize(args.file)).check(state)
        write = _write if _is_export(args.file, state) else save
        written = write(args.directory, args.step, state, keep_last=_ALL, job="import")
        print(written)
    # a list in itself, for example
    except (Error, OSError, RuntimeError, TypeError, ValueError) as error:
        _fail(f"{args.file} into {args.directory}: {error}")


def _reason_of(error: Exception) -> str:
    """The line of torch's message that says why; the others say how to load the file all the
    same."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    advice = ("Weights only load failed", "(1)", "(2)", "Check the documentation")
    lines = (
        [line for line in lines if not line.startswith(advice)] or lines[:1] or ["it is cut off"]
    )
    why = lines[0].removeprefix("WeightsUnpickler error: ").partition(". Please use ")[0]
    return f"{type(error).__name__}: {why}"


def _fail(why: str) -> NoReturn:
    print(f"regroup checkpoint: {shown(why)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    _main()
