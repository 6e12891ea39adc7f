"""The values of each step in files, written once: metrics.jsonl, metrics.csv and events for
TensorBoard.

Rank 0 writes the row of a step when the script is done with it. Every member keeps its last rows,
so that the next rank 0 adds those that a dead one did not write, after cutting what it left of a
line.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch

from regroup import _arguments
from regroup._torch_events import EventFile
from regroup._torch_hints import tell

_KEPT = 64  # rows of each member
_COLUMNS = ("step", "epoch", "loss", "lr", "samples", "members", "generation", "time")

Row = dict[str, Any]


class Log:
    """folder: is made if it does not exist. first: the last step that this member has applied; rows
    of later ones are those of an earlier run, which are cut if this member is rank 0."""

    def __init__(self, folder: str | os.PathLike[str], first: int, rank: int):
        self._folder = Path(folder)
        self._rows: deque[Row] = deque(maxlen=_KEPT)
        self._open: Row | None = None  # of the step that the script has not ended yet
        self._written: int | None = None  # the last step in the files; None: they are not open
        self._csv_names: list[str] = []
        self._events: EventFile | None = None
        self._failed = False
        if rank == 0:
            self._attempt(lambda: self._open_files(first))

    def begin_step(self, row: Row) -> None:
        self._open = row

    def add(self, values: dict[str, Any]) -> None:
        """Adds values to the row of the step that the script applies."""
        for name, value in values.items():
            if name in _COLUMNS:
                _arguments.refuse("session.log()", f"{name}: this column is the session's own")
            try:
                number = float(value.detach() if isinstance(value, torch.Tensor) else value)
            except (TypeError, ValueError, RuntimeError):
                _arguments.refuse(
                    "session.log()", f"{name}: expected a number, got {_arguments.kind(value)}"
                )
            if self._open is None:
                _arguments.refuse(
                    "session.log()",
                    f"{name}: no step is open; call it after the inner loop, in the body of the "
                    "loop over the session",
                )
            self._open[name] = number

    def end_step(self, rank: int) -> None:
        """To be called when the script is done with a step, or more than once."""
        if self._open is None:
            return
        row, self._open = self._open, None
        self._rows.append(row)
        if rank == 0 and not self._failed:
            self._attempt(self._write_rows)

    def _attempt(self, write: Any) -> None:
        """A full disk ends the log and not the job."""
        try:
            write()
        except OSError as error:
            self._failed = True
            tell(f"log: {self._folder}: {error}; the training goes on without")

    def _write_rows(self) -> None:
        if self._written is None:
            self._open_files(None)
        assert self._written is not None
        for row in [row for row in self._rows if row["step"] > self._written]:
            _append(self._jsonl, json.dumps(_plain(row)) + "\n")
            self._write_csv(row)
            scalars = {k: v for k, v in row.items() if k not in ("step", "time") and v is not None}
            assert self._events is not None
            self._events.add(row["step"], row["time"], scalars)
            self._written = row["step"]

    @property
    def _jsonl(self) -> Path:
        return self._folder / "metrics.jsonl"

    @property
    def _csv(self) -> Path:
        return self._folder / "metrics.csv"

    def _open_files(self, last: int | None) -> None:
        """Continues the files of an earlier rank 0. last: what it wrote of later steps is cut."""
        self._folder.mkdir(parents=True, exist_ok=True)
        rows = _read(self._jsonl)
        kept = [row for row in rows if last is None or row["step"] <= last]
        if last == 0 and rows:  # another run, from its beginning
            for path in (self._jsonl, self._csv):
                if path.exists():
                    shutil.copyfile(path, path.with_name(path.name + ".before"))
        _replace(self._jsonl, "".join(json.dumps(row) + "\n" for row in kept))
        self._csv_names = [*_COLUMNS]
        for row in kept:
            self._csv_names += [name for name in row if name not in self._csv_names]
        self._rewrite_csv(kept)
        self._written = kept[-1]["step"] if kept else 0
        self._events = EventFile(self._folder, self._written + 1)

    def _write_csv(self, row: Row) -> None:
        new = [name for name in row if name not in self._csv_names]
        if new:  # a column more
            self._csv_names += new
            self._rewrite_csv(_read(self._jsonl))
            return
        _append(self._csv, self._csv_lines([row]))

    def _rewrite_csv(self, rows: list[Row]) -> None:
        _replace(self._csv, ",".join(self._csv_names) + "\n" + self._csv_lines(rows))

    def _csv_lines(self, rows: list[Row]) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for row in rows:
            writer.writerow("" if row.get(name) is None else row[name] for name in self._csv_names)
        return out.getvalue()


def row_of(step: int, epoch: int, loss: float | None, rate: float, samples: int, world: Any) -> Row:
    return {
        "step": step,
        "epoch": epoch,
        "loss": loss,
        "lr": rate,
        "samples": samples,
        "members": world.size,
        "generation": world.generation,
        "time": round(time.time(), 3),
    }


def _plain(row: Row) -> Row:
    """JSON has no infinite numbers and no NaN: they are text."""
    return {
        name: value if not isinstance(value, float) or math.isfinite(value) else str(value)
        for name, value in row.items()
    }


def _read(path: Path) -> list[Row]:
    """The whole lines of a file; what is no row of a log ends them."""
    rows: list[Row] = []
    if not path.exists():
        return rows
    for line in path.read_text(errors="replace").split("\n")[:-1]:
        try:
            row = json.loads(line)
            if not isinstance(row["step"], int):
                break
        except (ValueError, KeyError, TypeError):
            break
        rows.append(row)
    return rows


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _replace(path: Path, text: str) -> None:
    """At any instant the file is the old or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)
