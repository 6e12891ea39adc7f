"""The process group "regroup" in Python, for a torch without a binary of the backend (backend.cc)
and a host that cannot build one. It calls the table of collective_v1.h by ctypes, with the same
operations as the binary: ranks with and without one form one group.

A group in Python replaces the whole process group: no other device has a backend beside it.
docs/design/torch_backend.md.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import datetime
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from regroup import _native, _torch_collectives

_VERSION, _ANY_RANK = 1, -1
_INVALID, _TIMEOUT = 1, 2
_KINDS = (
    *("barrier", "allreduce", "reduce", "reduce_scatter", "allgather", "gather", "scatter"),
    *("alltoall", "broadcast"),
)
_DTYPES = (
    *(torch.float32, torch.float64, torch.int32, torch.int64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.int16, torch.uint8),
)
_OPS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR")
_UNSIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}  # sums have the same bits
_BYTES = _DTYPES.index(torch.uint8)
_EXCHANGE_TAG = 0xFFFFFFFF  # of the binary, as those of _next_barrier(); users cannot pass them
_MONITORED = "monitored_barrier"
_FOREVER_S, _TURN_S = 1e9, 0.5  # between two looks for signals
_POLL_S = 0.002  # how long the thread of a group waits for its oldest operation
_IDLE_S = 10.0  # after which a thread that completes futures ends
_EXIT_S = 2.0  # how long the exit of the interpreter waits for the threads of groups
_ERROR_BYTES = 1024

Tensor = torch.Tensor
After = Callable[[], object]


class _Operation(ctypes.Structure):
    _fields_ = (
        *((name, c_int32) for name in ("kind", "dtype", "op", "root")),
        *(("in_", c_void_p), ("in_bytes", c_size_t), ("out", c_void_p), ("out_bytes", c_size_t)),
    )


_Set = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
_Get = ctypes.CFUNCTYPE(c_int64, c_void_p, c_char_p, c_void_p, c_size_t, c_double)


class _Store(ctypes.Structure):
    _fields_ = (("self", c_void_p), ("set", _Set), ("get", _Get))


_ERROR = (c_char_p, c_size_t)
_MESSAGE = (c_void_p, c_int, c_uint32, c_void_p, c_size_t, c_double, POINTER(c_void_p), *_ERROR)


class _Table(ctypes.Structure):
    """The functions of regroup_collective_v1. They release the GIL."""

    _fields_ = (
        ("version", c_uint32),
        ("bytes", c_uint32),
        (
            "form",
            ctypes.CFUNCTYPE(
                *(c_int, POINTER(_Store), c_int, c_int, c_char_p, c_double),
                *(POINTER(c_void_p), *_ERROR),
            ),
        ),
        ("leave", ctypes.CFUNCTYPE(None, c_void_p)),
        ("abort", ctypes.CFUNCTYPE(None, c_void_p, c_char_p)),
        ("run", ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(_Operation), c_double, *_ERROR)),
        (
            "start",
            ctypes.CFUNCTYPE(
                c_int, c_void_p, POINTER(_Operation), c_double, POINTER(c_void_p), *_ERROR
            ),
        ),
        ("send", ctypes.CFUNCTYPE(c_int, *_MESSAGE)),
        ("receive", ctypes.CFUNCTYPE(c_int, *_MESSAGE)),
        ("wait", ctypes.CFUNCTYPE(c_int, c_void_p, c_double)),
        ("status", ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_int), *_ERROR)),
        ("free", ctypes.CFUNCTYPE(None, c_void_p)),
    )


@functools.cache
def _table() -> _Table:
    table = _Table.from_address(_native.collective_v1())
    assert table.version == _VERSION and table.bytes >= ctypes.sizeof(_Table)
    return table


def _call(what: str, call: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of the table; raises what torch raises for its failure."""
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    code = call(*arguments, text, _ERROR_BYTES)
    if code == 0:
        return
    late = "timeout while waiting for other ranks: " if code == _TIMEOUT else ""
    message = f"regroup: {what}: {late}{text.value.decode(errors='replace')}"
    raise (ValueError if code == _INVALID else dist.DistBackendError)(message)


def _refuse(what: str, why: str) -> NoReturn:
    raise ValueError(f"regroup: {what}: {why}")


