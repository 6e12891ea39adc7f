"""Checks arguments and raises errors that explain what is wrong. Needs no framework."""

from __future__ import annotations

import operator
import os
from typing import Any, NoReturn

from regroup._errors import Refused

_LARGEST = 2**63 - 1


def refuse(call: str, why: str, *, final: bool = True) -> NoReturn:
    """final: it follows from the program alone, not from what a host has."""
    error = Refused(f"{call}: {why}", "invalid argument")
    error.final = final
    raise error from None


def kind(value: Any) -> str:
    """Describes `value` for a message: "a dict", "the class Linear"."""
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance of it"
    if value is None:
        return "None"
    return article(type(value).__name__)


def article(name: str) -> str:
    """Returns `name` after its article: "an Adam", "a dict"."""
    return f"an {name}" if name[0] in "AEIOUaeiou" else f"a {name}"


def checkpoint_path(call: str, value: Any) -> str:
    """Returns `value` as the path of a checkpoint; refuses it if it is no path."""
    try:
        return os.fsdecode(value)
    except TypeError:
        why = ": newest_checkpoint() found no checkpoint" if value is None else ""
        refuse(call, f"path: expected the path of a checkpoint, got {kind(value)}{why}")


def whole(call: str, name: str, value: Any, least: int = 0) -> int:
    """Returns `value` as an int; refuses it if it is no integer or less than `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        refuse(call, f"{name}: expected a whole number >= {least}, got {kind(value)}")
    if not least <= number <= _LARGEST:
        refuse(call, f"{name}: expected a whole number >= {least}, got {number}")
    return number


def text(call: str, name: str, value: Any) -> None:
    if not isinstance(value, str):
        refuse(call, f"{name}: expected a string, got {kind(value)}")


def one_of(call: str, name: str, value: Any, *choices: str) -> None:
    if value not in choices:
        got = repr(value) if isinstance(value, str) else kind(value)
        refuse(call, f"{name}: expected {', '.join(choices[:-1])} or {choices[-1]}, got {got}")


def callable_or_none(call: str, name: str, value: Any) -> None:
    if value is not None and not callable(value):
        refuse(call, f"{name}: expected a function, got {kind(value)}")


def has(call: str, name: str, value: Any, *methods: str) -> None:
    """Refuses an object that lacks one of `methods`."""
    missing = [f"{method}()" for method in methods if not callable(getattr(value, method, None))]
    if missing or isinstance(value, type):
        refuse(
            call, f"{name}: expected {' and '.join(missing or methods)}, got {kind(value)} without"
        )
