"""Session without a framework: gradients and state are NumPy arrays (or anything with a buffer).

    state = regroup.TrackedState(weight=weight, momentum=momentum)
    session = regroup.Session(state, elements=weight.size, samples=60000, batch=64, epochs=3)
    for step in session:
        for shard in step:
            shard.gradient[:] = ...  # the sum over shard.samples, divided by step.samples
        weight -= 0.1 * step.gradient
    session.finish()

Use a session in one thread only, and change the arrays of `state` in place, between two steps.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from regroup import _arguments, _failure
from regroup import _native as native  # a session's `_native` is its object there
from regroup._errors import Error, Left

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
_NOTHING = memoryview(b"")  # for an array without elements, which a memoryview cannot cast
# Called with the name of a step event and the step, for measurements: revoked (a generation is
# over), joined (this member entered a World), sealed, gathered, reduced, committed.
Observer = Callable[[str, int], object]


class State(Protocol):
    """Everything that a committed step changes: a new member must copy it to take part.

    Two methods are optional. tensors() -> list[tuple[name, dtype, shape]] describes each piece of
    save(), so that checkpoints show it; a piece without a name is padding. Without it the pieces
    are plain bytes. replicated() -> Iterable[tuple[name, memory or str]] returns the values that
    are compared bit by bit between members, to find members whose states differ. Without it all
    pieces are compared.
    """

    def capacity(self) -> int:
        """Returns the most bytes that save() will ever return. Called once, at join."""

    def save(self) -> list[Any]:
        """Returns pieces of contiguous memory on the CPU, valid until the next call. Their bytes
        are equal on every member."""

    def load(self, data: memoryview) -> None:
        """Loads the concatenated pieces of another member. `data` is read-only, and valid only
        during the call."""


class TrackedState:
    """State that is a fixed set of arrays, changed in place. Every member tracks the same names and
    sizes."""

    def __init__(self, **arrays: Any):
        self._views: dict[str, memoryview] = {}
        for name, array in arrays.items():
            try:
                view = memoryview(array)
            except (TypeError, ValueError) as error:
                what = f"{name} is {_arguments.kind(array)}, whose memory cannot be used: {error}"
                _arguments.refuse("TrackedState", what)
            if not view.c_contiguous or view.readonly:
                _arguments.refuse("TrackedState", f"{name} must be contiguous and writable")
            if "O" in view.format:
                _arguments.refuse("TrackedState", f"{name} holds objects of Python, not numbers")
            self._views[name] = view

    def capacity(self) -> int:
        return sum(view.nbytes for view in self._views.values())

    def save(self) -> list[memoryview]:
        return [view.cast("B") if view.nbytes else _NOTHING for view in self._views.values()]

    def tensors(self) -> list[tuple[str, str, list[int]]]:
        kinds = {"f": "float32", "d": "float64", "e": "float16", "?": "bool"}
        kinds |= {"Zf": "complex64", "Zd": "complex128"}
        kinds |= {code: f"int{8 * struct.calcsize(code)}" for code in "bhilq"}
        kinds |= {code: f"uint{8 * struct.calcsize(code)}" for code in "BHILQ"}
        return [
            (name, kinds[view.format], list(view.shape))
            if view.format in kinds
            else (name, "uint8", [view.nbytes])
            for name, view in self._views.items()
        ]

    def load(self, data: memoryview) -> None:
        if data.nbytes != self.capacity():
            raise Error(f"state: got {data.nbytes} bytes, expected {self.capacity()}", "data loss")
        begin = 0
        for view in self.save():
            if view.nbytes:
                view[:] = data[begin : begin + view.nbytes]
            begin += view.nbytes

    def describe(self) -> str:
        """Returns names and sizes, for a session's `model`."""
        return ";".join(f"{name}:{view.nbytes}" for name, view in self._views.items())


def list_of_tensors(tensors: Iterable[tuple[str, str, Iterable[int]]]) -> str:
    """Returns text to append to `model`. Members do not compare it: it serves messages that name
    the tensors that differ."""
    return "".join(f"\x1e{name}\t{dtype} {list(shape)}" for name, dtype, shape in tensors)


