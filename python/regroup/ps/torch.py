"""PyTorch layers whose parameters live on the parameter server.

    client = ps.join()
    users = ps.torch.Embedding(client, "users", dim=64, optimizer=ps.RowAdagrad(lr=0.05))
    top = ps.torch.Dense(client, "top", MLP(), optimizer=ps.Adam(lr=1e-3))
    for user, y in batches:
        client.push(loss(top(users(user)), y))           # backward, then gradients to the server
    client.flush()

A forward pass pulls the rows of its ids from memory; the backward pass leaves their gradients,
which Client.push() sends. No optimizer runs in this process. Tensors are on the CPU.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn import functional

from regroup._errors import Refused
from regroup.ps import Client, Initializer, Ticket, Zeros, _check_trained, _Optimizer, _Parameters

__all__ = ["Dense", "Embedding", "EmbeddingBag"]


_MOST_GRADIENTS = 16  # of passes that push_gradients() finds apart


class _Rows(torch.nn.Module):
    """A table of rows, and what forward passes have pulled since the last push."""

    def __init__(
        self,
        client: Client,
        name: str,
        dim: int,
        *,
        rows: int | None = None,
        dtype: str = "float32",
        init: Initializer = Zeros(),  # noqa: B008
        optimizer: _Optimizer,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        _check_trained(name, dtype)
        self.table = client.table(name, dim, rows=rows, dtype=dtype, init=init, optimizer=optimizer)
        self._dtype: torch.dtype = getattr(torch, dtype)
        self.padding_idx = padding_idx
        self._gradients: list[tuple[torch.Tensor, torch.Tensor]] = []  # of backward passes
        client._register(self)

    def pull(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of the unique ids, a leaf of the graph, and the place of each id in them. The
        row of padding_idx is zeros."""
        if ids.dtype not in (torch.int64, torch.int32):
            raise Refused(
                f"table {self.table.name}: expected ids of int64, got {ids.dtype}",
                "invalid argument",
            )
        unique, inverse = torch.unique(ids.to(torch.int64), return_inverse=True)
        used = slice(None) if self.padding_idx is None else unique != self.padding_idx
        wanted = unique[used]
        rows = torch.empty((wanted.numel(), self.table.dim), dtype=self._dtype)
        self.table._native.pull(self.table._number, wanted, rows)
        if wanted.numel() != unique.numel():
            some, rows = rows, torch.zeros((unique.numel(), self.table.dim), dtype=self._dtype)
            rows[used] = some
        if torch.is_grad_enabled() and self.training:
            rows.requires_grad_()
            # Nothing of a pass stays here before its backward pass, so those without one cost
            # nothing.
            reference = weakref.ref(self)

            def collect(leaf: torch.Tensor) -> None:
                layer = reference()
                if layer is not None and leaf.grad is not None:
                    layer._gradients.append((wanted, leaf.grad[used]))
                    layer._fold(_MOST_GRADIENTS)
                leaf.grad = None

            rows.register_post_accumulate_grad_hook(collect)
        return rows, inverse

    def _padding(self, inverse: torch.Tensor, ids: torch.Tensor) -> int | None:
        """The row of padding_idx among those that were pulled."""
        if self.padding_idx is None:
            return None
        places = inverse[ids == self.padding_idx]
        return int(places[0]) if places.numel() else None

    def _fold(self, most: int) -> None:
        """Adds up gradients of equal ids if there are those of more than `most` passes."""
        if len(self._gradients) <= most:
            return
        wide = torch.float64 if self._dtype == torch.float64 else torch.float32
        every = torch.cat([ids for ids, _ in self._gradients])
        unique, inverse = torch.unique(every, return_inverse=True)
        folded = torch.zeros((unique.numel(), self.table.dim), dtype=wide)
        folded.index_add_(0, inverse, torch.cat([g.to(wide) for _, g in self._gradients]))
        self._gradients = [(unique, folded)]

    def push_gradients(self) -> Ticket | None:
        """Pushes the gradients of all backward passes since the last call; those of a row that was
        pulled several times are added up. None: there are none."""
        self._fold(1)
        if not self._gradients or self._gradients[0][0].numel() == 0:
            self._gradients = []
            return None
        wide = torch.float64 if self._dtype == torch.float64 else torch.float32
        ids, gradients = self._gradients[0][0], self._gradients[0][1].to(wide)
        client, lr = self.table._client, self.table.optimizer.lr
        number = client._native.push(self.table._number, ids, gradients.contiguous(), lr)
        self._gradients = []  # not before: after an error they are still here
        return client._ticket(number)

    def extra_repr(self) -> str:
        return f"{self.table.name!r}, dim={self.table.dim}"


