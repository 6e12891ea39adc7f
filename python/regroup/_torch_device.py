"""Gradients and sums between the device of the parameters and where leaves are.

Direct: the parameters are in memory of the host, and a leaf is filled from the gradients where they
are.

OnDevice: the parameters are on a device, where the session fills leaves and sums them.

Staged: the parameters are on a device, and leaves in memory of the host. The gradients and the
changes of buffers of a shard, its loss and whether all of it is finite are packed into one tensor
there, which goes to pinned memory of the host in one asynchronous copy; the leaf is filled from
that. So a leaf is weighted and added by the same code, and has the same bits, whatever the device.
The sum goes back in one copy, after which the optimizer reads it on the device: the host does not
wait.

docs/design/staged_plane.md and cuda_plane.md say why.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from regroup import _arguments, _native, _torch_nan
from regroup._errors import DeadlineExceeded

DEADLINE_S = 600.0
_SPIN_S = 200e-6  # a copy is awaited without sleeping for as long
_SLEEP_S = 50e-6
_TAIL = 3  # float64 values after the elements of a leaf: the loss, the least and the largest value
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")
_TUNING = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")

# torch reads it once, at the process's first call of cuBLAS. The launcher sets it for the members
# of an elastic job; without one the import of this module is early enough for most scripts.
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_workspace_is_late = _WORKSPACE not in os.environ and torch.cuda.is_initialized()
os.environ.setdefault(_WORKSPACE, ":4096:8")


class Event(Protocol):
    def query(self) -> bool:
        """Whether what was queued before it is done."""


class Cuda:
    """A GPU as the host sees it. Makes no context before it is asked for memory."""

    def __init__(self, device: torch.device):
        self.device = device

    def zeros(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(elements, dtype=dtype, device=self.device)

    def pinned(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns memory of the host that copies reach without a detour; its values are
        undefined."""
        settings: Any = torch.utils.deterministic
        before, settings.fill_uninitialized_memory = settings.fill_uninitialized_memory, False
        try:
            return torch.empty(elements, dtype=dtype, pin_memory=True)
        finally:
            settings.fill_uninitialized_memory = before

    def begin_copy(
        self, to: torch.Tensor, source: torch.Tensor, after: Event | None = None
    ) -> Event:
        """Queues a copy between the device and pinned memory after the work of the current stream,
        and after `after`, which may be of another one. Neither tensor's memory on the host may be
        used before the event that it returns."""
        stream = torch.cuda.current_stream(self.device)
        if after is not None:
            self.order_after(after)
        to.copy_(source, non_blocking=True)
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def order_after(self, event: Event) -> None:
        """Lets what is queued in the current stream from now on begin after the event, which may be
        of another stream. The host does not wait."""
        torch.cuda.current_stream(self.device).wait_event(event)  # type: ignore[arg-type]

    def recorded(self) -> Event:
        """Returns an event after the work of the current stream."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def launched(self, tensors: Sequence[torch.Tensor]) -> None:
        """To be called when work that reads the tensors has been put on the current stream: their
        memory is not used again before it is done."""
        stream = torch.cuda.current_stream(self.device)
        for tensor in tensors:
            tensor.record_stream(stream)

    @property
    def number(self) -> int:
        """The number of the device, as this process counts."""
        return torch.cuda.current_device() if self.device.index is None else self.device.index

    @property
    def stream(self) -> int:
        """The current stream, as the driver's CUstream."""
        return torch.cuda.current_stream(self.device).cuda_stream

    def is_capturing(self) -> bool:
        """Whether work of the current stream goes into a CUDA graph."""
        with torch.cuda.device(self.device):
            return torch.cuda.is_current_stream_capturing()

    def make_deterministic(self) -> None:
        """Lets torch choose only kernels whose results are the same in each run."""
        if _workspace_is_late:
            warnings.warn(
                f"join: {_WORKSPACE} was not set before the process used a GPU, so cuBLAS may add "
                "in another order from run to run: set it to :4096:8 for the program, or import "
                "regroup.torch first",
                stacklevel=4,
            )
        _make_inductor_deterministic()
        torch.use_deterministic_algorithms(True, warn_only=False)
        torch.backends.cudnn.benchmark = False

    def fingerprint(self) -> str:
        """What the bits of its kernels depend on."""
        properties = torch.cuda.get_device_properties(self.device)
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        sdpa = [
            name
            for name in ("flash", "mem_efficient", "math", "cudnn")
            if getattr(torch.backends.cuda, f"{name}_sdp_enabled", bool)()
        ]
        values = {
            "gpu": properties.name.replace(" ", "-"),
            "sms": properties.multi_processor_count,  # fewer in a part of a GPU (MIG)
            "driver": _driver(),
            "cuda": torch.version.cuda,
            "cudnn": cudnn.version(),
            "tf32": _precision(matmul, "allow_tf32"),
            "cudnn-tf32": _precision(cudnn, "allow_tf32"),
            "cudnn-operations": [
                _precision(getattr(cudnn, name, None), "") for name in ("conv", "rnn")
            ],
            "reduced": [
                getattr(matmul, f"allow_{name}", None)
                for name in (
                    "fp16_reduced_precision_reduction",
                    "bf16_reduced_precision_reduction",
                    "fp16_accumulation",
                )
            ],
            "sdpa": "+".join(sdpa),
            "workspace": os.environ.get(_WORKSPACE, ""),
            "inductor": [name for name in ("deterministic", *_TUNING) if _inductor_setting(name)],
        }
        return "".join(f" {name}={value}" for name, value in values.items()).replace(", ", ",")


