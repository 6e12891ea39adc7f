"""The values of each step in files, written once: metrics.jsonl, metrics.csv and events for
TensorBoard.

Rank 0 writes the row of a step when the script is done with it, or before a collective section,
which may end the job. Every member keeps its last rows: the next rank 0 cuts an unfinished line and
adds the rows that are missing.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regroup import _arguments
from regroup._torch_events import EventFile
from regroup._torch_hints import tell

_KEPT = 64  # rows of each member
_TAIL = 1 << 16  # bytes in which the last rows of a file are looked for
_COLUMNS = ("step", "epoch", "loss", "lr", "samples", "members", "generation", "time")
_OWN = (*_COLUMNS, "substep")

Row = dict[str, Any]


class Log:
    """folder: is made if it does not exist. first: the last step that this member has applied; if
    it is rank 0, the rows of later steps are those of an earlier run and are cut."""

    def __init__(self, folder: str | os.PathLike[str], first: int, rank: int):
        self._folder = Path(folder)
        self._rows: deque[Row] = deque(maxlen=_KEPT)  # the last one may still get values
        self._open = False  # the script has not ended its step
        self._between = False  # the last row is that of the step that the script has applied
        self._written: int | None = None  # the last step in the files; None: they are not open
        self._as_written: Row = {}  # the row of that step
        self._at: tuple[int, int] = (0, 0)  # where its lines begin
        self._csv_names: list[str] = []
        self._events: EventFile | None = None
        self._failed = False
        if rank == 0:
            self._attempt(lambda: self._open_at_join(first))

    def begin_shards(self) -> None:
        """The next step has begun, and its row does not exist yet."""
        self._between = False

    def begin_step(self, row: Row) -> None:
        self._rows.append(row)
        self._open = self._between = True

    def add(self, values: dict[str, Any], rank: int) -> None:
        """Adds values to the row of the step that the script applies or, after its loop, of the
        last one."""
        if not self._between:
            _arguments.refuse(
                "session.log()",
                f"{', '.join(values)}: the step is not complete yet; call it after the inner loop, "
                "or in a prepared loop under `if loader.sync_gradients:`",
            )
        for name, value in values.items():
            if name in _OWN:
                _arguments.refuse("session.log()", f"{name}: this column is the session's own")
            self._rows[-1][name] = _number(name, value)
        if not self._open:
            self.write(rank)

    def end_step(self, rank: int) -> None:
        """To be called when the script is done with a step, or more than once."""
        if self._open:
            self._open = False
            self.write(rank)

    def write(self, rank: int) -> None:
        """Writes what rank 0 has not written yet."""
        if rank == 0 and self._rows and not self._failed:
            self._attempt(self._write_rows)

    def _attempt(self, write: Callable[[], None]) -> None:
        """A full disk ends the log and not the job."""
        try:
            write()
        except OSError as error:
            self._failed = True
            tell(f"log: {self._folder}: {error}; the training goes on without")

    def _write_rows(self) -> None:
        if self._written is None:
            self._open_at_takeover()
        assert self._written is not None
        for row in self._rows:
            if row["step"] > self._written:
                self._append(row)
            elif row["step"] == self._written and row != self._as_written:
                self._amend(row)

    def _append(self, row: Row) -> None:
        self._add_columns(row)
        at = _append(self._jsonl, _line(row)), _append(self._csv, self._csv_line(row))
        assert self._events is not None
        self._events.add(row["step"], row["time"], _scalars(row))
        self._written, self._as_written, self._at = row["step"], dict(row), at

    def _amend(self, row: Row) -> None:
        """Writes the lines of the last row again, which have got values since."""
        self._add_columns(row)
        _overwrite(self._jsonl, self._at[0], _line(row))
        _overwrite(self._csv, self._at[1], self._csv_line(row))
        assert self._events is not None
        new = {name: value for name, value in row.items() if name not in self._as_written}
        self._events.add(row["step"], row["time"], _scalars(new))
        self._as_written = dict(row)

    @property
    def _jsonl(self) -> Path:
        return self._folder / "metrics.jsonl"

    @property
    def _csv(self) -> Path:
        return self._folder / "metrics.csv"

    def _open_at_join(self, last: int) -> None:
        """Begins the files, or continues those of an earlier run of the job after step `last`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        rows, whole = _read(self._jsonl)
        if last == 0 or not whole:
            self._keep_old_files()
        kept = [row for row in rows if 0 < row["step"] <= last]
        _replace(self._jsonl, "".join(map(_line, kept)))
        self._begin(kept)

    def _open_at_takeover(self) -> None:
        """Continues the files of a rank 0 that is gone, which has written the rows of this member
        up to its last ones, perhaps."""
        self._folder.mkdir(parents=True, exist_ok=True)
        step = self._rows[-1]["step"]
        row, at = _find(self._jsonl, lambda text: _step_of(_parsed(text)) < step)
        last = None if row is None else _parsed(row)
        own = {row["step"]: row for row in self._rows}
        if last is None or not _is_same(last, own.get(last["step"], {})):
            self._keep_old_files()  # of another run, in a folder that hosts do not share
            _replace(self._jsonl, "")
            return self._begin([])
        os.truncate(self._jsonl, at + len(row.encode()))
        kept = last["step"]
        row, at_csv = _find(self._csv, lambda text: _first_number(text) <= kept)
        names = next(csv.reader([_first_line(self._csv)]), [])
        if row is None or _first_number(row) != kept or names[: len(_COLUMNS)] != [*_COLUMNS]:
            return self._begin(_read(self._jsonl)[0])
        os.truncate(self._csv, at_csv + len(row.encode()))
        self._csv_names, self._at = names, (at, at_csv)
        self._begin_events(last)
        return None

    def _begin(self, rows: list[Row]) -> None:
        """Makes the other files for the rows of metrics.jsonl."""
        self._csv_names = [*_COLUMNS]
        for row in rows:
            self._csv_names += [name for name in row if name not in self._csv_names]
        self._rewrite_csv(rows)
        self._begin_events(rows[-1] if rows else None)

    def _begin_events(self, last: Row | None) -> None:
        self._written = 0 if last is None else last["step"]
        self._as_written = {} if last is None else last
        self._events = EventFile(self._folder, max(1, self._written))
        if last is not None:  # the one before may have died before it wrote the events
            self._events.add(self._written, last["time"], _scalars(last))

    def _keep_old_files(self) -> None:
        for path in (self._jsonl, self._csv):
            if path.exists() and path.stat().st_size:
                number = 1
                while (old := path.with_name(f"{path.name}.{number}")).exists():
                    number += 1
                shutil.copyfile(path, old)

    def _add_columns(self, row: Row) -> None:
        new = [name for name in row if name not in self._csv_names]
        if new:
            self._csv_names += new
            self._rewrite_csv(_read(self._jsonl)[0])

    def _rewrite_csv(self, rows: list[Row]) -> None:
        lines = [_csv_line(self._csv_names), *map(self._csv_line, rows)]
        _replace(self._csv, "".join(lines))
        end = sum(len(line.encode()) for line in lines)
        last = len(lines[-1].encode()) if rows else 0
        self._at = (_find(self._jsonl, lambda _: True)[1], end - last)

    def _csv_line(self, row: Row) -> str:
        values = [row.get(name) for name in self._csv_names]
        return _csv_line(["" if value is None else value for value in values])


