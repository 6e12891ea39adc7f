"""Elastic PyTorch training, on the CPU or on a GPU: where the parameters are.

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
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, IterableDataset

from regroup import _arguments, _failure, _native, _torch_device, _torch_loader
from regroup._errors import Error, Left
from regroup._torch_callbacks import Callbacks
from regroup._torch_changes import Changes, check_changes
from regroup._torch_collectives import guard as guard_collectives
from regroup._torch_cursors import Cursors, check_cursors
from regroup._torch_evaluate import Evaluation, Metric
from regroup._torch_fused import FusedSave
from regroup._torch_gradient import Gradient
from regroup._torch_hints import (
    explained,
    tell,
    tell_forgotten_schedulers,
    tell_late_change,
    tell_missing_gradients,
    tell_process_group,
    tell_uneven_shards,
)
from regroup._torch_loader import Direct, Epochs, Loader, Part, ShardLoader, parts_of
from regroup._torch_log import Log, row_of
from regroup._torch_prepare import ElasticDDP, ElasticLoader, PreparedObjects
from regroup._torch_state import TrainingState
from regroup._torch_stream import Stream, check_parts, samples_of
from regroup._torch_update import Update, check_listed, check_optimizers
from regroup.session import Member, Observer, T, leaving, list_of_tensors


def join(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    dataset: Any,
    *,
    batch_size: int | None = None,
    epochs: int | float,
    accumulate: int = 1,
    samples: int | None = None,
    parts: bool = False,
    part_state: int = 0,
    collate: Callable[[list], Any] | None = None,
    schedulers: Sequence[Any] = (),
    epoch_schedulers: Sequence[Any] = (),
    scaler: Any = None,
    ema: Any = None,
    substeps: dict[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    extra: Sequence[Any] = (),
    state_bytes: int | None = None,
    nan: Literal["ignore", "skip", "stop"] = "ignore",
    unfreeze: bool = False,
    changes: dict[str, Callable[..., object]] | None = None,
    reserve: int = 0,
    deterministic: bool = True,
    progress: bool = False,
    log: str | os.PathLike[str] | None = None,
    deadline: int = 600,
    observer: Observer | None = None,
) -> Session:
    """Makes this process a member of the job, or of a world of one if no launcher started it.

    Blocks until a world contains this process; the objects below then have that world's state.

    optimizer: one, or a list of them, of parameters of the model.
    dataset: has len() and [index], or is an IterableDataset; or a DataLoader, whose data set,
    batch_size, collate_fn and workers are used.
    batch_size: samples per step, over all members; with a DataLoader: its batch_size.
    epochs: at least 1; math.inf: no end, the script leaves the loop by break.
    accumulate: the inner loop yields each shard in so many batches, of almost equal size, and their
    gradients are averaged: activations need so much less memory. Do not divide the loss.
    samples: of an IterableDataset, how many an epoch takes; default: its len().
    parts: an IterableDataset with shard(num_shards, index) is read in one part for each shard of
    the job, by the members that compute it, instead of as a whole by every member. A member that
    takes over a shard reads its part again from the begin of the epoch.
    part_state: the most bytes of state_dict() of a part, as JSON, such as 4096: with it a member
    that takes over a shard calls load_state_dict() and goes on from there. Each shard needs memory
    for those of all V parts. The parts' state has numbers, strings, lists and dictionaries, and the
    samples after it are the same; the random numbers that a part draws are other ones than without.
    collate: makes a batch of a list of samples; default: as DataLoader does.
    schedulers, epoch_schedulers: learning rate schedulers that step.apply() steps, after each step
    or after the last one of an epoch; ReduceLROnPlateau gets the loss of the step or epoch.
    scaler: a torch.amp.GradScaler for step.backward() and step.apply().
    ema: averaged weights (torch.optim.swa_utils.AveragedModel), which step.apply() updates.
    substeps: names, each with its optimizer or a list of them: every batch gets a step for each
    name in turn, and step.apply() steps the optimizers of step.substep only (a GAN). Schedulers and
    averaged weights follow the last one.
    callbacks: objects with some of on_step(session, step), on_epoch(session, step),
    on_regroup(session, world), on_checkpoint(session, number) and on_leave(session).
    extra: other objects that change with the steps; they have state_dict() and load_state_dict().
    state_bytes: the most bytes that the whole state will need; the default allows the optimizer
    three values per parameter.
    nan: what every member does in a step with a shard whose loss or gradient is not finite.
    "stop": raises an error, before the step changes anything. "skip": the step changes neither
    parameters nor buffers, p.grad is None. "ignore": tells once if it is the loss.
    unfreeze: the script may let parameters require a gradient that require none at join(), between
    two steps and on all members; the memory for a step has room for all parameters. Without it
    only those that were trained at join() may be frozen later, and unfrozen again.
    changes: functions that session.change() calls by their names to add layers to the model,
    replace or remove some, and to change the optimizer's parameter groups accordingly. A process
    that joins later calls them before it gets the state.
    reserve: elements that changes may add to parameters and buffers; shards take so much more
    memory, and sums so much more time. An error tells the number if it is too small.
    deterministic: on a GPU, lets torch choose only kernels with the same result in each run, as the
    bits of the weights depend on it. No effect on the CPU.
    progress: rank 0 prints a line per epoch.
    log: a folder; rank 0 writes a row per step to metrics.jsonl, metrics.csv and a file of events
    for TensorBoard there. session.log() adds values.
    deadline: the longest wait for other members, in seconds.
    observer: called at each event of a step (see regroup.session.Observer); must be quick.
    """
    _failure.install()
    shards = dataset.shards if isinstance(dataset, ShardLoader) else 1
    dataset = dataset.loader if isinstance(dataset, ShardLoader) else dataset
    loader = dataset if isinstance(dataset, DataLoader) else None
    dataset = dataset if loader is None else loader.dataset
    taken = _check_arguments(model, dataset, samples)
    streamed = isinstance(dataset, IterableDataset)
    _check_asked(parts, streamed, dataset)
    if loader is not None:
        epoch = _torch_loader.check(loader, batch_size, collate, shards, samples)
    else:
        size = _arguments.whole("join", "batch_size", batch_size, least=1)
        epoch = Epochs(taken, size, shuffle=not streamed)
    epochs = 0 if epochs == math.inf else _arguments.whole("join", "epochs", epochs, least=1)
    accumulate = _arguments.whole("join", "accumulate", accumulate, least=1)
    deadline = _arguments.whole("join", "deadline", deadline, least=1)
    if state_bytes is not None:
        state_bytes = _arguments.whole("join", "state_bytes", state_bytes)
    if log is not None and not isinstance(log, str | os.PathLike):
        _arguments.refuse("join", f"log: expected a folder, got {_arguments.kind(log)}")
    _arguments.one_of("join", "nan", nan, "ignore", "skip", "stop")
    if not isinstance(unfreeze, bool):
        got = _arguments.kind(unfreeze)
        _arguments.refuse("join", f"unfreeze: expected True or False, got {got}")
    _arguments.callable_or_none("join", "collate", collate)
    _arguments.callable_or_none("join", "observer", observer)
    optimizers = check_optimizers(optimizer, model)
    update = Update(model, optimizers, schedulers, epoch_schedulers, scaler, ema, substeps)
    called = Callbacks(callbacks)
    stateful = _without_repeats(
        [*update.stateful(), *check_listed("extra", extra, "state_dict", "load_state_dict")]
    )
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # fixed for the job: the bits depend on it
    scalers = [one for one in stateful if isinstance(one, torch.amp.GradScaler)]
    scaled = any(one.is_enabled() for one in scalers)
    functions, reserve = check_changes(changes, reserve)
    room = None if changes is None else reserve
    part_state = check_cursors(part_state, parts, 0 if loader is None else loader.num_workers)
    cursors = Cursors(_native.expected_shards(), part_state) if part_state else None
    gradient = Gradient(model, nan, scaled, deadline, unfreeze, room, cursors)
    if not any(p.requires_grad for p in gradient.parameters):
        _arguments.refuse("join", "no parameter of the model requires a gradient")
    if deterministic:
        gradient.transfer.make_deterministic(model)
    room = reserve * gradient.dtype.itemsize
    state = TrainingState(
        model, optimizers, stateful, state_bytes, deadline, Changes(functions), room, cursors
    )
    state.after_change = gradient.change
    state.check_size()
    substeps_of_batch = max(1, len(update.substeps))
    make = partial(
        _native.Session,
        state=state,
        elements=gradient.elements,
        dtype="float64" if gradient.dtype == torch.float64 else "float32",
        model=_digest(model, optimizers, update, epoch, accumulate)
        + ", unfreeze" * unfreeze
        + _list(model, None if changes is None else reserve),
        # with a loader other random numbers are drawn
        fingerprint=fingerprint(gradient.device)
        + ("" if loader is None else " data=loader")
        + " parts" * parts
        + ("" if cursors is None else " part-state"),
        samples=epoch.samples,
        batch=epoch.batch_size,
        shuffle=epoch.shuffle,
        drop_last=epoch.drop_last,
        own_order=epoch.sampler is not None,
        epochs=epochs,
        deadline=deadline,
        observer=observer,
        substeps=substeps_of_batch,
        **gradient.transfer.options,
    )
    native = leaving(lambda: explained(make))
    for one in scalers:
        # It makes its tensors in the first scale(), which a member without a shard never calls.
        one.scale(torch.zeros((), device=gradient.device))
    files = None if log is None else Log(log, native.last_step, native.world.rank)
    steps = epoch.batches * substeps_of_batch
    stream = None
    if streamed:
        shards = native.world.shards
        if parts:
            check_parts(dataset, epoch.batch_size, shards)
        if cursors is not None:
            cursors.check(dataset, shards)
        ahead = 0 if loader is None or not loader.num_workers else (loader.prefetch_factor or 0) + 1
        stream = Stream(
            dataset,
            seed=native.job_seed,
            batch_size=epoch.batch_size,
            steps=steps,
            samples=epoch.samples,
            substeps=substeps_of_batch,
            kept=ahead,
            parts=shards if parts else 0,
            cursors=cursors,
        )
        gradient.stream = stream
    source = (
        Direct(stream or dataset, collate)
        if loader is None
        else Loader(native, loader, epoch, steps, accumulate, stream)
    )
    return Session(
        native, gradient, state, update, called, source, epoch, steps, accumulate, progress, files
    )


def prepare(
    *objects: Any,
    epochs: int,
    accumulate: int = 1,
    samples: int | None = None,
    parts: bool = False,
    part_state: int = 0,
    callbacks: Sequence[Any] = (),
    extra: Sequence[Any] = (),
    state_bytes: int | None = None,
    nan: Literal["ignore", "skip", "stop"] = "ignore",
    unfreeze: bool = False,
    changes: dict[str, Callable[..., object]] | None = None,
    reserve: int = 0,
    deterministic: bool = True,
    progress: bool = False,
    log: str | os.PathLike[str] | None = None,
    deadline: int = 600,
    observer: Observer | None = None,
) -> tuple[Any, ...]:
    """Makes a script of DistributedDataParallel elastic, whose loop stays as it is:

        model, optimizer, loader = regroup.torch.prepare(model, optimizer, loader, epochs=15)
        for epoch in loader.epochs():
            for x, y in loader:
                optimizer.zero_grad()
                loss_of(model(x), y).backward()
                optimizer.step()

    Joins the job as join() does. Each iteration computes a shard of loader.batch_size samples; a
    step has V shards (--shards), whichever member computes them. backward() waits, after the last
    shard of this member, for those of the others; p.grad is then the mean over the whole batch.
    Until then the methods of the prepared objects that change something (step(), update(),
    unscale_(), update_parameters()) do nothing.

    objects: in any order a model, its optimizers, a DataLoader, and any schedulers, GradScaler and
    averaged weights; all of their state is the job's.
    epochs: at least 1.
    accumulate: the iterations in which a shard is computed, of loader.batch_size samples each;
    their gradients are averaged. The script must not divide the loss. A loop that steps the
    optimizer in each accumulate-th iteration may stay so.
    The other keywords are those of join().
    Returns the objects in their order, the model as an ElasticDDP and the DataLoader as an
    ElasticLoader, whose `session` is this process as a member.
    """
    given = PreparedObjects(objects, extra)
    epochs = _arguments.whole("prepare", "epochs", epochs, least=1)
    accumulate = _arguments.whole("prepare", "accumulate", accumulate, least=1)
    (model,), (loader,) = given.models, given.loaders
    shards = _native.expected_shards()
    stateful = [*given.schedulers, *given.scalers, *given.averages]
    session = join(
        model,
        given.optimizers,
        ShardLoader(loader, shards * accumulate),
        epochs=epochs,
        accumulate=accumulate,
        samples=samples,
        parts=parts,
        part_state=part_state,
        callbacks=callbacks,
        extra=[*stateful, *extra],
        state_bytes=state_bytes,
        nan=nan,
        unfreeze=unfreeze,
        changes=changes,
        reserve=reserve,
        deterministic=deterministic,
        progress=progress,
        log=log,
        deadline=deadline,
        observer=observer,
    )
    if session.world.shards != shards:
        _arguments.refuse(
            "prepare", f"expected a job of {shards} shards, got one of {session.world.shards}"
        )
    elastic = session._state.changes.wrapper = ElasticDDP(model)
    updated = [*given.optimizers, *stateful]
    wrapped = ElasticLoader(loader, elastic, updated, session, epochs)
    return tuple(elastic if one is model else wrapped if one is loader else one for one in objects)


def steps_per_epoch(loader: DataLoader, accumulate: int = 1, samples: int | None = None) -> int:
    """Returns the number of steps of an epoch after prepare() with this DataLoader, for schedulers
    that are made before. A step takes loader.batch_size samples, `accumulate` times, for each of
    the job's shards."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        got = _arguments.kind(loader)
        got += " without" if isinstance(loader, DataLoader) else ""
        _arguments.refuse("steps_per_epoch", f"expected a DataLoader with batch_size, got {got}")
    _check_dataset(loader.dataset, samples)
    accumulate = _arguments.whole("steps_per_epoch", "accumulate", accumulate, least=1)
    shards = _native.expected_shards() * accumulate
    return _torch_loader.check(loader, None, None, shards, samples).batches


