"""Parameter server: tables in the memory of a host, which a server process updates and all
processes of the job push to and pull from. A server may be killed at any moment: the next one goes
on with the same memory, no acknowledged push is lost, and none is applied twice.

    import numpy as np
    import regroup.ps as ps

    # regroup --role ps=1 --role worker=4 --ps-memory 1G python train.py
    client = ps.join()
    users = client.table("users", dim=64, init=ps.Uniform(-0.01, 0.01),
                         optimizer=ps.RowAdagrad(lr=0.05))   # rows of any int64 id
    rows = users.pull(np.array([17, 4, 17]))                 # [3, 64]
    users.push(np.array([17, 4, 17]), gradients)             # gradients of equal ids are added
    client.flush()                                           # all pushes are applied

Without a launcher, `Server("1G").attach(client=0)` starts a server. `regroup.ps.torch` has layers
for PyTorch, `regroup.ps.tensorflow` is for TensorFlow and Keras. Importing this needs Python's
standard library only; pull and push need NumPy.
"""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self

from regroup import _native
from regroup._errors import DeadlineExceeded, Error, Left, Refused
from regroup.checkpoint import _program

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Assign",
    "Client",
    "Constant",
    "DeadlineExceeded",
    "Dense",
    "Error",
    "Ftrl",
    "LazyAdam",
    "Left",
    "Momentum",
    "Normal",
    "Refused",
    "RowAdagrad",
    "Server",
    "Step",
    "Sum",
    "Table",
    "Ticket",
    "Uniform",
    "Zeros",
    "join",
]

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


# Initial values. They are a pure function of the server's seed, the table's name and the position.
@dataclass(frozen=True)
class Zeros:
    """Rows begin as zeros."""

    def _fields(self) -> tuple[str, float, float]:
        return "zeros", 0.0, 0.0


@dataclass(frozen=True)
class Constant:
    """Rows begin as `value`."""

    value: float

    def _fields(self) -> tuple[str, float, float]:
        return "constant", float(self.value), 0.0


@dataclass(frozen=True)
class Uniform:
    """Elements are drawn between `low` and `high`."""

    low: float
    high: float

    def _fields(self) -> tuple[str, float, float]:
        return "uniform", float(self.low), float(self.high)


@dataclass(frozen=True)
class Normal:
    """Elements are drawn from the normal distribution."""

    mean: float = 0.0
    std: float = 1.0

    def _fields(self) -> tuple[str, float, float]:
        return "normal", float(self.mean), float(self.std)


Initializer = Zeros | Constant | Uniform | Normal


class _Optimizer:
    """What the server does with a gradient. Hyperparameters have the names of torch.optim."""

    _name = ""
    lr: float = 0.0

    def _options(self) -> Mapping[str, float]:
        return {f.name: float(getattr(self, f.name)) for f in fields(self) if f.name != "lr"}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sum(_Optimizer):
    """Adds what is pushed."""

    _name = "sum"


@dataclass(frozen=True)
class Assign(_Optimizer):
    """Stores what is pushed."""

    _name = "assign"


@dataclass(frozen=True)
class SGD(_Optimizer):
    """Stochastic gradient descent."""

    lr: float
    weight_decay: float = 0.0
    _name = "sgd"


@dataclass(frozen=True)
class Momentum(_Optimizer):
    """SGD with momentum, for dense tables."""

    lr: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    _name = "momentum"


@dataclass(frozen=True)
class Adagrad(_Optimizer):
    """An accumulator for each element."""

    lr: float
    epsilon: float = 1e-10
    _name = "adagrad"


@dataclass(frozen=True)
class RowAdagrad(_Optimizer):
    """Adagrad with one accumulator for each row: the mean of the squared gradients."""

    lr: float
    epsilon: float = 1e-10
    _name = "row_adagrad"


@dataclass(frozen=True)
class Adam(_Optimizer):
    """Adam, for dense tables."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    _name = "adam"


@dataclass(frozen=True)
class LazyAdam(_Optimizer):
    """Adam of the rows that get a gradient; the step of a row is the number of its updates."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    _name = "lazy_adam"