def _driver() -> str:
    """The version of the kernel's driver, such as 580.65.06; that of its CUDA if that is hidden."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next(word for word in words if word[0].isdigit() and "." in word)
    except (OSError, StopIteration):
        return str(torch._C._cuda_getDriverVersion())


def _inductor() -> Any:
    """The settings of the compiler of torch.compile(), if it is imported, which takes seconds."""
    return sys.modules.get("torch._inductor.config")


def _inductor_setting(name: str) -> bool:
    if (config := _inductor()) is not None:
        return bool(getattr(config, name, False))
    return os.environ.get(f"TORCHINDUCTOR_{name.upper()}") == "1"  # read when it is imported


def _make_inductor_deterministic() -> None:
    """Lets it choose kernels without measuring them, if this torch can."""
    os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"  # read by its import, in this process or others
    if hasattr(config := _inductor(), "deterministic"):
        config.deterministic = True


def refuse_tuning(model: torch.nn.Module) -> None:
    """Refuses a model that torch.compile() compiles with max-autotune: each member would choose
    the kernels that are fastest as it measures them."""
    tuned = any(map(_inductor_setting, _TUNING))
    for module in model.modules():
        backend = getattr(module.__dict__.get("dynamo_ctx"), "callback", None)
        while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
            backend = inner
        settings = getattr(backend, "config", None)
        if isinstance(settings, dict):
            tuned |= any(settings.get(name) for name in _TUNING)
    if tuned:
        _arguments.refuse(
            "join",
            "model: expected torch.compile() without max-autotune, whose choice of kernels differs "
            "between members: compile with another mode, or pass deterministic=False",
        )


def matmul_precision() -> str:
    """torch.get_float32_matmul_precision(), which raises if the script has set that of a
    backend."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return f"{_precision(torch.backends.cuda.matmul, 'allow_tf32')}".lower()


def _precision(backend: Any, name: str) -> object:
    """The setting by its name of torch 2.9 or newer, or by the old one: reading that raises if a
    script has set the new one."""
    for choice in ("fp32_precision", name):
        try:
            if (value := getattr(backend, choice)) != "none":
                return value
        except (AttributeError, RuntimeError):
            continue
    return None


