"""Regroup: elastic training that continues while members die, leave and join.

`regroup.torch.join` makes a PyTorch training loop elastic. `regroup.Session` is the level below it,
for any framework or none. Importing regroup needs nothing but Python's standard library.
"""

import importlib
from types import ModuleType

from regroup import _failure
from regroup._errors import DeadlineExceeded, Error, Left, Refused
from regroup._native import Communicator, WorldInfo, __version__, default_fingerprint
from regroup.session import Session, Shard, Step, TrackedState

__all__ = [
    "Communicator",
    "DeadlineExceeded",
    "Error",
    "Left",
    "Refused",
    "Session",
    "Shard",
    "Step",
    "TrackedState",
    "WorldInfo",
    "__version__",
    "default_fingerprint",
]

_failure.install()

_MODULES = ("checkpoint", "keras_checkpoint", "optim", "ps", "torch", "torch_checkpoint")


def __getattr__(name: str) -> ModuleType:
    """Imports `regroup.torch` and other submodules on first use: they need packages that may not be
    installed."""
    if name in _MODULES:
        return importlib.import_module(f"regroup.{name}")
    raise AttributeError(f"module 'regroup' has no attribute {name!r}")
