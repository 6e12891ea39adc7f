"""The tests of training again, over a device (_fake_device.py): what a script sees is the same."""

import _fake_device
import pytest
from regroup import _torch_device
from test_torch import *  # noqa: F403
from test_torch_loop import *  # noqa: F403
from test_torch_nan import *  # noqa: F403


@pytest.fixture(autouse=True)
def device(monkeypatch):
    monkeypatch.setitem(_torch_device.DEVICES, "cpu", _fake_device.FakeDevice)
