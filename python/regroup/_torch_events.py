"""Writes scalars for TensorBoard: a file of TFRecords, each an Event in protobuf.

It is written here and not by torch.utils.tensorboard, since importing that imports TensorFlow where
it is installed: 4.1 s on 2 cores of a Xeon (torch 2.13, tensorboard 2.20, tensorflow 2.21), in
which the other members would wait for a new rank 0.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

_CASTAGNOLI = 0x82F63B78
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types
_START = 1  # SessionLog.status


class EventFile:
    """A new file in a folder. first: scalars of this step and later ones that other files of the
    folder have are no longer shown. Raises OSError."""

    def __init__(self, folder: Path, first: int):
        now = time.time()
        # TensorBoard reads files by name: this one after those of hosts whose clock is ahead.
        others = [int(p.name.split(".")[3]) for p in folder.glob("events.out.tfevents.[0-9]*.*")]
        stamp = max([int(now * 1000), *(one + 1 for one in others)])
        name = f"events.out.tfevents.{stamp}.{os.uname().nodename}.{os.getpid()}"
        self._path = folder / name
        session = _number(1, _START)
        self._append(
            _event(now, 0, _text(3, b"brain.Event:2")) + _event(now, first, _text(7, session))
        )

    def add(self, step: int, when: float, scalars: dict[str, float]) -> None:
        """when: in seconds since 1970."""
        summary = b"".join(
            _text(1, _text(1, name.encode()) + _tag(2, _FLOAT) + struct.pack("<f", _float(value)))
            for name, value in scalars.items()
        )
        self._append(_event(when, step, _text(5, summary)))

    def _append(self, records: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(records)


def _event(when: float, step: int, content: bytes) -> bytes:
    event = _tag(1, _DOUBLE) + struct.pack("<d", when) + _number(2, step) + content
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _tag(field: int, wire: int) -> bytes:
    return bytes([field << 3 | wire])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _tag(field, _VARINT) + _varint(value)


def _text(field: int, value: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(value)) + value


def _float(value: float) -> float:
    """The nearest that a float of 32 bits holds."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ _CASTAGNOLI * (byte & 1)
        table.append(byte)
    return table


_TABLE = _table()


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and offset as TFRecords have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
