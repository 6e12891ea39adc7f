"""Where the parts of a stream are, for a member that takes one over.

The member that has computed a shard puts what the state_dict() of its part is then into the leaf,
in a section of that shard's own, where all other leaves have 0. So with the sum of the step every
member has the states of all parts, and the job's state has them for members that come later.
docs/design/stream_cursors.md.
"""

from __future__ import annotations

import json
from typing import Any

from regroup import _arguments
from regroup._errors import Error, Refused

_BYTES = 3  # in an element: their value, and its sum with zeros, is exact in float32


class Cursors:
    """After each step the states of the parts that its shards have read.  shards: of the job, V.
    size: the most bytes of one state as text."""

    def __init__(self, shards: int, size: int):
        self._size = size
        self._section = 1 + -(-size // _BYTES)
        self.shards = shards
        self.elements = shards * self._section  # of a leaf
        self.epoch, self.next = -1, 0  # where each part goes on, its sample number `next`
        self._texts: list[str] = []  # by shard; empty: at the begin of an epoch

    def check(self, dataset: Any, shards: int) -> None:
        """Refuses a stream whose parts have no state, and a job of another number of shards."""
        if shards != self.shards:
            _arguments.refuse(
                "join", f"part_state: expected a job of {self.shards} shards, got one of {shards}"
            )
        part = dataset.shard(num_shards=shards, index=0)
        _arguments.has("join", "part_state: a part", part, "state_dict", "load_state_dict")

    def section_of(self, shard: int, state: Any) -> list[float]:
        """Returns what the leaf of a shard has of all cursors."""
        text = _text_of(state).encode()
        if len(text) > self._size:
            most = len(text) + len(text) // 2
            raise Error(
                f"the state_dict() of a part of the stream takes {len(text)} bytes, and "
                f"part_state={self._size}: pass part_state={most} or more to join()",
                "resource exhausted",
            )
        out = [0.0] * self.elements
        at = shard * self._section
        out[at] = float(len(text))
        for begin in range(0, len(text), _BYTES):
            at += 1
            out[at] = float(int.from_bytes(text[begin : begin + _BYTES].ljust(_BYTES), "little"))
        return out

    def take(self, sums: list[float], epoch: int, following: int) -> None:
        """Takes the sums of the sections over all leaves: the parts of `epoch` go on with their
        sample number `following`."""
        texts = []
        for begin in range(0, self.elements, self._section):
            size, *rest = sums[begin : begin + self._section]
            data = b"".join(int(value).to_bytes(_BYTES, "little") for value in rest)
            texts.append(data[: int(size)].decode())
        self.epoch, self.next, self._texts = epoch, following, texts

    def forget(self) -> None:
        """An epoch begins with the next step."""
        self.epoch, self.next, self._texts = -1, 0, []

    def state_of(self, shard: int) -> Any:
        return json.loads(self._texts[shard])

    def saved(self) -> dict[str, Any]:
        """What the state of the job has of them."""
        return {"cursors": [self.epoch, self.next, *self._texts]} if self._texts else {}

    def adopt(self, saved: dict[str, Any]) -> None:
        epoch, following, *texts = saved.get("cursors", [-1, 0])
        if texts and len(texts) != self.shards:
            raise Refused(
                f"the state has cursors of {len(texts)} parts, the job has {self.shards}",
                "invalid argument",
            )
        self.epoch, self.next, self._texts = epoch, following, texts


def check_cursors(size: Any, parts: bool, workers: int) -> int:
    """Returns part_state of join(); refuses what cannot have cursors."""
    size = _arguments.whole("join", "part_state", size)
    if size == 0:
        return 0
    if not parts:
        _arguments.refuse("join", "part_state: a stream that is read in parts has it: parts=True")
    if workers:
        _arguments.refuse(
            "join",
            f"part_state: expected a DataLoader with num_workers=0, got {workers}: the states of "
            "parts are in the process that reads them",
        )
    return size


def _text_of(state: Any) -> str:
    """JSON that gives back an equal object."""
    try:
        text = json.dumps(state, separators=(",", ":"))
        same = json.loads(text) == state
    except (TypeError, ValueError):
        same = False
    if not same:
        raise Refused(
            "the state_dict() of a part of the stream has more than numbers, strings, lists and "
            "dictionaries with strings as keys",
            "invalid argument",
        )
    return text