@dataclass(frozen=True)
class Ftrl(_Optimizer):
    """FTRL-Proximal."""

    lr: float
    l1: float = 0.0
    l2: float = 0.0
    beta: float = 0.0
    _name = "ftrl"


def _bytes(size: int | str) -> int:
    if isinstance(size, int):
        return size
    number, unit = size.upper().removesuffix("B").removesuffix("I"), 0
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    if not number.isdigit():
        raise Refused(f'ps: expected bytes such as "256M", got {size!r}', "invalid argument")
    return int(number) << unit


def join(
    deadline: float = 600.0,
    *,
    mode: str = "async",
    staleness: int | None = None,
    leaves: int | None = None,
) -> Client:
    """Attaches this process to the parameter server of its job, which the launcher starts with

        regroup --role ps=1 --role worker=4 --ps-memory 1G python train.py

    Each call makes another client. `deadline`: seconds of a single wait. `mode`: the same in all
    processes. With "async" no client waits for another one. With "ssp" a client is at most
    `staleness` turns of its loop `for step in client` ahead of the slowest one: a pull waits. With
    "sync" the clients compute steps of `leaves` leaves, in the loop of Client.steps(), and the
    tables have the same bits whatever the number of clients is and whatever is killed."""
    return Client(_native.ps_join(deadline, mode, staleness, leaves), deadline)


class Server:
    """A parameter server that this process starts: for programs without a launcher, and for tests.

    Its memory belongs to this process, not to the server process: after the server has died,
    `start()` starts another one, which goes on with the same tables. A server ends by stop(), with
    this process, or once neither the Server nor a client of it is used any more. `memory`: bytes
    for tables, all reserved at once. `threads`: of the server; each has its own part of every
    table.
    """

    def __init__(self, memory: int | str = "256M", *, threads: int = 1, seed: int = 0) -> None:
        self._memory = _native.PsMemory(_bytes(memory), threads, seed)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """The process number of the server that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts a server, after the one before it has ended."""
        if self._process is not None and self._process.poll() is None:
            raise Refused(
                f"ps: the server runs, as process {self._process.pid}; expected stop() or kill() "
                "before start()",
                "invalid argument",
            )
        own = os.getpid()
        self._process = subprocess.Popen(
            [_program("regroup-ps"), "--memory", self._memory.text, "--with-parent", str(own)],
            pass_fds=self._memory.descriptors,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which may still push
        )
        weakref.finalize(self, _end, self._process, own)

    def attach(
        self,
        client: int,
        *,
        deadline: float = 600.0,
        mode: str = "async",
        staleness: int | None = None,
        leaves: int | None = None,
    ) -> Client:
        """Attaches this process as client number `client`; no two living clients may have the same.
        The rest is as in join()."""
        native = _native.PsClient(self._memory.text, client, deadline, mode, staleness, leaves)
        return Client(native, deadline, server=self)

    def stop(self) -> None:
        """Ends the server. What clients push afterwards waits for the next one."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        """Kills the server with SIGKILL, as a fault would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner and process.poll() is None:  # not in a child after fork()
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Ticket:
    """A push that has begun."""

    _native: Any
    _number: int
    _server: Server | None = None  # which must run until the push is applied

    def wait(self, seconds: float = 600.0) -> None:
        """Waits until the push is applied, and raises its error. In mode "sync": until servers have
        taken it; it is applied with its step."""
        self._native.wait(self._number, seconds)


def _check_trained(name: str, dtype: str) -> None:
    """Refuses a layer over a table that has no gradients."""
    if dtype.startswith("int"):
        raise Refused(
            f"table {name}: expected a floating-point dtype for a layer, got {dtype}; use "
            "Client.table()",
            "invalid argument",
        )


class Layer(Protocol):
    """Something that has pulled rows, and pushes their gradients after the backward pass."""

    def push_gradients(self) -> Ticket | None: ...