class _Progress:
    """Holds the operations of a group that are in progress and advances them in a thread, also
    those that nobody waits for or refers to. The thread starts with the first operation and ends
    with the group; it refers to the group only by its operations."""

    def __init__(self, callbacks: _Callbacks) -> None:
        self._callbacks = callbacks
        self._changed = threading.Condition()  # guards the rest
        self._works: list[_Work] = []
        self._thread: threading.Thread | None = None
        self._over = False

    def add(self, work: _Work) -> None:
        with self._changed:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="regroup-progress", daemon=True
                )
                self._thread.start()
                _progresses.add(self)
            self._changed.notify()

    def stop(self) -> None:
        """Ends the thread. Takes no lock: a garbage collection may run it in any thread."""
        self._over = True

    def join(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_EXIT_S)

    def _run(self) -> None:
        while not self._over:
            with self._changed:
                self._changed.wait_for(lambda: self._works or self._over, _TURN_S)
            self._advance()
            self._callbacks.end_late()

    def _advance(self) -> None:
        """The oldest operation is usually complete first; messages may complete in any order."""
        with self._changed:
            works = list(self._works)
        done = {id(work) for at, work in enumerate(works) if work.settle(0 if at else _POLL_S)}
        if done:
            with self._changed:
                self._works = [work for work in self._works if id(work) not in done]


_progresses: weakref.WeakSet[_Progress] = weakref.WeakSet()  # with a thread


@atexit.register
def _end_threads() -> None:
    """A thread that is in the table while the interpreter ends could outlive what it uses."""
    process = os.getpid()
    if process != _process:
        return
    running = list(_progresses)
    for progress in running:
        progress.stop()
    for progress in running:
        progress.join()


_process = os.getpid()


