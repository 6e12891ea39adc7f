"""Changes of a model in mid-run: layers that are added, replaced or removed between two steps.

A member that joins later has passed none of the steps that changed the model. So each change is a
function that join() knows by name. The state of the job has the names and arguments of those that
were made, and whoever loads the state calls them first. docs/design/model_changes.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from regroup import _arguments
from regroup._errors import Refused, shown
from regroup._torch_update import check_optimizers

_CALL = "session.change"
_ARGUMENTS = (bool, int, float, str, type(None))
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
    ) -> None:
        """Calls the function and checks what it has made of the model and the optimizers, whose
        states of parameters that are gone it removes."""
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
        self.unfinished = name
        function(**arguments)
        call = f"{_CALL}({name!r})"
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if is_lazy(tensor):
                _arguments.refuse(
                    call, f"{key} of the model has no shape yet: call the layer once in the change"
                )
        check_optimizers(list(optimizers), model, call)
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