class Step:
    """A step of mode "sync", made by Client.steps(). Iterating gives the numbers of the leaves that
    this process computes, each below the `leaves` of join(); it ends once the step is complete, and
    applied to all tables. It gives nothing then."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._over = False
        self.number = number

    def __iter__(self) -> Iterator[int]:
        while not self._over:  # the client's next leaf is of the next step otherwise
            leaf = self._client._native.next_leaf()
            self._over = leaf is None
            if leaf is not None:
                yield leaf


class Client:
    """This process's access to the parameter server of its host."""

    def __init__(self, native: Any, deadline: float, *, server: Server | None = None) -> None:
        self._native: Any = native
        self._server = server
        self._deadline = deadline
        self._pushed: list[Ticket] = []  # by the last push()
        self._layers: list[weakref.ref[Any]] = []

    def table(
        self,
        name: str,
        dim: int,
        *,
        rows: int | None = None,
        dtype: str = "float32",
        init: Initializer = Zeros(),  # noqa: B008
        optimizer: _Optimizer,
    ) -> Table:
        """Makes a table of rows of `dim` elements, or finds it. `rows`: ids are below it; without
        it, any int64 is an id. All processes must pass the same. A row has its initial value until
        somebody pushes to it."""
        kind = "hash" if rows is None else "direct"
        number = self._open(name, kind, rows or 0, dim, dtype, init, optimizer)
        return Table(self, number, name, (dim,), dtype, optimizer)

    def dense(
        self,
        name: str,
        shape: int | Sequence[int],
        *,
        dtype: str = "float32",
        init: Initializer = Zeros(),  # noqa: B008
        optimizer: _Optimizer,
    ) -> Dense:
        """Makes a tensor, or finds it. All processes must pass the same."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        number = self._open(name, "dense", math.prod(shape), 1, dtype, init, optimizer)
        return Dense(self, number, name, shape, dtype, optimizer)

    def flush(self) -> None:
        """Waits until all pushes of this client are applied, and raises the first error that no
        wait() has raised. In mode "sync" it waits, as Ticket.wait() does, until servers have taken
        the pushes, which are applied with their step."""
        self._native.flush()

    @property
    def clock(self) -> int:
        """Turns of this client that are completed. In mode "ssp" a client that joins begins at the
        highest clock of the others. In mode "sync": the number of steps that the tables have."""
        return int(self._native.clock())

    def advance(self) -> int:
        """Ends a turn, and returns the clock. In mode "ssp" it waits first until all pushes of this
        client are applied, and raises the first error that no wait() has raised; the turn does not
        count then. `for step in client` calls it."""
        return int(self._native.advance())

    def __iter__(self) -> Iterator[int]:
        """`for step in client` has a turn for each clock, without end: it counts a turn when the
        next one begins, so a turn that ends with `break` is not counted. To end with the data:
        `for step, batch in zip(client, batches)`."""
        yield self.clock
        while True:
            yield self.advance()

    def steps(self, until: int) -> Iterator[Step]:
        """Mode "sync": the steps from clock to `until`, which other processes compute, too.

            for step in client.steps(1000):
                for leaf in step:
                    x, y = batch(step.number, leaf)  # depends on these two numbers only
                    client.push(loss(model(x), y))

        Gradients of a leaf must depend on the step, the leaf and the tables only. They are added up
        over all leaves. The numbers of steps grow, and may have gaps: the others have computed what
        lies between."""
        while (clock := self.clock) < until:
            step = Step(self, clock)
            yield step
            if not step._over:
                raise Refused(
                    f"ps: step {clock} is not complete; expected `for leaf in step` to its end",
                    "invalid argument",
                )

    def push(self, loss: Any = None) -> None:
        """Calls loss.backward(), unless `loss` is None, then pushes the gradients of all that the
        layers of this client (regroup.ps.torch) have pulled since the last push. It waits until
        the gradients of the call before are applied, and raises their error: so the next forward
        pass lacks one step of this process at most. A layer whose push fails keeps its gradients
        for the next call; after DeadlineExceeded a part of them may have been sent, and counts
        twice then. In mode "sync" it waits until servers have taken them, which are applied with
        their step; after an error the client begins the leaf again."""
        if loss is not None:
            loss.backward()
        before, self._pushed = self._pushed, []
        for ticket in before:
            ticket.wait(self._deadline)
        for reference in self._layers:
            layer = reference()
            ticket = None if layer is None else layer.push_gradients()
            if ticket is not None:
                self._pushed.append(ticket)
        self._layers = [reference for reference in self._layers if reference() is not None]

    def close(self) -> None:
        """Gives the client's lane back; pushes that have begun are still applied, and nothing can
        wait for them any more."""
        self._pushed = []
        if not isinstance(self._native, _Closed):
            self._native.close()  # tickets hold it, too
        self._native = _Closed()
        self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ticket(self, number: int) -> Ticket:
        return Ticket(self._native, number, self._server)

    def _register(self, layer: Layer) -> None:
        self._layers.append(weakref.ref(layer))

    def _open(
        self,
        name: str,
        kind: str,
        rows: int,
        dim: int,
        dtype: str,
        init: Initializer | tuple[str, float, float],
        optimizer: _Optimizer,
    ) -> int:
        first = init if isinstance(init, tuple) else init._fields()
        options = dict(optimizer._options())
        return int(self._native.open(name, kind, rows, dim, dtype, first, optimizer._name, options))


class _Closed:
    def __getattr__(self, name: str) -> Any:
        raise Refused(f"ps: {name}() of a client that is closed", "invalid argument")


class _Tensor:
    """What tables of rows and dense ones share."""

    def __init__(
        self,
        client: Client,
        number: int,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        optimizer: _Optimizer,
    ) -> None:
        self._client = client
        self._number = number
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.optimizer = optimizer

    def _numpy_dtype(self) -> str:
        if self.dtype == "bfloat16":
            raise Refused(
                f"table {self.name}: NumPy has no bfloat16; use regroup.ps.torch",
                "invalid argument",
            )
        return self.dtype

    def _gradient_dtype(self) -> str:
        return "float32" if self.dtype in ("float16", "bfloat16") else self.dtype

    def _lr(self, lr: float | None) -> float:
        return float(self.optimizer.lr if lr is None else lr)

    @property
    def _native(self) -> Any:
        return self._client._native


class Table(_Tensor):
    """Rows by id. Made by Client.table()."""

    @property
    def dim(self) -> int:
        """Elements of a row."""
        return self.shape[0]

    def pull(self, ids: Any) -> np.ndarray[Any, Any]:
        """The rows of `ids`, an array of int64 of any shape: an array of that shape and `dim`. Each
        row is of one moment; an acknowledged push of this client is in it. In mode "ssp" it has all
        own pushes, and waits for clients that are too far behind. In mode "sync" it has exactly the
        steps before the present one, or later steps if that is over."""
        import numpy as np

        ids = self._ids(ids)
        rows = np.empty((*ids.shape, self.dim), self._numpy_dtype())
        self._native.pull(self._number, ids.reshape(-1), rows)
        return rows

    def push(self, ids: Any, gradients: Any, *, lr: float | None = None) -> Ticket:
        """Pushes a gradient for each id. Those of equal ids are added up first. It goes on in the
        background; `Client.flush()` or `Ticket.wait()` waits for it. `lr`: instead of the
        optimizer's."""
        import numpy as np

        ids = self._ids(ids).reshape(-1)
        gradients = np.asarray(gradients)
        if gradients.dtype != self._gradient_dtype():
            raise Refused(
                f"push to table {self.name}: expected gradients of {self._gradient_dtype()}, got "
                f"{gradients.dtype}",
                "invalid argument",
            )
        if gradients.size != ids.size * self.dim:
            raise Refused(
                f"push to table {self.name}: expected {ids.size} rows of {self.dim} elements, got "
                f"an array of shape {gradients.shape}",
                "invalid argument",
            )
        gradients = gradients.reshape(-1, self.dim)
        unique, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
        if unique.size != ids.size:
            if isinstance(self.optimizer, Assign):
                twice = int(unique[counts > 1][0])
                raise Refused(
                    f"push to table {self.name}: id {twice} occurs twice, and Assign stores one "
                    "row; expected each id once",
                    "invalid argument",
                )
            folded = np.zeros((unique.size, self.dim), gradients.dtype)
            np.add.at(folded, inverse.reshape(-1), gradients)
            ids, gradients = unique, folded
        gradients = np.ascontiguousarray(gradients)
        number = self._native.push(self._number, ids, gradients, self._lr(lr))
        return self._client._ticket(number)

    def _ids(self, ids: Any) -> np.ndarray[Any, Any]:
        import numpy as np

        ids = np.asarray(ids)
        if ids.size == 0:
            ids = ids.astype(np.int64)
        if ids.dtype.kind not in "iu" or ids.dtype == np.uint64:
            raise Refused(
                f"table {self.name}: expected ids of int64, got {ids.dtype}", "invalid argument"
            )
        return np.asarray(ids, np.int64, order="C")  # ascontiguousarray makes 0-d arrays 1-d


