"""Types of the native module: regroup::elastic::Session, call by call. A failed Status is an
exception."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

__version__: str

def expected_shards() -> int:
    """The number of shards of the job that this process would join."""

def default_fingerprint() -> str:
    """Instruction set, threads per member, version of libc, and a digest of the executable."""

def report_failure(
    kind: str, place: str, message: str, trace: int = 0, final: bool = False
) -> str | None:
    """Reports to the agent how this process fails. Returns the text to print, or None if the caller
    should print the usual traceback."""

def why_not_on_device(device: int) -> str:
    """Why gradients on this device cannot be summed there, as a part of a sentence; "" if they
    can."""

def fake_device() -> bool:
    """Whether memory of the host is taken for that of a device (REGROUP_FAKE_DEVICE, for tests)."""

def collective_v1() -> int: ...
def mix(a: int, b: int, c: int = 0) -> int: ...
def ps_join(
    deadline: float = 600.0,
    mode: str = "async",
    staleness: int | None = None,
    leaves: int | None = None,
) -> PsClient: ...

class StepInfo:
    @property
    def number(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def first_of_epoch(self) -> bool: ...
    @property
    def substep(self) -> int: ...

class Shard:
    @property
    def leaf(self) -> int: ...
    @property
    def samples(self) -> list[int]: ...
    @property
    def gradient(self) -> memoryview | None: ...
    @property
    def seed(self) -> int: ...

class WorldInfo:
    """The World of a member."""

    @property
    def generation(self) -> int:
        """Number of the membership; it grows by one with each change."""
    @property
    def rank(self) -> int:
        """The rank of this process; the World's size if this is a learner that is not yet in it."""
    @property
    def size(self) -> int:
        """The number of members."""
    @property
    def shards(self) -> int:
        """The number of shards of every batch, V."""
    @property
    def why(self) -> str:
        """Why the World began, as a sentence."""

class Communicator:
    """Valid within a collective section. Takes contiguous CPU arrays: float32, float64, int32,
    int64."""

    @property
    def rank(self) -> int:
        """Of this process in the World."""
    @property
    def size(self) -> int:
        """Members of the World."""
    def allreduce(self, array: Any) -> None:
        """Sums `array` over all ranks, in place, with the same bits on every rank."""
    def broadcast(self, array: Any, root: int = 0) -> None:
        """Copies `array` of the root into that of all others."""
    def barrier(self) -> None:
        """Returns when all ranks have called it."""

class SaveCounts:
    """What one member has copied since it joined."""

    @property
    def snapshots(self) -> int:
        """The number of checkpoint copies of the state to which this member contributed a share."""
    @property
    def copied(self) -> int:
        """Bytes copied after the step."""
    @property
    def fused(self) -> int:
        """Bytes written by the step itself (regroup.optim)."""

