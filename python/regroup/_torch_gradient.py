"""Packs the result of a shard's computation into one flat array, a leaf, and unpacks the sum.

A leaf holds
- the gradients, and the shard's changes of the model's buffers (BatchNorm's statistics), each
  starting on a new cache line,
- for each parameter 1 if it had a gradient,
- marks of a shard whose loss or gradient is not finite (_torch_nan.py),
- the recorded loss, and 1 if there was one.
Gradients, changes and loss are weighted with n_shard / n_batch, so that the sum over the leaves is
the mean over the batch. Integer buffers take the change of the last shard only, unweighted: a
counter of batches grows by one per step. The last shard is never empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from regroup import _torch_nan
from regroup._errors import Refused

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
    process."""

    def __init__(
        self, model: torch.nn.Module, nan: _torch_nan.Policy = "ignore", scaled: bool = False
    ):
        """nan: what to do in a step whose loss or gradient is not finite. scaled: a GradScaler
        scales the loss, and skips steps itself where the gradient is not finite."""
        self._nan, self._scaled = nan, scaled
        self.not_finite: _torch_nan.NotFinite | None = None  # in the last sum
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = list(named.values())
        self._names = list(named)
        self._frozen = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
        self.buffers = _buffers_of(model)
        everything = [*model.named_parameters(), *((b.name, b.tensor) for b in self.buffers)]
        for name, tensor in everything:
            _check(name, tensor)
        wide = any(tensor.dtype == torch.float64 for _, tensor in everything)
        self.dtype = torch.float64 if wide else torch.float32
        self._layout()
        self._sum = torch.zeros(self.elements, dtype=self.dtype)
        self._sums = self._split(self._sum)
        self._leaves: dict[int, tuple[list[torch.Tensor], torch.Tensor]] = {}
        self._scale = 1.0

    def _layout(self) -> None:
        self._places: list[tuple[int, torch.Size]] = []
        gaps: list[int] = []
        end = 0
        for tensor in [*self.parameters, *(b.tensor for b in self.buffers)]:
            self._places.append((end, tensor.shape))
            used = end + tensor.numel()
            end = used + -used % _LINE
            gaps += range(used, end)
        self._gaps = torch.tensor(gaps, dtype=torch.int64)
        self._flags = end  # one per parameter, then marks, loss and "was recorded"
        self.elements = end + len(self.parameters) + _torch_nan.ELEMENTS + 2

    def _split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [flat[begin : begin + shape.numel()].view(shape) for begin, shape in self._places]

    def begin_shard(self) -> None:
        """To be called before user code computes a shard: clears the gradients and remembers the
        committed buffers."""
        for p in self.parameters:
            p.grad = None
        for b in self.buffers:
            b.committed.copy_(b.tensor)

    @torch.no_grad()
    def harvest(
        self, number: int, leaf: memoryview, weight: float, last: bool, loss: float | None
    ) -> None:
        """Fills `leaf`, that of shard `number`, completely from p.grad and the buffers, then
        restores both to what they were.

        weight: n_shard / n_batch.  last: this is the last leaf, whose integer buffers count.
        """
        flat = torch.frombuffer(leaf, dtype=self.dtype)
        views, flags = self._views_of(flat)
        flat.index_fill_(0, self._gaps, 0)
        flags.zero_()
        for i, p in enumerate(self.parameters):
            if p.grad is None:
                views[i].zero_()
                continue
            flags[i] = 1
            _weighted(p.grad.detach(), weight, views[i])
            p.grad = None
        for b, view in zip(self.buffers, views[len(self.parameters) :], strict=True):
            self._harvest_buffer(b, weight, last, view)
        if loss is not None:
            flags[-2:] = torch.tensor([loss * weight, 1.0], dtype=self.dtype)
        watched = self._nan != "ignore" and not self._scaled  # takes a pass over the gradient
        bad = loss is not None and not math.isfinite(loss)
        if bad or (watched and not _torch_nan.is_finite(flat[: self._flags])):
            _torch_nan.mark(self._marks_in(flags), number, self._nan)
        for name, p in self._frozen:
            if p.requires_grad:
                raise Refused(
                    f"{name} requires a gradient now, but did not when join() was called",
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
        """The names of the parameters without a gradient."""
        named = zip(self._names, self.parameters, strict=True)
        return [name for name, p in named if p.grad is None]

    def _marks_in(self, flags: Any) -> Any:
        begin = len(self.parameters)
        return flags[begin : begin + _torch_nan.ELEMENTS]

    def _views_of(self, flat: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Returns views of the parts of a leaf. They are cached: the arena has few leaf buffers."""
        at = flat.data_ptr()
        if at not in self._leaves:
            self._leaves[at] = (self._split(flat), flat[self._flags :])
        return self._leaves[at]

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
            if out.numel() and out.abs().max() > 1 << 24:
                raise Refused(
                    f"integer buffer {b.name} changed by more than 2**24 in a step",
                    "invalid argument",
                )
        else:
            out.zero_()
        b.restore()

    @torch.no_grad()
    def take_sum(self, native) -> float | None:
        """Fills p.grad and the buffers from the sum of all leaves and returns the loss. Changes no
        parameter: the caller's optimizer does. The step is committed before, when
        native.next_shard() has returned None.

        A step that `nan` leaves out keeps the buffers and has no gradients, so that optimizers
        change nothing; for a GradScaler all are NaN, so that it skips every optimizer."""
        native.commit_into(self._sum)
        flags = self._sum[self._flags :].tolist()
        self.not_finite = _torch_nan.read(self._marks_in(flags))
        skip = self.not_finite is not None and (self.not_finite.skip or self.not_finite.stop)
        for p, total, present in zip(self.parameters, self._sums, flags, strict=False):
            p.grad = total.to(p.dtype) if present and (self._scaled or not skip) else None
            if skip and p.grad is not None:
                p.grad.fill_(math.nan)
        if skip:
            return flags[-2] if flags[-1] else None
        for b, total in zip(self.buffers, self._sums[len(self.parameters) :], strict=True):
            if b.tensor.is_floating_point():
                b.tensor.copy_(b.tensor.to(self.dtype).add_(total))
            else:
                b.tensor.copy_(b.tensor.to(torch.int64).add_(total.to(torch.int64)))
        return flags[-2] if flags[-1] else None


def _weighted(gradient: torch.Tensor, weight: float, out: torch.Tensor) -> None:
    if gradient.layout != torch.strided:
        gradient = gradient.to_dense()
    if gradient.dtype == out.dtype:
        torch.mul(gradient, weight, out=out)
    else:
        out.copy_(gradient).mul_(weight)


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


def _check(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise Refused(
            f"join: {name} is on {tensor.device}; this version trains on the CPU only",
            "invalid argument",
        )
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise Refused(
            f"join: {name} is {tensor.dtype}, {tensor.layout}: only dense real tensors are "
            f"supported",
            "invalid argument",
        )
