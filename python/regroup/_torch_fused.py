"""The step of an optimizer of regroup.optim, in a session, writes the checkpoint that is due after
it."""

from __future__ import annotations

import torch

from regroup import _native, optim
from regroup._torch_state import TrainingState

_FLOAT = 4  # bytes


class FusedSnapshot:
    """Tells the optimizer, before the step, where in the save area its tensors go; and the session,
    after it, which of them are there. Optimizers of others are left alone, and the session
    copies."""

    def __init__(self, native: _native.Session, state: TrainingState):
        self._native = native
        self._state = state
        self._optimizer = state.optimizer if isinstance(state.optimizer, optim._Fused) else None
        self._begun: list[tuple[int, torch.Tensor, optim.Part]] = []

    def begin(self) -> None:
        """The sum of a step is there; the optimizer's step is next."""
        targets = self._native.save_targets() if self._optimizer is not None else []
        if not targets:
            return
        assert self._optimizer is not None
        named = self._state.named()
        places = {
            id(named[name]): number for number, (name, _, _) in enumerate(targets) if name in named
        }
        copies: dict[torch.Tensor, dict[str, optim.Part]] = {}
        for parameter in (p for group in self._optimizer.param_groups for p in group["params"]):
            own = {"parameter": parameter, **self._optimizer.state.get(parameter, {})}
            for key, tensor in own.items():
                number = places.get(id(tensor))
                if number is None or tensor.dtype != torch.float32 or not tensor.is_contiguous():
                    continue
                _, begin, memory = targets[number]
                part = optim.Part(begin // _FLOAT, torch.frombuffer(memory, dtype=torch.float32))
                copies.setdefault(parameter, {})[key] = part
                self._begun.append((number, tensor, part))
        self._optimizer.snapshot_into(copies)

    def end(self) -> None:
        """Before the session's next call. What torch has changed since the step is copied, as is
        what no step has filled."""
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        assert self._optimizer is not None
        self._optimizer.snapshot_into(None)
        for number, tensor, part in begun:
            if part.version == tensor._version:
                self._native.saved(number)