class Embedding(_Rows):
    """As torch.nn.Embedding, of any int64 ids, or of ids below `rows`. `padding_idx`: an id, also
    one that the table cannot have, such as -1; its row is zeros and gets no gradient."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids of any shape -> [*ids.shape, dim]."""
        rows, inverse = self.pull(ids)
        return functional.embedding(inverse, rows)


class EmbeddingBag(_Rows):
    """As torch.nn.EmbeddingBag: the sum, mean or maximum of bags of rows. Ids that are
    `padding_idx` are no part of a bag."""

    def __init__(self, client: Client, name: str, dim: int, *, mode: str = "mean", **table: Any):
        if mode not in ("sum", "mean", "max"):
            raise Refused(
                f'table {name}: expected mode "sum", "mean" or "max", got {mode!r}',
                "invalid argument",
            )
        super().__init__(client, name, dim, **table)
        self.mode = mode

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
        """ids [bags, n], or ids [n] with the offset of each bag -> [bags, dim]."""
        rows, inverse = self.pull(ids)
        padding = self._padding(inverse, ids)
        return functional.embedding_bag(inverse, rows, offsets, mode=self.mode, padding_idx=padding)


class Dense(torch.nn.Module):
    """A module whose parameters live on the server: each forward pass pulls them, Client.push()
    pushes their gradients.

    The table holds what training has added to the initial parameters, which all processes must
    therefore begin with alike: call torch.manual_seed() before making `module`. Weight decay, which
    needs the whole value, is refused. Buffers stay in this process."""

    def __init__(
        self, client: Client, name: str, module: torch.nn.Module, *, optimizer: _Optimizer
    ) -> None:
        super().__init__()
        self.module = module
        parameters = [p for p in module.parameters() if p.requires_grad]
        if not parameters or any(p.dtype != torch.float32 or p.is_cuda for p in parameters):
            raise Refused(
                f"table {name}: expected a module with parameters of float32 on the CPU",
                "invalid argument",
            )
        self._trained = parameters
        with torch.no_grad():
            initial = torch.cat([p.reshape(-1) for p in parameters]).numpy()
        seed = "torch.manual_seed()"
        self._values = _Parameters(client, name, initial, optimizer=optimizer, seed=seed)
        self._pulled = False
        client._register(self)

    def pull(self) -> None:
        """Sets the module's parameters to the values on the server."""
        values = torch.from_numpy(self._values.pull())
        at = 0
        with torch.no_grad():
            for parameter in self._trained:
                parameter.copy_(values[at : at + parameter.numel()].view_as(parameter))
                at += parameter.numel()

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Calls the module. The first call after a push pulls the parameters before: all passes
        up to the next push see the same ones, as the backward pass must."""
        if not self._pulled:
            self.pull()
            self._pulled = torch.is_grad_enabled()
        return self.module(*arguments, **named)

    def push_gradients(self) -> Ticket | None:
        """Pushes the gradients of all parameters, and drops them here. None: there are none."""
        if all(p.grad is None for p in self._trained):
            self._pulled = False
            return None
        parts = [
            torch.zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in self._trained
        ]
        ticket = self._values.push(torch.cat(parts))
        self._pulled = False  # not before: after an error the gradients are still here
        for parameter in self._trained:
            parameter.grad = None
        return ticket
