"""How much a file of torch.save() may ask for when it is imported, given the bytes that it holds.

A small file can ask for terabytes: by a tensor with a stride of 0 (expand()), by many names of one
storage, by a list that is in many lists. torch.load() takes such a file, since it copies nothing; a
checkpoint has each tensor as a whole.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from regroup._errors import Refused, shown

_TIMES = 16  # the bytes of the file: tied weights and small masks that were expanded are imported
_FREE_BYTES, _FREE_VALUES = 64 << 20, 1 << 20  # what any file may ask for


class ImportLimit:
    """Adds up what values of a file of `held` bytes take."""

    def __init__(self, held: int):
        self.held = held
        self.most_bytes = max(_FREE_BYTES, _TIMES * held)
        self.most_values = max(_FREE_VALUES, held)  # each value in the file takes at least one byte
        self.bytes = self.values = 0
        self.storages: set[int] = set()  # addresses of the storages counted so far

    def check(self, value: Any, path: str = "state") -> None:
        """Raises Refused, naming the first of the values in `value`, at `path`, that is too
        much."""
        self.values += 1
        if self.values > self.most_values:
            raise Refused(
                f"{shown(path)}: more than {self.most_values} values in a file of {self.held} "
                f"bytes: "
                "lists or dictionaries of it are in others many times",
                "invalid argument",
            )
        if isinstance(value, torch.Tensor) and value.is_nested:
            return  # it has no shape, and no checkpoint takes it
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