class _Futures:
    """Completes futures in threads of its own, since their callbacks may wait for operations and
    for other futures. While all of its threads are busy, another one takes the next future."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the rest
        self._works: collections.deque[_Work] = collections.deque()
        self._idle = 0

    def put(self, work: _Work) -> None:
        with self._changed:
            self._works.append(work)
            if self._idle < len(self._works):
                self._idle += 1  # the new thread
                threading.Thread(target=self._run, name="regroup-futures", daemon=True).start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._works, _IDLE_S):
                    self._idle -= 1
                    return
                work = self._works.popleft()
                self._idle -= 1
            work.complete_future()
            del work
            with self._changed:
                self._idle += 1


_futures = _Futures()


class _Turn:
    """The callbacks of a future. They have ended when those of the futures that they took have.
    parent: what took the future; None: all code outside of callbacks."""

    def __init__(self, parent: _Turn | None):
        self.parent = parent
        self.children: list[_Turn] = []  # whose callbacks have not ended
        self.has_run = self.is_late = False
        self.held: _Work | None = None  # complete before its turn has come
        self.held_until = 0.0


class _Callbacks:
    """Callbacks of the futures of a group's collectives. They may start operations, as those of the
    hook powerSGD do, and all ranks must start the operations of a group in one order. So the
    callbacks of the futures run one after the other, in the order in which the futures were taken;
    and an operation begins after those of all futures that were taken before. Both holds within the
    code that one callback runs, and within all code outside of callbacks: a callback may wait for
    what it has started."""

    _running = threading.local()

    def __init__(self, seconds: float) -> None:
        """seconds: how long a future waits for its turn."""
        self.seconds = seconds
        self._over = threading.Condition()  # guards the rest
        self._outside = _Turn(None)
        self._held: list[_Turn] = []

    def _current(self) -> _Turn:
        of, turn = getattr(self._running, "turn", (None, None))
        return turn if of is self and turn is not None else self._outside

    def expect(self) -> _Turn:
        """Returns the turn of a future that is taken now."""
        with self._over:
            parent = self._current()
            parent.children.append(turn := _Turn(parent))
            return turn

    def has_come(self, turn: _Turn, work: _Work) -> bool:
        """Whether the callbacks may run now. If not, holds the work."""
        with self._over:
            if turn.is_late or turn.parent is None or turn.parent.children[0] is turn:
                return True
            turn.held, turn.held_until = work, time.monotonic() + self.seconds
            self._held.append(turn)
            return False

    def run(self, turn: _Turn, complete: Callable[[], object]) -> None:
        """Completes a future and so runs its callbacks; then come those whose turn it is."""
        outer = getattr(self._running, "turn", (None, None))
        self._running.turn = (self, turn)
        try:
            complete()
        finally:
            self._running.turn = outer
            with self._over:
                turn.has_run = True
                at = turn
                while at.parent is not None and at.has_run and not at.children:
                    at.parent.children.remove(at)
                    if at.parent.children:
                        self._release(at.parent.children[0])
                    at = at.parent
                self._over.notify_all()

    def end_late(self) -> None:
        """The futures that were held for too long get an error."""
        if not self._held:
            return
        with self._over:
            for turn in [one for one in self._held if time.monotonic() >= one.held_until]:
                turn.is_late = True
                self._release(turn)

    def _release(self, turn: _Turn) -> None:
        if turn.held is not None:
            self._held.remove(turn)
            _futures.put(turn.held)
            turn.held = None

    def wait(self, what: str, seconds: float) -> None:
        """Waits until an operation may begin."""
        turn = self._current()
        until = time.monotonic() + seconds
        with self._over:
            while turn.children:
                if (left := until - time.monotonic()) <= 0:
                    raise _late(what)
                self._over.wait(min(left, _TURN_S))


def _late(what: str) -> dist.DistBackendError:
    """Of an operation, or a future, that came after callbacks which have not ended."""
    return dist.DistBackendError(
        f"regroup: {what}: a callback of an earlier operation has not ended in time: it must not "
        "wait for what comes after it"
    )


class _Group:
    """Owns a group of the table. Its process group and its operations share it."""

    def __init__(self, store: Any, rank: int, size: int, host: str, seconds: float):
        @_Set
        def set_key(_: object, key: bytes, value: int, size: int) -> int:
            try:
                store.set(key.decode(), ctypes.string_at(value, size))
            except Exception:
                return 1
            return 0

        @_Get
        def get_key(_: object, key: bytes, value: int, most: int, seconds: float) -> int:
            try:
                store.wait([key.decode()], datetime.timedelta(seconds=max(seconds, 0.001)))
            except Exception:
                return -1
            try:
                found = store.get(key.decode())
            except Exception:
                return -2
            ctypes.memmove(value, found, min(len(found), most))
            return len(found)

        self.address = c_void_p()
        self.callbacks = _Callbacks(seconds)
        self.progress = _Progress(self.callbacks)
        self._process = os.getpid()
        adapter = _Store(None, set_key, get_key)
        _call(
            *("init_process_group", _table().form, ctypes.byref(adapter), rank, size),
            *(host.encode(), seconds, ctypes.byref(self.address)),
        )

    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that has formed the group. It has a copy of the
        locks and none of the threads, and the rank is still the other one."""
        return os.getpid() != self._process

    def check_process(self, what: str) -> None:
        if self.is_forked():
            raise dist.DistBackendError(
                f"regroup: {what}: process {self._process} has formed the group, and this one "
                f"({os.getpid()}) is a fork of it: form groups after a fork"
            )

    def __del__(self) -> None:
        self.progress.stop()
        if self.address and not self.is_forked():
            _table().leave(self.address)