class Session:
    def __init__(
        self,
        *,
        state: Any,
        elements: int,
        dtype: str = "float32",
        model: str = "",
        fingerprint: str = "",
        samples: int = 0,
        batch: int = 0,
        epochs: int = 0,
        deadline: int = 600,
        observer: Callable[[str, int], object] | None = None,
        substeps: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        own_order: bool = False,
        staged: bool = False,
        device: int | None = None,
        stream: int = 0,
        sum: int = 0,
    ) -> None:
        """device: gradients and sums are in memory of this CUDA device; stream: a CUstream;
        sum: the address of memory there for the sum."""
    def next_step(self) -> StepInfo | None: ...
    def next_shard(self) -> Shard | None: ...
    def fill_gradient(self, parts: Sequence[tuple[int, int, int, float]]) -> None:
        """Fills the gradient of the shard that next_shard() returned last. parts: first element,
        number of elements, address of as many contiguous values of the session's dtype (0: zeros),
        which are multiplied by weight. Ascending; elements of no part are 0."""
    def change_stream(self, stream: int) -> None:
        """Sets the CUstream of the gradients and of what reads the sum from now on."""
    def record_samples(self, samples: Sequence[int]) -> None:
        """Tells the ledger which samples the shard has that next_shard() returned last, if not its
        own."""
    def planned_shards(self, step: int) -> list[tuple[int, int, list[int]]]:
        """Leaf, seed and samples of each shard of `step` that this member is to compute if its
        world stays as it is."""
    def shard_of(self, step: int, leaf: int) -> tuple[int, int, list[int]]:
        """Leaf, seed and samples of a shard, whichever member computes it."""
    def commit(self) -> memoryview: ...
    def commit_into(self, out: Any) -> None: ...
    def commit_on_device(self) -> None: ...
    def save_targets(self) -> list[tuple[str, int, memoryview]]: ...
    def saved(self, target: int) -> None: ...
    @property
    def save_counts(self) -> SaveCounts: ...
    def report_loss(self, loss: float) -> None: ...
    def begin_span(self, name: str) -> int: ...
    def end_span(self, span: int) -> None: ...
    def collective(self, body: Callable[[Communicator], _T]) -> _T: ...
    def leave_loop(self) -> None: ...
    def finish(self) -> None: ...
    @property
    def world(self) -> WorldInfo: ...
    @property
    def last_step(self) -> int: ...
    @property
    def job_seed(self) -> int: ...

class Checkpoint:
    """An open checkpoint. Opening reads the manifest and checks that all files exist with their
    sizes."""

    def __init__(self, path: str | os.PathLike) -> None: ...
    @property
    def path(self) -> str:
        """Its folder."""
    @property
    def step(self) -> int:
        """The last step applied to its state."""
    @property
    def tensors(self) -> list[tuple[str, str, list[int]]]:
        """Name, type and shape of each tensor."""
    def read_into(
        self,
        name: str,
        out: Any,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
    ) -> None:
        """Reads a tensor, or the box of `count` elements from `start`, into `out`: contiguous
        memory of its type. Every block is verified before it is copied."""

DTYPES: dict[str, int]  # types that checkpoints hold, by name, and bytes of an element

def newest_checkpoint(directory: str) -> str | None: ...
def sgd_step(
    parameter: Any,
    gradient: Any,
    momentum: Any | None,
    parameter_copy: Any | None,
    momentum_copy: Any | None,
    first: bool,
    lr: float,
    by_momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    begins: Sequence[int],
) -> None: ...
def adam_step(
    parameter: Any,
    gradient: Any,
    first: Any,
    second: Any,
    parameter_copy: Any | None,
    first_copy: Any | None,
    second_copy: Any | None,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    begins: Sequence[int],
) -> None: ...

class PsMemory:
    """Memory of a parameter server, which outlives its servers. `bytes` are reserved."""

    def __init__(self, bytes: int, shards: int = 1, seed: int = 0) -> None: ...
    @property
    def text(self) -> str:
        """The descriptors, as regroup-ps and PsClient take them."""
    @property
    def descriptors(self) -> list[int]: ...

class PsClient:
    """regroup::ps::Client. Tables and pushes are numbers."""

    def __init__(
        self,
        memory: str,
        client: int,
        deadline: float = 600.0,
        mode: str = "async",
        staleness: int | None = None,
        leaves: int | None = None,
    ) -> None: ...
    def clock(self) -> int: ...
    def advance(self) -> int: ...
    def next_leaf(self) -> int | None: ...
    def open(
        self,
        name: str,
        kind: str,
        rows: int,
        dim: int,
        dtype: str,
        init: tuple[str, float, float],
        optimizer: str,
        options: Mapping[str, float],
    ) -> int: ...
    def push(self, table: int, ids: Any, gradients: Any, lr: float) -> int: ...
    def push_dense(self, table: int, gradients: Any, lr: float) -> int: ...
    def wait(self, ticket: int, seconds: float) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def pull(self, table: int, ids: Any, out: Any) -> None: ...
    def pull_dense(self, table: int, out: Any) -> None: ...
