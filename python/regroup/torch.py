"""Elastic PyTorch training, on the CPU.

    session = regroup.torch.join(model, optimizer, train_set, batch_size=64, epochs=15)
    for step in session:
        for x, y in step:  # one part of the batch, a shard; another member computes the others
            loss = nn.functional.cross_entropy(model(x), y)  # a mean over the samples it got
            loss.backward()
            step.record(loss)
        optimizer.step()  # p.grad is that of the whole batch
    session.finish()

The weights depend on the seed, the number of shards and the numeric environment, not on which
member computed what: members may die, leave and join at any time. docs/guide/python.md has the
rules for code in the loops.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, IterableDataset

from regroup import _arguments, _failure, _native, _torch_loader
from regroup._torch_fused import FusedSave
from regroup._torch_gradient import Gradient
from regroup._torch_hints import tell, tell_forgotten_schedulers, tell_late_change
from regroup._torch_loader import Direct, Loader
from regroup._torch_state import TrainingState
from regroup.session import Member, Observer, T, leaving, list_of_tensors


def join(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Any,
    *,
    batch_size: int | None = None,
    epochs: int | float,
    collate: Callable[[list], Any] | None = None,
    extra: Sequence[Any] = (),
    state_bytes: int | None = None,
    progress: bool = False,
    deadline: int = 600,
    observer: Observer | None = None,
) -> Session:
    """Makes this process a member of the job, or of a world of one if no launcher started it.

    Blocks until a world contains this process; model, optimizer and extra then have that world's
    state.

    dataset: has len() and [index]; or a DataLoader, whose data set, batch_size, collate_fn and
    workers are used.
    batch_size: samples per step, over all members; with a DataLoader: its batch_size.
    epochs: at least 1; math.inf: no end, the script leaves the loop by break.
    collate: makes a batch of a list of samples; default: as DataLoader does.
    extra: other objects that change with the steps, such as schedulers and GradScaler; they have
    state_dict() and load_state_dict().
    state_bytes: the most bytes that the whole state will need; the default allows the optimizer
    three values per parameter.
    progress: rank 0 prints a line per epoch.
    deadline: the longest wait for other members, in seconds.
    observer: called at each event of a step (see regroup.session.Observer); must be quick.
    """
    _failure.install()
    loader = dataset if isinstance(dataset, DataLoader) else None
    dataset = dataset if loader is None else loader.dataset
    samples = _check_arguments(model, optimizer, dataset)
    if loader is not None:
        batch_size = _torch_loader.check(loader, batch_size, collate)
    batch_size = _arguments.whole("join", "batch_size", batch_size, least=1)
    epochs = 0 if epochs == math.inf else _arguments.whole("join", "epochs", epochs, least=1)
    deadline = _arguments.whole("join", "deadline", deadline, least=1)
    if state_bytes is not None:
        state_bytes = _arguments.whole("join", "state_bytes", state_bytes)
    _arguments.callable_or_none("join", "collate", collate)
    _arguments.callable_or_none("join", "observer", observer)
    extra = _check_extra(extra)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # fixed for the job: the bits depend on it
    gradient = Gradient(model)
    own = {id(p) for p in model.parameters()}
    for number, group in enumerate(optimizer.param_groups):
        if any(id(p) not in own for p in group["params"]):
            _arguments.refuse("join", f"parameter group {number} has one that is not the model's")
    if not gradient.parameters:
        _arguments.refuse("join", "no parameter of the model requires a gradient")
    state = TrainingState(model, optimizer, extra, state_bytes)
    state.check_size()
    native = leaving(
        lambda: _native.Session(
            state=state,
            elements=gradient.elements,
            dtype="float64" if gradient.dtype == torch.float64 else "float32",
            model=_digest(model, optimizer, samples, batch_size) + _list(model),
            # with a loader other random numbers are drawn
            fingerprint=fingerprint() + ("" if loader is None else " data=loader"),
            samples=samples,
            batch=batch_size,
            epochs=epochs,
            deadline=deadline,
            observer=observer,
        )
    )
    source = Direct(dataset, collate) if loader is None else Loader(native, loader)
    return Session(native, gradient, state, dataset, source, batch_size, progress)


def _check_arguments(model: Any, optimizer: Any, dataset: Any) -> int:
    """Returns the number of samples. Raises for arguments of other kinds of training."""
    refuse = partial(_arguments.refuse, "join")
    if not isinstance(model, torch.nn.Module):
        refuse(f"model: expected a torch.nn.Module, got {_arguments.kind(model)}")
    if isinstance(optimizer, list | tuple | dict):
        refuse(
            "optimizer: expected one optimizer, with a group of parameters for each part of the "
            "model, got a "
            f"{type(optimizer).__name__} of {len(optimizer)} optimizers"
        )
    wanted = ("param_groups", "state", "state_dict", "load_state_dict", "step")
    if isinstance(optimizer, type) or not all(hasattr(optimizer, name) for name in wanted):
        refuse(f"optimizer: expected a torch.optim.Optimizer, got {_arguments.kind(optimizer)}")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            refuse(f"{name} of the model has no shape yet: call the model once before join()")
    return _check_dataset(dataset)


def _check_dataset(dataset: Any) -> int:
    refuse = partial(_arguments.refuse, "join")
    got = f"got {_arguments.kind(dataset)}"
    if isinstance(dataset, type):
        refuse(f"data set: expected an instance, {got}")
    indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if isinstance(dataset, IterableDataset) or not indexed:
        refuse(
            f"data set: expected len() and [index], since any member may compute any sample, {got} "
            f"without"
        )
    try:
        samples = len(dataset)
    except Exception as error:
        refuse(f"data set: {got}, whose len() raises {type(error).__name__}: {error}", final=False)
    if samples == 0:
        refuse(f"data set: expected at least one sample, {got} without", final=False)
    if isinstance(dataset, dict) and not hasattr(dataset, "__missing__") and 0 not in dataset:
        refuse(
            f"data set: expected the keys 0 to {samples - 1}, or a list of samples, {got}",
            final=False,
        )
    return samples


def _check_extra(extra: Any) -> list[Any]:
    if (
        hasattr(extra, "state_dict")
        or isinstance(extra, Mapping | str)
        or not isinstance(extra, Iterable)
    ):
        _arguments.refuse(
            "join",
            f"extra: expected a list such as extra=[scheduler], got {_arguments.kind(extra)}",
        )
    listed = list(extra)
    for number, one in enumerate(listed):
        _arguments.has("join", f"extra[{number}]", one, "state_dict", "load_state_dict")
    return listed


class Session(Member):
    """This process as a member of the job. Iterate over it to get the remaining steps. For one
    thread only."""

    def __init__(
        self,
        native: _native.Session,
        gradient: Gradient,
        state: TrainingState,
        dataset: Any,
        source: Direct | Loader,
        batch_size: int,
        progress: bool,
    ):
        self._native = native
        self._shards = native.world.shards  # V: fixed for the job
        self._gradient = gradient
        self._state = state
        self._dataset = dataset
        self._source = source
        self._batch_size = batch_size
        self._progress = progress
        self._fused = FusedSave(native, state)
        self._begun = False  # this member has begun a step
        self._told_no_gradient = False
        self._told_late_change = False
        # settings, as the last collective section left them
        self._at_section: dict[str, str] | None = None

    def __iter__(self) -> Iterator[Step]:
        """Yields the remaining steps. Exits the process with status 0 if this member is asked to
        leave."""
        taken = 0
        try:
            while (info := self._next_step()) is not None:
                taken += 1
                step = Step(self, info)
                if not self._begun and self.rank == 0:
                    tell_forgotten_schedulers(self._state.optimizer, self._state.extra)
                self._begun = True
                yield step
                if step.number <= 2 or step.first_of_epoch:
                    self._state.check_size()  # before a new member needs it
        except GeneratorExit:  # `break`, for one
            self._fused.end()
            self._leave_loop()
            raise
        finally:
            self._source.close()
        self._end_of_loop(
            taken, ", session.is_last_of_epoch(step.number) whether it ends with this step"
        )

    def _next_step(self) -> _native.StepInfo | None:
        self._fused.end()
        before, self._at_section = self._at_section, None
        if before is not None and not self._told_late_change:
            self._told_late_change = tell_late_change(
                self.last_step, before, self._state.settings()
            )
        return leaving(self._native.next_step)

    def collective(self, body: Callable[[_native.Communicator], T]) -> T:
        self._fused.end()
        out = super().collective(body)
        watches = self.rank == 0 and self.last_step > 0 and not self._told_late_change
        self._at_section = self._state.settings() if watches else None
        return out

    def finish(self) -> None:
        self._fused.end()
        self._source.close()
        super().finish()

    def is_last_of_epoch(self, step: int) -> bool:
        """Whether an epoch ends with the given step. Call it as
        session.is_last_of_epoch(step.number) to step a scheduler that counts epochs, or to
        evaluate the model. The loop over the session continues after it."""
        return step % -(-len(self._dataset) // self._batch_size) == 0


class Step:
    """One step of training. Iterate over it to get the batches that this member is to compute.

    number: 1, 2, ... over all epochs.  epoch: 0, 1, ...  first_of_epoch: an epoch begins with it.
    samples: in the whole batch, over all members; fewer in the last one of an epoch.
    loss: after the batches, the mean over the whole batch of what record() was given; None without.
    """

    def __init__(self, session: Session, info: _native.StepInfo):
        self._session = session
        self.number: int = info.number  # 1, 2, ...
        self.epoch: int = info.epoch  # 0, 1, ...
        self.samples: int = info.samples  # in the whole batch: fewer in the last one of an epoch
        self.first_of_epoch: bool = info.first_of_epoch
        # after the shards: the mean over the batch of what was recorded
        self.loss: float | None = None
        self._recorded: float | None = None
        self._over = False

    @property
    def world(self) -> _native.WorldInfo:
        return self._session.world

    def record(self, loss: torch.Tensor | float) -> None:
        """Records the mean loss over the samples of the batch just computed. Of several calls for a
        batch the last one counts."""
        self._recorded = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def __iter__(self) -> Iterator[Any]:
        """Yields batches of one shard each. After the last one p.grad and the buffers are those of
        the whole step.

        Waits for other members. After a regroup there may be more batches, for shards that were
        lost.
        """
        if self._over:
            return
        session = self._session
        while (shard := leaving(session._native.next_shard)) is not None:
            session._gradient.begin_shard()
            self._recorded = None
            yield session._source.batch_of(self.number, shard)
            last = shard.leaf == session._shards - 1
            weight = len(shard.samples) / self.samples
            session._gradient.harvest(shard.gradient, weight, last, self._recorded)
        self._over = True
        self._take_sum()

    def _take_sum(self) -> None:
        session = self._session
        self.loss = session._gradient.take_sum(session._native)
        if not session._told_no_gradient and session._gradient.is_none:
            session._told_no_gradient = True
            if session.rank == 0:
                what = "no parameter has a gradient in any shard; was loss.backward() called?"
                tell(f"step {self.number}: {what}")
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
            f"epoch {self.epoch + 1:2}  loss {mean:.4f}  members {world.size}  generation "
            f"{world.generation}"
        )
        print(line, flush=True)


_AFTER_SHARDS = 1 << 32  # no leaf has this number


def seed_all(seed: int) -> None:
    """Seeds the generators of torch, random and, if the script has imported it, numpy."""
    _torch_loader.seed_all(seed)


def fingerprint() -> str:
    """Returns the environment on which the weights' bits depend, apart from seed and number of
    shards. Members with another fingerprint are refused."""
    python = ".".join(map(str, sys.version_info[:2]))
    capability = torch.backends.cpu.get_cpu_capability()
    cudnn = torch.backends.cudnn
    return (
        f"{_native.default_fingerprint()} torch={torch.__version__} "
        f"torch-threads={torch.get_num_threads()} "
        f"torch-isa={capability} python={python} "
        f"deterministic={torch.are_deterministic_algorithms_enabled()} "
        f"cudnn-deterministic={cudnn.deterministic} cudnn-benchmark={cudnn.benchmark} "
        f"matmul={torch.get_float32_matmul_precision()}"
    )


def _list(model: torch.nn.Module) -> str:
    """The tensors that _digest() covers."""
    tensors = [
        (name, f"{p.dtype}"[6:] + ("" if p.requires_grad else ", not trained,"), p.shape)
        for name, p in model.named_parameters()
    ]
    tensors += [(name, f"{b.dtype}"[6:], b.shape) for name, b in model.named_buffers()]
    return list_of_tensors(tensors)


def _digest(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, samples: int, batch: int
) -> str:
    """Returns a short text that differs if two members would not train the same model."""
    lines = [
        f"{name} {tuple(p.shape)} {p.dtype} {p.requires_grad}"
        for name, p in model.named_parameters()
    ]
    lines += [f"{name} {tuple(b.shape)} {b.dtype}" for name, b in model.named_buffers()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    what = f"{type(model).__name__} {digest}, {type(optimizer).__name__}"
    return f"{what}, {samples} samples in batches of {batch}"