def row_of(
    step: int,
    epoch: int,
    loss: float | None,
    rate: float | None,
    samples: int,
    world: Any,
    substep: str | None = None,
) -> Row:
    row = {
        "step": step,
        "epoch": epoch,
        "loss": loss,
        "lr": rate,
        "samples": samples,
        "members": world.size,
        "generation": world.generation,
        "time": round(time.time(), 3),
    }
    return row if substep is None else row | {"substep": substep}


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        _arguments.refuse(
            "session.log()", f"{name}: expected a number, got {_arguments.kind(value)}"
        )


def _scalars(row: Row) -> dict[str, float]:
    """Values for TensorBoard. Each substep has a curve of its own for the loss."""
    found = {}
    for name, value in row.items():
        if name in ("step", "time") or not isinstance(value, int | float):
            continue
        found[f"loss/{row['substep']}" if name == "loss" and "substep" in row else name] = value
    return found


def _line(row: Row) -> str:
    """JSON has no infinite numbers and no NaN: they are text."""
    plain = {
        name: value if not isinstance(value, float) or math.isfinite(value) else str(value)
        for name, value in row.items()
    }
    return json.dumps(plain) + "\n"


def _is_same(read: Row, own: Row) -> bool:
    return bool(own) and all(
        read.get(name) == value
        for name, value in json.loads(_line(own)).items()
        if name in _OWN and name != "time"  # each member has read its own clock
    )


def _parsed(line: str) -> Row | None:
    try:
        row = json.loads(line)
        return row if isinstance(row["step"], int) else None
    except (ValueError, KeyError, TypeError):
        return None


def _read(path: Path) -> tuple[list[Row], bool]:
    """Returns the rows up to the first line that is none, and whether that is the unfinished last
    one at most."""
    lines = path.read_text(errors="replace").split("\n")[:-1] if path.exists() else []
    rows: list[Row] = []
    for line in lines:
        if (row := _parsed(line)) is None:
            return rows, False
        rows.append(row)
    return rows, True


def _find(path: Path, is_wanted: Callable[[str], bool]) -> tuple[str | None, int]:
    """Returns the last whole line that is wanted, and where it begins; None: the end of the file
    has none."""
    if not path.exists():
        return None, 0
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - _TAIL))
        for line in reversed(file.read().splitlines(keepends=True)):
            end -= len(line)
            text = line.decode(errors="replace")
            if text.endswith("\n") and is_wanted(text):
                return text, end
    return None, 0


def _step_of(row: Row | None) -> float:
    return math.inf if row is None else row["step"]


def _first_number(line: str) -> float:
    """Of a line of the CSV file; of its header and of what is no such line: infinite."""
    text = line.split(",", 1)[0]
    return int(text) if text.isdigit() else math.inf


def _first_line(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open(errors="replace") as file:
        return file.readline()


def _csv_line(values: list[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue()


def _append(path: Path, text: str) -> int:
    """Returns where the text begins."""
    with path.open("ab") as file:
        at = file.tell()
        file.write(text.encode())
    return at


def _overwrite(path: Path, at: int, text: str) -> None:
    """Replaces what follows `at`."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(text.encode())
        file.truncate()


def _replace(path: Path, text: str) -> None:
    """At any instant the file is the old or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)