class Shard:
    """One of the V parts of a step's batch, for this member to compute."""

    _is_open = True  # it may still be filled

    def __init__(self, session: native.Session, native: native.Shard):
        import numpy as np

        self._session = session
        self.leaf: int = native.leaf
        self.samples: list[int] = native.samples  # indices into the data set
        self.seed: int = native.seed  # for every random number drawn while computing it
        self.gradient: np.ndarray = np.asarray(native.gradient)  # to be filled completely

    def record_samples(self, samples: Iterable[int]) -> None:
        """Reports the samples that this shard takes if they are not `samples`, for the ledger
        (`regroup --ledger`). Call it in the loop's body. Does nothing without a ledger."""
        if not self._is_open:
            _arguments.refuse("record_samples", f"the loop has left shard {self.leaf}")
        numbers = [_arguments.whole("record_samples", "samples", one) for one in samples]
        self._session.record_samples(numbers)


class Step:
    """One step: iterate over its shards, then apply `gradient`.

    number: 1, 2, ... over all epochs.  epoch: 0, 1, ...  first_of_epoch: an epoch begins with it.
    samples: in the whole batch, over all members; fewer in the last one of an epoch.
    """

    def __init__(self, native: native.Session, info: native.StepInfo):
        self._native = native
        self.number: int = info.number  # 1, 2, ...
        self.epoch: int = info.epoch  # 0, 1, ...
        self.samples: int = info.samples  # in the whole batch: fewer in the last one of an epoch
        self.first_of_epoch: bool = info.first_of_epoch

    def __iter__(self) -> Iterator[Shard]:
        """Yields the shards that this member is to compute, and more after a regroup. Waits for
        other members."""
        while (shard := leaving(self._native.next_shard)) is not None:
            current = Shard(self._native, shard)
            yield current
            current._is_open = False

    @property
    def gradient(self) -> np.ndarray:
        """The sum over all shards, after the last one, when the step is committed: reading it
        changes nothing. Read-only, valid until the next step."""
        import numpy as np

        return np.asarray(self._native.commit())


