"""An IterableDataset as a data set whose samples have numbers.

Most streams can only be read as a whole: sample i of an epoch is the i-th that an iteration yields,
and every member, and every worker, reads all of it and keeps its own. Where the script asks for
parts, shard i of each batch has the next samples of `shard(num_shards=V, index=i)`; so a member
reads only the parts of the shards that it computes. It is not the default, as a member that takes
over a shard reads its part from the begin of the epoch, and the others wait.

With cursors (_torch_cursors.py) it goes on from the state that the member before had.

A stream cannot go back. So the samples of the batch that is read are kept, also those that other
members compute: a regroup may hand them to this member. What lies further back is read again, from
the begin of the epoch; that is also how a member that joins late comes to its place.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from regroup import _arguments, _native
from regroup._torch_cursors import Cursors

_OPEN = 1 << 36  # no leaf, batch or part of one has this number; plus that of a part of the stream


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


def check_parts(dataset: Any, batch_size: int, shards: int) -> None:
    """Refuses a stream that cannot be read in as many parts as there are shards. Its pieces
    (`num_shards`, of data sets of Hugging Face) and the samples of a batch must divide evenly, so
    that no part ends long before the others."""
    refuse = functools.partial(_arguments.refuse, "join")
    if os.environ.get("REGROUP_AUDIT", "0") != "0":
        refuse(
            "parts: with --audit a member computes shards of other members, and would read their "
            "parts from the start; leave out parts=True or --audit"
        )
    if batch_size % shards != 0:
        refuse(
            f"parts: expected a batch size that is a multiple of the job's {shards} shards, got "
            f"{batch_size}"
        )
    kind = _arguments.kind(dataset)
    try:
        named = inspect.signature(dataset.shard).parameters.keys()
    except (AttributeError, TypeError, ValueError):
        named = {}.keys()
    if not {"num_shards", "index"} <= named:
        refuse(f"parts: expected a stream with shard(num_shards, index), got {kind} without")
    pieces = getattr(dataset, "num_shards", shards)
    if isinstance(pieces, int) and pieces % shards != 0:
        refuse(
            f"parts: expected a stream whose num_shards is a multiple of the job's {shards} "
            f"shards, got {kind} with {pieces}; leave out parts=True"
        )


class Stream(Dataset):
    """steps: of an epoch.  substeps: steps in a row that take the same batch.  kept: batches before
    the one that is read that are kept, too: a worker reads ahead.  parts: those in which the stream
    is read, one for each shard; 0: as a whole.  cursors: where others have left the parts."""

    def __init__(
        self,
        dataset: IterableDataset,
        *,
        seed: int,
        batch_size: int,
        steps: int,
        samples: int,
        substeps: int = 1,
        kept: int = 0,
        parts: int = 0,
        cursors: Cursors | None = None,
    ):
        self._cursors = cursors
        self.dataset = dataset
        self._batch_size, self._steps, self._samples = batch_size, steps, samples
        self._substeps, self._kept, self._count = substeps, kept, parts
        self._seed = seed
        self._part_of = _parts_of_leaves(parts, samples % batch_size)
        self._readers: dict[int, _Reader] = {}  # by part
        self._process: int | None = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_readers": {}, "_process": None}

    def take(self, step: int, positions: list[int]) -> list[Any]:
        """Returns the samples with these numbers, in ascending order, of the epoch of a step."""
        if self._process != os.getpid():  # a fork shares the files of the iterators
            self._readers.clear()
            self._process = os.getpid()
        epoch, within = divmod(step - 1, self._steps)
        first = max(0, within // self._substeps - self._kept) * self._batch_size
        if self._count == 0:
            return self._reader(0).take(epoch, positions, first)
        out: list[Any] = []
        for part, numbers in self._by_part(within // self._substeps, positions):
            out += self._reader(part).take(epoch, numbers, first // self._count)
        return out

    def _by_part(self, batch: int, positions: list[int]) -> Iterator[tuple[int, list[int]]]:
        """Yields parts and the numbers of samples in them."""
        begin = batch * self._batch_size
        size = min(self._batch_size, self._samples - begin)
        each = self._each
        for leaf in range(self._count):
            start, end = (begin + size * one // self._count for one in (leaf, leaf + 1))
            if found := [at - start + batch * each for at in positions if start <= at < end]:
                yield self._part_of[leaf], found

    def _reader(self, part: int) -> _Reader:
        if part not in self._readers:
            of = f"part {part} of {self._count} of " if self._count > 0 else ""
            reader = _Reader(lambda: self._opened(part), self._seed, part, of, self._count)
            if self._cursors is not None:
                reader.follow(self._cursors, self._part_of.index(part), self._each)
            self._readers[part] = reader
        return self._readers[part]

    def _opened(self, part: int) -> Any:
        if self._count == 0:
            return self.dataset
        return self.dataset.shard(num_shards=self._count, index=part)  # type: ignore[attr-defined]

    @property
    def _each(self) -> int:
        """The samples of a whole batch in a part."""
        return self._batch_size // self._count

    def state_after(self, leaf: int) -> Any:
        """The state of the part from which the samples of this shard were taken last."""
        return self._readers[self._part_of[leaf]].state()

    def take_cursors(self, step: int, sums: list[float]) -> None:
        """Takes what the leaves of a step had of the cursors: every part has given the samples of
        its batch."""
        assert self._cursors is not None
        epoch, within = divmod(step - 1, self._steps)
        batches, more = divmod(within + 1, self._substeps)
        if within + 1 == self._steps:
            self._cursors.forget()
        elif not more:  # the next step takes another batch
            self._cursors.take(sums, epoch, batches * self._each)


def _parts_of_leaves(count: int, rest: int) -> list[int]:
    """Returns the part of each shard. A last batch of `rest` samples has one more in some shards,
    and a stream that is dealt out sample by sample has one more in its first parts: these belong
    together."""
    sizes = [rest * (leaf + 1) // count - rest * leaf // count for leaf in range(count)]
    order = sorted(range(count), key=lambda leaf: -sizes[leaf])
    parts = [0] * count
    for part, leaf in enumerate(order):
        parts[leaf] = part
    return parts


class _Reader:
    """One iteration after the other over a stream, or a part of one.  number: of the part.  of:
    names it in messages.  count: of parts.  opened: returns the stream."""

    def __init__(self, opened: Callable[[], Any], seed: int, number: int, of: str, count: int):
        self._opened, self._seed, self._number = opened, seed, number
        self._of, self._count = of, count
        self._cursors: Cursors | None = None
        self._shard, self._each = 0, 0
        self._dataset = opened()
        self._forget()

    def follow(self, cursors: Cursors, shard: int, each: int) -> None:
        """Goes on where the cursor of the shard is, rather than to read again what lies before it.
        The stream draws other random numbers, for each batch of `each` samples by itself."""
        self._cursors, self._shard, self._each = cursors, shard, each

    def state(self) -> Any:
        return self._dataset.state_dict()

    def take(self, epoch: int, numbers: list[int], first: int) -> list[Any]:
        """Returns the samples with these numbers, in ascending order. From now on those before
        number `first` are not kept."""
        missing = [at for at in numbers if at not in self._items]
        if self._iterator is None or epoch != self._epoch or (missing and missing[0] < self._next):
            self._forget()
            self._epoch = epoch
        cursors, missing = self._cursors, [at for at in numbers if at not in self._items]
        if missing and cursors is not None and cursors.epoch == epoch:
            self._jump(cursors, missing[0])
        self._items = {at: one for at, one in self._items.items() if at >= first}
        if numbers[-1] >= self._next:
            self._read(numbers[-1], first)
        return [self._items[at] for at in numbers]

    def _forget(self) -> None:
        self._iterator: Iterator[Any] | None = None
        self._generators: tuple[Any, ...] | None = None  # as the stream has left them
        self._items: dict[int, Any] = {}  # by number
        self._epoch, self._next = -1, 0
        self._from: Any = None  # the state to begin with

    def _jump(self, cursors: Cursors, number: int) -> None:
        """Goes to the cursor if that is on the way to the sample."""
        if self._next < cursors.next <= number:
            self._iterator, self._generators = None, None
            self._next, self._from = cursors.next, cursors.state_of(self._shard)

    def _read(self, last: int, first: int) -> None:
        """Reads the samples up to number `last` and keeps those from `first` on. The stream draws
        from generators of its own, whoever computes what in between."""
        before = _generators()
        try:
            if self._iterator is None:
                _seed_all(_native.mix(self._seed, self._epoch, _OPEN + self._number))
                if self._cursors is not None:  # a state of an epoch before must not be there
                    self._dataset = self._opened()
                if callable(set_epoch := getattr(self._dataset, "set_epoch", None)):
                    set_epoch(self._epoch)
                if self._from is not None:
                    self._dataset.load_state_dict(self._from)
                    self._from = None
                self._iterator = iter(self._dataset)
            elif self._generators is not None:
                _set_generators(self._generators)
            while self._next <= last:
                if self._each > 0 and self._next % self._each == 0:
                    seed = _native.mix(self._seed, self._epoch, _OPEN + self._number)
                    _seed_all(_native.mix(seed, self._next, _OPEN))
                item = next(self._iterator, self)
                if item is self:
                    self._refuse_end()
                if self._next >= first:
                    self._items[self._next] = item
                self._next += 1
            self._generators = _generators()
        except BaseException:
            # A generator that has raised is over: the script may catch that and go on.
            self._forget()
            raise
        finally:
            _set_generators(before)

    def _refuse_end(self) -> None:
        what = f"the stream ({_arguments.kind(self._dataset)})"
        most = self._next * max(1, self._count)
        advice = f"pass samples={most} or fewer to join()"
        if self._count > 0:
            advice = f"{advice}, or leave out parts=True" if most > 0 else "leave out parts=True"
        _arguments.refuse(
            "data set",
            f"{self._of}{what} ended after {self._next} samples of epoch {self._epoch}, and an "
            f"epoch takes more: {advice}",
            final=False,
        )


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
