"""Elastic PyTorch training, on the CPU.

    session = regroup.torch.join(model, optimizer, train_set, batch_size=64, epochs=15)
    for step in session:
        for x, y in step:  # one part of the batch, a shard; another member computes the others
            loss = nn.functional.cross_entropy(model(x), y)  # a mean over the samples it got
            loss.backward()
            step.record(loss)
        optimizer.step()  # p.grad is that of the whole batch
    session.finish()

The weights depend on the seed, the number of shards and the numeric environment, not on who computed what:
members may die, leave and join at any time. docs/python.md says what that asks of the code in the loops.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from regroup import _failure, _native
from regroup._errors import Refused
from regroup._torch_fused import FusedSnapshot
from regroup._torch_gradient import Gradient
from regroup._torch_state import TrainingState
from regroup.session import Member, Observer, T, leaving


def join(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    *,
    batch_size: int,
    epochs: int,
    collate: Callable[[list], Any] | None = None,
    extra: Sequence[Any] = (),
    state_bytes: int | None = None,
    progress: bool = False,
    deadline: int = 600,
    observer: Observer | None = None,
) -> Session:
    """Makes this process a member of the job, or of a world of one when no launcher started it.

    Blocks until a world contains this process; model, optimizer and extra then have that world's state.
    dataset: with len() and [index].  batch_size: samples per step, over all members.
    collate: makes a batch of a list of samples; default as DataLoader.
    extra: what else changes with the steps and has state_dict(), load_state_dict(): schedulers, GradScaler.
    state_bytes: most bytes the whole state will need; default: three values per parameter for the optimizer.
    progress: rank 0 prints a line per epoch.  deadline: seconds for any wait on other members.
    observer: called at each moment of a step (see regroup.session.Observer); must be quick.
    """
    _failure.install()
    _check_arguments(model, optimizer, dataset)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # fixed for the job: the bits depend on it
    gradient = Gradient(model)
    own = {id(p) for p in model.parameters()}
    for number, group in enumerate(optimizer.param_groups):
        if any(id(p) not in own for p in group["params"]):
            raise Refused(
                f"join: parameter group {number} has one that is not the model's", "invalid argument"
            )
    if not gradient.parameters:
        raise Refused("join: no parameter of the model requires a gradient", "invalid argument")
    state = TrainingState(model, optimizer, list(extra), state_bytes)
    state.check_size()
    native = leaving(
        lambda: _native.Session(
            state=state,
            elements=gradient.elements,
            dtype="float64" if gradient.dtype == torch.float64 else "float32",
            model=_digest(model, optimizer, len(dataset), batch_size),
            fingerprint=fingerprint(),
            samples=len(dataset),
            batch=batch_size,
            epochs=epochs,
            deadline=deadline,
            observer=observer,
        )
    )
    return Session(native, gradient, state, dataset, collate or default_collate, batch_size, progress)


def _check_arguments(model: Any, optimizer: Any, dataset: Any) -> None:
    """Raises for what scripts of other kinds of training have in these places."""

    def refuse(why: str) -> NoReturn:
        raise Refused(f"join: {why}", "invalid argument")

    if not isinstance(model, torch.nn.Module):
        refuse(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        if isinstance(optimizer, list | tuple):
            refuse(
                f"a {kind} of {len(optimizer)} optimizers was given; one is wanted, with a group of "
                "parameters for each"
            )
        refuse(f"the optimizer is a {kind}, not a torch.optim.Optimizer")
    if isinstance(dataset, DataLoader):
        refuse(
            "a DataLoader was given; give its data set (loader.dataset), batch_size and, if it has one of "
            "its own, collate: the samples of a batch are shared among the members"
        )
    indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if isinstance(dataset, IterableDataset) or not indexed:
        refuse(
            f"the data set, a {type(dataset).__name__}, has no len() and [index]; both are wanted, since "
            "any member may have to compute any sample"
        )


class Session(Member):
    """This process as a member of the job. Iterate over it for the steps that are left. For one thread."""

    def __init__(
        self,
        native: _native.Session,
        gradient: Gradient,
        state: TrainingState,
        dataset: Any,
        collate: Callable[[list], Any],
        batch_size: int,
        progress: bool,
    ):
        self._native = native
        self._shards = native.world.shards  # V: fixed for the job
        self._gradient = gradient
        self._state = state
        self._dataset = dataset
        self._collate = collate
        self._batch_size = batch_size
        self._progress = progress
        self._fused = FusedSnapshot(native, state)

    def __iter__(self) -> Iterator[Step]:
        """The steps that are left. Ends the process with status 0 when this member was asked to leave."""
        while (info := self._next_step()) is not None:
            step = Step(self, info)
            yield step
            if step.number <= 2 or step.first_of_epoch:
                self._state.check_size()  # before a new member needs it

    def _next_step(self) -> _native.StepInfo | None:
        self._fused.end()
        return leaving(self._native.next_step)

    def region(self, body: Callable[[_native.Communicator], T]) -> T:
        self._fused.end()
        return super().region(body)

    def finish(self) -> None:
        self._fused.end()
        super().finish()

    def is_last_of_epoch(self, step: int) -> bool:
        return step % -(-len(self._dataset) // self._batch_size) == 0


class Step:
    """One step of training. Iterate over it for the batches this member is to compute."""

    def __init__(self, session: Session, info: _native.StepInfo):
        self._session = session
        self.number: int = info.number  # 1, 2, ...
        self.epoch: int = info.epoch  # 0, 1, ...
        self.samples: int = info.samples  # in the whole batch: fewer in the last one of an epoch
        self.first_of_epoch: bool = info.first_of_epoch
        self.loss: float | None = None  # after the shards: the mean over the batch of what was recorded
        self._recorded: float | None = None
        self._over = False

    @property
    def world(self) -> _native.WorldInfo:
        return self._session.world

    def record(self, loss: torch.Tensor | float) -> None:
        """The mean loss over the samples of the batch just computed; the last call for a batch counts."""
        self._recorded = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def __iter__(self) -> Iterator[Any]:
        """Batches of one shard each. When all members are done, p.grad and the buffers are those of the step.

        Blocks on other members. After a regroup there may be more batches, of shards that were lost.
        """
        if self._over:
            return
        session = self._session
        while (shard := leaving(session._native.next_shard)) is not None:
            seed_all(shard.seed)
            session._gradient.begin_shard()
            self._recorded = None
            yield session._collate([session._dataset[i] for i in shard.samples])
            last = shard.leaf == session._shards - 1
            weight = len(shard.samples) / self.samples
            session._gradient.harvest(shard.gradient, weight, last, self._recorded)
        self._over = True
        self._apply()

    def _apply(self) -> None:
        session = self._session
        self.loss = session._gradient.apply(session._native)
        session._fused.begin()
        seed_all(_native.mix(session._native.job_seed, self.number, _AFTER_SHARDS))
        if self.loss is None:
            return
        session._native.report_loss(self.loss)
        before = 0.0 if self.first_of_epoch else session._state.epoch_loss
        session._state.epoch_loss = before + self.loss * self.samples
        if session._progress and session.rank == 0 and session.is_last_of_epoch(self.number):
            self._print_epoch()

    def _print_epoch(self) -> None:
        session, world = self._session, self.world
        mean = session._state.epoch_loss / len(session._dataset)
        line = (
            f"epoch {self.epoch + 1:2}  loss {mean:.4f}  members {world.size}  generation {world.generation}"
        )
        print(line, flush=True)


_AFTER_SHARDS = 1 << 32  # no leaf has this number


def seed_all(seed: int) -> None:
    """Seeds the generators of torch, random and, where it is in use, numpy."""
    torch.random.default_generator.manual_seed(seed)
    random.seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed & 0xFFFFFFFF)


def fingerprint() -> str:
    """What the bits of the weights depend on besides seed and shards. Members that differ are refused."""
    python = ".".join(map(str, sys.version_info[:2]))
    capability = torch.backends.cpu.get_cpu_capability()
    cudnn = torch.backends.cudnn
    return (
        f"{_native.default_fingerprint()} torch={torch.__version__} torch-threads={torch.get_num_threads()} "
        f"torch-isa={capability} python={python} "
        f"deterministic={torch.are_deterministic_algorithms_enabled()} "
        f"cudnn-deterministic={cudnn.deterministic} cudnn-benchmark={cudnn.benchmark} "
        f"matmul={torch.get_float32_matmul_precision()}"
    )


def _digest(model: torch.nn.Module, optimizer: torch.optim.Optimizer, samples: int, batch: int) -> str:
    """Short text that differs when two members would not train the same thing."""
    lines = [f"{name} {tuple(p.shape)} {p.dtype} {p.requires_grad}" for name, p in model.named_parameters()]
    lines += [f"{name} {tuple(b.shape)} {b.dtype}" for name, b in model.named_buffers()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    what = f"{type(model).__name__} {digest}, {type(optimizer).__name__}"
    return f"{what}, {samples} samples in batches of {batch}"
