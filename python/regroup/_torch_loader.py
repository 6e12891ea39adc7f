"""Where the batches of shards come from: the data set in the training process (Direct), or what a
DataLoader of the script would do (Loader), with its workers fetching in advance.

The workers are those of a DataLoader of our own, whose batches are the shards that this member is
to compute next if its world stays as it is. A regroup changes them: the plan then begins anew.
Samples are fetched under the seed of their shard, so that the bits depend neither on the number of
workers nor on the member.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import itertools
import multiprocessing
import multiprocessing.connection
import operator
import os
import pickle
import random
import signal
import sys
import traceback
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
    get_worker_info,
)

from regroup import _arguments, _native
from regroup._torch_hints import tell
from regroup._torch_stream import Stream, samples_of

# Of a batch: step, leaf, number of the batch in its shard, seed, indices of the data set
Key = tuple[int, int, int, int, list[Any]]

_ORDER = 1 << 34  # no leaf or batch has this number
_PART = 1 << 35  # plus the number of a batch in its shard
_COMPUTE = 1  # the model's random numbers are other ones than those of the samples
_MOST = 8  # sample indices in a message
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_IGNORED = (signal.SIGTERM, signal.SIGINT)  # by workers


def seed_all(seed: int) -> None:
    """Seeds the generators of torch, random and, if the script has imported it, numpy; those of
    GPUs if the process uses them."""
    torch.random.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # not in a worker
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed & 0xFFFFFFFF)


@dataclass
class Epochs:
    """What the steps of an epoch take of a data set.

    samples: positions of an epoch.  batch_size: of them per step.  shuffle: in an order of the job.
    sampler: gives the index of each position, anew for each epoch; None: the positions are indices.
    """

    samples: int
    batch_size: int
    shuffle: bool = True
    drop_last: bool = False
    sampler: Any = None

    @property
    def batches(self) -> int:
        """The number of batches of an epoch."""
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def used(self) -> int:
        """The number of samples that an epoch uses."""
        return min(self.samples, self.batches * self.batch_size)


@dataclass
class Part:
    """One of the batches in which a shard is computed: the samples begin to end - 1 of it."""

    number: int
    seed: int
    begin: int
    end: int

    @property
    def samples(self) -> int:
        return self.end - self.begin


def parts_of(seed: int, samples: int, accumulate: int) -> list[Part]:
    """Returns the parts of a shard: `accumulate` of almost equal size, fewer if it has fewer
    samples. The first one has the seed of the shard."""
    count = min(accumulate, samples)
    return [
        Part(
            number,
            seed if number == 0 else _native.mix(seed, _PART + number),
            samples * number // count,
            samples * (number + 1) // count,
        )
        for number in range(count)
    ]


class Order:
    """The indices that a sampler of the script gives, the same on every member: it is asked under
    a seed of the job and the epoch, for at most two epochs at a time."""

    def __init__(self, sampler: Any, samples: int, seed: int, steps: int):
        """steps: of an epoch."""
        self._sampler, self._samples = sampler, samples
        self._seed, self._steps = seed, steps
        self._lists: dict[int, list[Any]] = {}

    @property
    def is_own(self) -> bool:
        """The script's, not the job's."""
        return self._sampler is not None

    def indices(self, step: int, positions: list[int]) -> list[Any]:
        if self._sampler is None:
            return positions
        epoch = (step - 1) // self._steps
        if epoch not in self._lists:
            self._lists = {n: one for n, one in self._lists.items() if n == epoch - 1}
            self._lists[epoch] = self._ask(epoch)
        return [self._lists[epoch][at] for at in positions]

    def _ask(self, epoch: int) -> list[Any]:
        seed = _native.mix(self._seed, epoch, _ORDER)
        seed_all(seed)
        generator = getattr(self._sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
        if callable(getattr(self._sampler, "set_epoch", None)):
            self._sampler.set_epoch(epoch)
        found = list(itertools.islice(self._sampler, self._samples))
        if len(found) != self._samples:
            _arguments.refuse(
                "data set",
                f"the sampler ({_arguments.kind(self._sampler)}) gave {len(found)} indices in "
                f"epoch {epoch}, expected its len(), {self._samples}",
            )
        return found


class Direct:
    """Fetches in the training process, without a DataLoader."""

    def __init__(self, dataset: Any, collate: Callable[[list], Any] | None):
        self._dataset = dataset
        self.collate = collate or default_collate

    def batch_of(self, step: int, shard: _native.Shard, part: Part) -> Any:
        """Returns a batch of a shard, with the generators seeded for what computes it."""
        return self.stand_in(step, shard.leaf, part.seed, shard.samples[part.begin : part.end])

    def stand_in(self, step: int, leaf: int, seed: int, samples: list[int]) -> Any:
        """The same for a shard that another member computes."""
        seed_all(seed)
        if isinstance(self._dataset, Stream):
            return self.collate(self._dataset.take(step, samples))
        return self.collate([self._dataset[i] for i in samples])

    def close(self) -> None:
        pass


@dataclass
class ShardLoader:
    """A DataLoader whose batches are shards, of which a step has `shards`."""

    loader: DataLoader
    shards: int


class Loader:
    """Fetches as the script's DataLoader would: with its collate_fn and its workers."""

    def __init__(
        self,
        native: _native.Session,
        loader: DataLoader,
        epochs: Epochs,
        steps: int,
        accumulate: int = 1,
        stream: Stream | None = None,
    ):
        """steps: of an epoch. accumulate: the batches of a shard. stream: of the loader's data set,
        if that has no [index]."""
        with contextlib.suppress(ImportError):
            importlib.import_module("numpy.random")  # seeded from the first shard on
        self._native = native
        self.collate = loader.collate_fn
        self._source = _Source(loader.dataset if stream is None else stream, loader.collate_fn)
        self._workers = loader.num_workers
        self._substeps = steps // epochs.batches
        self._accumulate = accumulate
        self._order = Order(epochs.sampler, epochs.samples, native.job_seed, steps)
        self._options = {
            "num_workers": loader.num_workers,
            "prefetch_factor": loader.prefetch_factor,
            "timeout": loader.timeout,
            "multiprocessing_context": loader.multiprocessing_context,
            "worker_init_fn": partial(_begin_worker, loader.worker_init_fn),
        }
        self._loader: DataLoader | None = None
        self._batches: Any = None  # its iterator
        self._first: list[Key] = []  # the plan begins with them, the rest of a shard
        self._ahead: deque[tuple[int, ...]] = (
            deque()
        )  # the begins of the keys that the workers have
        self._processes: list[Any] = []
        if native.world.rank == 0:
            _tell_once(loader, epochs.batch_size)

    def batch_of(self, step: int, shard: _native.Shard, part: Part) -> Any:
        """Returns a batch of a shard, with the generators seeded for what computes it."""
        keys = self._keys(step, shard.leaf, shard.seed, shard.samples)[part.number :]
        if self._order.is_own and part.number == 0:
            self._native.record_samples(_numbers([one for key in keys for one in key[4]]))
        batch = self._from_workers(keys) if self._workers else self._source.fetch(keys[0])
        seed_all(_native.mix(part.seed, _COMPUTE))
        return batch

    def stand_in(self, step: int, leaf: int, seed: int, samples: list[int]) -> Any:
        """The same for a shard that another member computes, without workers."""
        indices = self._order.indices(step, samples)
        batch = self._source.fetch((step, leaf, 0, seed, indices))
        seed_all(_native.mix(seed, _COMPUTE))
        return batch

    def close(self) -> None:
        """Ends the workers. A later batch_of() starts new ones."""
        if self._loader is None:
            return
        atexit.unregister(self.close)
        processes, self._processes = self._processes, []
        batches, self._batches, self._loader = self._batches, None, None
        self._ahead.clear()
        if batches is not None:
            batches.__del__()  # here and not later, should a traceback refer to it
        for process in processes:
            if process.is_alive():
                process.kill()  # it ignores the SIGTERM of __del__()
            process.join()

    def _from_workers(self, keys: list[Key]) -> Any:
        """Returns the batch of the first key. keys: it, and those after it in its shard."""
        step, leaf, *_ = begin = keys[0][:3]
        try:
            if begin not in self._ahead:
                self._begin_plan(keys)
            while True:
                batch = next(self._batches)
                if self._ahead.popleft() == begin:
                    break
        except Exception as error:  # a worker was killed, or took longer than the timeout
            what = f"while the workers fetched shard {leaf} of step {step}"
            if ended := self._ended(isinstance(error, OSError | EOFError)):
                raise RuntimeError(f"{ended} {what}") from error
            error.add_note(what)
            raise
        if isinstance(batch, _Failure):
            batch.raise_again()
        return batch

    def _ended(self, awaited: bool) -> str:
        """Says which worker has ended and how, or returns "". awaited: a connection to a worker
        broke, which is therefore about to end."""
        ready = []
        if awaited:
            with contextlib.suppress(RuntimeError):  # of torch's handler of SIGCHLD
                ready = multiprocessing.connection.wait([p.sentinel for p in self._processes], 5)
        for process in self._processes:
            if process.sentinel in ready:
                process.join(5)
            if process.exitcode is not None:
                worker = f"a worker of the DataLoader (pid {process.pid})"
                return f"{worker} {_end_of(process.exitcode)}"
        return ""

    def _begin_plan(self, keys: list[Key]) -> None:
        self._ahead.clear()
        self._first = keys
        if self._loader is not None:
            self._batches = iter(self._loader)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's DataLoader has told them
            self._begin_workers()

    def _begin_workers(self) -> None:
        self._loader = DataLoader(
            self._source,
            batch_sampler=_Sampler(self._plan),
            collate_fn=_unchanged,
            persistent_workers=True,
            **self._options,
        )
        atexit.register(self.close)  # before the exit function of multiprocessing
        # A signal to the process group is meant for the member. A worker that does not ignore it
        # yet would die of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        others = set(multiprocessing.active_children())
        try:
            self._batches = iter(self._loader)
        finally:
            self._processes = [p for p in multiprocessing.active_children() if p not in others]
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _plan(self) -> Iterator[Key]:
        """Yields what this member computes next. Stops after two batches without a shard of it:
        only the last one of an epoch is too small for all members, so no more will come."""
        (step, leaf, *_), empty = self._first[0], 0
        keys = [*self._first, *(k for k in self._planned(step) if k[1] != leaf)]
        while empty < 2 * self._substeps:
            for one in keys:
                self._ahead.append(one[:3])
                yield one
            step += 1
            keys = self._planned(step)
            empty = 0 if keys else empty + 1

    def _planned(self, step: int) -> list[Key]:
        shards = self._native.planned_shards(step)
        return [key for shard in shards for key in self._keys(step, *shard)]

    def _keys(self, step: int, leaf: int, seed: int, positions: list[int]) -> list[Key]:
        """Of all batches of a shard."""
        indices = self._order.indices(step, positions)
        return [
            (step, leaf, part.number, part.seed, indices[part.begin : part.end])
            for part in parts_of(seed, len(indices), self._accumulate)
        ]


