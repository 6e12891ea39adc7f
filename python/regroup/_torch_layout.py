"""The parameters with which a job began, and which of them are frozen.

A leaf has a place for each parameter that may be trained, and a member that joins builds its model
as the script does at the begin. So the set of parameters is that of join(), but for changes that
join() knows (_torch_changes.py). Which of them require a gradient may change between two steps, on
all members alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn.modules import module as hooks

from regroup import _arguments
from regroup._errors import Refused, shown

# What a leaf holds for a frozen parameter where others have 1 or 0: more than the sum over all
# leaves of those. Sums of it are exact in float32.
FROZEN = float(1 << 20)
_REGISTRATIONS: Sequence[Callable[[Callable[..., None]], Any]] = (
    hooks.register_module_module_registration_hook,
    hooks.register_module_parameter_registration_hook,
)


class Layout:
    """The parameters of a model, at join() or after the last change."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self._parameters = dict(model.named_parameters())
        self._shapes = [p.shape for p in self._parameters.values()]
        self._frozen = self.frozen()
        self._changed = False  # by change()
        self._may_differ = False  # some module of this process got a parameter or a module
        known = weakref.ref(self)

        def note(*_: Any) -> None:
            if (layout := known()) is not None:
                layout._may_differ = True

        for register in _REGISTRATIONS:
            weakref.finalize(self, register(note).remove)

    def change(self) -> None:
        """Takes the parameters that the model has now for those with which the job goes on."""
        self._parameters = dict(self._model.named_parameters())
        self._shapes = [p.shape for p in self._parameters.values()]
        self._changed, self._may_differ = True, False

    def frozen(self) -> list[str]:
        """The names of the parameters that require no gradient now."""
        return [name for name, p in self._parameters.items() if not p.requires_grad]

    def saved(self) -> dict[str, list[str]]:
        """What the state of the job has of it: nothing unless frozen() or the parameters have
        changed since join()."""
        frozen = self.frozen()
        return {} if frozen == self._frozen and not self._changed else {"frozen": frozen}

    def adopt(self, saved: dict[str, Any]) -> None:
        """Freezes and unfreezes parameters as saved() of another member says."""
        frozen = set(saved.get("frozen", self._frozen))
        for name, p in self._parameters.items():
            p.requires_grad_(name not in frozen)

    def check(self, step: int, *, always: bool = False) -> None:
        """Raises if the model has other parameters than at join(). always: also if no module of
        this process has got any."""
        if not (self._may_differ or always):
            return
        self._may_differ = False
        now = dict(self._model.named_parameters())
        before = self._parameters
        both = [name for name in before if name in now]
        found = {
            "has got": [name for name in now if name not in before],
            "has lost": [name for name in before if name not in now],
            "has another": [name for name in both if now[name] is not before[name]],
        }
        said = [f"{what} {_some(names)}" for what, names in found.items() if names]
        for (name, p), shape in zip(before.items(), self._shapes, strict=True):
            if p.shape != shape:
                said.append(f"has {name} of {tuple(p.shape)}, which was {tuple(shape)}")
        if said:
            _arguments.refuse(
                f"step {step}",
                f"the model {' and '.join(said)} since join(): a member that joins now has those "
                "of the begin. Change it in a function of join(changes=...), by session.change(); "
                "or make all parameters before join(), those for later with requires_grad=False, "
                "and join(unfreeze=True)",
            )


def check_agreed(names: Iterable[str], sums: Iterable[float], leaves: int) -> None:
    """Raises if some members froze a parameter, and others did not. sums: over so many leaves, of
    what each holds for a parameter."""
    for name, total in zip(names, sums, strict=False):
        if total >= FROZEN and total != leaves * FROZEN:
            raise Refused(
                f"{name} requires a gradient in some shards of the step only: freeze and unfreeze "
                "between two steps, on all members, by what they have in common (step.number, "
                "step.epoch, the loss)",
                "invalid argument",
            )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return shown(", ".join(names[:3])) + more
