"""A loop over a DataLoader that stays as it is and becomes elastic: what regroup.torch.prepare()
returns.

An iteration of the script's loop computes one shard. backward() seals its gradients when it ends
and, after the last shard of this member, waits until the step is committed; p.grad is then that of
the whole batch. Until then optimizer.step() and what follows it in the loop do nothing.

A member without a shard in a step, such as one that catches up, gets the batch of another member's
shard, whose result is dropped: so the script's loop runs once in each step on every member.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from regroup import _arguments

if TYPE_CHECKING:
    from regroup._native import Shard
    from regroup.torch import Session, Step

# What the script calls after backward(), for each kind of object.
_UPDATES = ("step", "update", "unscale_", "update_parameters")


class ElasticDDP(torch.nn.Module):
    """The model in the place of torch.nn.parallel.DistributedDataParallel. module: the script's."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module = module
        self._without_sync = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward() adds to the gradients of the batch without ending it: for several
        calls in one iteration of the loop, all but the last."""
        before, self._without_sync = self._without_sync, True
        try:
            yield
        finally:
            self._without_sync = before


class ElasticLoader:
    """The DataLoader of the script in its loop:

        for epoch in loader.epochs():
            for x, y in loader:
                ...

    len(loader) is the number of steps of an epoch. Other attributes are those of the DataLoader.
    """

    def __init__(self, loader: DataLoader, model: ElasticDDP, updated: list[Any], session: Session):
        self._loader = loader
        self._model = model
        self._session = session
        self._steps: Generator[Step, None, None] | None = None
        self._step: Step | None = None  # open, or applied last
        self._epoch: int | None = None  # that of epochs()
        self._shard: Shard | None = None  # that the script computes; None: a stand-in
        self._computing = False  # a batch was handed out, whose backward() has not ended
        self._in_loop = False  # in the body of the loop over the batches
        self._summed = True  # p.grad is that of the whole batch, or no step is open
        self._updated = True  # an update was called since then
        self._queued = False  # _end_backward() will be called
        for parameter in session._gradient.parameters:
            parameter.register_post_accumulate_grad_hook(self._hear_gradient)
        for one in updated:
            names = [name for name in _UPDATES if callable(getattr(one, name, None))]
            guarded = {name: self._guarded(one, getattr(one, name)) for name in names}
            if isinstance(one, torch.optim.Optimizer):
                vars(one).update(guarded)  # where schedulers have put a step() already
            else:  # state_dict() of a scheduler has all its attributes
                methods = {name: staticmethod(call) for name, call in guarded.items()}
                one.__class__ = type(type(one).__name__, (type(one),), methods)

    @property
    def session(self) -> Session:
        """This process as a member of the job: rank, size, collective(), stop_if() ..."""
        return self._session

    @property
    def step(self) -> int:
        """The number of the step that the last batch belongs to: 1, 2, ... over all epochs."""
        return 0 if self._step is None else self._step.number

    @property
    def sync_gradients(self) -> bool:
        """Whether p.grad is that of the whole batch: after backward() of the last batch of this
        member in a step. Code that is to run once in a step asks for it."""
        return self._summed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)

    def __len__(self) -> int:
        return -(-len(self._session._dataset) // self._session._batch_size)

    def epochs(self) -> Iterator[int]:
        """Yields the numbers of the epochs that are left: a member that joins late begins with the
        one of the others. Ends with session.finish(). A script that leaves it by break calls that
        itself."""
        if self._steps is not None:
            self._refuse("loader.epochs() was called twice: one loop goes over all epochs")
        self._steps = iter(self._session)
        with contextlib.closing(self._steps):
            while not self._summed or self._begin_step():
                assert self._step is not None
                self._epoch = self._step.epoch
                yield self._epoch
                if self._epoch is not None:
                    self._refuse(
                        f"epoch {self._epoch} was left before its end, in step "
                        f"{self._step.number}: all members end it together; to stop early, leave "
                        "the loop over loader.epochs() by break after session.stop_if(...) and "
                        "call session.finish()"
                    )
        self._session.finish()

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of this member in the rest of the epoch, one shard each."""
        if self._epoch is None:
            self._refuse("loop over loader.epochs(), and over the loader in that loop's body")
        while True:
            assert self._step is not None
            while not self._summed:
                yield self._next_batch()
                self._in_loop = False
                self._check_computed()
            self._check_updated()
            # A member that catches up may continue in a later epoch.
            if self._step.end_of_epoch or not self._begin_step() or self._step.epoch != self._epoch:
                self._epoch = None
                return

    def _begin_step(self) -> bool:
        """False: there is none any more."""
        assert self._steps is not None
        self._step = next(self._steps, None)
        if self._step is None:
            return False
        self._shard = self._step._next_shard()
        self._summed = self._updated = False
        return True

    def _next_batch(self) -> Any:
        assert self._step is not None
        self._computing = self._in_loop = True
        if self._shard is None:
            return self._step._begin_stand_in()
        return self._step._begin_shard(self._shard)

    def _hear_gradient(self, parameter: torch.Tensor) -> None:
        if self._queued or self._model._without_sync:
            return
        if not self._computing:
            if not self._in_loop:
                return  # not of the training loop
            self._refuse(
                "loss.backward() was called twice in one iteration; call all but the last inside "
                "`with model.no_sync():`"
            )
        self._queued = True
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        self._queued = self._computing = False
        step = self._step
        assert step is not None
        if self._shard is None:
            step._discard_stand_in()
        else:
            step._harvest(self._shard)
            self._shard = step._next_shard()
        if self._shard is None:
            step._take_sum()
            self._summed = True

    def _guarded(self, one: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """A method that does nothing while p.grad is not that of the whole batch."""

        @functools.wraps(call)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if isinstance(one, torch.optim.Optimizer) and (args or kwargs.get("closure")):
                self._refuse(
                    f"{type(one).__name__}.step(closure): the batch of a step is computed once; "
                    "call step() without a closure"
                )
            if not self._summed:
                return None
            self._updated = True
            return call(*args, **kwargs)

        return guarded

    def _check_computed(self) -> None:
        if self._computing:
            assert self._step is not None
            self._refuse(
                f"step {self._step.number}: the loop went on without loss.backward(), or left a "
                "batch: every batch needs one backward() outside no_sync()"
            )

    def _check_updated(self) -> None:
        if not self._updated:
            assert self._step is not None
            self._refuse(
                f"step {self._step.number}: optimizer.step() was not called after its last batch: "
                "call it in each iteration; it acts once in a step. To accumulate gradients, "
                "give the DataLoader a larger batch_size"
            )

    def _refuse(self, why: str) -> None:
        _arguments.refuse("prepare", why)


class Given:
    """The arguments of prepare() by kind, and their order."""

    def __init__(self, given: tuple[Any, ...]):
        self.models: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.loaders: list[DataLoader] = []
        self.scalers: list[Any] = []
        self.averages: list[Any] = []
        self.schedulers: list[Any] = []
        for number, one in enumerate(given):
            self._kind_of(number, one).append(one)
        for name, found in (
            ("a model", self.models),
            ("a DataLoader", self.loaders),
        ):
            if len(found) != 1:
                got = len(found) or "none"
                _arguments.refuse("prepare", f"expected {name}, got {got}")
        if not self.optimizers:
            _arguments.refuse("prepare", "expected an optimizer, got none")

    def _kind_of(self, number: int, one: Any) -> list[Any]:
        def has(*methods: str) -> bool:
            return all(callable(getattr(one, name, None)) for name in methods)

        if isinstance(one, torch.nn.parallel.DistributedDataParallel):
            _arguments.refuse(
                "prepare", "expected the model itself, got a DistributedDataParallel of it"
            )
        if isinstance(one, DataLoader):
            return self.loaders
        if has("update_parameters", "state_dict", "load_state_dict"):
            return self.averages
        if isinstance(one, torch.nn.Module):
            return self.models
        if hasattr(one, "param_groups") and has("step", "zero_grad"):
            return self.optimizers
        if has("scale", "unscale_", "update"):
            return self.scalers
        if has("step", "state_dict", "load_state_dict"):
            return self.schedulers
        return _arguments.refuse(
            "prepare",
            f"argument {number + 1}: expected a model, an optimizer, a scheduler, a GradScaler, "
            f"averaged weights or a DataLoader, got {_arguments.kind(one)}",
        )