class _Sampler:
    """Batches of indices for a DataLoader, each iteration from a function."""

    def __init__(self, begin: Callable[[], Iterator[Key]]):
        self._begin = begin

    def __iter__(self) -> Iterator[Key]:
        return self._begin()


class _Source(Dataset):
    """The data set of the workers, indexed by shards."""

    def __init__(self, dataset: Any, collate: Callable[[list], Any]):
        self.dataset = dataset
        self._collate = collate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, key: Key) -> Any:
        """In a worker: returns the batch of a shard or, if that raises, a _Failure."""
        try:
            return self.fetch(key)
        except Exception as error:
            return _Failure(error)

    def fetch(self, key: Key) -> Any:
        """Returns the batch of a shard. An exception of the data set names its sample."""
        step, leaf, _, seed, samples = key
        seed_all(seed)
        where = ""
        try:
            if isinstance(self.dataset, Stream):
                where = f"in one of the samples {_list(samples)} of the stream, or before them"
                items = self.dataset.take(step, samples)
            elif batched := self._batched():
                where = f"in one of the samples {_list(samples)}"
                items = batched(samples)
            else:
                items = []
                for index in samples:
                    where = f"in sample {index}"
                    items.append(self.dataset[index])
            where = f"in collate_fn, of the samples {_list(samples)}"
            return self._collate(items)
        except Exception as error:
            error.add_note(f"{where} of shard {leaf} of step {step}")
            raise

    def _batched(self) -> Callable[[list[int]], list] | None:
        one = self.dataset
        # a Subset of a data set without __getitems__() takes one sample after the other
        within = one.dataset if type(one) is Subset else one
        return one.__getitems__ if callable(getattr(within, "__getitems__", None)) else None


