"""Lets the step of a regroup.optim optimizer write the snapshot that is due after the step."""

from __future__ import annotations

import torch

from regroup import _native, optim
from regroup._torch_state import TrainingState

_FLOAT = 4  # bytes


class FusedSave:
    """Passes the optimizer, before its step, the places of its tensors in the save area; and
    reports to the session, after the step, which tensors the optimizer has written. For any other
    optimizer, and in a job that may change the model after that step, which would move the tensors'
    places, it does nothing, and the session copies the tensors."""

    def __init__(self, native: _native.Session, state: TrainingState):
        self._native = native
        self._state = state
        fused = [one for one in state.optimizers if isinstance(one, optim._Fused)]
        self._optimizers = [] if state.changes.known else fused
        self._begun: list[tuple[int, torch.Tensor, optim.Part]] = []

    def begin(self) -> None:
        """To be called between the sum of the gradients and the optimizer's step."""
        targets = self._native.save_targets() if self._optimizers else []
        if not targets:
            return
        named = self._state.named()
        places = {
            id(named[name]): number for number, (name, _, _) in enumerate(targets) if name in named
        }
        for optimizer in self._optimizers:
            optimizer.snapshot_into(self._targets_of(optimizer, targets, places))

    def _targets_of(
        self,
        optimizer: optim._Fused,
        targets: list[tuple[str, int, memoryview]],
        places: dict[int, int],
    ) -> dict[torch.Tensor, dict[str, optim.Part]]:
        copies: dict[torch.Tensor, dict[str, optim.Part]] = {}
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            own = {"parameter": parameter, **optimizer.state.get(parameter, {})}
            for key, tensor in own.items():
                number = places.get(id(tensor))
                if number is None or tensor.dtype != torch.float32 or not tensor.is_contiguous():
                    continue
                _, begin, memory = targets[number]
                part = optim.Part(begin // _FLOAT, torch.frombuffer(memory, dtype=torch.float32))
                copies.setdefault(parameter, {})[key] = part
                self._begun.append((number, tensor, part))
        return copies

    def end(self) -> None:
        """To be called before the session's next call. The session copies a tensor that the step
        did not write, or that torch has changed since."""
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        for optimizer in self._optimizers:
            optimizer.snapshot_into(None)
        for number, tensor, part in begun:
            if part.version == tensor._version:
                self._native.saved(number)