def _without_repeats(objects: list[Any]) -> list[Any]:
    return list({id(one): one for one in objects}.values())


def _check_arguments(model: Any, dataset: Any, samples: Any) -> int:
    """Returns the number of samples. Raises for arguments of other kinds of training."""
    refuse = partial(_arguments.refuse, "join")
    if not isinstance(model, torch.nn.Module):
        refuse(f"model: expected a torch.nn.Module, got {_arguments.kind(model)}")
    _torch_device.refuse_wrapper(model)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            refuse(f"{name} of the model has no shape yet: call the model once before join()")
    return _check_dataset(dataset, samples)


def _check_asked(parts: Any, streamed: bool, dataset: Any) -> None:
    if not isinstance(parts, bool):
        _arguments.refuse("join", f"parts: expected True or False, got {_arguments.kind(parts)}")
    if parts and not streamed:
        got = _arguments.kind(dataset)
        _arguments.refuse("join", f"parts: only an IterableDataset is read in parts, got {got}")


def _check_dataset(dataset: Any, given: Any = None) -> int:
    refuse = partial(_arguments.refuse, "join")
    if isinstance(dataset, IterableDataset):
        return samples_of(dataset, given)
    if given is not None:
        refuse(
            "samples: only an IterableDataset takes it, got "
            f"{_arguments.kind(dataset)}, whose len() counts"
        )
    got = f"got {_arguments.kind(dataset)}"
    if isinstance(dataset, type):
        refuse(f"data set: expected an instance, {got}")
    indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not indexed:
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


