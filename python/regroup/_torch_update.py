"""What follows the gradient of the whole batch in a step: unscaling, clipping, optimizers,
schedulers, averaged weights. Every member does the same with the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from regroup import _arguments, optim

_CALL = "join"


def check_optimizers(
    given: Any, model: torch.nn.Module, call: str = _CALL
) -> list[torch.optim.Optimizer]:
    """Returns the optimizers as a list; refuses what cannot train the model. call: for messages."""
    refuse = _arguments.refuse
    if isinstance(given, dict) or (isinstance(given, list | tuple) and not given):
        got = _arguments.kind(given) if given else "none"
        refuse(call, f"optimizer: expected an optimizer or a list of them, got {got}")
    listed = list(given) if isinstance(given, list | tuple) else [given]
    own = {id(p) for p in model.parameters()}
    for number, one in enumerate(listed):
        name = "optimizer" if len(listed) == 1 else f"optimizer[{number}]"
        wanted = ("param_groups", "state", "state_dict", "load_state_dict", "step")
        if isinstance(one, type) or not all(hasattr(one, attribute) for attribute in wanted):
            refuse(call, f"{name}: expected a torch.optim.Optimizer, got {_arguments.kind(one)}")
        if any(other is one for other in listed[:number]):
            refuse(call, f"{name}: expected each optimizer once, got one twice")
        if isinstance(one, torch.optim.LBFGS):
            refuse(
                call,
                f"{name}: LBFGS computes the loss several times in a step, and the batch of a step "
                "is computed once: use another optimizer",
            )
        if isinstance(one, torch.optim.SparseAdam):
            refuse(
                call,
                f"{name}: SparseAdam takes sparse gradients, and the sum over all members is "
                "dense: use Adam",
            )
        if isinstance(one, optim._Fused) and any(
            p.device.type != "cpu" for p in model.parameters()
        ):
            kind = type(one).__name__
            refuse(
                call,
                f"{name}: regroup.optim.{kind} steps parameters on the CPU only: use "
                f"torch.optim.{kind}",
            )
        for index, group in enumerate(one.param_groups):
            if foreign := sum(id(p) not in own for p in group["params"]):
                where = f"parameter group {index}" + (f" of {name}" if len(listed) > 1 else "")
                which = "1 parameter that is" if foreign == 1 else f"{foreign} parameters that are"
                refuse(
                    call,
                    f"{where} has {which} not the model's (was the optimizer made for another "
                    "model, or before a layer was replaced?)",
                )
    parameters = [p for one in listed for p in _parameters_of(one)]
    if len({id(p) for p in parameters}) != len(parameters):
        refuse(call, "optimizer: expected each parameter in one optimizer, got one in two")
    return listed


def check_listed(name: str, given: Any, *methods: str) -> list[Any]:
    """Returns the objects as a list; refuses what is no list, or an object without one of the
    methods."""
    if (
        hasattr(given, "state_dict")
        or isinstance(given, dict | str)
        or not isinstance(given, Iterable)
    ):
        _arguments.refuse(
            _CALL,
            f"{name}: expected a list such as {name}=[scheduler], got {_arguments.kind(given)}",
        )
    listed = list(given)
    for number, one in enumerate(listed):
        _arguments.has(_CALL, f"{name}[{number}]", one, *methods)
    return listed


class Update:
    """The objects that a step changes after its gradient is known.

    schedulers: stepped in each apply().  epoch_schedulers: in the last one of an epoch.
    scaler: a GradScaler, or None.  ema: an object with update_parameters(model), or None.
    substeps: names and the optimizers of each, or empty: a batch has one step.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        schedulers: Any = (),
        epoch_schedulers: Any = (),
        scaler: Any = None,
        ema: Any = None,
        substeps: Any = (),
    ):
        stateful = ("step", "state_dict", "load_state_dict")
        self._model = model
        self.optimizers = optimizers
        self.schedulers = check_listed("schedulers", schedulers, *stateful)
        self.epoch_schedulers = check_listed("epoch_schedulers", epoch_schedulers, *stateful)
        both = [one for one in self.schedulers if any(one is s for s in self.epoch_schedulers)]
        if both:
            name = type(both[0]).__name__
            where = "expected in schedulers or in epoch_schedulers, got in both"
            _arguments.refuse(_CALL, f"{name}: {where}")
        if scaler is not None:
            methods = ("scale", "unscale_", "step", "update", "state_dict", "load_state_dict")
            _arguments.has(_CALL, "scaler", scaler, *methods)
        if ema is not None:
            methods = ("update_parameters", "state_dict", "load_state_dict")
            _arguments.has(_CALL, "ema", ema, *methods)
        self.scaler = scaler
        self.ema = ema
        self._unscaled = False
        self.substeps = _check_substeps(substeps, optimizers)
        # what apply() steps, of the present substep
        self._own = list(optimizers)

    def stateful(self) -> list[Any]:
        """The objects whose state belongs to that of the job, in a fixed order."""
        more = [one for one in (self.scaler, self.ema) if one is not None]
        return [*self.schedulers, *self.epoch_schedulers, *more]

    def backward(self, loss: torch.Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def begin(self, substep: str | None) -> None:
        """To be called when p.grad has become that of the whole batch."""
        self._unscaled = False
        if substep is not None:
            self._own = self.substeps[substep]

    def unscale(self) -> None:
        """Divides p.grad by the scale, once in a step."""
        if self.scaler is None or self._unscaled:
            return
        self._unscaled = True
        for optimizer in self._own:
            if _has_gradient(optimizer):
                self.scaler.unscale_(optimizer)

    def clip(self, max_norm: float, norm_type: float) -> torch.Tensor:
        """Clips the gradients of all optimizers of the substep together. Returns the norm before.

        With a scaler, gradients whose norm is not finite stay as they are: the scaler skips the
        optimizers that have them, and clipping would spread them to the others."""
        self.unscale()
        parameters = [p for one in self._own for p in _parameters_of(one)]
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, norm_type)
        if self.scaler is None or torch.isfinite(norm):
            torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def apply(
        self, loss: float | None, epoch_loss: float | None, last: bool, end_of_epoch: bool
    ) -> None:
        """Steps everything. last: of the steps of its batch, after which schedulers are stepped.
        epoch_loss: the mean loss of the epoch, for the last step of one."""
        for optimizer in self._own:
            if self.scaler is None or not _has_gradient(optimizer):
                optimizer.step()
            else:
                self.scaler.step(optimizer)  # unscales, unless that is done
        if self.scaler is not None and any(map(_has_gradient, self._own)):
            self.scaler.update()
        if not last:
            return
        for scheduler in self.schedulers:
            _step(scheduler, loss)
        if end_of_epoch:
            for scheduler in self.epoch_schedulers:
                _step(scheduler, epoch_loss)
        if self.ema is not None:
            self.ema.update_parameters(self._model)


def _check_substeps(
    given: Any, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, list[torch.optim.Optimizer]]:
    if not given:
        return {}
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        _arguments.refuse(
            _CALL,
            "substeps: expected names with optimizers, such as "
            f'{{"d": optimizer_d, "g": optimizer_g}}, got {_arguments.kind(given)}',
        )
    substeps = {k: list(v) if isinstance(v, list | tuple) else [v] for k, v in given.items()}
    named = [id(one) for listed in substeps.values() for one in listed]
    if sorted(named) != sorted(map(id, optimizers)):
        _arguments.refuse(
            _CALL, "substeps: expected each optimizer of join() in one substep, and no other"
        )
    return substeps


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _has_gradient(optimizer: torch.optim.Optimizer) -> bool:
    return any(p.grad is not None for p in _parameters_of(optimizer))


def _step(scheduler: Any, loss: float | None) -> None:
    if not isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step()
        return
    if loss is None:
        _arguments.refuse(
            "step.apply()",
            "ReduceLROnPlateau needs the loss: call step.backward(loss) or step.record(loss) in "
            "the inner loop",
        )
    scheduler.step(loss)