class _Work(dist.Work):
    """An operation in progress or complete. Its group holds it until it is complete. The first
    thread that sees that it is complete finishes it."""

    def __init__(
        self,
        group: _Group,
        address: c_void_p | None,
        what: str,
        outputs: list[Tensor],
        held: Sequence[Any] = (),
        after: After | None = None,
        is_message: bool = False,
    ):
        """address: of the operation; None: it is complete.  after: called when it has succeeded.
        held: what the operation uses."""
        super().__init__()
        self._group, self._address, self._what = group, address, what
        self._callbacks = None if is_message else group.callbacks
        self._outputs, self._held, self._after = outputs, held, after
        self._lock = threading.Lock()  # of _finish(); no thread waits under it
        self._over = address is None
        self._error: Exception | None = None
        self._source = -1
        self._future: Any = None
        self._turn: _Turn | None = None  # None: nobody took the future before it was complete
        if not self._over:
            group.progress.add(self)

    def __del__(self) -> None:
        if self._address is not None and not self._group.is_forked():
            _table().free(self._address)

    def settle(self, seconds: float) -> bool:
        """Waits up to `seconds`; returns whether the operation is complete."""
        until = time.monotonic() + seconds
        while not self._over:
            self._group.check_process(self._what)
            left = max(until - time.monotonic(), 0)
            if _table().wait(self._address, min(left, _TURN_S)):
                self._finish()
            elif left == 0:
                return False
        return True

    def _finish(self) -> None:
        with self._lock:
            if self._over:
                return
            source = c_int(-1)
            try:
                _call(self._what, _table().status, self._address, ctypes.byref(source))
                self._source = source.value
                if self._after is not None:
                    with torch.no_grad():
                        self._after()
            except Exception as error:
                self._error = error
            self._after, self._held = None, ()
            self._over = True
            awaited = self._future is not None
        if awaited:
            _futures.put(self)

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        if not self.settle(seconds if seconds > 0 else _FOREVER_S):
            raise dist.DistBackendError(
                f"regroup: {self._what}: not complete after {seconds * 1000:.0f} ms"
            )
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.settle(0)

    def is_success(self) -> bool:
        return self._over and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> list[Tensor]:
        return self._outputs

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._over:
                    self._complete_future()  # it has no callbacks yet
                elif self._callbacks is not None:
                    self._turn = self._callbacks.expect()
            return self._future

    def complete_future(self) -> None:
        """Does nothing if its turn has not come."""
        if self._callbacks is None or self._turn is None:
            self._complete_future()
        elif self._callbacks.has_come(self._turn, self):
            self._callbacks.run(self._turn, self._complete_future)

    def _complete_future(self) -> None:
        if self._error is not None:
            self._future.set_exception(self._error)
        elif self._turn is not None and self._turn.is_late:
            self._future.set_exception(_late(self._what))
        else:
            self._future.set_result(self._outputs)


def _check_device(what: str, tensor: Tensor) -> None:
    if tensor.device.type != "cpu":
        _refuse(what, f"expected a CPU tensor, got one on {tensor.device}")


def _check(what: str, tensor: Tensor) -> None:
    _check_device(what, tensor)
    if tensor.layout != torch.strided:
        _refuse(what, "expected a dense tensor")


def _single(what: str, tensors: list[Tensor]) -> Tensor:
    if len(tensors) != 1:
        _refuse(what, f"expected 1 tensor, got {len(tensors)}")
    _check(what, tensors[0])
    return tensors[0]


def _copy_back(targets: Sequence[Tensor], memories: Sequence[Tensor]) -> None:
    for target, memory in zip(targets, memories, strict=True):
        if memory is not target:
            target.copy_(memory)


