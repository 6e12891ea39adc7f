"""Evaluation of a model by all members together. The result is exact: it does not depend on which
member computed what.

Batch i of the data set has the samples [i b, (i+1) b), whoever computes it. The values of each
sample are exchanged, not sums of them, and added exactly (math.fsum).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from regroup import _arguments, _native, _torch_device

Metric = Callable[[Any, Any], torch.Tensor]
_CALL = "evaluate"


class Evaluation:
    """One evaluation, as the body of a collective section: run() may be called again after a
    regroup.

    metric: gets the outputs and targets of a batch, returns a value or several for each sample.
    seed: of the random numbers, with the number of a batch.
    deadline: the longest wait for the values of a batch from a device, in seconds.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        dataset: Any,
        metric: Metric,
        collate: Callable[[list], Any],
        batch_size: int,
        seed: Callable[[int], None],
        deadline: float = _torch_device.DEADLINE_S,
    ):
        if not isinstance(model, torch.nn.Module):
            _arguments.refuse(
                _CALL, f"model: expected a torch.nn.Module, got {_arguments.kind(model)}"
            )
        if not callable(metric):
            _arguments.refuse(_CALL, f"metric: expected a function, got {_arguments.kind(metric)}")
        indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not indexed:
            _arguments.refuse(
                _CALL,
                f"data set: expected len() and [index], got {_arguments.kind(dataset)} without",
            )
        if len(dataset) == 0:
            _arguments.refuse(_CALL, "data set: expected at least one sample, got none")
        self._model = model
        self._dataset = dataset
        self._metric = metric
        self._collate = collate
        self._batch_size = batch_size
        self._seed = seed
        self._deadline = deadline
        first = next(itertools.chain(model.parameters(), model.buffers()), torch.empty(0))
        self._device = first.device

    def run(self, communicator: _native.Communicator) -> float | torch.Tensor:
        """The mean over the samples; a float64 tensor [k] if a sample has k values."""
        samples = len(self._dataset)
        batches = range(communicator.rank, -(-samples // self._batch_size), communicator.size)
        with _evaluating(self._model), _keep_random_state():
            parts = {batch: self._values(batch) for batch in batches}
        columns = _common_columns(communicator, list(parts.values()))
        values = torch.zeros(samples, columns or 1, dtype=torch.float64)
        for batch, part in parts.items():
            begin = batch * self._batch_size
            values[begin : begin + len(part)] = part.reshape(len(part), -1)
        communicator.allreduce(values)  # to each row all members but one add zeros
        means = [_sum(column) / samples for column in values.T]
        return torch.tensor(means, dtype=torch.float64) if columns else means[0]

    def _values(self, number: int) -> torch.Tensor:
        self._seed(number)
        begin = number * self._batch_size
        end = min(begin + self._batch_size, len(self._dataset))
        batch = self._collate([self._dataset[i] for i in range(begin, end)])
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            _arguments.refuse(
                _CALL,
                f"batch: expected (input, target), got {_arguments.kind(batch)}: pass collate=... "
                "that makes one",
            )
        inputs, targets = _torch_device.moved(batch, self._device)
        values = self._metric(self._model(inputs), targets)
        wanted = (
            f"expected a tensor [{end - begin}] or [{end - begin}, k], with a row for each sample"
        )
        if not isinstance(values, torch.Tensor):
            _arguments.refuse(_CALL, f"metric: {wanted}, got {_arguments.kind(values)}")
        if values.ndim not in (1, 2) or len(values) != end - begin or values.numel() == 0:
            got = f"got {list(values.shape)}: a loss takes reduction='none'"
            _arguments.refuse(_CALL, f"metric: {wanted}, {got}")
        flat = values.detach().to(torch.float64).reshape(-1)
        (data,) = _torch_device.on_host([flat], self._deadline, "an evaluation's values")
        if not isinstance(data, torch.Tensor):
            data = torch.frombuffer(data, dtype=torch.float64)
        return data.view(values.shape)


def _sum(values: torch.Tensor) -> float:
    """Exact where all values are finite."""
    return math.fsum(values.tolist()) if torch.isfinite(values).all() else values.sum().item()


def _common_columns(communicator: _native.Communicator, parts: list[torch.Tensor]) -> int:
    """The number of columns of the metric's values, 0 for a vector. A member without a batch learns
    it from the others."""
    own = {1 + (0 if part.ndim == 1 else part.shape[1]) for part in parts}
    rows = torch.zeros(communicator.size, dtype=torch.int64)
    rows[communicator.rank] = -1 if len(own) > 1 else sum(own)
    communicator.allreduce(rows)
    found = set(rows.tolist()) - {0}
    if len(found) != 1 or -1 in found:
        _arguments.refuse(
            _CALL, "metric: expected as many values for each sample, got other numbers by batch"
        )
    return found.pop() - 1


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Sets all modules to evaluation, and each back to what it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


@contextlib.contextmanager
def _keep_random_state() -> Iterator[None]:
    """Members evaluate different batches, and continue with equal random numbers."""
    numpy = sys.modules.get("numpy.random")
    torch_state, own = torch.random.get_rng_state(), random.getstate()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy_state = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.random.set_rng_state(torch_state)
        torch.cuda.set_rng_state_all(devices)
        random.setstate(own)
        if numpy is not None:
            numpy.set_state(numpy_state)
