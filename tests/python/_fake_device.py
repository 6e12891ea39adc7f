"""A device whose memory is that of the CPU: what regroup._torch_device does with a GPU runs without
one.

    _fake_device.install()  # before join(): CPU tensors are then taken for those of a device

Computing is immediate, as the host sees a stream whose work it does not look at. Copies are not:
a thread makes them in their order, each some time after it was begun. So a missing wait shows:
pinned memory holds NaN until a copy into it is over, and memory that is written while a copy reads
it makes that copy fail.
"""

import queue
import threading
import time

import torch
from regroup import _torch_device

DELAY_S = 0.0005


class _Event:
    def __init__(self):
        self._done = threading.Event()
        self.failure = ""

    def query(self):
        if self.failure:
            raise RuntimeError(self.failure)
        return self._done.is_set()

    def set(self):
        self._done.set()


class _Stream:
    """Calls functions in a thread, one after the other."""

    def __init__(self):
        self._calls = queue.SimpleQueue()
        self._thread = None

    def add(self, call):
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._calls.put(call)

    def _run(self):
        while True:
            call = self._calls.get()
            time.sleep(DELAY_S)
            call()


_stream = _Stream()
_pinned = set()  # addresses of pinned memory; it stays allocated
_kept = []
failures = []
copies = {"to the host": 0, "to the device": 0}
stuck = False  # no copy is ever over
capturing = False
deterministic = 0  # calls of make_deterministic()


class FakeDevice:
    def __init__(self, device):
        self.device = device

    def zeros(self, elements, dtype):
        return torch.zeros(elements, dtype=dtype)

    def pinned(self, elements, dtype):
        memory = torch.zeros(elements, dtype=dtype)
        _spoil(memory)
        _pinned.add(memory.untyped_storage().data_ptr())
        _kept.append(memory)
        return memory

    def begin_copy(self, to, source, after=None):
        event = _Event()
        reads, writes = (_is_pinned(one) for one in (source, to))
        assert reads != writes, "a copy is between pinned memory and the device"
        copies["to the host" if writes else "to the device"] += 1
        now = source.detach().clone()
        if writes:
            _stream.add(lambda: _to_host(to, now, event))
        else:
            to.copy_(now)
            _stream.add(lambda: _to_device(source, now, event))
        return event

    def is_capturing(self):
        return capturing

    def make_deterministic(self):
        global deterministic
        deterministic += 1

    def fingerprint(self):
        return ""


def _is_pinned(tensor):
    return tensor.untyped_storage().data_ptr() in _pinned


def _spoil(memory):
    memory.view(torch.uint8).fill_(0xFF)  # NaN


def _to_host(to, values, event):
    if stuck:
        return
    _spoil(to)
    time.sleep(DELAY_S)
    to.copy_(values)
    event.set()


def _to_device(source, values, event):
    if not torch.equal(source.view(torch.uint8), values.view(torch.uint8)):
        event.failure = "pinned memory was written while a copy to the device read it"
        failures.append(event.failure)
    event.set()


def finish():
    """Waits until all copies are over. Raises if one of them failed."""
    over = threading.Event()
    _stream.add(over.set)
    assert over.wait(10)
    if failures:
        raise RuntimeError(failures.pop())


def install():
    _torch_device.DEVICES["cpu"] = FakeDevice
