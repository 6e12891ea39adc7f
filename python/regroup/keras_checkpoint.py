"""Keeps the weights of Keras models in checkpoints, under their paths ("dense/kernel"). Does not
import a framework itself.

save(directory, step, model)
load(newest_checkpoint(directory), model)
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from regroup import _arguments
from regroup._dtypes import holds_all
from regroup._errors import Error, shown
from regroup.checkpoint import Checkpoint, Piece, Snapshot, newest_checkpoint

__all__ = ["load", "newest_checkpoint", "save"]


def save(directory: str | os.PathLike, step: int, model: Any, **more: Any) -> Path:
    """Writes model.weights, including those of layers such as BatchNormalization, and the variables
    of model.optimizer if it is built. Returns the path of the checkpoint once it is on disk. more:
    the arguments of Snapshot.write()."""
    variables = _variables_of(model)
    arrays = {name: np.asarray(variable.numpy(), order="C") for name, variable in variables.items()}
    snapshot = Snapshot(
        [Piece(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    )
    try:
        for index, array in enumerate(arrays.values()):
            snapshot.memory(index)[:] = array.reshape(-1).view(np.uint8)
        return snapshot.write(directory, step, **more)
    finally:
        snapshot.close()


def load(path: str | os.PathLike, model: Any, lossy: Collection[str] = ()) -> None:
    """Assigns what save() wrote to the variables of a model with the same paths. Raises Error and
    assigns nothing if the paths differ, if a byte is damaged, or if a variable's type cannot hold
    all values of the saved type and its path is not in `lossy`."""
    checkpoint = Checkpoint(_arguments.checkpoint_path("load", path))
    variables = _variables_of(model)
    described = {name: (dtype, tuple(shape)) for name, dtype, shape in checkpoint.tensors}
    arrays = {}
    for name, variable in variables.items():
        dtype, shape = described.get(name, (None, None))
        if dtype is None or shape != tuple(variable.shape):
            raise Error(
                f"checkpoint {path}: no {shown(name)} of shape {tuple(variable.shape)}",
                "invalid argument",
            )
        arrays[name] = np.empty(shape, _numpy_type(dtype))
        own = variable.numpy().dtype
        if name not in lossy and not holds_all(own.name, dtype):
            raise Error(
                f"checkpoint {path}: {shown(name)} is {dtype}, and {own.name}, into which it is to "
                f"be "
                f"loaded, does not hold all its values; load(..., lossy=[{name!r}]) loads it all "
                f"the same",
                "invalid argument",
            )
        checkpoint.read_into(name, arrays[name].reshape(-1).view(np.uint8))
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _variables_of(model: Any) -> dict[str, Any]:
    """Returns the variables by name: a path without the model's name, or a number for one of the
    optimizer. Keras makes names unique by counting, so that they differ between runs."""
    if isinstance(model, type) or not hasattr(model, "weights") or not hasattr(model, "name"):
        _arguments.refuse(
            "keras_checkpoint",
            f"model: expected a Keras model, got {_arguments.kind(model)}",
            final=False,
        )
    named = [(v.path.removeprefix(f"{model.name}/"), v) for v in model.weights]
    if (optimizer := getattr(model, "optimizer", None)) is not None:
        named += [(f"optimizer/{i}", v) for i, v in enumerate(optimizer.variables)]
    out: dict[str, Any] = {}
    for name, variable in named:
        if name in out:
            raise Error(f"two variables have the path {shown(name)}", "invalid argument")
        out[name] = variable
    return out


def _numpy_type(dtype: str) -> Any:
    """bfloat16 and float8 are types of ml_dtypes, which Keras brings."""
    if dtype == "bfloat16" or dtype.startswith("float8"):
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), dtype))
    return np.dtype(dtype)
