"""Hints about what a script has probably forgotten. None is an error: the script may intend it."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import LRScheduler

from regroup import _arguments
from regroup._errors import Refused
from regroup._torch_collectives import is_elastic

T = TypeVar("T")
_MOST = 10_000  # objects of `extra` that are searched


def tell(text: str) -> None:
    print(f"regroup: {text}", file=sys.stderr, flush=True)


def explained(call: Callable[[], T]) -> T:
    """Returns the result of `call`, which joins; adds to a refusal what to do about it."""
    try:
        return call()
    except Refused as error:
        if not (more := _explanation(str(error))):
            raise
        told = Refused(f"{error}; {more}", error.code)
        told.final = error.final
        raise told from None


def _explanation(refusal: str) -> str:
    if " model differs from that of member " in refusal:
        return "start all members from the same code and config"
    if len(samples := re.findall(r" (\d+) samples in batches of ", refusal)) == 2:
        own, other = map(int, samples)
        if own != other:
            return (
                f"the data set has {own:,} samples, the job's {other:,}: samples are drawn by "
                "index, so it must be the same on every member"
            )
    threads = re.findall(r" torch-threads=(\d+) ", refusal)
    if len(set(threads)) == 2:
        other = "checkpoint" if " the checkpoint's is " in refusal else "job"
        return (
            f"threads: {threads[0]} here, {threads[1]} in the {other}, so that sums "
            "would differ; leave OMP_NUM_THREADS unset or set it for all members with -x "
            f"OMP_NUM_THREADS={threads[1]}"
        )
    return ""


def tell_process_group(size: int) -> None:
    """Prints a hint if the script has a process group in a job whose members may change."""
    if not is_elastic() or not dist.is_available():
        return
    if dist.is_initialized() and dist.get_world_size() > 1:
        tell(
            "this script calls init_process_group in an elastic job: a process group keeps its "
            "ranks, and fails when a member dies, leaves or joins; use session.collective() or "
            f"regroup.torch.prepare(), or a job of fixed size: regroup -np {size}"
        )


def tell_uneven_shards(shards: int, members: int) -> bool:
    """Prints a hint if the next power of two of shards would be computed in less time by so many
    members, and returns whether it has: the member that has the most shards sets the pace."""
    more = 1 << (shards - 1).bit_length()
    most, most_of_more = -(-shards // members), -(-more // members)
    if most * more <= most_of_more * shards:
        return False
    tell(
        f"join: V = {shards} is not a power of two: of {members} members some compute {most} "
        f"shards of a step, and the others wait for them; --shards {more} is faster"
    )
    return True


def tell_forgotten_schedulers(optimizer: torch.optim.Optimizer, extra: Iterable[Any]) -> None:
    """Prints a hint if the optimizer has a scheduler that `extra` does not contain."""
    if names := forgotten_schedulers(optimizer, extra):
        tell(
            f"{_arguments.article(names)} refers to the optimizer and was not passed to "
            "join() as schedulers=[...], epoch_schedulers=[...] or extra=[...]: a new member "
            "and a resumed job begin it anew"
        )


def forgotten_schedulers(optimizer: torch.optim.Optimizer, extra: Iterable[Any]) -> str:
    """Names the classes of the optimizer's schedulers if `extra` contains none; otherwise empty."""
    # set by every scheduler
    if not hasattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched"):
        return ""
    with contextlib.suppress(Exception):  # reading attributes of foreign objects may raise
        if _has_scheduler(extra, optimizer):
            return ""
        # Walks all objects of the process, which takes tens of milliseconds: done only if a
        # scheduler is likely. If there is none, it no longer exists.
        names = {type(one).__name__ for one in gc.get_objects() if _is_of(one, optimizer)}
        return " and a ".join(sorted(names))
    return ""


def tell_missing_gradients(step: int, missing: list[str], of: int) -> None:
    """Prints a hint that parameters have no gradient after `step`, which may be meant."""
    if len(missing) == of:
        what = "no parameter has a gradient in any shard; was loss.backward() called?"
        tell(f"step {step}: {what}")
        return
    tell(
        f"step {step}: no gradient for {len(missing)} of {of} parameters in any shard "
        f"({_short(missing)}): are they used in the loss?"
    )


def _short(names: list[str]) -> str:
    """Their modules at the top of the model: "encoder.*, bias"; at most three of them."""
    tops = [name.partition(".")[0] + ".*" if "." in name else name for name in names]
    out = [names[tops.index(top)] if tops.count(top) == 1 else top for top in dict.fromkeys(tops)]
    return ", ".join(out[:3]) + (", ..." if len(out) > 3 else "")


def tell_late_change(step: int, before: dict[str, str], now: dict[str, str]) -> bool:
    """Prints a hint if the script has changed settings after the collective section of `step`, and
    returns whether it has."""
    changed = [name for name, value in now.items() if before.get(name) != value]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        tell(
            f"step {step}: {changed[0]}{more} changed after session.collective(): the checkpoint "
            f"of this "
            "step and members that join at it have the value from before. Change it before that "
            "call, by "
            "numbers that every member computes itself"
        )
    return bool(changed)


def _is_of(one: Any, optimizer: torch.optim.Optimizer) -> bool:
    return issubclass(type(one), LRScheduler) and vars(one).get("optimizer") is optimizer


def _has_scheduler(extra: Iterable[Any], optimizer: torch.optim.Optimizer) -> bool:
    """Whether `extra` contains a scheduler of `optimizer`, directly or as an attribute or item at
    any depth. True also if `extra` has too many objects to search."""
    waiting, seen = deque(extra), {id(optimizer)}
    while waiting:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_of(one, optimizer) or len(seen) + len(waiting) > _MOST:
            return True
        inner = one if isinstance(one, list | tuple | dict) else getattr(one, "__dict__", ())
        waiting.extend(inner.values() if isinstance(inner, dict) else inner)
    return False
