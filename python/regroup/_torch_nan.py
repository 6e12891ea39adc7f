"""Steps whose loss or gradient is not finite, for `nan` of join(): "ignore", "skip" or "stop".

A leaf has a section for them: the member that computes such a shard marks it there, with what is to
be done. The sum over the leaves is the same on every member, and so is what each member does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

Policy = Literal["ignore", "skip", "stop"]

_SLOTS = 32  # shard s marks slot s % _SLOTS with 1, and with its row s // _SLOTS
_SKIP, _STOP = 2 * _SLOTS, 2 * _SLOTS + 1
ELEMENTS = 2 * _SLOTS + 2  # of the section
_MOST = 8  # shards that a message names


@dataclass
class NotFinite:
    """What is wrong with a step. shards: those that are known; of several in a slot none is."""

    shards: list[int]
    count: int
    skip: bool
    stop: bool

    def describe(self, loss: float | None) -> str:
        """loss: of the step, if it is that which is not finite."""
        what = "gradient is not finite" if loss is None else f"loss is {loss}"
        known = self.count == len(self.shards) <= _MOST
        where = ", ".join(map(str, self.shards)) if known else ""
        if self.count == 1:
            return f"the {what} in shard {where}"
        return f"the {what} in shards {where}" if known else f"the {what} in {self.count} shards"


def mark(section: list[float], leaf: int, policy: Policy) -> None:
    """Marks the shard in the section of its leaf, which holds zeros."""
    section[leaf % _SLOTS] = 1
    section[_SLOTS + leaf % _SLOTS] = leaf // _SLOTS
    if policy != "ignore":
        section[_STOP if policy == "stop" else _SKIP] = 1


def read(section: Sequence[float]) -> NotFinite | None:
    """Returns what the sum of the sections says. None: no shard is marked."""
    counts, rows = section[:_SLOTS], section[_SLOTS:_SKIP]
    if not any(counts):
        return None
    shards = [slot + _SLOTS * int(rows[slot]) for slot, count in enumerate(counts) if count == 1]
    return NotFinite(sorted(shards), int(sum(counts)), section[_SKIP] > 0, section[_STOP] > 0)


def is_finite(values: torch.Tensor) -> bool:
    return not values.numel() or all(map(torch.isfinite, torch.aminmax(values)))
