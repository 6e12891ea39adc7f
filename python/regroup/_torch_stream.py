"""An IterableDataset as a data set whose samples have numbers: sample i of an epoch is the i-th
that an iteration yields. Every member, and every worker, reads the whole stream and keeps its own.

A stream cannot go back. So the samples of the batch that is read are kept, also those that other
members compute: a regroup may hand them to this member. What lies further back is read again, from
the begin of the epoch; that is also how a member that joins late comes to its place.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from regroup import _arguments, _native

_OPEN = 1 << 36  # no leaf, batch or part has this number


def samples_of(dataset: IterableDataset, samples: Any) -> int:
    """Returns the number of samples that an epoch takes of the stream."""
    if samples is not None:
        return _arguments.whole("join", "samples", samples, least=1)
    got = _arguments.kind(dataset)
    if not hasattr(dataset, "__len__"):
        _arguments.refuse(
            "join", f"data set: {got} has no len(); pass samples=, how many of them an epoch takes"
        )
    try:
        found = len(dataset)
    except Exception as error:
        _arguments.refuse(
            "join",
            f"data set: {got}, whose len() raises {type(error).__name__}: {error}; pass samples=, "
            "how many of them an epoch takes",
        )
    if found == 0:
        _arguments.refuse("join", f"data set: expected at least one sample, got {got} without")
    return found


class Stream(Dataset):
    """steps: of an epoch.  substeps: steps in a row that take the same batch.  kept: batches before
    the one that is read that are kept, too: a worker reads ahead."""

    def __init__(
        self,
        dataset: IterableDataset,
        *,
        seed: int,
        batch_size: int,
        steps: int,
        substeps: int = 1,
        kept: int = 0,
    ):
        self.dataset = dataset
        self._seed, self._batch_size = seed, batch_size
        self._steps, self._substeps, self._kept = steps, substeps, kept
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_iterator": None, "_items": {}, "_process": None}

    def take(self, step: int, positions: list[int]) -> list[Any]:
        """Returns the samples with these numbers, in ascending order, of the epoch of a step."""
        if self._process != os.getpid():  # a fork shares the files of the iterator
            self._forget()
        epoch, within = divmod(step - 1, self._steps)
        batch = within // self._substeps
        missing = [at for at in positions if at not in self._items]
        if self._iterator is None or epoch != self._epoch or (missing and missing[0] < self._next):
            self._forget()
            self._epoch = epoch
        first = max(0, batch - self._kept) * self._batch_size
        self._items = {at: one for at, one in self._items.items() if at >= first}
        if positions[-1] >= self._next:
            self._read(positions[-1], first)
        return [self._items[at] for at in positions]

    def _forget(self) -> None:
        self._iterator: Iterator[Any] | None = None
        self._generators: tuple[Any, ...] | None = None  # as the stream has left them
        self._items: dict[int, Any] = {}  # by number
        self._epoch, self._next = -1, 0
        self._process: int | None = os.getpid()

    def _read(self, last: int, first: int) -> None:
        """Reads the samples up to number `last` and keeps those from `first` on. The stream draws
        from generators of its own, whoever computes what in between."""
        before = _generators()
        try:
            if self._iterator is None:
                _seed_all(_native.mix(self._seed, self._epoch, _OPEN))
                if callable(set_epoch := getattr(self.dataset, "set_epoch", None)):
                    set_epoch(self._epoch)
                self._iterator = iter(self.dataset)
            elif self._generators is not None:
                _set_generators(self._generators)
            while self._next <= last:
                item = next(self._iterator, self)
                if item is self:
                    _arguments.refuse(
                        "data set",
                        f"the stream ({_arguments.kind(self.dataset)}) ended after {self._next} "
                        f"samples of epoch {self._epoch}, and an epoch takes more: pass "
                        f"samples={self._next} or fewer to join()",
                        final=False,
                    )
                if self._next >= first:
                    self._items[self._next] = item
                self._next += 1
            self._generators = _generators()
        finally:
            _set_generators(before)


def _numpy() -> Any:
    return sys.modules.get("numpy.random")


def _seed_all(seed: int) -> None:
    torch.random.default_generator.manual_seed(seed)
    random.seed(seed)
    if (numpy := _numpy()) is not None:
        numpy.seed(seed & 0xFFFFFFFF)


def _generators() -> tuple[Any, ...]:
    numpy = _numpy()
    return (
        torch.random.default_generator.get_state(),
        random.getstate(),
        None if numpy is None else numpy.get_state(),
    )


def _set_generators(states: tuple[Any, ...]) -> None:
    torch.random.default_generator.set_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        _numpy().set_state(states[2])
