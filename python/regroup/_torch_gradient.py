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

from regroup import _native, _torch_nan
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
    process. A leaf is written by one call of the session, which sums it with the leaves before in
    the same pass over the memory."""

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
        # What a leaf holds after the gradients, for one shard. Elements between buffers stay 0.
        self._rest = torch.zeros(self.elements - self._gradients, dtype=self.dtype)
        self._changes = self._split(self._rest, self._gradients, len(self.parameters))

    def _layout(self) -> None:
        self._places: list[tuple[int, torch.Size]] = []
        end = 0

        def place(tensor: torch.Tensor) -> None:
            nonlocal end
            self._places.append((end, tensor.shape))
            end += tensor.numel()
            end += -end % _LINE

        for p in self.parameters:
            place(p)
        self._gradients = end
        for b in self.buffers:
            place(b.tensor)
        self._flags = end  # one per parameter, then marks, loss and "was recorded"
        self.elements = end + len(self.parameters) + _torch_nan.ELEMENTS + 2

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
        for p in self.parameters:
            p.grad = None
        for b in self.buffers:
            b.committed.copy_(b.tensor)

    @torch.no_grad()
    def harvest(
        self,
        native: _native.Session,
        number: int,
        weight: float,
        last: bool,
        loss: float | None,
    ) -> None:
        """Fills the leaf of shard `number`, which the session has handed out last, from p.grad and
        the buffers, then restores both to what they were.

        weight: n_shard / n_batch.  last: this is the last leaf, whose integer buffers count.
        """
        rest, flags = self._rest, self._rest[self._flags - self._gradients :]
        gradients, parts, present = [], [], []
        named = zip(self._names, self.parameters, self._places, strict=False)
        for name, p, (begin, shape) in named:
            present.append(0.0 if p.grad is None else 1.0)
            if p.grad is None:
                continue
            gradient = self._packed(p.grad.detach())
            if gradient.shape != shape:
                raise Refused(
                    f"{name} has a gradient of {tuple(gradient.shape)}, but was {tuple(shape)} "
                    "when join() was called",
                    "invalid argument",
                )
            gradients.append(gradient)
            parts.append((begin, shape.numel(), gradient.data_ptr(), weight))
            p.grad = None
        for b, change in zip(self.buffers, self._changes, strict=True):
            self._harvest_buffer(b, weight, last, change)
        section = [0.0] * _torch_nan.ELEMENTS
        if self._is_bad(gradients, loss):
            _torch_nan.mark(section, number, self._nan)
        recorded = [0.0, 0.0] if loss is None else [loss * weight, 1.0]
        flags.copy_(torch.tensor([*present, *section, *recorded], dtype=self.dtype))
        for name, p in self._frozen:
            if p.requires_grad:
                raise Refused(
                    f"{name} requires a gradient now, but did not when join() was called",
                    "invalid argument",
                )
        parts.append((self._gradients, rest.numel(), rest.data_ptr(), 1.0))
        native.fill_gradient(parts)

    def _packed(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the gradient in the order of its elements and in the dtype of a leaf."""
        if gradient.layout != torch.strided:
            gradient = gradient.to_dense()
        return gradient.to(self.dtype).resolve_neg().contiguous()

    def _is_bad(self, gradients: list[torch.Tensor], loss: float | None) -> bool:
        """Whether the loss or a value of the shard is not finite. Looks at the values only if
        `nan` asks for it, since that takes a pass over them."""
        if loss is not None and not math.isfinite(loss):
            return True
        if self._nan == "ignore" or self._scaled:
            return False
        return not all(map(_torch_nan.is_finite, [*gradients, *self._changes]))

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
    def take_sum(self, native: _native.Session) -> float | None:
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