class Session(Member):
    """This process as a member of the job. Iterate over it to get the remaining steps. For one
    thread only."""

    def __init__(
        self,
        native: _native.Session,
        gradient: Gradient,
        state: TrainingState,
        update: Update,
        callbacks: Callbacks,
        source: Direct | Loader,
        epoch: Epochs,
        steps_per_epoch: int,
        accumulate: int,
        progress: bool,
        log: Log | None,
    ):
        self._native = native
        self._shards = native.world.shards  # V: fixed for the job
        self._gradient = gradient
        self._state = state
        self._update = update
        self._callbacks = callbacks
        self._seen_generation = native.world.generation
        self._seen_saves = native.save_counts.snapshots
        self._source = source
        self._epoch = epoch
        self._steps_per_epoch = steps_per_epoch
        self._accumulate = accumulate
        self._progress = progress
        self._log = log
        self._fused = FusedSave(native, state)
        _guard_steps(self, state.optimizers)
        guard_collectives(self)
        self._begun = False  # this member has begun a step
        self._told_no_gradient = False
        self._told_late_change = False
        self._told_nan = False
        self._told_uneven = False
        self._summed = False  # this member has had the sum of a step
        self._in_shard = False  # the script computes a shard in the inner loop
        self._left: tuple[int, int] | None = None  # step and shard where it left that loop early
        self.open_step = 0  # number of the step whose shards are computed
        # settings, as the last collective section left them
        self._at_section: dict[str, str] | None = None
        self._section_after = -1  # step after which it was
        self._step: Step | None = None  # whose body the script runs
        self._changed_at = 0  # step of the last change of the model that this process made

    def __iter__(self) -> Generator[Step, None, None]:
        """Yields the remaining steps. Exits the process with status 0 if this member is asked to
        leave."""
        taken = 0
        try:
            while (info := self._next_step()) is not None:
                taken += 1
                step = Step(self, info)
                if not self._begun and self.rank == 0:
                    tell_process_group(self.size)
                    for optimizer in self._state.optimizers:
                        tell_forgotten_schedulers(optimizer, self._state.extra)
                self._begun = True
                if not self._told_uneven and self.rank == 0:
                    self._told_uneven = tell_uneven_shards(self._shards, self.size)
                self._step = step
                yield step
                self._step = None
                self._callbacks.call("on_step", self, step)
                if step.end_of_epoch:
                    self._callbacks.call("on_epoch", self, step)
                if step.number - self._changed_at <= 2 or step.first_of_epoch:
                    self._state.layout.check(step.number, always=True)
                    self._state.check_size()  # before a new member needs it
        except GeneratorExit:  # `break`, for one
            self._fused.end()
            self._end_row()
            self._leave_loop()
            raise
        finally:
            self._step = None
            self._source.close()
        self._end_of_loop(
            taken, ", session.is_last_of_epoch(step.number) whether it ends with this step"
        )

    def _end_row(self) -> None:
        if self._log is not None:
            self._log.end_step(self.rank)

    def _next_step(self) -> _native.StepInfo | None:
        self._check_inner_loop()
        self._state.layout.check(self.last_step)
        self._fused.end()
        self._end_row()
        before, self._at_section = self._at_section, None
        if before is not None and not self._told_late_change:
            self._told_late_change = tell_late_change(
                self.last_step, before, self._state.settings()
            )
        info = self._unless_leaving(self._native.next_step)
        if self._log is not None and info is not None:
            self._log.begin_shards()
        self._call_back_changes()
        return info

    def _unless_leaving(self, call: Callable[[], T]) -> T:
        """Returns the result of `call`. If this member is asked to leave, exits with status 0 after
        the callbacks."""

        def call_back() -> T:
            try:
                return call()
            except Left:
                self._callbacks.call("on_leave", self)
                raise

        return leaving(call_back)

    def _call_back_changes(self) -> None:
        """Reports a new World, and the contribution to a checkpoint, which is made between two
        steps."""
        saves, world = self._native.save_counts.snapshots, self._native.world
        if saves != self._seen_saves:
            self._seen_saves = saves
            self._callbacks.call("on_checkpoint", self, self.last_step)
        if world.generation != self._seen_generation:
            self._seen_generation = world.generation
            self._callbacks.call("on_regroup", self, world)

    def _check_inner_loop(self) -> None:
        """Refuses to go on if the script left the inner loop before its end, or if a change of the
        model failed."""
        if name := self._state.changes.unfinished:
            _arguments.refuse(
                "session.change",
                f"the change {name!r} failed in step {self._changed_at}: the model is half changed",
            )
        if self._left is not None:
            step, leaf = self._left
            _arguments.refuse(
                f"step {step}",
                f"the inner loop was left at shard {leaf}, by break or an exception: it goes over "
                "all shards of this member; to stop early use session.stop_if(...) after the loop",
            )

    def collective(self, body: Callable[[_native.Communicator], T]) -> T:
        self._check_inner_loop()
        if self._in_shard:
            _arguments.refuse(
                f"step {self.last_step + 1}",
                "session.collective() was called between shards, whose number differs between "
                "members: call it, evaluate() and stop_if() after the inner loop",
            )
        self._fused.end()
        if self._log is not None:
            self._log.write(self.rank)
        self._section_after = self.last_step
        out = super().collective(body)
        self._call_back_changes()
        watches = self.rank == 0 and self.last_step > 0 and not self._told_late_change
        self._at_section = self._state.settings() if watches else None
        return out

    def finish(self) -> None:
        self._check_inner_loop()
        self._fused.end()
        self._source.close()
        self._end_row()
        super().finish()
        self._call_back_changes()

    def log(self, **values: float | torch.Tensor) -> None:
        """Adds values to the row of the step in the files of join(log=...), to be called by all
        members in the body of the loop, after the inner loop, or to the last row after the loop.
        Does nothing without `log`."""
        if self._log is not None:
            self._log.add(values, self.rank)

    def print(self, *values: Any) -> None:
        """As print(), by rank 0 only."""
        if self.rank == 0:
            print(*values, flush=True)

    def evaluate(
        self,
        model: torch.nn.Module,
        dataset: Any,
        metric: Metric,
        *,
        batch_size: int | None = None,
        collate: Callable[[list], Any] | None = None,
    ) -> float | torch.Tensor:
        """Returns the mean of a metric over a data set; the members share its batches. To be called
        by all members, between two steps.

        The result has the same bits for any members. The model is in evaluation mode meanwhile,
        without gradients. This is a collective section: the checkpoint of this step, and members
        that join at it, do not see what the script changes because of the result, such as a
        learning rate. A learner, which catches up, evaluates alone.

        dataset: has len() and [index]; or a DataLoader, whose data set, batch_size and collate_fn
        are used, without workers.
        metric: called as metric(model(input), target); returns a value for each sample, or a row of
        k values: torch.nn.CrossEntropyLoss(reduction="none"), for one.
        batch_size: default: that of the training.
        collate: makes (input, target) of a list of samples; default: that of the training.
        Returns a float, or a float64 tensor [k].
        """
        if isinstance(dataset, DataLoader):
            _torch_loader.check_evaluated(dataset)
            collate = dataset.collate_fn if collate is None else collate
            batch_size = dataset.batch_size if batch_size is None else batch_size
            dataset = dataset.dataset
        batch_size = self._epoch.batch_size if batch_size is None else batch_size
        seed, step = self._native.job_seed, self.last_step
        evaluation = Evaluation(
            model,
            dataset,
            metric,
            collate or self._source.collate,
            _arguments.whole("evaluate", "batch_size", batch_size, least=1),
            lambda batch: seed_all(_native.mix(seed, step, _EVALUATION + batch)),
            self._state.deadline,
        )
        return self.collective(evaluation.run)

    def stop_if(self, wish: bool) -> bool:
        """Returns whether rank 0 wishes to stop, on every member: `if session.stop_if(...): break`.
        To be called by all members, between two steps. A learner, which catches up with the others,
        returns its own wish: let it follow from the training, as an evaluation does."""
        own = float(bool(wish))

        def decide(communicator: _native.Communicator) -> bool:
            value = torch.tensor([own], dtype=torch.float64)
            communicator.broadcast(value, 0)
            return value.item() != 0

        return self.collective(decide)

    def change(self, name: str, /, **arguments: float | str | None) -> None:
        """Changes the model by the function of join(changes=...) with that name, called with these
        arguments: `session.change("head", classes=10)`.

        To be called by all members after the inner loop of the same step, with the same arguments,
        and before evaluate(), stop_if() or collective() in that step. Random numbers of the
        function are seeded by the job's seed and the step. Members that join later, and jobs that
        go on from a checkpoint, make the same changes before they get the state.
        """
        step = self._step
        if step is None or not step._over:
            _arguments.refuse(
                "session.change", "call it in the body of the loop, after the inner loop"
            )
        if self._section_after == step.number:
            _arguments.refuse(
                "session.change",
                "called after evaluate(), stop_if() or collective() in the same step, for which "
                "the state was copied: call it before them",
            )
        self._check_inner_loop()
        self._gradient.check_left_out()
        made = len(self._state.changes.made)
        seed_all(_native.mix(self._native.job_seed, step.number, _CHANGE + made))
        self._changed_at = step.number
        self._state.change(name, arguments)

    def is_last_of_epoch(self, step: int) -> bool:
        """Whether an epoch ends with the given step. Call it as
        session.is_last_of_epoch(step.number) to step a scheduler that counts epochs, or to
        evaluate the model. The loop over the session continues after it."""
        return step % self._steps_per_epoch == 0


