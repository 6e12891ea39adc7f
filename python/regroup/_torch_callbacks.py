"""Callbacks of a training loop: objects with some of the methods below.

on_step(session, step)      after the body of the loop over the session, for each step that does
                            not leave it by break
on_epoch(session, step)     after on_step of the last step of an epoch
on_regroup(session, world)  this member continues in another World (regroup.torch.Session.world)
on_checkpoint(session, number)  this member has contributed its part to a checkpoint of that step
on_leave(session)           this member was asked to leave; the process exits after it
An exception in one of them ends this member like one in the script's own code.
"""

from __future__ import annotations

from typing import Any

from regroup import _arguments

_NAMES = ("on_step", "on_epoch", "on_regroup", "on_checkpoint", "on_leave")


class Callbacks:
    def __init__(self, given: Any):
        if not isinstance(given, list | tuple):
            _arguments.refuse(
                "join", f"callbacks: expected a list of objects, got {_arguments.kind(given)}"
            )
        self._listed = list(given)
        for number, one in enumerate(self._listed):
            _check(number, one)

    def call(self, name: str, *arguments: Any) -> None:
        for one in self._listed:
            if callable(method := getattr(one, name, None)):
                method(*arguments)


def _check(number: int, one: Any) -> None:
    name = f"callbacks[{number}]"
    if isinstance(one, type):
        _arguments.refuse("join", f"{name}: expected an object, got {_arguments.kind(one)}")
    found = [
        attribute
        for attribute in dir(one)
        if attribute.startswith("on_") and callable(getattr(one, attribute))
    ]
    unknown = [attribute for attribute in found if attribute not in _NAMES]
    if unknown or not found:
        got = f"got {unknown[0]}()" if unknown else f"got {_arguments.kind(one)} without"
        _arguments.refuse("join", f"{name}: expected one or more of {', '.join(_NAMES)}, {got}")