class ProcessGroup(dist.ProcessGroup):
    """A process group for CPU tensors. All ranks make it together."""

    def __init__(self, options: Any, prefix: str, host: str):
        """options: torch's _DistributedBackendOptions.  prefix: of the group's keys in its store.
        host: which ranks share memory, as of the table's form()."""
        super().__init__(options.group_rank, options.group_size)
        self._rank, self._size = options.group_rank, options.group_size
        self._seconds = options.timeout.total_seconds()
        self._name: str = options.group_id
        store = dist.PrefixStore(prefix, options.store)
        self._group = _Group(store, self._rank, self._size, host, self._seconds)
        self._count_lock = threading.Lock()  # of these
        self._collectives = 0
        self._barriers = 0  # monitored ones since the last collective

    def getBackendName(self) -> str:  # noqa: N802
        return "regroup"

    supports_coalescing = supports_splitting = False

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        """Torch asks what it returns for the two above."""
        if device.type != "cpu":
            raise RuntimeError(f"No backend type associated with device type {device.type}")
        return self

    # That of torch asks a backend, which this group has not.
    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._seconds = self._group.callbacks.seconds = timeout.total_seconds()

    def abort(self) -> None:
        _table().abort(self._group.address, b"by abort()")

    def shutdown(self) -> None:
        pass

    def _limit(self, opts: Any) -> float:
        seconds = opts.timeout.total_seconds() if hasattr(opts, "timeout") else 0
        return seconds if seconds > 0 else self._seconds

    def _begin_collective(self, what: str, opts: Any) -> None:
        """Waits until it may begin, and counts it: once for each that all ranks call."""
        self._group.check_process(what)
        with self._count_lock:
            self._collectives += 1
            self._barriers = 0
        self._group.callbacks.wait(what, self._limit(opts))

    def _next_barrier(self) -> int:
        """Returns the tag of the next monitored barrier. A rank that missed one agrees with the
        others again after the next collective."""
        with self._count_lock:
            self._barriers += 1
            number = (self._barriers - 1) % 1023
            return 0x80000000 | (self._collectives & 0x1FFFFF) << 10 | number

    def _launch(
        self,
        what: str,
        kind: str,
        opts: Any,
        source: Tensor | None,
        target: Tensor | None,
        outputs: list[Tensor],
        after: After | None = None,
        reduction: tuple[int, int] = (_BYTES, 0),
        root: int = 0,
    ) -> _Work:
        """Starts an operation on the memory of contiguous tensors."""
        self._begin_collective(what, opts)
        operation = _Operation(_KINDS.index(kind), *reduction, root)
        if source is not None:
            operation.in_, operation.in_bytes = source.data_ptr(), source.nbytes
        if target is not None:
            operation.out, operation.out_bytes = target.data_ptr(), target.nbytes
        address = c_void_p()
        _call(
            *(what, _table().start, self._group.address, ctypes.byref(operation)),
            *(self._limit(opts), ctypes.byref(address)),
        )
        return _Work(self._group, address, what, outputs, (source, target), after)

    def _complete(self, what: str, outputs: list[Tensor]) -> _Work:
        return _Work(self._group, None, what, outputs)

    # Reductions.

    def _reduction(self, what: str, dtype: torch.dtype, op: Any) -> tuple[int, int]:
        """Returns type and operation as numbers of the table."""
        name = next((one for one in _OPS if op == getattr(dist.ReduceOp, one)), None)
        kind = f"{dtype}".removeprefix("torch.")
        if name is None or (dtype == torch.bool and name == "AVG"):
            _refuse(what, f"{name or op} of {kind} is not supported without the binary")
        if dtype == torch.bool:
            is_and = name in ("PRODUCT", "MIN", "BAND")
            return _BYTES, _OPS.index("MIN" if is_and else "MAX")
        if dtype in _UNSIGNED and name not in ("MIN", "MAX", "AVG"):
            dtype = _UNSIGNED[dtype]
        if dtype.is_complex and name in ("SUM", "AVG"):
            dtype = torch.float32 if dtype == torch.complex64 else torch.float64
        bits = name in ("BAND", "BOR") and dtype.is_floating_point
        if dtype not in _DTYPES or bits:
            _refuse(what, f"{name} of {kind} is not supported")
        return _DTYPES.index(dtype), _OPS.index(name)

    def _gathered(self, what: str, tensor: Tensor, opts: Any) -> Tensor:
        source = tensor.contiguous()
        out = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)
        self._launch(what, "allgather", opts, source, out, [out]).wait()
        return out

    def _xor(self, what: str, tensor: Tensor, opts: Any) -> Tensor:
        if tensor.is_floating_point() or tensor.is_complex():
            _refuse(what, f"BXOR of {tensor.dtype} is not supported")
        return functools.reduce(torch.bitwise_xor, self._gathered(what, tensor, opts).unbind(0))

    def allreduce(self, tensors: list[Tensor], opts: Any) -> _Work:
        if len(tensors) == 1 and tensors[0].layout == torch.sparse_coo:
            return self._sum_sparse("all_reduce", tensors[0], opts)
        return self._reduce_to_all("all_reduce", _single("all_reduce", tensors), tensors, opts)

    @torch.no_grad()
    def _reduce_to_all(
        self,
        what: str,
        tensor: Tensor,
        outputs: list[Tensor],
        opts: Any,
        after: After | None = None,
    ) -> _Work:
        if opts.reduceOp == dist.ReduceOp.BXOR:
            tensor.copy_(self._xor(what, tensor, opts))
            if after is not None:
                after()
            return self._complete(what, outputs)
        reduction = self._reduction(what, tensor.dtype, opts.reduceOp)
        memory = tensor.contiguous()

        def finish() -> None:
            _copy_back([tensor], [memory])
            if after is not None:
                after()

        return self._launch(
            what, "allreduce", opts, memory, memory, outputs, finish, reduction=reduction
        )

    @torch.no_grad()
    def _sum_sparse(self, what: str, tensor: Tensor, opts: Any) -> _Work:
        """Ranks may have different rows, so the concatenation of all is summed."""
        _check_device(what, tensor)
        if opts.reduceOp != dist.ReduceOp.SUM:
            _refuse(what, "expected SUM for a sparse tensor")
        mine = tensor.coalesce()
        counts = self._gathered(what, torch.tensor([mine._nnz()]), opts).flatten().tolist()
        parts = [
            [rows[:count] for rows, count in zip(gathered.unbind(0), counts, strict=True)]
            for gathered in (
                self._gathered(what, _padded(part, max(counts)), opts)
                for part in (mine.indices().t(), mine.values())
            )
        ]
        indices, values = (torch.cat(part) for part in parts)
        tensor.copy_(torch.sparse_coo_tensor(indices.t(), values, mine.shape).coalesce())
        return self._complete(what, [tensor])

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> _Work:
        what = "all_reduce_coalesced"
        for tensor in tensors:
            _check(what, tensor)
        if len({tensor.dtype for tensor in tensors}) != 1:
            _refuse(what, "expected tensors of one type")
        packed = torch.cat([tensor.reshape(-1) for tensor in tensors])

        def unpack() -> None:
            pieces = packed.split([tensor.numel() for tensor in tensors])
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view(tensor.shape))

        return self._reduce_to_all(what, packed, tensors, opts, unpack)

    @torch.no_grad()
    def reduce(self, tensors: list[Tensor], opts: Any) -> _Work:
        tensor = _single("reduce", tensors)
        is_root = self._rank == opts.rootRank
        if opts.reduceOp == dist.ReduceOp.BXOR:
            result = self._xor("reduce", tensor, opts)
            if is_root:
                tensor.copy_(result)
            return self._complete("reduce", tensors)
        memory = tensor.contiguous()
        return self._launch(
            *("reduce", "reduce", opts, memory, memory if is_root else None, tensors),
            (lambda: _copy_back([tensor], [memory])) if is_root else None,
            self._reduction("reduce", tensor.dtype, opts.reduceOp),
            opts.rootRank,
        )

    @torch.no_grad()
    def _scatter_reduced(self, what: str, output: Tensor, packed: Tensor, opts: Any) -> _Work:
        if opts.reduceOp == dist.ReduceOp.BXOR:
            whole = self._xor(what, packed, opts)
            output.copy_(whole.view(self._size, -1)[self._rank].view(output.shape))
            return self._complete(what, [output])
        memory = output.contiguous()
        return self._launch(
            *(what, "reduce_scatter", opts, packed, memory, [output]),
            lambda: _copy_back([output], [memory]),
            self._reduction(what, output.dtype, opts.reduceOp),
        )

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> _Work:
        what = "reduce_scatter"
        output = _single(what, outputs)
        return self._scatter_reduced(what, output, self._packed(what, inputs, output), opts)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any) -> _Work:
        self._check_parts("reduce_scatter_tensor", source, output)
        return self._scatter_reduced("reduce_scatter_tensor", output, source.contiguous(), opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any
    ) -> _Work:
        pairs = zip(outputs, inputs, strict=True)
        return self._all(outputs, [self.reduce_scatter_single(*pair, opts) for pair in pairs])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # What moves tensors of any type.

    def _all(self, outputs: list[Tensor], works: list[_Work]) -> _Work:
        for work in works:
            work.wait()
        return works[0] if len(works) == 1 else self._complete("coalesced", outputs)

    def _check_parts(self, what: str, whole: Tensor, part: Tensor) -> None:
        _check(what, whole)
        _check(what, part)
        if whole.dtype != part.dtype or whole.numel() != part.numel() * self._size:
            _refuse(
                what,
                f"expected {self._size} times as many elements of one type, got {whole.dtype}"
                f"[{whole.numel()}] and {part.dtype}[{part.numel()}]",
            )

    def _list(self, what: str, lists: list[list[Tensor]], like: Tensor) -> list[Tensor]:
        if len(lists) != 1 or len(lists[0]) != self._size:
            got = len(lists[0]) if len(lists) == 1 else f"{len(lists)} lists"
            _refuse(what, f"expected a list of {self._size} tensors, one for each rank, got {got}")
        for tensor in lists[0]:
            _check(what, tensor)
            if tensor.dtype != like.dtype or tensor.numel() != like.numel():
                _refuse(what, "all tensors must have one type and size")
        return lists[0]

    def _packed(self, what: str, lists: list[list[Tensor]], like: Tensor) -> Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in self._list(what, lists, like)])

    def _rows(self, like: Tensor) -> Tensor:
        return torch.empty((self._size, like.numel()), dtype=like.dtype)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> _Work:
        tensor = _single("broadcast", tensors)
        memory = tensor.contiguous()
        return self._launch(
            *("broadcast", "broadcast", opts, None, memory, tensors),
            lambda: _copy_back([tensor], [memory]),
            root=opts.rootRank,
        )

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> _Work:
        source = _single("all_gather", inputs).contiguous()
        out = self._list("all_gather", outputs, source)
        rows = self._rows(source)
        return self._launch(
            *("all_gather", "allgather", opts, source, rows, out),
            lambda: _unpack(rows, out),
        )

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any) -> _Work:
        what = "all_gather_into_tensor"
        self._check_parts(what, output, source)
        memory = output.contiguous()
        return self._launch(
            *(what, "allgather", opts, source.contiguous(), memory, [output]),
            lambda: _copy_back([output], [memory]),
        )

    _allgather_base = all_gather_single

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any
    ) -> _Work:
        if len(outputs) != self._size:
            _refuse("all_gather_coalesced", "expected a list of outputs for each rank")
        lists = [list(of_one) for of_one in zip(*outputs, strict=True)]
        pairs = zip(lists, inputs, strict=True)
        works = [self.allgather([out], [source], opts) for out, source in pairs]
        return self._all([tensor for out in lists for tensor in out], works)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any
    ) -> _Work:
        pairs = zip(outputs, inputs, strict=True)
        return self._all(outputs, [self.all_gather_single(*pair, opts) for pair in pairs])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> _Work:
        source = _single("gather", inputs).contiguous()
        if self._rank != opts.rootRank:
            return self._launch("gather", "gather", opts, source, None, [], root=opts.rootRank)
        out = self._list("gather", outputs, source)
        rows = self._rows(source)
        return self._launch(
            *("gather", "gather", opts, source, rows, out),
            lambda: _unpack(rows, out),
            root=opts.rootRank,
        )

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> _Work:
        output = _single("scatter", outputs)
        is_root = self._rank == opts.rootRank
        packed = self._packed("scatter", inputs, output) if is_root else None
        memory = output.contiguous()
        return self._launch(
            *("scatter", "scatter", opts, packed, memory, outputs),
            lambda: _copy_back([output], [memory]),
            root=opts.rootRank,
        )

    @torch.no_grad()
    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any,
    ) -> _Work:
        what = "all_to_all_single"
        _check(what, output)
        _check(what, source)
        memory, dense = output.contiguous(), source.contiguous()

        def finish() -> None:
            _copy_back([output], [memory])

        # One rank cannot know whether the splits are equal on all ranks.
        if not output_splits and not input_splits:
            return self._launch(what, "alltoall", opts, dense, memory, [output], finish)
        taken = memory.split(output_splits or [memory.shape[0] // self._size] * self._size)
        sent = dense.split(input_splits or [dense.shape[0] // self._size] * self._size)
        return self._exchange(what, opts, sent, taken, [output], finish)

    alltoall_base = all_to_all_single

    @torch.no_grad()
    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> _Work:
        if len(outputs) != self._size or len(inputs) != self._size:
            _refuse("all_to_all", f"expected a list of {self._size} tensors, one for each rank")
        for tensor in (*outputs, *inputs):
            _check("all_to_all", tensor)
        taken = [tensor.contiguous() for tensor in outputs]
        return self._exchange(
            *("all_to_all", opts, [tensor.contiguous() for tensor in inputs], taken, outputs),
            lambda: _copy_back(outputs, taken),
        )

    def _exchange(
        self,
        what: str,
        opts: Any,
        sent: Sequence[Tensor],
        taken: Sequence[Tensor],
        outputs: list[Tensor],
        finish: After,
    ) -> _Work:
        """All-to-all of parts of different sizes, by messages. Starts none of them if the own part
        cannot be copied."""
        if not len(sent) == len(taken) == self._size:
            _refuse(
                what,
                f"expected {self._size} parts, one for each rank, got {len(sent)} of the input and "
                f"{len(taken)} of the output",
            )
        own, target = sent[self._rank], taken[self._rank]
        if own.numel() != target.numel() or own.dtype != target.dtype:
            _refuse(
                what,
                f"expected parts of one size and type for this rank, got {own.dtype}"
                f"[{own.numel()}] and {target.dtype}[{target.numel()}]",
            )
        self._begin_collective(what, opts)
        target.copy_(own.view(target.shape))
        works = []
        for turn in range(1, self._size):
            to, source = (self._rank + turn) % self._size, (self._rank - turn) % self._size
            limit = self._limit(opts)
            works.append(self._receive(what, taken[source], source, _EXCHANGE_TAG, limit))
            works.append(self._send(what, sent[to], to, _EXCHANGE_TAG, limit))
        for work in works:
            work.wait()
        finish()
        return self._complete(what, outputs)

    def barrier(self, opts: Any) -> _Work:
        return self._launch("barrier", "barrier", opts, None, None, [])

    def monitored_barrier(
        self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Rank 0 waits for a message of each rank, then answers all; the words are those of Gloo's.
        The group remains usable: a wait ends, but no operation. What remains of a barrier that
        failed matches no later one."""
        self._group.check_process(_MONITORED)
        tag = self._next_barrier()
        limit = self._seconds if timeout is None else timeout.total_seconds()
        until = time.monotonic() + limit

        def receive(source: int) -> _Work:
            memory = torch.empty(0)
            return self._receive(_MONITORED, memory, source, tag, _FOREVER_S)

        def send(to: int) -> _Work:
            return self._send(_MONITORED, torch.empty(0), to, tag, _FOREVER_S)

        def came(work: _Work) -> bool:
            return work.settle(max(until - time.monotonic(), 0)) and work.is_success()

        name = f"Rank {self._rank}"
        if self._rank != 0:
            sent, answered = send(0), receive(0)
            if not (came(sent) and came(answered)):
                raise dist.DistBackendError(
                    f"{name} successfully reached monitoredBarrier, but received errors while "
                    "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
                )
            return
        if limit <= 0:
            raise dist.DistBackendError(f"{name} timed out in monitoredBarrier.")
        arrivals = {rank: receive(rank) for rank in range(1, self._size)}
        missing = []
        for rank, arrival in arrivals.items():
            if not came(arrival):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            raise dist.DistBackendError(
                f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} "
                f"failed to pass monitoredBarrier in {limit * 1000:.0f} ms"
            )
        for answer in [send(rank) for rank in arrivals]:
            answer.wait()

    # Messages.

    def _send(self, what: str, tensor: Tensor, to: int, tag: int, seconds: float) -> _Work:
        self._group.check_process(what)
        address = c_void_p()
        _call(
            *(what, _table().send, self._group.address, to, tag, tensor.data_ptr()),
            *(tensor.nbytes, seconds, ctypes.byref(address)),
        )
        return _Work(self._group, address, what, [], [tensor], is_message=True)

    def _receive(
        self,
        what: str,
        memory: Tensor,
        source: int,
        tag: int,
        seconds: float,
        after: After | None = None,
    ) -> _Work:
        self._group.check_process(what)
        address = c_void_p()
        _call(
            *(what, _table().receive, self._group.address, source, tag, memory.data_ptr()),
            *(memory.nbytes, seconds, ctypes.byref(address)),
        )
        return _Work(self._group, address, what, [memory], [memory], after, is_message=True)

    def send(self, tensors: list[Tensor], to: int, tag: int) -> _Work:
        data = _single("send", tensors).contiguous()
        return self._send(f"send to rank {to}", data, to, tag, self._seconds)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> _Work:
        what = "recv from any rank" if source == _ANY_RANK else f"recv from rank {source}"
        target = _single("recv", tensors)
        memory = target.contiguous()
        return self._receive(
            what, memory, source, tag, self._seconds, lambda: _copy_back([target], [memory])
        )

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> _Work:
        return self.recv(tensors, _ANY_RANK, tag)


_torch_collectives.wrap(ProcessGroup)


def _padded(rows: Tensor, count: int) -> Tensor:
    """Appends rows of zeros."""
    out = rows.new_zeros((count, *rows.shape[1:]))
    out[: len(rows)] = rows
    return out


def _unpack(rows: Tensor, out: list[Tensor]) -> None:
    for tensor, row in zip(out, rows.unbind(0), strict=True):
        tensor.copy_(row.view(tensor.shape))