# The hook of the last session on each optimizer.
_guards: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _guard_steps(session: Session, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Makes optimizer.step() within the inner loop an error: each member would apply the gradient
    of a shard of its own."""
    known = weakref.ref(session)

    def check(*_: Any) -> None:
        if (session := known()) is None:
            return
        session._check_inner_loop()
        if session._in_shard:
            _arguments.refuse(
                f"step {session.last_step + 1}",
                "optimizer.step() was called between shards; it belongs after the inner loop",
            )

    for optimizer in optimizers:
        if hasattr(optimizer, "register_step_pre_hook"):
            if (before := _guards.pop(optimizer, None)) is not None:
                before.remove()
            _guards[optimizer] = optimizer.register_step_pre_hook(check)


class Step:
    """One step of training. Iterate over it to get the batches that this member is to compute.

    number: 1, 2, ... over all epochs.  epoch: 0, 1, ...  first_of_epoch: an epoch begins with it.
    samples: in the whole batch, over all members; fewer in the last one of an epoch.
    substep: one of the names of join()'s substeps, in their order; None without.
    loss: after the batches, the mean over the whole batch of what record() was given; None without.
    """

    def __init__(self, session: Session, info: _native.StepInfo):
        self._session = session
        self.number: int = info.number  # 1, 2, ...
        self.epoch: int = info.epoch  # 0, 1, ...
        self.samples: int = info.samples  # in the whole batch: fewer in the last one of an epoch
        self.first_of_epoch: bool = info.first_of_epoch
        names = list(session._update.substeps)
        self.substep: str | None = names[info.substep] if names else None
        self._last_substep = info.substep == max(0, len(names) - 1)
        # after the shards: the mean over the batch of what was recorded
        self.loss: float | None = None
        # of the batch that is computed; without `accumulate` as transfer.recorded() returned it
        self._recorded: Any = None
        self._loss: Any = None  # of the batches of the shard before it
        self._over = False
        self._applied = False

    @property
    def world(self) -> _native.WorldInfo:
        return self._session.world

    @property
    def end_of_epoch(self) -> bool:
        """Whether an epoch ends with this step."""
        return self._session.is_last_of_epoch(self.number)

    def backward(self, loss: torch.Tensor) -> None:
        """Records the mean loss over the samples of the batch just computed and computes its
        gradients; join()'s scaler scales it."""
        if self._over:
            what = "the gradient of the step is complete: call it in the inner loop"
            _arguments.refuse("step.backward()", what)
        self.record(loss)
        self._session._update.backward(loss)

    def unscale_(self) -> None:
        """Divides p.grad by the scale of join()'s scaler, for clipping of your own after the inner
        loop."""
        self._check_over("unscale_")
        self._session._update.unscale()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clips p.grad, that of the whole batch, after the inner loop; join()'s scaler unscales it
        before. A norm that is not finite clips nothing with a scaler, which skips such a step.
        Returns the norm before clipping."""
        self._check_over("clip_grad_norm_")
        return self._session._update.clip(max_norm, norm_type)

    def apply(self) -> None:
        """Ends the step after the inner loop: unscales p.grad, steps the optimizers, the scaler and
        the schedulers of join(), and updates its averaged weights. The same by hand is as good."""
        self._check_over("apply")
        if self._applied:
            _arguments.refuse("step.apply()", f"called twice in step {self.number}")
        self._applied = True
        state = self._session._state
        mean = state.epoch_loss / self._session._epoch.used
        known = self.loss is not None
        self._session._update.apply(
            self.loss, mean if known else None, self._last_substep, self.end_of_epoch
        )

    def _check_over(self, name: str) -> None:
        if not self._over:
            _arguments.refuse(
                f"step.{name}()",
                "the gradient of the whole batch is known after the inner loop: call it there",
            )

    def record(self, loss: torch.Tensor | float) -> None:
        """Records the mean loss over the samples of the batch just computed. Of several calls for a
        batch the last one counts."""
        if self._session._accumulate == 1:
            self._recorded = self._session._gradient.transfer.recorded(loss)
        elif not isinstance(loss, torch.Tensor):
            self._recorded = float(loss)
        else:  # on its device: nothing waits for it here
            self._recorded = loss.detach().reshape(()).to(torch.float64, copy=True)

    def __iter__(self) -> Iterator[Any]:
        """Yields batches of one shard each. After the last one p.grad and the buffers are those of
        the whole step.

        Waits for other members. After a regroup there may be more batches, for shards that were
        lost.
        """
        if self._over:
            return
        self._session._state.layout.check(self.number)
        self._session._gradient.transfer.begin_shards(self._session._native, self.number)
        while (shard := self._next_shard()) is not None:
            for part in self._begin_shard(shard):
                batch = self._begin_part(shard, part)
                self._session._in_shard = True
                try:
                    yield batch
                except GeneratorExit:  # `break`, for one
                    self._session._left = (self.number, shard.leaf)
                    raise
                finally:
                    self._session._in_shard = False
                self._session._left = (self.number, shard.leaf)  # unless its gradient is taken
                self._end_part(shard, part)
            self._harvest(shard)
            self._session._left = None
        self._take_sum()

    def _next_shard(self) -> _native.Shard | None:
        self._session.open_step = self.number
        return self._session._unless_leaving(self._session._native.next_shard)

    def _begin_shard(self, shard: _native.Shard) -> list[Part]:
        """Returns the batches in which it is computed, one after the other."""
        self._session._gradient.begin_shard()
        self._loss = None
        return parts_of(shard.seed, len(shard.samples), self._session._accumulate)

    def _begin_part(self, shard: _native.Shard, part: Part) -> Any:
        """Returns its batch, with the generators seeded for what computes it."""
        self._recorded = None
        with self._session.span("data"):
            return self._session._source.batch_of(self.number, shard, part)

    def _end_part(self, shard: _native.Shard, part: Part) -> None:
        """Takes the gradient and the loss of a batch."""
        if part.samples == len(shard.samples):
            self._loss = self._recorded
            return
        weight = part.samples / len(shard.samples)
        self._session._gradient.accumulate(weight)
        if self._recorded is not None:
            weighted = self._recorded * weight
            self._loss = weighted if self._loss is None else self._loss + weighted

    def _harvest(self, shard: _native.Shard) -> None:
        session = self._session
        last = shard.leaf == session._shards - 1
        weight = len(shard.samples) / self.samples
        loss = self._loss
        if session._accumulate > 1 and loss is not None:
            loss = session._gradient.transfer.recorded(loss)
        session._gradient.harvest(session._native, shard.leaf, weight, last, loss)

    def _begin_stand_in(self) -> Any:
        """Returns a small batch of samples that another member computes."""
        self._session._gradient.begin_shard()
        self._recorded = None
        # the last one always has samples
        leaf, seed, samples = self._session._native.shard_of(self.number, self._session._shards - 1)
        return self._session._source.stand_in(self.number, leaf, seed, samples[:_STAND_IN])

    def _discard_stand_in(self) -> None:
        self._session._gradient.discard()

    def _take_sum(self) -> None:
        self._over = True
        session = self._session
        session.open_step = 0
        leaves = min(session._shards, self.samples)
        self.loss = session._gradient.take_sum(session._native, leaves, self.number)
        skip = self._heed_not_finite()
        if not skip:
            self._tell_missing_gradients()
        session._update.begin(self.substep)
        session._fused.begin()
        seed_all(_native.mix(session._native.job_seed, self.number, _AFTER_SHARDS))
        if session._log is not None:
            rate = session._state.optimizers[0].param_groups[0].get("lr")
            rate = None if rate is None else float(rate)
            numbers = (self.number, self.epoch, self.loss, rate, self.samples)
            session._log.begin_step(row_of(*numbers, self.world, self.substep))
        if self.first_of_epoch:
            session._state.epoch_loss = 0.0
        if self.loss is None:
            return
        if not skip:
            session._native.report_loss(self.loss)
        if not self._last_substep:
            return
        if not skip:
            session._state.epoch_loss += self.loss * self.samples
        if session._progress and session.rank == 0 and session.is_last_of_epoch(self.number):
            self._print_epoch()

    def _heed_not_finite(self) -> bool:
        """Does what `nan` of join() says. Returns whether the step is skipped."""
        session, found = self._session, self._session._gradient.not_finite
        if found is None:
            return False
        loss = None if self.loss is None or math.isfinite(self.loss) else self.loss
        what = f"step {self.number}: {found.describe(loss)}"
        if found.stop:
            error = Error(f'{what}; the training ends, nan="skip" leaves such a step out')
            error.final = True
            raise error
        if found.skip:
            what += "; the step is skipped"
        elif not session._told_nan:
            session._told_nan = True
            what += '; nan="skip" of join() leaves such a step out, nan="stop" ends the training'
        else:
            return False
        if session.rank == 0:
            tell(what)
        return found.skip

    def _tell_missing_gradients(self) -> None:
        """Tells once of a step without gradients, and of parameters without one in the first step
        of this member."""
        session = self._session
        first, session._summed = not session._summed, True
        first = first and self.substep is None  # others train other parameters
        if session._told_no_gradient or not (first or session._gradient.is_none):
            return
        missing = session._gradient.missing()
        session._told_no_gradient = bool(missing)
        if missing and session.rank == 0:
            tell_missing_gradients(self.number, missing, len(session._gradient.parameters))

    def _print_epoch(self) -> None:
        session, world = self._session, self.world
        mean = session._state.epoch_loss / session._epoch.used
        line = (
            f"epoch {self.epoch + 1:2}  loss {mean:.4f}  members {world.size}  generation "
            f"{world.generation}"
        )
        print(line, flush=True)


_STAND_IN = 2  # samples: BatchNorm refuses one
_AFTER_SHARDS = 1 << 32  # no leaf has this number
_EVALUATION = 1 << 33  # plus the number of a batch
_CHANGE = 1 << 34  # plus the number of changes before


def seed_all(seed: int) -> None:
    """Seeds the generators of torch, random and, if the script has imported it, numpy; those of
    GPUs if the process uses them."""
    _torch_loader.seed_all(seed)


def fingerprint(device: torch.device | None = None) -> str:
    """Returns the environment on which the weights' bits depend, apart from seed and number of
    shards. Members with another fingerprint are refused.

    device: of the parameters; default: the CPU."""
    python = ".".join(map(str, sys.version_info[:2]))
    capability = torch.backends.cpu.get_cpu_capability()
    cudnn = torch.backends.cudnn
    return (
        f"{_native.default_fingerprint()} torch={torch.__version__} "
        f"torch-threads={torch.get_num_threads()} "
        f"torch-isa={capability} python={python} "
        f"deterministic={torch.are_deterministic_algorithms_enabled()} "
        f"cudnn-deterministic={cudnn.deterministic} cudnn-benchmark={cudnn.benchmark} "
        f"matmul={_torch_device.matmul_precision()}"
    ) + _torch_device.fingerprint(device or torch.device("cpu"))


def _list(model: torch.nn.Module, reserve: int | None) -> str:
    """The tensors that _digest() covers, and the room for more."""
    tensors = [] if reserve is None else [("for changes (reserve)", "elements", (reserve,))]
    tensors += [
        (name, f"{p.dtype}"[6:] + ("" if p.requires_grad else ", not trained,"), p.shape)
        for name, p in model.named_parameters()
    ]
    tensors += [(name, f"{b.dtype}"[6:], b.shape) for name, b in model.named_buffers()]
    return list_of_tensors(tensors)


def _digest(
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    update: Update,
    epoch: Epochs,
    accumulate: int,
) -> str:
    """Returns a short text that differs if two members would not train the same model."""
    lines = [
        f"{name} {tuple(p.shape)} {p.dtype} {p.requires_grad}"
        for name, p in model.named_parameters()
    ]
    lines += [f"{name} {tuple(b.shape)} {b.dtype}" for name, b in model.named_buffers()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    names = " and ".join(type(one).__name__ for one in optimizers)
    number = {id(one): index for index, one in enumerate(optimizers)}
    steps = "".join(
        f", substep {name} of optimizer {' and '.join(str(number[id(one)]) for one in listed)}"
        for name, listed in update.substeps.items()
    )
    what = f"{type(model).__name__} {digest}, {names}{steps}"
    accumulated = "" if accumulate == 1 else f", each shard in {accumulate} parts"
    return f"{what}, {epoch.samples} samples in batches of {epoch.batch_size}{accumulated}"