# What has a tensor on that type of device. Tensors on others than these and "cpu" are refused.
DEVICES: dict[str, Callable[[torch.device], Any]] = {"cuda": Cuda}
if _native.fake_device():
    from regroup._torch_fake_device import FakeCuda

    DEVICES["cpu"] = FakeCuda


def is_supported(device: torch.device) -> bool:
    return device.type == "cpu" or device.type in DEVICES


def device_of(named: Sequence[tuple[str, torch.Tensor]]) -> torch.device:
    """Returns the device of all these tensors of a model; refuses several, or one that is not
    supported."""
    name, first = named[0]
    for other, tensor in named:
        if tensor.device.type == "meta":
            _arguments.refuse(
                "join", f"{other} is on meta, without values: call model.to_empty() and fill it"
            )
        if not is_supported(tensor.device):
            _arguments.refuse(
                "join",
                f"{other}: expected a tensor on cpu or {' or '.join(DEVICES)}, got one on "
                f"{tensor.device}",
            )
        if tensor.device != first.device:
            _arguments.refuse(
                "join",
                "model: expected all parameters and buffers on one device, got "
                f"{name} on {first.device} and {other} on {tensor.device}",
            )
    return first.device


def refuse_wrapper(model: torch.nn.Module) -> None:
    """Refuses a model that exchanges gradients or parameters by itself, or a module of which
    does."""
    for path, module in model.named_modules():
        kinds = type(module).__mro__
        found = {kind.__name__ for kind in kinds if kind.__module__.startswith("torch.")}
        for name in _WRAPPERS:
            if name in found:
                where = f" in {path}" if path else " of it"
                _arguments.refuse(
                    "join",
                    f"model: expected the model itself, got {_arguments.article(name)}{where}: "
                    "pass it unwrapped",
                )


def staging(device: torch.device) -> Any:
    """The device as an object of DEVICES; None: the host's memory."""
    kind = DEVICES.get(device.type)
    return None if kind is None else kind(device)


def fingerprint(device: torch.device) -> str:
    """What the bits of the device's kernels depend on; empty for the host."""
    one = staging(device)
    return "" if one is None else one.fingerprint()


