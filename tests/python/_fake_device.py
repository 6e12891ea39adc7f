"""A device whose memory is that of the CPU: what regroup._torch_device does with a GPU runs without
one.

    _fake_device.install()  # before join(): CPU tensors are then taken for those of a device

Computing is immediate, as the host sees a stream whose work it does not look at. Copies to the host
are not: threads make them, each some time after it was begun, those of one thread in their order
and those of the other when they like, unless begin_copy() was told what they come after. So a
missing wait or order shows: pinned memory holds NaN until a copy into it is over, and memory that
is written while a copy reads it makes that copy fail.

With `late` a copy to the device is made as late as it may be, as if the script had changed the
stream after it was begun: when something waits for it, or when a copy to the host begins.
"""

import itertools
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
        self.late = None  # a copy to the device that is not made yet

    def query(self):
        self.settle()
        if self.failure:
            raise RuntimeError(self.failure)
        return self._done.is_set()

    def settle(self):
        late, self.late = self.late, None
        if late is not None:
            late()

    def wait(self):
        self.settle()
        self._done.wait()

    def set(self):
        self._done.set()


class Stream:
    """Calls functions in a thread, one after the other, each after `delays` times DELAY_S."""

    def __init__(self, delays):
        self._delays = delays
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
            time.sleep(self._delays * DELAY_S)
            call()


to_device = Stream(1)
_to_host = [Stream(4), Stream(1)]  # take copies in turn
_turns = itertools.cycle(_to_host)
_pinned = set()  # addresses of pinned memory; it stays allocated
_kept = []
_late = []  # events of copies to the device that may not be made yet
_ordered = []  # the last event that the current stream waits for
failures = []
copies = {"to the host": 0, "to the device": 0}
stuck = False  # no copy is ever over
late = False
capturing = False
deterministic = 0  # calls of make_deterministic()


class FakeDevice:
    number = 0

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
        reads, writes = (_is_pinned(one) for one in (source, to))
        assert reads != writes, "a copy is between pinned memory and the device"
        assert to.shape == source.shape
        copies["to the host" if writes else "to the device"] += 1
        return _begin_to_host(to, source, after) if writes else _begin_to_device(to, source, after)

    def order_after(self, event):
        event.settle()
        _ordered[:] = [event]

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


def _begin_to_host(to, source, after):
    awaited = [*_ordered, *([] if after is None else [after])]
    for one in (*awaited, *_late):
        one.settle()
    _late.clear()
    event = _Event()
    now = source.detach().clone()

    def copy():
        if stuck:
            return
        for one in awaited:
            one.wait()
        _spoil(to)
        time.sleep(DELAY_S)
        to.copy_(now)
        event.set()

    next(_turns).add(copy)
    return event


def _begin_to_device(to, source, after):
    if after is not None:
        after.settle()
    event = _Event()
    now = source.detach().clone()

    def check():
        if not torch.equal(source.view(torch.uint8), now.view(torch.uint8)):
            event.failure = "pinned memory was written while a copy to the device read it"
            failures.append(event.failure)
        event.set()

    def copy():
        to.copy_(now)
        to_device.add(check)

    if late:
        event.late = copy
        _late.append(event)
    else:
        copy()
    return event


def finish():
    """Waits until all copies are over. Raises if one of them failed."""
    while _late:
        _late.pop().settle()
    for stream in (to_device, *_to_host):
        over = threading.Event()
        stream.add(over.set)
        assert over.wait(10)
    if failures:
        raise RuntimeError(failures.pop())


def install():
    _torch_device.DEVICES["cpu"] = FakeDevice
