"""Refuses reductions of torch.distributed between the shards of a step of an elastic job. Which
shards a rank has reduced by then depends on the members, so the weights would.

dist.all_reduce() and its like call methods of dist.ProcessGroup, which are wrapped, also where a
class in Python overrides them. The Reducer of DistributedDataParallel and compiled code call C++
directly.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist

from regroup import _arguments

# Methods that reduce, by the names that scripts call.
_REDUCTIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_single",
    "_reduce_scatter_base": "reduce_scatter_tensor",
}


class Training(Protocol):
    """open_step: whose shards are computed; 0: none."""

    open_step: int


_training: Callable[[], Training | None] | None = None  # the last session


def is_elastic() -> bool:
    """Whether the members of this process's job may change."""
    return "REGROUP_AGENT" in os.environ and "REGROUP_WORLD" not in os.environ


def guard(training: Training) -> None:
    """Refuses reductions of floating-point tensors while training.open_step is not 0, if the job is
    elastic. Of several sessions of a process the last one counts."""
    global _training
    if not is_elastic() or not dist.is_available():
        return
    _training = weakref.ref(training)
    wrap(dist.ProcessGroup)


def wrap(group: type) -> None:
    """Lets guard() see the reductions that this class of process groups and its subclasses have
    themselves. Classes that are made later call it."""
    for method, name in _REDUCTIONS.items():
        if method not in vars(group):  # the names differ between versions
            continue
        if not hasattr(call := getattr(group, method), "_regroup_guards"):
            setattr(group, method, _guarded(call, name))
    for derived in group.__subclasses__():
        wrap(derived)


def _guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(group: Any, *args: Any, **kwargs: Any) -> Any:
        training = _training and _training()
        if training is not None and training.open_step and group.size() > 1:
            _check(name, training.open_step, [*args, *kwargs.values()])
        return call(group, *args, **kwargs)

    guarded._regroup_guards = name  # type: ignore[attr-defined]
    return guarded


def _check(name: str, step: int, arguments: list[Any]) -> None:
    first = next((tensor for tensor in _tensors(arguments) if tensor.is_floating_point()), None)
    if first is not None:
        kind = f"{first.dtype}".removeprefix("torch.")
        _arguments.refuse(
            f"step {step}",
            f"{name} of {first.numel()} {kind} inside a step: its bits depend on the number of "
            "members; use session.collective() between steps, or step.clip_grad_norm_()",
        )


def _tensors(arguments: Any) -> Iterator[torch.Tensor]:
    for one in arguments:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)
