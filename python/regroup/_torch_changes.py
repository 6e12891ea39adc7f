"""Changes of a model in mid-run: layers that are added, replaced or removed between two steps.

A member that joins later has passed none of the steps that changed the model. So each change is a
function that join() knows by name. The state of the job has the names and arguments of those that
were made, and a process that loads the state calls them first. docs/design/model_changes.md.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim import lr_scheduler

from regroup import _arguments
from regroup._errors import Refused, shown
from regroup._torch_update import check_optimizers

_CALL = "session.change"
_ARGUMENTS = (bool, int, float, str, type(None))
# They take each group's rate from its last one only.
_BY_GROUP = (
    lr_scheduler.StepLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.ExponentialLR,
    lr_scheduler.ConstantLR,
    lr_scheduler.LinearLR,
    lr_scheduler.PolynomialLR,
    lr_scheduler.MultiplicativeLR,
)
_MARKS = 1023  # so many kinds of marks: their sum over 16384 leaves is exact in float32
_OF_CHANGES, _OF_ALL = 3, 2  # marks


def check_changes(given: Any, reserve: Any) -> tuple[dict[str, Callable[..., object]], int]:
    """Returns the functions and the number of elements to reserve; refuses other objects."""
    reserve = _arguments.whole("join", "reserve", reserve)
    if given is None:
        if reserve:
            _arguments.refuse("join", "reserve: only changes of the model take it; pass changes")
        return {}, 0
    if not isinstance(given, dict) or not given:
        got = "none" if isinstance(given, dict) else _arguments.kind(given)
        _arguments.refuse("join", f'changes: expected such as {{"head": add_head}}, got {got}')
    for name, function in given.items():
        if not isinstance(name, str) or not callable(function):
            got = _arguments.kind(function if isinstance(name, str) else name)
            _arguments.refuse("join", f"changes: expected names with functions, got {got}")
    return dict(given), reserve


class Changes:
    """The changes that a job may make, and those that it has made."""

    def __init__(self, functions: dict[str, Callable[..., object]] | None = None):
        self._functions = functions or {}
        self.made: list[list[Any]] = []  # name and arguments of each, as the state has them
        self.unfinished = ""  # the name of one that was begun, and has not ended
        self.wrapper: torch.nn.Module | None = None  # of the model, by prepare()

    @property
    def known(self) -> list[str]:
        """The names of those that the job may make."""
        return list(self._functions)

    def make(
        self,
        name: Any,
        arguments: dict[str, Any],
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        extra: Sequence[Any] = (),
    ) -> None:
        """Calls the function and checks what it has made of the model and the optimizers, whose
        states of parameters that are gone it removes. extra: what follows them: schedulers,
        averaged weights."""
        function = self._functions.get(name)
        if function is None:
            known = ", ".join(map(shown, self.known)) or "none"
            _arguments.refuse(
                _CALL, f"join(changes=...) of this program has no {shown(name)!r}, it has {known}"
            )
        for key, value in arguments.items():
            if type(value) not in _ARGUMENTS:
                expected = f"{key}: expected a number, a string, True, False or None"
                _arguments.refuse(_CALL, f"{expected}, got {_arguments.kind(value)}")
        followers = [one for one in extra if _first_not_averaged(one, model) is None]
        self.unfinished = name
        function(**arguments)
        call = f"{_CALL}({name!r})"
        if self.wrapper is not None and (put := _put_into(self.wrapper)):
            _arguments.refuse(
                call,
                f"{put} is now in the wrapper that prepare() has returned: let the function use "
                "the model that prepare() was given, by another name; a member that joins later "
                "calls it before there is a wrapper",
            )
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if is_lazy(tensor):
                _arguments.refuse(
                    call, f"{key} of the model has no shape yet: call the layer once in the change"
                )
        check_optimizers(list(optimizers), model, call)
        for one in followers:
            if (other := _first_not_averaged(one, model)) is not None:
                _arguments.refuse(
                    call,
                    f"{type(one).__name__}.module has no {other} as the model has: change it, too, "
                    "in the same way",
                )
        for one in _each_scheduler(extra):
            if short := _too_short(one):
                _arguments.refuse(
                    call,
                    f"{type(one).__name__} knows fewer parameter groups than its optimizer has: "
                    f"append to its {short}, or add the parameters to a group that it knows",
                )
        for optimizer in optimizers:
            kept = {p for group in optimizer.param_groups for p in group["params"]}
            for parameter in [p for p in optimizer.state if p not in kept]:
                del optimizer.state[parameter]
        self.made.append([name, dict(arguments)])

    def missing(self, wanted: list[list[Any]]) -> list[list[Any]]:
        """Returns which of those that a state has made are to be made here."""
        if _text(wanted[: len(self.made)]) != _text(self.made):
            raise Refused(
                f"the state has other changes of the model than this member, which has made "
                f"{_calls(self.made)}: {_calls(wanted)}",
                "invalid argument",
            )
        for name, _ in wanted[len(self.made) :]:
            if name not in self._functions:
                raise Refused(
                    f"the state has the change {shown(name)!r} of the model: pass "
                    f'changes={{"{shown(name)}": ...}} to join(), with the function that the run '
                    "had that made the state",
                    "invalid argument",
                )
        return wanted[len(self.made) :]


def _put_into(wrapper: torch.nn.Module) -> str:
    """The name of a tensor or module beside the wrapped one."""
    found = [*wrapper._modules, *wrapper._parameters, *wrapper._buffers]
    return next((shown(name) for name in found if name != "module"), "")


def _first_not_averaged(average: Any, model: torch.nn.Module) -> str | None:
    """Returns the first tensor of the model that averaged weights of it lack, or have with another
    shape or in another place: update_parameters() takes both one after the other, without their
    names. None: there is none, or these are none."""
    module = getattr(average, "module", None)
    if not hasattr(average, "update_parameters") or not isinstance(module, torch.nn.Module):
        return None
    for listed in (torch.nn.Module.named_parameters, torch.nn.Module.named_buffers):
        pairs = itertools.zip_longest(listed(model), listed(module), fillvalue=("", None))
        for (name, own), (other, averaged) in pairs:
            if name != other or own.shape != averaged.shape:
                return shown(name or other)
    return None


def _each_scheduler(extra: Iterable[Any]) -> Iterator[Any]:
    """Those that others are made of, too."""
    for one in extra:
        yield one
        if isinstance(one, lr_scheduler.LRScheduler):
            yield from _each_scheduler(getattr(one, "_schedulers", ()))


def _too_short(scheduler: Any) -> str:
    """The lists of a learning rate scheduler that have fewer values than groups there are."""
    optimizer = getattr(scheduler, "optimizer", None)
    groups = len(getattr(optimizer, "param_groups", ()))
    lists = ["lr_lambdas"]
    if not isinstance(scheduler, _BY_GROUP):
        lists.append("base_lrs")
    if getattr(scheduler, "default_min_lr", None) is None:  # else ReduceLROnPlateau adds some
        lists.append("min_lrs")
    have = [name for name in lists if isinstance(getattr(scheduler, name, None), list)]
    return " and ".join(name for name in have if len(getattr(scheduler, name)) < groups)


def _calls(changes: list[list[Any]]) -> str:
    def call(name: str, arguments: dict[str, Any]) -> str:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    return shown(", ".join(call(*change) for change in changes)) or "none"


def _text(changes: list[list[Any]]) -> str:
    """A text that is equal for equal changes, also for NaN."""
    return json.dumps(changes, sort_keys=True)


def marks_of(made: list[list[Any]], tensors: Iterable[tuple[str, torch.Tensor]]) -> list[float]:
    """Returns marks of a layout: of the changes made; one for each tensor, which differs, most
    likely, if it or one before it differs in name, type or shape; then of all tensors."""
    out = _numbers(hashlib.sha256(_text(made).encode()), _OF_CHANGES)
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        out += _numbers(digest, 1)
    return out + _numbers(digest, 1 + _OF_ALL)[1:]


def _numbers(digest: Any, count: int) -> list[float]:
    whole = digest.digest()
    parts = [whole[8 * index : 8 * index + 8] for index in range(count)]
    return [1.0 + int.from_bytes(part, "little") % _MARKS for part in parts]


def check_marks(
    made: list[list[Any]],
    tensors: Sequence[tuple[str, torch.Tensor]],
    own: Sequence[float],
    sums: Sequence[float],
    leaves: int,
) -> None:
    """Raises if members have changed the model differently.

    own: marks_of() the changes and tensors. sums: over so many leaves, of the marks in each; one
    more than `own`, which is 0 unless another member has more tensors."""
    for index, total in enumerate(sums):
        if total == leaves * (own[index] if index < len(own) else 0.0):
            continue
        what = "members have different models: "
        if index < _OF_CHANGES:
            what = f"members have made different changes of the model: this one {_calls(made)}"
        elif index - _OF_CHANGES < len(tensors):
            name, tensor = tensors[index - _OF_CHANGES]
            kind = f"{tensor.dtype}".removeprefix("torch.")
            what += f"{shown(name)} of this one is {kind} {list(tensor.shape)}, of others it is not"
        else:
            last = shown(tensors[-1][0])
            what += f"others have tensors after {last}, the last of this one, or another {last}"
        raise Refused(
            f"{what}. Call session.change() in the same step and "
            "with the same arguments on all of them, by what they have in common (step.number, "
            "step.epoch, the loss)",
            "invalid argument",
        )
