"""Regroup: elastic training that goes on while members die, leave and join.

`regroup.torch.join` makes a PyTorch training loop elastic. `regroup.Session` is the level below it, for
any framework or none. Importing regroup needs nothing but Python's standard library.
"""

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