class Member:
    """The base of all sessions: this process as a member of the job. For one thread only."""

    _native: native.Session
    _loops_over = 0  # loops that ended after the last step

    def collective(self, body: Callable[[native.Communicator], T]) -> T:
        """Runs `body(communicator)` on every member between two steps and returns its result.

        A regroup runs `body` again from its start, so it must have no side effects. Before `body`
        runs, the state of the last step is copied for checkpoints and new members: the copy lacks
        what the script changes afterwards."""
        return self._unless_leaving(lambda: self._native.collective(body))

    def region(self, body: Callable[[native.Communicator], T]) -> T:
        """Deprecated name of collective(), kept for one release."""
        return self.collective(body)

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Shows the body of `with session.span(name):` in the timeline (`regroup --timeline`)."""
        span = self._native.begin_span(name)
        try:
            yield
        finally:
            self._native.end_span(span)

    def finish(self) -> None:
        """Agrees with all members that training is over. A process that exits with status 0 before
        this call counts as failed."""
        self._unless_leaving(self._native.finish)
        _name_threads_at_exit()

    def _unless_leaving(self, call: Callable[[], T]) -> T:
        """Returns the result of `call`. If this member is asked to leave, exits with status 0."""
        return leaving(call)

    def _end_of_loop(self, taken: int, more: str = "") -> None:
        """Called when a loop ends without `break`, after `taken` steps. Warns if this is the second
        loop: probably the script has a loop for each epoch, but the first loop has made the steps
        of all epochs."""
        self._loops_over += 1
        if self._loops_over == 2 and taken == 0 and self.rank == 0:
            print(
                "regroup: the session has made all its steps: one loop goes over all epochs; "
                f"step.epoch tells which it is{more}",
                file=sys.stderr,
                flush=True,
            )

    def _leave_loop(self) -> None:
        """Called when the script leaves the loop. It may then change the state, for example for an
        export, without an effect on the job."""
        with contextlib.suppress(Exception):  # finish() raises it again; no caller to catch it here
            self._native.leave_loop()

    @property
    def save_counts(self) -> native.SaveCounts:
        """What this member has saved since it joined: the number of checkpoint copies to which it
        contributed a share, and the bytes that were copied after a step or written by the step
        itself (regroup.optim)."""
        return self._native.save_counts

    @property
    def last_step(self) -> int:
        """The last step that was applied. Before the first step: 0, or the step of the checkpoint
        from which the job resumes. In the body of the loop: the current step once its batches are
        done, until then the previous step."""
        return self._native.last_step

    @property
    def world(self) -> native.WorldInfo:
        """The current world: generation, rank, size, shards, and why it began."""
        return self._native.world

    @property
    def rank(self) -> int:
        """The rank of this process in the current world."""
        return self.world.rank

    @property
    def size(self) -> int:
        """The number of members of the current world."""
        return self.world.size

    @property
    def generation(self) -> int:
        """Number of the current world; it grows by one with each change."""
        return self.world.generation


class Session(Member):
    """This process's membership in the job. For one thread only.

    Under `regroup -np N`, or as one of N ranks of another launcher on this host, the process is in
    a world of N members; without a launcher, in a world of one."""

    def __init__(
        self,
        state: State,
        *,
        elements: int,
        dtype: str = "float32",
        model: str = "",
        fingerprint: str = "",
        samples: int = 0,
        batch: int = 0,
        epochs: int = 0,
        own_order: bool = False,
        deadline: int = 600,
        observer: Observer | None = None,
    ):
        """Joins the job. Blocks until this process is in a world and has loaded its state.

        elements: the number of elements of a gradient.
        dtype: their type, float32 or float64.
        model: text that must be equal on all members.
        fingerprint: the numeric environment; "": default_fingerprint().
        samples: the data set's size; 0: no sampler.
        batch: samples per step.
        epochs: 0: no end.
        own_order: the script takes other samples than Shard.samples, and reports them with
            record_samples(), for the ledger.
        deadline: the longest wait in seconds.
        observer: called at each event of a step (see Observer); must be quick.
        """
        _failure.install()
        _arguments.has("Session", "state", state, "capacity")
        counts = {"elements": elements, "samples": samples, "batch": batch, "epochs": epochs}
        counts = {name: _arguments.whole("Session", name, value) for name, value in counts.items()}
        deadline = _arguments.whole("Session", "deadline", deadline)
        for name, value in (("dtype", dtype), ("model", model or ""), ("fingerprint", fingerprint)):
            _arguments.text("Session", name, value)
        _arguments.callable_or_none("Session", "observer", observer)
        if not model and isinstance(state, TrackedState):
            model = state.describe()
        if isinstance(state, TrackedState):
            model = (model or "") + list_of_tensors(state.tensors())
        self._native = leaving(
            lambda: native.Session(
                state=state,
                dtype=dtype,
                model=model or "",
                fingerprint=fingerprint,
                **counts,
                own_order=bool(own_order),
                deadline=deadline,
                observer=observer,
            )
        )

    def __iter__(self) -> Iterator[Step]:
        """Yields the remaining steps. Exits the process with status 0 if this member is asked to
        leave."""
        taken = 0
        try:
            while (info := leaving(self._native.next_step)) is not None:
                taken += 1
                yield Step(self._native, info)
        except GeneratorExit:  # `break`, for one
            self._leave_loop()
            raise
        self._end_of_loop(taken)

    def report_loss(self, loss: float) -> None:
        """Sets the loss that `regroup status` shows for the step just applied."""
        self._native.report_loss(loss)

    @property
    def job_seed(self) -> int:
        """The job's seed (--seed), the same on every member."""
        return self._native.job_seed


_named_at_exit = False


def _name_threads_at_exit() -> None:
    """Passes the names of non-daemon threads to the kernel at exit. Python waits for these threads
    before it exits: the agent can then name the thread that keeps this member from exiting."""
    global _named_at_exit
    # atexit's functions run only after that wait
    register = getattr(threading, "_register_atexit", None)
    if _named_at_exit or register is None:
        return
    _named_at_exit = True
    with contextlib.suppress(RuntimeError):  # the process is already exiting
        register(_name_threads)


def _name_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            with contextlib.suppress(OSError):
                Path(f"/proc/self/task/{thread.native_id}/comm").write_text(thread.name[:15])


def leaving(call: Callable[[], T]) -> T:
    """Returns the result of `call`. If this member is asked to leave, exits with status 0."""
    try:
        return call()
    except Left as left:
        print(f"regroup: {left}", file=sys.stderr)
        raise SystemExit(0) from None
