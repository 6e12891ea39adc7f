"""Memory of the host as that of a GPU, over the driver that the process finds: tests run so what
gradients of a GPU run, without one (REGROUP_FAKE_DEVICE=1, tests/fakes/cuda).

Tensors of the CPU are then taken for those of the device. The host computes at once what a GPU
would compute on a stream, so that it waits for work of the session in launched(), where the stream
would.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch


class _Done:
    """The event of what the host has done itself."""

    def query(self) -> bool:
        return True


class FakeCuda:
    """The calls of _torch_device.Cuda."""

    number = 0
    stream = 0

    def __init__(self, device: torch.device):
        self.device = device

    def zeros(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        size = max(elements, 1) * dtype.itemsize
        address = ctypes.c_uint64()
        _check(_driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), "cuMemAlloc")
        memory = (ctypes.c_uint8 * size).from_address(address.value)  # until the process ends
        return torch.frombuffer(memory, dtype=dtype, count=max(elements, 1))[:elements].zero_()

    def pinned(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((elements * dtype.itemsize,), 0xFF, dtype=torch.uint8).view(dtype)  # NaN

    def begin_copy(self, to: torch.Tensor, source: torch.Tensor, after: object = None) -> _Done:
        to.copy_(source)
        return _Done()

    def order_after(self, event: object) -> None: ...

    def recorded(self) -> _Done:
        return _Done()

    def launched(self, tensors: Sequence[torch.Tensor]) -> None:
        _check(_driver().cuStreamSynchronize(None), "cuStreamSynchronize")

    def is_capturing(self) -> bool:
        return False

    def make_deterministic(self) -> None: ...

    def fingerprint(self) -> str:
        return ""


@functools.cache
def _driver() -> ctypes.CDLL:
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    _check(driver.cuInit(0), "cuInit")
    retained = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    _check(retained, "cuDevicePrimaryCtxRetain")
    _check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    return driver


def _check(result: int, call: str) -> None:
    if result != 0:
        raise RuntimeError(f"{call}: error {result} of the driver")
