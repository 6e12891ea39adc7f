"""A loop over a DataLoader that stays as it is and becomes elastic: what regroup.torch.prepare()
returns.

An iteration of the script's loop computes one shard. backward() seals its gradients when it ends
and, after the last shard of this member, waits until the step is committed; p.grad is then that of
the whole batch. Until then optimizer.step() and what follows it in the loop do nothing.

A member without a shard in a step, such as one that catches up, gets a stand-in: two samples of
another member's shard, whose result is dropped. So the body runs at least once in each step on
every member.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils.data import DataLoader

from regroup import _arguments
from regroup._torch_hints import forgotten_schedulers

if TYPE_CHECKING:
    from regroup._native import Shard
    from regroup._torch_loader import Part
    from regroup.torch import Session, Step

# What the script calls after backward(), for each kind of object.
_UPDATES = ("step", "update", "unscale_", "update_parameters")


class ElasticDDP(torch.nn.Module):
    """Wraps the script's model, its attribute `module`, as
    torch.nn.parallel.DistributedDataParallel does."""

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

    def __init__(
        self,
        loader: DataLoader,
        model: ElasticDDP,
        updated: list[Any],
        session: Session,
        epochs: int,
    ):
        self._loader = loader
        self._model = model
        self._session = session
        self._epochs = epochs
        self._steps: Generator[Step, None, None] | None = None
        self._running = False  # epochs() is in use
        self._step: Step | None = None  # open, or applied last
        self._epoch: int | None = None  # whose batches are not over
        self._shard: Shard | None = None  # that the script computes; None: a stand-in, or none
        self._parts: list[Part] = []  # batches of it that are left, the present one first
        self._extra = 0  # stand-ins that are left in its place: each shard has as many iterations
        self._stand_in = False  # the last batch is one
        self._computing = False  # a batch was handed out, whose backward() has not ended
        self._in_loop = False  # in the body of the loop over the batches
        self._summed = True  # p.grad is that of the whole batch, or no step is open
        self._stepped = True  # an optimizer was stepped since then
        self._task = -1  # the call of backward() that _end_backward() ends
        # The end of backward() calls the session, which belongs to this thread; torch would call it
        # in a thread of the GPU.
        torch.autograd.set_multithreading_enabled(False)
        self._hooked: set[torch.Tensor] = set()
        for one in updated:
            self._guard(one)

    @property
    def session(self) -> Session:
        """This process as a member of the job: rank, size, collective(), stop_if() ..."""
        return self._session

    @property
    def step(self) -> int:
        """The number of the step that the last batch belongs to: 1, 2, ... over all epochs."""
        return 0 if self._step is None else self._step.number

    @property
    def stand_in(self) -> bool:
        """Whether the last batch is a stand-in, which counts nowhere."""
        return self._stand_in

    @property
    def sync_gradients(self) -> bool:
        """Whether p.grad is that of the whole batch: after backward() of the last batch of this
        member in a step. Test it in code that must run once per step."""
        return self._summed

    def record(self, loss: torch.Tensor | float) -> None:
        """Records the mean loss over the samples of the last batch, before backward(): for
        callbacks, progress, log and `regroup status`."""
        if self._step is None or not self._computing:
            self._refuse("loader.record() was called without a batch; call it before backward()")
        self._step.record(loss)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return self._session._steps_per_epoch

    def epochs(self) -> Iterator[int]:
        """Yields the numbers of the epochs that are left: a member that joins late begins with the
        one of the others. Calls session.finish() at the end. A script that leaves it by break calls
        that itself."""
        if self._steps is not None:
            self._refuse("loader.epochs() was called twice: one loop goes over all epochs")
        self._steps = iter(self._session)
        self._running = True
        try:
            while (epoch := self._session.last_step // len(self)) < self._epochs:
                self._epoch = epoch
                yield epoch
                if self._epoch is not None:
                    self._refuse(
                        f"epoch {self._epoch} was left before its end, in step "
                        f"{self.step}: all members end it together; to stop early, leave "
                        "the loop over loader.epochs() by break after session.stop_if(...) and "
                        "call session.finish()"
                    )
            self._begin_step()  # there is none: the session ends its loop
        finally:
            self._steps.close()
            self._running = self._computing = self._in_loop = False
            self._summed = True
        self._session.finish()

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of this member in the rest of the epoch, one shard each."""
        if not self._running:
            self._refuse("loop over loader.epochs(), and over the loader in that loop's body")
        if self._epoch is None:
            self._refuse(
                "the batches of this epoch are over: for another pass over the data take a "
                "DataLoader of your own"
            )
        # A member that catches up may continue in a later epoch.
        while self._begin_step():
            assert self._step is not None
            while not self._summed:
                yield self._next_batch()
                self._in_loop = False
                self._check_computed()
            self._check_stepped()
            if self._step.end_of_epoch:
                break
        self._epoch = None

    def _begin_step(self) -> bool:
        """False: there is none any more."""
        assert self._steps is not None
        step = next(self._steps, None)
        if step is None:
            return False
        self._step = step
        self._hook_parameters()
        self._session._gradient.transfer.begin_shards(self._session._native, step.number)
        self._take_shard()
        self._summed = self._stepped = False
        return True

    def _hook_parameters(self) -> None:
        """The script may have unfrozen some, and changed the model."""
        parameters = self._session._gradient.parameters
        self._hooked.intersection_update(parameters)  # the others are free to go
        for parameter in parameters:
            if parameter.requires_grad and parameter not in self._hooked:
                parameter.register_post_accumulate_grad_hook(self._on_gradient)
                self._hooked.add(parameter)

    def _take_shard(self) -> None:
        """Takes the next shard of this member, if there is one."""
        assert self._step is not None
        self._shard = self._step._next_shard()
        self._parts = [] if self._shard is None else self._step._begin_shard(self._shard)
        self._extra = self._session._accumulate - len(self._parts)

    def _next_batch(self) -> Any:
        assert self._step is not None
        self._computing = self._in_loop = True
        self._stand_in = not self._parts
        if self._parts and self._shard is not None:
            return self._step._begin_part(self._shard, self._parts[0])
        self._extra -= 1
        return self._step._begin_stand_in()

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if not self._computing:
            if not self._in_loop:
                return  # not of the training loop
            self._refuse(
                "loss.backward() was called twice in one iteration; call all but the last inside "
                "`with model.no_sync():` (torch.utils.checkpoint needs use_reentrant=False)"
            )
        task = torch._C._current_graph_task_id()
        if self._model._without_sync or task == self._task:
            return
        self._task = task
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        self._computing = False
        step = self._step
        assert step is not None
        if self._shard is None or not self._parts:
            step._discard_stand_in()
        else:
            step._end_part(self._shard, self._parts.pop(0))
            if not self._parts:  # a stand-in of the same shard would overwrite what it has
                step._harvest(self._shard)
        if self._parts or self._extra > 0:
            return
        if self._shard is not None:
            self._take_shard()
        if self._shard is None:
            step._take_sum()
            self._summed = True

    def _guard(self, one: Any) -> None:
        """Makes methods of the object do nothing while p.grad is not that of the whole batch."""
        base = type(one)
        if isinstance(one, torch.optim.Optimizer):
            # Schedulers, also later ones, put a step() into the optimizer itself.
            one.step = types.MethodType(self._guarded(one, one.step, "step"), one)  # type: ignore
            return

        def reduced(object: Any, protocol: Any) -> Any:
            """Copies and pickles are of the class that the script knows."""
            function, arguments, *more = base.__reduce_ex__(object, protocol)
            arguments = tuple(base if argument is made else argument for argument in arguments)
            return (_make if function is copyreg.__newobj__ else function, arguments, *more)  # type: ignore

        names = [name for name in _UPDATES if callable(getattr(one, name, None))]
        methods = {name: self._guarded(one, getattr(one, name), name) for name in names}
        made = type(base.__name__, (base,), {**methods, "__reduce_ex__": reduced})
        one.__class__ = made

    def _guarded(self, one: Any, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        steps = name == "step" and (hasattr(one, "param_groups") or hasattr(one, "scale"))

        @functools.wraps(call)
        def guarded(_: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._running:
                return call(*args, **kwargs)
            what = f"{type(one).__name__}.{name}"
            closure = args[0] if args else kwargs.get("closure")
            if hasattr(one, "param_groups") and closure is not None:
                self._refuse(
                    f"{what}(closure): the batch of a step is computed once; call step() without "
                    "a closure"
                )
            if self._computing:
                self._refuse(
                    f"{what}() was called before loss.backward() outside no_sync(): call it after "
                    "that"
                )
            if not self._summed:
                return None
            self._stepped |= steps
            return call(*args, **kwargs)

        return guarded

    def _check_computed(self) -> None:
        if self._computing:
            self._refuse(
                f"step {self.step}: the loop went on without loss.backward(): every batch needs "
                "one backward() outside no_sync()"
            )

    def _check_stepped(self) -> None:
        if not self._stepped:
            self._refuse(
                f"step {self.step}: optimizer.step() was not called after its last batch: "
                "call it in each iteration; it acts once in a step. To accumulate gradients, "
                "pass accumulate=k to prepare()"
            )

    def _refuse(self, why: str) -> NoReturn:
        _arguments.refuse("prepare", why)


def _make(kind: type, *arguments: Any) -> Any:
    """An object of an unpickled kind. (pickle wants __newobj__ for the object's own only.)"""
    return kind.__new__(kind, *arguments)


class PreparedObjects:
    """The arguments of prepare(), by kind."""

    def __init__(self, given: tuple[Any, ...], extra: Sequence[Any]):
        self.models: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.loaders: list[DataLoader] = []
        self.scalers: list[Any] = []
        self.averages: list[Any] = []
        self.schedulers: list[Any] = []
        for number, one in enumerate(given):
            self._kind_of(number, one).append(one)
        for name, found in (
            ("a model, the one that is trained", self.models),
            ("a DataLoader, that of the training set", self.loaders),
        ):
            if len(found) != 1:
                got = len(found) or "none"
                _arguments.refuse("prepare", f"expected {name}, got {got}")
        if not self.optimizers:
            _arguments.refuse("prepare", "expected an optimizer, got none")
        for optimizer in self.optimizers:
            if names := forgotten_schedulers(optimizer, [*self.schedulers, *extra]):
                _arguments.refuse(
                    "prepare",
                    f"{_arguments.article(names)} refers to an optimizer and was not passed: it "
                    "would step once per shard, and a new member would begin it anew",
                )

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
