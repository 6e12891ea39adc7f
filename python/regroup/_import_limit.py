"""Limits the memory that the import of a file of torch.save() takes, relative to the file's size.

A small file can stand for terabytes: by a tensor with a stride of 0 (expand()), by many names of
one storage, by a list that is in many lists. torch.load() accepts such a file, since it copies
nothing; a checkpoint stores every tensor in full.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from regroup._errors import Refused, shown

_TIMES = 16  # the file's size: enough for tied weights and small expanded masks
_FREE_BYTES, _FREE_VALUES = 64 << 20, 1 << 20  # allowed for a file of any size


class ImportLimit:
    """Adds up the memory that the values of a file of `held` bytes take."""

    def __init__(self, held: int):
        self.held = held
        self.most_bytes = max(_FREE_BYTES, _TIMES * held)
        self.most_values = max(_FREE_VALUES, held)  # each value in the file takes at least one byte
        self.bytes = self.values = 0
        self.storages: set[int] = set()  # addresses of the storages counted so far

    def check(self, value: Any, path: str = "state") -> None:
        """Adds `value` and all values in it. Raises Refused with the path of the first value that
        exceeds a limit; `path` is that of `value`."""
        self.values += 1
        if self.values > self.most_values:
            raise Refused(
                f"{shown(path)}: more than {self.most_values} values in a file of {self.held} "
                f"bytes: "
                "lists or dictionaries of it are in others many times",
                "invalid argument",
            )
        if isinstance(value, torch.Tensor) and value.is_nested:
            return  # has no shape; the import refuses it later
        if isinstance(value, torch.Tensor):
            self._take(value, math.prod(value.shape) * value.element_size(), path)
        elif isinstance(value, str):
            self._take(value, len(value), path)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.check(key, path)
                self.check(item, f"{path}.{key}")
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                self.check(item, f"{path}[{index}]")

    def _take(self, value: Any, size: int, path: str) -> None:
        self.bytes += size
        if self.bytes <= self.most_bytes:
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                self.storages.add(value.untyped_storage().data_ptr())
            return
        raise Refused(
            f"{shown(path)}: the state takes {self.bytes} bytes with this "
            f"{self._described(value, size)}; "
            f"a file of {self.held} bytes may ask for at most {self.most_bytes}",
            "invalid argument",
        )

    def _described(self, value: Any, size: int) -> str:
        if not isinstance(value, torch.Tensor):
            return "text"
        what = f"tensor of shape {list(value.shape)}"
        if value.layout != torch.strided:
            return what
        storage = value.untyped_storage()
        if size > storage.nbytes():
            return f"expanded {what} with strides {list(value.stride())} (save its clone() instead)"
        return what + (
            ", whose storage others have, too" if storage.data_ptr() in self.storages else ""
        )