def wait(event: Event, what: str, deadline: float) -> None:
    """Returns when the event has happened; raises after `deadline` seconds, or for an error of the
    device."""
    begin = time.monotonic()
    while not event.query():
        waited = time.monotonic() - begin
        if waited > deadline:
            raise DeadlineExceeded(
                f"{what}: the device has not done it after {waited:.0f} s", "deadline exceeded"
            )
        if waited > _SPIN_S:
            time.sleep(_SLEEP_S)


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor in memory of the host. Some consumers of DLPack take pinned
    memory for that of a device."""
    size = tensor.numel() * tensor.element_size()
    array = (ctypes.c_uint8 * size).from_address(tensor.data_ptr())
    array.owner = tensor  # type: ignore[attr-defined]  # lives as long as a view of its memory
    return memoryview(array).cast("B")


def on_host(
    pieces: Sequence[torch.Tensor], deadline: float = DEADLINE_S, what: str = "the state"
) -> list[Any]:
    """Returns tensors of one dimension in memory of the host: themselves, or copies of their bytes.
    what: they are, for a message."""
    out: list[Any] = []
    pending = None
    for piece in pieces:
        device = staging(piece.device) if piece.numel() else None
        if device is None:
            out.append(piece)
            continue
        pinned = device.pinned(piece.numel(), piece.dtype)
        pending = device.begin_copy(pinned, piece, pending)
        out.append(memory_of(pinned))
    if pending is not None:
        wait(pending, f"copy of {what} to the host", deadline)
    return out


def moved(batch: Any, device: torch.device) -> Any:
    """The batch with its tensors on `device`: itself, or in lists, tuples, mappings and dataclasses
    of them. Other objects move themselves if they have a method to(). For the CPU the batch as it
    is."""
    if device.type == "cpu":
        return batch
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return _mapping_of({key: moved(one, device) for key, one in batch.items()}, batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(one, device) for one in batch))
    if type(batch) in (list, tuple):
        return type(batch)(moved(one, device) for one in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        out = copy.copy(batch)
        for field in dataclasses.fields(batch):
            object.__setattr__(out, field.name, moved(getattr(batch, field.name), device))
        return out
    return batch


def _mapping_of(values: dict, like: Mapping) -> Mapping:
    """A mapping of these values of the class of another one with the same keys."""
    if type(like) is dict:
        return values
    if not isinstance(like, MutableMapping):
        return type(like)(values)  # type: ignore[call-arg]
    out = copy.copy(like)
    for key, value in values.items():
        out[key] = value
    return out


def placed(saved: Any, own: Any) -> Any:
    """The saved state of an object with its tensors where the object's own state has those of the
    same name."""
    if isinstance(saved, torch.Tensor) and isinstance(own, torch.Tensor):
        return saved.to(own.device)
    if isinstance(saved, dict) and isinstance(own, dict):
        for key in saved.keys() & own.keys():
            saved[key] = placed(saved[key], own[key])
    elif isinstance(saved, list | tuple) and isinstance(own, list | tuple):
        return type(saved)(
            placed(one, own[index]) if index < len(own) else one for index, one in enumerate(saved)
        )
    return saved


@dataclass
class Collected:
    """What is known of a shard when the gradients are where the leaf is filled from.
    addresses: of the gradients, as they were passed. loss: a number, or None. finite: whether all
    values are, if that was asked for. OnDevice has loss and finite as tensors there."""

    addresses: list[int]
    loss: Any
    finite: Any


@dataclass
class Ending:
    """What a leaf holds after the changes of buffers. present: for each parameter
    1 if it had a gradient. marks: the section of _torch_nan of a shard that is not finite. weight:
    of the loss. last: what follows the loss."""

    present: list[float]
    marks: list[float]
    weight: float
    last: list[float]

    @property
    def loss_at(self) -> int:
        """The index of the loss in values(); 1 follows it if it was recorded."""
        return len(self.present) + len(self.marks)

    def values(self, not_finite: bool, loss: float | None) -> list[float]:
        marks = self.marks if not_finite else [0.0] * len(self.marks)
        recorded = [0.0, 0.0] if loss is None else [loss * self.weight, 1.0]
        return [*self.present, *marks, *recorded, *self.last]


class _OnHost:
    """What Direct and Staged share: the session takes leaves from memory of the host."""

    # What a leaf holds after the gradients, in memory of the host, where it is filled from.
    host_rest: torch.Tensor
    options: dict[str, Any]  # of the session
    _ending: slice  # of host_rest, after the changes of buffers

    def rest_on_host(self) -> torch.Tensor:
        """What the leaf of the shard that was collected last holds after the gradients."""
        return self.host_rest

    def fill(
        self,
        native: _native.Session,
        got: Collected,
        gradients: Sequence[tuple[int, torch.Tensor]],
        weight: float,
        begin: int,
        ending: Ending,
    ) -> None:
        """Fills the leaf. weight: of the gradients. begin: the first element after them."""
        not_finite = not got.finite or (got.loss is not None and not math.isfinite(got.loss))
        values = ending.values(not_finite, got.loss)
        self.host_rest[self._ending].copy_(torch.tensor(values, dtype=self.host_rest.dtype))
        native.fill_gradient(_parts(got, gradients, weight, begin, self.host_rest))


def _parts(
    got: Collected,
    gradients: Sequence[tuple[int, torch.Tensor]],
    weight: float,
    begin: int,
    rest: torch.Tensor,
) -> list[tuple[int, int, int, float]]:
    parts = [
        (at, gradient.numel(), address, weight)
        for (at, gradient), address in zip(gradients, got.addresses, strict=True)
    ]
    return [*parts, (begin, rest.numel(), rest.data_ptr(), 1.0)]


class Direct(_OnHost):
    """For parameters in memory of the host."""

    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, elements: int, gradients: int, flags: int, dtype: torch.dtype):
        """elements: of a leaf: first `gradients` of them, then changes of buffers, which end before
        element `flags`."""
        self.sum = torch.zeros(elements, dtype=dtype)
        self.place(gradients, flags)

    def place(self, gradients: int, flags: int) -> None:
        """Changes the places in a leaf, between two steps."""
        self._changes, self._flags = flags - gradients, flags
        self._ending = slice(flags - gradients, None)
        # What a leaf holds after the gradients, for one shard. Elements between buffers stay 0.
        rest = torch.zeros(self.sum.numel() - gradients, dtype=self.sum.dtype)
        self.rest = self.host_rest = rest

    def recorded(self, loss: Any) -> Any:
        """Takes the loss of a shard, for collect()."""
        return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def begin_leaf(self) -> None:
        """To be called before `rest` is written for a shard."""

    def collect(
        self, gradients: Sequence[tuple[int, torch.Tensor]], loss: Any, look: bool
    ) -> Collected:
        """To be called after begin_leaf() in the same stream. gradients: with the first element of
        each. look: at the values, whether they are finite."""
        values = [*(value for _, value in gradients), self.rest[: self._changes]]
        finite = not look or all(map(_torch_nan.is_finite, values))
        return Collected([value.data_ptr() for _, value in gradients], loss, finite)

    def take_sum(self, native: _native.Session) -> list[float]:
        """Fills `sum` with the sum over all leaves. Returns its elements from `flags` on."""
        native.commit_into(self.sum)
        return self.sum[self._flags :].tolist()

    def begin_shards(self, native: _native.Session, step: int) -> None:
        """To be called before the shards of a step. Refuses them in a state that does not allow
        it."""

    def make_deterministic(self, model: torch.nn.Module) -> None:
        """Lets torch choose only kernels whose results are the same in each run, or refuses the
        model: on the CPU all are."""


def _refuse_capture(device: Any, step: int) -> None:
    if device.is_capturing():
        _arguments.refuse(
            f"step {step}",
            "the loop over its shards was entered while the stream is captured in a CUDA "
            "graph: capture forward and backward only",
        )


class Staged(_OnHost):
    """For parameters on a device, with leaves in memory of the host. The same calls as of Direct,
    with `sum` and `rest` there, and with a copy of `rest`, `host_rest`, in pinned memory.

    One tensor on the device holds the gradients of a shard on their way to the host, and the sum,
    until the next shard is collected. It has one of the same size in pinned memory, which holds the
    gradients until the leaf is filled, and the sum until the device has read it.
    """

    def __init__(
        self,
        device: Any,
        elements: int,
        gradients: int,
        flags: int,
        dtype: torch.dtype,
        deadline: float = DEADLINE_S,
    ):
        self._device, self._deadline = device, deadline
        self._elements = elements
        tail = elements + elements % 2
        size = tail + _TAIL * (8 // dtype.itemsize)
        self._packed, self._pinned = device.zeros(size, dtype), device.pinned(size, dtype)
        self._tail, self._pinned_tail = (
            whole[tail:].view(torch.float64) for whole in (self._packed, self._pinned)
        )
        self.sum = self._packed[:elements]
        self._sent: Event | None = None  # the device has read the sum
        self.place(gradients, flags)

    def place(self, gradients: int, flags: int) -> None:
        self._gradients, self._flags = gradients, flags
        self._ending = slice(flags - gradients, None)
        self.rest = self._packed[gradients : self._elements]
        self.host_rest = self._pinned[gradients : self._elements]
        # Elements between buffers are to be 0 in the next leaf; until then p.grad has that memory.
        self._placed = True

    @property
    def options(self) -> dict[str, Any]:
        return {"staged": True, "device": self._device.number}

    def recorded(self, loss: Any) -> Any:
        if not isinstance(loss, torch.Tensor) or loss.device != self._device.device:
            return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        self.begin_leaf()
        self._tail[0].copy_(loss.detach().reshape(()))
        return self._tail  # the loss is in it

    def begin_leaf(self) -> None:
        # The script may have changed the stream since the copy of the last sum was queued: that
        # copy writes the same memory, and would overwrite what is packed before it.
        if self._sent is not None:
            self._device.order_after(self._sent)
        if self._placed:
            self._placed = False
            self.rest.zero_()

    def collect(
        self, gradients: Sequence[tuple[int, torch.Tensor]], loss: Any, look: bool
    ) -> Collected:
        if look:
            self._packed[: self._gradients].zero_()  # of parameters without a gradient too
        if gradients:
            places = [self._packed[at : at + g.numel()].view(g.shape) for at, g in gradients]
            torch._foreach_copy_(places, [gradient for _, gradient in gradients])
        if look:
            for at, value in enumerate(torch.aminmax(self._packed[: self._flags])):
                self._tail[1 + at].copy_(value)
        copied = self._device.begin_copy(self._pinned, self._packed)
        wait(copied, "copy of a gradient to the host", self._deadline)
        begin, size = self._pinned.data_ptr(), self._pinned.element_size()
        kept, *ends = self._pinned_tail.tolist()
        return Collected(
            [begin + at * size for at, _ in gradients],
            kept if loss is self._tail else loss,
            not look or all(map(math.isfinite, ends)),
        )

    def take_sum(self, native: _native.Session) -> list[float]:
        if self._sent is not None:
            wait(self._sent, "copy of a sum to the device", self._deadline)
        total = self._pinned[: self._elements]
        kind = "d" if total.dtype == torch.float64 else "f"
        native.commit_into(memory_of(total).cast(kind))
        self._sent = self._device.begin_copy(self.sum, total)
        return total[self._flags :].tolist()

    def begin_shards(self, native: _native.Session, step: int) -> None:
        _refuse_capture(self._device, step)

    def make_deterministic(self, model: torch.nn.Module) -> None:
        refuse_tuning(model)
        self._device.make_deterministic()


class OnDevice:
    """For parameters on a device, where the session fills leaves and sums them. The same calls as
    of Direct, with `sum` and `rest` there.

    The host waits for no gradient: what depends on values, the loss and whether all is finite, is
    written into the leaf by work on the device. All of it is on the current stream; `_last` orders
    it should the script have changed that.
    """

    def __init__(
        self,
        device: Any,
        elements: int,
        gradients: int,
        flags: int,
        dtype: torch.dtype,
        deadline: float = DEADLINE_S,
    ):
        self._device, self._deadline = device, deadline
        self.sum = device.zeros(elements, dtype)
        self._loss = device.zeros(1, torch.float64)
        self._sent: Event | None = None  # the device has read the ending
        self._last: Event | None = None  # the leaf of the last shard is filled
        self.place(gradients, flags)

    def place(self, gradients: int, flags: int) -> None:
        if self._sent is not None:
            wait(self._sent, "copy of a shard's flags to the device", self._deadline)
        elements, dtype, device = self.sum.numel(), self.sum.dtype, self._device
        self._flags, self._changes = flags, flags - gradients
        self.rest = device.zeros(elements - gradients, dtype)
        self._pinned = device.pinned(elements - flags, dtype)  # the ending of a leaf
        self._pinned_sum = device.pinned(elements - flags, dtype)  # that of the sum
        self._pinned_rest: torch.Tensor | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {
            "device": self._device.number,
            "stream": self._device.stream,
            "sum": self.sum.data_ptr(),
        }

    def recorded(self, loss: Any) -> Any:
        if not isinstance(loss, torch.Tensor) or loss.device != self._device.device:
            return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        self.begin_leaf()
        self._loss.copy_(loss.detach().reshape(1))
        return self._loss

    def begin_leaf(self) -> None:
        if self._last is not None:
            self._device.order_after(self._last)

    def collect(
        self, gradients: Sequence[tuple[int, torch.Tensor]], loss: Any, look: bool
    ) -> Collected:
        finite: Any = True
        if look:
            values = [*(value for _, value in gradients), self.rest[: self._changes]]
            values = [value for value in values if value.numel()]
            if values:
                largest = torch._foreach_norm(values, math.inf)
                finite = torch.stack(largest).isfinite().all()
        return Collected([value.data_ptr() for _, value in gradients], loss, finite)

    def rest_on_host(self) -> torch.Tensor:
        if self._pinned_rest is None:
            self._pinned_rest = self._device.pinned(self.rest.numel(), self.rest.dtype)
        copied = self._device.begin_copy(self._pinned_rest, self.rest)
        wait(copied, "copy of changes of buffers to the host", self._deadline)
        return self._pinned_rest

    def fill(
        self,
        native: _native.Session,
        got: Collected,
        gradients: Sequence[tuple[int, torch.Tensor]],
        weight: float,
        begin: int,
        ending: Ending,
    ) -> None:
        there = got.loss is self._loss
        known = got.loss is None or there or math.isfinite(got.loss)
        asked = there or got.finite is not True  # the device has to say whether all is finite
        values = ending.values(not known or asked, 0.0 if there else got.loss)
        if self._sent is not None:
            wait(self._sent, "copy of a shard's flags to the device", self._deadline)
        self._pinned.copy_(torch.tensor(values, dtype=self._pinned.dtype))
        ends = self.rest[self._changes :]
        self._sent = self._device.begin_copy(ends, self._pinned)
        if there:
            ends[ending.loss_at : ending.loss_at + 1].copy_(self._loss * ending.weight)
        if known and asked:
            finite = self._loss.isfinite() if there else torch.ones_like(self._loss).bool()
            first = len(ending.present)
            ends[first : first + len(ending.marks)].mul_(~(finite & got.finite))
        native.change_stream(self._device.stream)
        native.fill_gradient(_parts(got, gradients, weight, begin, self.rest))
        self._last = self._device.recorded()
        self._device.launched([gradient for _, gradient in gradients])

    def take_sum(self, native: _native.Session) -> list[float]:
        native.change_stream(self._device.stream)
        native.commit_on_device()
        copied = self._device.begin_copy(self._pinned_sum, self.sum[self._flags :])
        wait(copied, "copy of a sum's flags to the host", self._deadline)
        return self._pinned_sum.tolist()

    def begin_shards(self, native: _native.Session, step: int) -> None:
        _refuse_capture(self._device, step)
        native.change_stream(self._device.stream)

    def make_deterministic(self, model: torch.nn.Module) -> None:
        refuse_tuning(model)
        self._device.make_deterministic()


def transfer_for(
    device: torch.device,
    elements: int,
    gradients: int,
    flags: int,
    dtype: torch.dtype,
    deadline: float = DEADLINE_S,
) -> Direct | Staged | OnDevice:
    """Returns what moves gradients and sums of parameters on the device; the numbers are those of
    Direct. Sums are made there if the job has memory of it (--device-memory) and this process can
    use it: if kernels, driver and the current device allow that."""
    sizes = (elements, gradients, flags, dtype)
    there = staging(device)
    if there is None:
        return Direct(*sizes)
    # The session's calls are of the thread's current device.
    current = device.type != "cuda" or there.number == torch.cuda.current_device()
    if not current or _native.why_not_on_device(there.number):
        return Staged(there, *sizes, deadline)
    return OnDevice(there, *sizes, deadline)
