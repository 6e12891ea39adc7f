"""Packs the result of a shard's computation into one flat array, a leaf, and unpacks the sum.
_torch_device.py moves both between the host and the device of the parameters.

A leaf holds
- the gradients, and the shard's changes of the model's buffers (BatchNorm's statistics), each
  starting on a new cache line,
- for each parameter 1 if it had a gradient, FROZEN if it requires none,
- marks of a shard whose loss or gradient is not finite (_torch_nan.py),
- the recorded loss, and 1 if there was one,
- with changes of the model (_torch_changes.py) marks of them and of each gradient and buffer, at
  the end and backwards, so that the first ones have the same place in every layout,
- before those, if there are cursors (_torch_cursors.py), the section of each shard.
Such a leaf has room for more: between the gradients, which begin with its first element, and the
rest, which ends with its last one.
Gradients, changes and loss are weighted with n_shard / n_batch, so that the sum over the leaves is
the mean over the batch. Integer buffers take the change of the last shard only, unweighted: a
counter of batches grows by one per step. The last shard is never empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from regroup import _arguments, _native, _torch_changes, _torch_device, _torch_nan
from regroup._errors import Refused
from regroup._torch_cursors import Cursors
from regroup._torch_layout import FROZEN, check_agreed
from regroup._torch_stream import Stream

_LINE = 16  # elements: 64 bytes of float32


@dataclass
class Buffer:
    """A buffer of the model: the module that has it, and its value in the committed state."""

    module: torch.nn.Module
    key: str
    name: str
    tensor: torch.Tensor
    committed: torch.Tensor

    def restore(self) -> None:
        self.tensor.copy_(self.committed)
        self.module._buffers[self.key] = self.tensor


class Gradient:
    """Copies gradients and buffers between a model and the arena. p.grad stays in memory of this
    process or on its device. A leaf is written by one call of the session, which sums it with the
    leaves before in the same pass over the memory."""

    def __init__(
        self,
        model: torch.nn.Module,
        nan: _torch_nan.Policy = "ignore",
        scaled: bool = False,
        deadline: float = _torch_device.DEADLINE_S,
        unfreeze: bool = False,
        reserve: int | None = None,
        cursors: Cursors | None = None,
    ):
        """nan: what to do in a step whose loss or gradient is not finite. scaled: a GradScaler
        scales the loss, and skips steps itself where the gradient is not finite. deadline: the
        longest wait for the parameters' device, in seconds. unfreeze: leaves have a place for
        parameters that require no gradient yet. reserve: elements that changes of the model may
        add; None: it will not change. cursors: of the parts of a stream."""
        self._nan, self._scaled = nan, scaled
        self._model, self._unfreeze, self._reserve = model, unfreeze, reserve
        self._cursors = cursors
        self.stream: Stream | None = None  # whose cursors these are
        self._made: list[list[Any]] = []  # changes of the model
        self.not_finite: _torch_nan.NotFinite | None = None  # in the last sum
        self._accumulated: dict[int, torch.Tensor] = {}  # by number of a parameter
        self.parameters: list[torch.nn.Parameter] = []
        everything = self._take_tensors("join")
        wide = any(tensor.dtype == torch.float64 for _, tensor in everything)
        self.dtype = torch.float64 if wide else torch.float32
        self._at_join = self._size()
        self.elements = self._at_join + (reserve or 0)
        self._layout()
        self.device = _torch_device.device_of(everything)
        sizes = (self.elements, self._gradients, self._flags, self.dtype)
        self.transfer = _torch_device.transfer_for(self.device, *sizes, deadline)
        self._take_views()

    def change(self, made: list[list[Any]]) -> None:
        """Takes the parameters and buffers that the model has now, between two steps. Those that a
        leaf had a place for keep one, also if they are frozen now. made: all changes."""
        self._made = made
        everything = self._take_tensors("session.change")
        if not any(p.requires_grad for p in self.parameters):
            _arguments.refuse(
                "session.change", "no parameter of the model requires a gradient after it"
            )
        for name, tensor in everything:
            wrong = f"{tensor.device}" if tensor.device != self.device else ""
            if tensor.dtype == torch.float64 != self.dtype:
                wrong = "float64"
            if wrong:
                _arguments.refuse(
                    "session.change",
                    f"{name} is {wrong}; expected tensors like those at join(), on {self.device} "
                    f"and no wider than {self.dtype}",
                )
        if self._size() > self.elements:
            more, reserved = self._size() - self._at_join, self.elements - self._at_join
            _arguments.refuse(
                "session.change",
                f"parameters and buffers take {more} elements more than at join(), where "
                f"{reserved} were reserved: pass reserve={more} or more to join()",
            )
        self._layout()
        self.transfer.place(self._gradients, self._flags)
        self._take_views()

    def _take_tensors(self, call: str) -> list[tuple[str, torch.Tensor]]:
        """Returns all tensors of the model. call: for messages."""
        known = {id(p) for p in self.parameters}
        named, self._left_out = {}, []
        for name, p in self._model.named_parameters():
            if p.requires_grad or self._unfreeze or id(p) in known:
                named[name] = p
            else:
                self._left_out.append((name, p))
        self.parameters, self._names = list(named.values()), list(named)
        self.buffers = _buffers_of(self._model)
        buffers = [(b.name, b.tensor) for b in self.buffers]
        self._marked = [*named.items(), *buffers] if self._reserve is not None else []
        self._marks = _torch_changes.marks_of(self._made, self._marked)
        everything = [*self._model.named_parameters(), *buffers]
        for name, tensor in everything:
            _check(name, tensor, call)
        return everything

    def _size(self) -> int:
        """The elements that a leaf needs."""
        return sum(map(_padded, [*self.parameters, *(b.tensor for b in self.buffers)])) + (
            self._ending_size()
        )

    def _ending_size(self) -> int:
        """One per parameter, then marks of _torch_nan, loss and "was recorded"; the cursors; with
        changes 0 and marks."""
        marks = 0 if self._reserve is None else 1 + len(self._marks)
        return self._cursors_at + (self._cursors.elements if self._cursors else 0) + marks

    @property
    def _cursors_at(self) -> int:
        return len(self.parameters) + _torch_nan.ELEMENTS + 2

    def _layout(self) -> None:
        self._places: list[tuple[int, torch.Size]] = []
        end = 0

        def place(tensor: torch.Tensor) -> None:
            nonlocal end
            self._places.append((end, tensor.shape))
            end += _padded(tensor)

        for p in self.parameters:
            place(p)
        if self._reserve is not None:
            rest = sum(_padded(b.tensor) for b in self.buffers) + self._ending_size()
            end = (self.elements - rest) // _LINE * _LINE
        self._gradients = end
        for b in self.buffers:
            place(b.tensor)
        self._flags = end
        unused = self.elements - end - self._ending_size()
        self._last = [] if self._reserve is None else [0.0] * (unused + 1) + self._marks[::-1]

    def _take_views(self) -> None:
        self._sums = self._split(self.transfer.sum)
        self._changes = self._changes_in(self.transfer.rest)

    def _changes_in(self, rest: torch.Tensor) -> list[torch.Tensor]:
        return self._split(rest, self._gradients, len(self.parameters))

    def _split(self, flat: torch.Tensor, first: int = 0, skip: int = 0) -> list[torch.Tensor]:
        """Returns views of the gradients and buffers, without the first `skip`, in `flat`, which
        begins with element `first` of a leaf."""
        return [
            flat[begin - first : begin - first + shape.numel()].view(shape)
            for begin, shape in self._places[skip:]
        ]

    def begin_shard(self) -> None:
        """To be called before user code computes a shard: clears the gradients and remembers the
        committed buffers."""
        self._accumulated = {}
        for p in self.parameters:
            p.grad = None
        for b in self.buffers:
            b.committed.copy_(b.tensor)

    @torch.no_grad()
    def accumulate(self, weight: float) -> None:
        """Adds p.grad, that of a part of the shard, to the gradient of the shard and clears it.

        weight: n_part / n_shard."""
        named = zip(self._names, self.parameters, strict=True)
        for index, (name, p) in enumerate(named):
            if p.grad is None:
                continue
            gradient = self._packed(name, p.grad.detach())
            if (total := self._accumulated.get(index)) is None:
                # in memory of its own: p.grad may be shared
                self._accumulated[index] = gradient * weight
            else:
                total.add_(gradient, alpha=weight)
            p.grad = None

    @torch.no_grad()
    def harvest(
        self,
        native: _native.Session,
        number: int,
        weight: float,
        last: bool,
        loss: Any,
    ) -> None:
        """Fills the leaf of shard `number`, which the session has handed out last, from p.grad (or
        what accumulate() has added up) and the buffers, then restores both to what they were.

        weight: n_shard / n_batch.  last: this is the last leaf, whose integer buffers count.
        loss: what transfer.recorded() has returned, or None.
        """
        gradients, present = [], []
        named = zip(self._names, self.parameters, self._places, strict=False)
        for index, (name, p, (begin, shape)) in enumerate(named):
            gradient = self._accumulated.get(index)
            if gradient is None and p.grad is not None:
                gradient = self._packed(name, p.grad.detach())
            if gradient is None:
                present.append(0.0 if p.requires_grad else FROZEN)
                continue
            present.append(1.0)
            if gradient.shape != shape:
                raise Refused(
                    f"{name} has a gradient of {tuple(gradient.shape)}, but was {tuple(shape)} "
                    "when join() was called",
                    "invalid argument",
                )
            gradients.append((begin, gradient))
            p.grad = None
        self.transfer.begin_leaf()
        for b, change in zip(self.buffers, self._changes, strict=True):
            self._harvest_buffer(b, weight, last, change)
        look = self._nan != "ignore" and not self._scaled  # takes a pass over the values
        got = self.transfer.collect(gradients, loss, look)
        if last:  # the other leaves hold 0 for a counter
            self._check_counters()
        marks = [0.0] * _torch_nan.ELEMENTS
        _torch_nan.mark(marks, number, self._nan)
        self.check_left_out()
        more = self._last
        if self._cursors is not None and self.stream is not None:
            more = self._cursors.section_of(number, self.stream.state_after(number)) + more
        ending = _torch_device.Ending(present, marks, weight, more)
        self.transfer.fill(native, got, gradients, weight, self._gradients, ending)
        self._accumulated = {}

    def check_left_out(self) -> None:
        """Raises if a parameter without a place in a leaf requires a gradient now. A change would
        give it one, which a process that loads the state does not give it."""
        for name, p in self._left_out:
            if p.requires_grad:
                since, instead = "when join() was called", ""
                if self._reserve is not None:
                    since = "when the last change was made" if self._made else since
                    instead = "unfreeze it in a function of join(changes=...), or "
                raise Refused(
                    f"{name} requires a gradient now, but did not {since}: {instead}pass "
                    "unfreeze=True to join()",
                    "invalid argument",
                )

    def _packed(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the gradient in the order of its elements and in the dtype of a leaf."""
        if gradient.layout != torch.strided:
            if gradient.device.type != "cpu":
                raise Refused(
                    f"{name} has a gradient of {gradient.layout} on {gradient.device}: expected a "
                    "dense one; an Embedding takes sparse=False",
                    "invalid argument",
                )
            gradient = gradient.to_dense()
        return gradient.to(self.dtype).resolve_neg().contiguous()

    def _check_counters(self) -> None:
        counts = [not b.tensor.is_floating_point() and b.tensor.numel() > 0 for b in self.buffers]
        if not any(counts):
            return
        changes = self._changes_in(self.transfer.rest_on_host())
        for b, counter, change in zip(self.buffers, counts, changes, strict=True):
            if counter and change.abs().max() > 1 << 24:
                raise Refused(
                    f"integer buffer {b.name} changed by more than 2**24 in a step",
                    "invalid argument",
                )

    def discard(self) -> None:
        """Undoes what a batch has changed since begin_shard()."""
        for p in self.parameters:
            p.grad = None
        for b in self.buffers:
            b.restore()

    @property
    def is_none(self) -> bool:
        """Whether no parameter has a gradient. The first parameter usually decides."""
        return all(p.grad is None for p in self.parameters)

    def missing(self) -> list[str]:
        """The names of the parameters that require a gradient and have none."""
        named = zip(self._names, self.parameters, strict=True)
        return [name for name, p in named if p.grad is None and p.requires_grad]

    def _marks_in(self, flags: Any) -> Any:
        begin = len(self.parameters)
        return flags[begin : begin + _torch_nan.ELEMENTS]

    def _harvest_buffer(self, b: Buffer, weight: float, last: bool, out: torch.Tensor) -> None:
        now = b.module._buffers[b.key]
        if now is None or now.shape != b.tensor.shape or now.dtype != b.tensor.dtype:
            raise Refused(
                f"buffer {b.name} changed its shape or type in a step", "invalid argument"
            )
        if b.tensor.is_floating_point():
            torch.sub(now.to(self.dtype), b.committed.to(self.dtype), out=out)
            out.masked_fill_(now == b.committed, 0).mul_(weight)  # infinite changes would give NaN
        elif last:
            out.copy_(now.to(torch.int64) - b.committed.to(torch.int64))
        else:
            out.zero_()
        b.restore()

    @torch.no_grad()
    def take_sum(self, native: _native.Session, leaves: int, step: int) -> float | None:
        """Fills p.grad and the buffers from the sum of all leaves and returns the loss. Changes no
        parameter: the caller's optimizer does. The step is committed before, when
        native.next_shard() has returned None. leaves: those with samples. step: its number.

        A step that `nan` leaves out keeps the buffers and has no gradients, so that optimizers
        change nothing; for a GradScaler all are NaN, so that it skips every optimizer."""
        flags = self.transfer.take_sum(native)
        if self._reserve is not None:
            sums = flags[: -len(self._marks) - 2 : -1]
            _torch_changes.check_marks(self._made, self._marked, self._marks, sums, leaves)
        if self._cursors is not None and self.stream is not None:
            self.stream.take_cursors(step, flags[self._cursors_at :][: self._cursors.elements])
        check_agreed(self._names, flags, leaves)
        self.not_finite = _torch_nan.read(self._marks_in(flags))
        skip = self.not_finite is not None and (self.not_finite.skip or self.not_finite.stop)
        for p, total, present in zip(self.parameters, self._sums, flags, strict=False):
            trained = 0 < present < FROZEN
            p.grad = total.to(p.dtype) if trained and (self._scaled or not skip) else None
            if skip and p.grad is not None:
                p.grad.fill_(math.nan)
        if skip:
            return self._loss_in(flags)
        for b, total in zip(self.buffers, self._sums[len(self.parameters) :], strict=True):
            if b.tensor.is_floating_point():
                b.tensor.copy_(b.tensor.to(self.dtype).add_(total))
            else:
                b.tensor.copy_(b.tensor.to(torch.int64).add_(total.to(torch.int64)))
        return self._loss_in(flags)

    def _loss_in(self, flags: list[float]) -> float | None:
        loss, recorded = flags[len(self.parameters) + _torch_nan.ELEMENTS :][:2]
        return loss if recorded else None


def _padded(tensor: torch.Tensor) -> int:
    return tensor.numel() + -tensor.numel() % _LINE


def _buffers_of(model: torch.nn.Module) -> list[Buffer]:
    buffers, seen = [], set()
    for prefix, module in model.named_modules():
        for key, tensor in module._buffers.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                buffers.append(
                    Buffer(module, key, f"{prefix}.{key}".lstrip("."), tensor, tensor.clone())
                )
    return buffers


def _check(name: str, tensor: torch.Tensor, call: str) -> None:
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise Refused(
            f"{call}: {name} is {tensor.dtype}, {tensor.layout}: only dense real tensors are "
            f"supported",
            "invalid argument",
        )