class Dense(_Tensor):
    """A tensor. Made by Client.dense()."""

    def pull(self) -> np.ndarray[Any, Any]:
        """The values. Each 4 MiB of them is of one moment, in mode "sync" all of one step; the rest
        is as in Table.pull()."""
        import numpy as np

        values = np.empty(self.shape, self._numpy_dtype())
        self._native.pull_dense(self._number, values)
        return values

    def push(self, gradients: Any, *, lr: float | None = None) -> Ticket:
        """Pushes gradients of the whole tensor; as Table.push()."""
        import numpy as np

        gradients = np.asarray(gradients, order="C")
        if gradients.shape != self.shape:
            raise Refused(
                f"push to table {self.name}: expected an array of shape {self.shape}, got "
                f"{gradients.shape}",
                "invalid argument",
            )
        number = self._native.push_dense(self._number, gradients, self._lr(lr))
        return self._client._ticket(number)


class _Parameters:
    """The flat float32 parameters of a module, or of a model. The table holds what training has
    added to `initial`, which must be the same in all processes; `seed` is the function that makes
    it so."""

    def __init__(
        self,
        client: Client,
        name: str,
        initial: np.ndarray[Any, Any],
        *,
        optimizer: _Optimizer,
        seed: str,
    ) -> None:
        import numpy as np

        if getattr(optimizer, "weight_decay", 0.0) != 0.0:
            raise Refused(f"table {name}: Dense has no weight decay", "invalid argument")
        digest = zlib.crc32(initial.tobytes())
        # Its first number is unused: all must agree on it.
        first = ("zeros", float(digest), 0.0)
        try:
            self._number = client._open(name, "dense", initial.size, 1, "float32", first, optimizer)
        except Refused as error:
            if "initializer" not in str(error):
                raise
            raise Refused(
                f"table {name}: the initial parameters differ from those of the process that made "
                f"the table; call {seed} with the same number in all processes before making them",
                "invalid argument",
            ) from None
        self.name = name
        self._client, self._optimizer = client, optimizer
        self._initial = initial
        self._added = np.empty_like(initial)

    def pull(self) -> np.ndarray[Any, Any]:
        self._client._native.pull_dense(self._number, self._added)
        return self._initial + self._added

    def push(self, gradients: Any) -> Ticket:
        native = self._client._native
        return self._client._ticket(native.push_dense(self._number, gradients, self._optimizer.lr))


_MODULES = ("tensorflow", "torch")


def __getattr__(name: str) -> ModuleType:
    """Imports `regroup.ps.torch` or `regroup.ps.tensorflow` on first use: they need PyTorch and
    TensorFlow."""
    if name in _MODULES:
        return importlib.import_module(f"regroup.ps.{name}")
    raise AttributeError(f"module 'regroup.ps' has no attribute {name!r}")