def _end_of(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    return f"was killed by signal {-status} ({signal.strsignal(-status)})"


def _list(samples: Sequence[int]) -> str:
    more = f" and {len(samples) - _MOST} more" if len(samples) > _MOST else ""
    return ", ".join(map(str, samples[:_MOST])) + more


def _numbers(indices: list[Any]) -> list[int]:
    """What a ledger tells of indices: of those that are not whole numbers, a checksum."""
    found = []
    for index in indices:
        try:
            found.append(operator.index(index) % (1 << 64))
        except TypeError:
            found.append(zlib.crc32(repr(index).encode()))
    return found


def _unchanged(batch: Any) -> Any:
    return batch


class _Failure:
    """An exception of a worker, on its way to the training process."""

    def __init__(self, error: Exception):
        self._text = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
            self._error = error
        except Exception:  # an exception of which pickle makes no copy
            self._error = RuntimeError(f"{type(error).__name__}: {error}")
            for note in error.__notes__:
                self._error.add_note(note)

    def raise_again(self) -> None:
        raise self._error from _InWorker(self._text)


class _InWorker(Exception):
    """The traceback of a worker, printed as the cause of the exception."""

    def __str__(self) -> str:
        return "in a worker of the DataLoader:\n" + super().__str__()


def _begin_worker(init: Callable[[int], Any] | None, worker: int) -> None:
    """Runs at the start of a worker, which must neither outlive the member nor die of a signal that
    is meant for the member."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in _IGNORED:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    info = get_worker_info()
    if info is not None and isinstance(info.dataset, _Source):
        dataset = info.dataset.dataset
        dataset = dataset.dataset if isinstance(dataset, Stream) else dataset
        object.__setattr__(info, "dataset", dataset)  # the one that the script knows
    if init is not None:
        init(worker)


def _ignore(number: int, frame: Any) -> None:
    """Not SIG_IGN, which programs that a worker starts would inherit."""


def check(
    loader: DataLoader, batch_size: Any, collate: Any, shards: int, samples: Any = None
) -> Epochs:
    """Returns the epochs of a DataLoader that join() can take the place of, whose step has `shards`
    of its batches; refuses others."""
    refuse = partial(_arguments.refuse, "join")
    if type(loader).__iter__ is not DataLoader.__iter__:
        refuse(
            f"data set: expected a torch.utils.data.DataLoader, got {_arguments.kind(loader)} with "
            "batches of its own; pass its data set (loader.dataset) and batch_size"
        )
    size = loader.batch_size
    if size is None and loader.batch_sampler is not None:
        refuse(
            f"data set: the DataLoader has a batch_sampler ({_arguments.kind(loader.batch_sampler)}"
            "); pass batch_size to the DataLoader instead: the job has its own sampler, since the "
            "members share the samples of a batch"
        )
    if size is None:
        refuse("data set: the DataLoader has batch_size=None; pass it the samples of a step")
    size = shards * _arguments.whole("join", "batch_size of the DataLoader", size, least=1)
    if batch_size is not None and batch_size != size:
        refuse(
            f"batch_size: expected {size}, that of the DataLoader, or no batch_size, got "
            f"{batch_size}"
        )
    if collate is not None and collate is not loader.collate_fn:
        refuse("collate: the DataLoader has a collate_fn; pass one of the two")
    if isinstance(loader.dataset, IterableDataset):
        _check_stream(loader)
        taken = samples_of(loader.dataset, samples)
        epochs = Epochs(taken, size, False, loader.drop_last)
    else:
        epochs = _epochs_of(loader, size)
    if epochs.batches == 0:
        refuse(
            f"data set: drop_last=True leaves no batch of {size} samples: an epoch has "
            f"{epochs.samples}"
        )
    return epochs


def _check_stream(loader: DataLoader) -> None:
    if loader.num_workers > 1:
        _arguments.refuse(
            "join",
            f"data set: num_workers={loader.num_workers} of the DataLoader: each would read the "
            f"whole stream ({_arguments.kind(loader.dataset)}), since any member may compute any "
            "sample; pass num_workers=1, which reads ahead",
        )


def _epochs_of(loader: DataLoader, batch_size: int) -> Epochs:
    sampler: Any = loader.sampler
    samples = len(loader.dataset)  # type: ignore[arg-type]
    if not _own_sampler(loader):
        shuffle = type(sampler) is not SequentialSampler and getattr(sampler, "shuffle", True)
        return Epochs(samples, batch_size, shuffle, loader.drop_last)
    try:
        taken = len(sampler)
    except Exception as error:
        _arguments.refuse(
            "join",
            f"data set: the DataLoader's sampler ({_arguments.kind(sampler)}) has no len(), which "
            f"is that of an epoch: {type(error).__name__}: {error}",
        )
    if taken == 0:
        _arguments.refuse(
            "join", f"data set: the DataLoader's sampler ({_arguments.kind(sampler)}) is empty"
        )
    return Epochs(taken, batch_size, False, loader.drop_last, sampler)


def check_evaluated(loader: DataLoader) -> None:
    """Refuses a DataLoader whose samples or batches are not those of its data set."""
    what = "" if loader.batch_size is not None else "batch_size=None or a batch_sampler"
    what = what or _own_sampler(loader)
    if what:
        _arguments.refuse(
            "evaluate",
            "data set: expected a DataLoader with batch_size and without a sampler of its own, got "
            f"{what}; pass the samples as a data set, such as torch.utils.data.Subset",
        )


def _own_sampler(loader: DataLoader) -> str:
    """Describes a sampler that does not take each sample once; empty: it does."""
    sampler = loader.sampler
    what = _arguments.kind(sampler)
    if type(sampler) is RandomSampler and (
        sampler.replacement or sampler.num_samples != len(loader.dataset)  # type: ignore[arg-type]
    ):
        return what + " with replacement or num_samples"
    known = type(sampler) in (RandomSampler, SequentialSampler, DistributedSampler)
    return "" if known else what


def _tell_once(loader: DataLoader, batch_size: int) -> None:
    """Prints what a script may not expect of a loader that join() takes the place of."""
    if type(loader.sampler) is DistributedSampler:
        tell(
            "the job's sampler replaces the DataLoader's DistributedSampler: a step has "
            f"{batch_size} samples, over all members"
        )
    cores = len(os.sched_getaffinity(0))
    if loader.num_workers > cores - 1:
        tell(
            f"num_workers={loader.num_workers} of the DataLoader, but this member may use "
            f"{cores} {'core' if cores == 1 else 'cores'}: its workers and the training share "
            f"{'it' if cores == 1 else 'them'}; give each member more cores "
            f"(--cpus-per-rank {loader.num_workers + 1}), or pass fewer workers"
        )
