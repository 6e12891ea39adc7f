"""Tells whether an element type can hold all values of another. Types have their names of
checkpoints and torch."""

from __future__ import annotations

from typing import NamedTuple


class _Floats(NamedTuple):
    digits: int  # binary digits, including the one that is not stored
    least: int  # exponent of the smallest number above 0
    most: float


_FLOATS = {
    "float16": _Floats(11, -24, 65504.0),
    "bfloat16": _Floats(8, -133, (2 - 2.0**-7) * 2.0**127),
    "float32": _Floats(24, -149, (2 - 2.0**-23) * 2.0**127),
    "float64": _Floats(53, -1074, (2 - 2.0**-52) * 2.0**1023),
    "float8_e4m3fn": _Floats(4, -9, 448.0),
    "float8_e5m2": _Floats(3, -16, 57344.0),
    "float8_e8m0fnu": _Floats(1, -127, 2.0**127),
}
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
# Integer types: whether they are signed, and their binary digits without the sign.
_WHOLE = {f"int{bits}": (True, bits - 1) for bits in (8, 16, 32, 64)}
_WHOLE |= {f"uint{bits}": (False, bits) for bits in (8, 16, 32, 64)}


def holds_all(wide: str, narrow: str) -> bool:
    """Whether type `wide` has every value of type `narrow`. An unknown type has only its own values
    and those of bool."""
    if wide == narrow:
        return True
    if narrow == "bool":
        return wide != "float8_e8m0fnu"  # has no 0
    if narrow in _PARTS and wide not in _PARTS:
        return False
    wide, narrow = _PARTS.get(wide, wide), _PARTS.get(narrow, narrow)
    if wide == narrow:
        return True
    if narrow in _WHOLE:
        signed, digits = _WHOLE[narrow]
        if wide in _WHOLE:
            return signed <= _WHOLE[wide][0] and digits <= _WHOLE[wide][1]
        return wide in _FLOATS and digits <= _FLOATS[wide].digits
    if wide not in _FLOATS or narrow not in _FLOATS:
        return False
    to, of = _FLOATS[wide], _FLOATS[narrow]
    return of.digits <= to.digits and of.least >= to.least and of.most <= to.most
