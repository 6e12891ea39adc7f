"""Optimizers of torch.optim for fp32 tensors on the CPU whose step writes a copy of its results for
a checkpoint in the same pass.

    optimizer = regroup.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.snapshot_into({weight: {"parameter": copy, "exp_avg": ..., "exp_avg_sq": ...}, ...})
    optimizer.step()           # changes the weights, and leaves what they now are in the copies
    optimizer.snapshot_into(None)

A session of regroup.torch that keeps checkpoints calls snapshot_into() itself: the step before a
checkpoint writes into it, and the session copies only the rest.

Parameter groups, state and state_dict() are those of torch's classes. In whole vectors SGD has the
same bits as torch's default step, and so have Adam's moments. The last elements of a tensor, and
what Adam computes from a square root, differ by units in the last place
(docs/guide/checkpoint.md). Our results are equal on all processors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regroup import _native
from regroup._errors import Refused

__all__ = ["SGD", "Adam", "AdamW", "Part"]


@dataclass
class Part:
    """Memory for a copy of a part of a tensor: its elements from `begin` on, in their order."""

    begin: int
    memory: torch.Tensor
    version: int | None = None  # the tensor's version when a step filled the memory


Copies = Mapping[torch.Tensor, Mapping[str, torch.Tensor | Part]]


class _Fused:
    """The base of the optimizers: iterates over the parameters and knows the places of copies."""

    _copies: Copies | None = None

    def snapshot_into(self, copies: Copies | None) -> None:
        """Lets the next steps copy values of some parameters into tensors; None ends this.

        `copies` maps a parameter to its targets: under "parameter" that of the parameter itself,
        under a name of its state in state_dict() that of the state. A target is an fp32, contiguous
        tensor of the same size, or a Part. Targets whose address is a multiple of 16 bytes are
        written past the cache."""
        self._copies = copies

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:  # type: ignore[attr-defined]
            _check_group(group)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _check_tensor(parameter)
                    copies = (self._copies or {}).get(parameter, {})
                    gradient = parameter.grad.contiguous()
                    state = self.state[parameter]  # type: ignore[attr-defined]
                    for name in self._one(group, parameter.detach(), gradient, state, copies):
                        copy = copies.get(name)
                        if isinstance(copy, Part):
                            copy.version = (
                                parameter if name == "parameter" else state[name]
                            )._version
        return loss

    def _one(
        self, group: dict, parameter: torch.Tensor, gradient: torch.Tensor, state: dict, copies
    ) -> list[str]:
        """Steps one parameter. Returns the names of the values that it has copied."""
        raise NotImplementedError


class SGD(_Fused, torch.optim.SGD):
    """torch.optim.SGD."""

    def _one(self, group, parameter, gradient, state, copies) -> list[str]:
        momentum, first = None, False
        if group["momentum"] != 0:
            first = state.get("momentum_buffer") is None
            if first:
                state["momentum_buffer"] = torch.empty_like(parameter)
            momentum = state["momentum_buffer"]
        names = ["parameter", "momentum_buffer"] if momentum is not None else ["parameter"]
        memory, begins = _places(copies, names)
        _native.sgd_step(
            parameter,
            gradient,
            momentum,
            memory[0],
            memory[1] if momentum is not None else None,
            first,
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            float(group["weight_decay"]),
            bool(group["nesterov"]),
            [*begins, 0],
        )
        return names


class Adam(_Fused, torch.optim.Adam):
    """torch.optim.Adam."""

    _decoupled = False

    def _one(self, group, parameter, gradient, state, copies) -> list[str]:
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        names = ["parameter", "exp_avg", "exp_avg_sq"]
        memory, begins = _places(copies, names)
        _native.adam_step(
            parameter,
            gradient,
            state["exp_avg"],
            state["exp_avg_sq"],
            *memory,
            int(state["step"].item()),
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["eps"]),
            float(group["weight_decay"]),
            self._decoupled or bool(group.get("decoupled_weight_decay")),
            begins,
        )
        return names


class AdamW(Adam):
    """torch.optim.AdamW."""

    _decoupled = True

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, **more: Any
    ):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **more)


def _places(copies: Mapping, names: list[str]) -> tuple[list[torch.Tensor | None], list[int]]:
    """Returns the memory of each copy, None if there is none, and its first element."""
    found = [copies.get(name) for name in names]
    parts = [(copy.memory, copy.begin) if isinstance(copy, Part) else (copy, 0) for copy in found]
    return [memory for memory, _ in parts], [begin for _, begin in parts]


def _check_group(group: dict) -> None:
    for name in ("amsgrad", "maximize", "differentiable", "capturable", "fused", "foreach"):
        if group.get(name):
            raise Refused(f"optimizer: {name} is not supported", "invalid argument")


def _check_tensor(parameter: torch.Tensor) -> None:
    fits = (
        parameter.dtype == torch.float32
        and parameter.device.type == "cpu"
        and parameter.is_contiguous()
    )
    if not fits or parameter.grad.is_sparse:
        what = f"{parameter.dtype} on {parameter.device}"
        raise Refused(
            f"optimizer: contiguous dense fp32 on the CPU only, not {what}", "invalid argument"
        )
