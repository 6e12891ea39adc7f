"""Weights of Keras models in checkpoints, under their paths ("dense/kernel"). Imports no framework itself.

save(directory, step, model)
load(newest_checkpoint(directory), model)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from regroup._errors import Error
from regroup.checkpoint import Checkpoint, Piece, Snapshot, newest_checkpoint

__all__ = ["load", "newest_checkpoint", "save"]


def save(directory: str | os.PathLike, step: int, model: Any, **more: Any) -> Path:
    """Writes model.weights, those of layers such as BatchNormalization included, and if model.optimizer is
    built its variables. The path of the checkpoint, when it is on the disk. more: as Snapshot.write()."""
    variables = _variables_of(model)
    arrays = {name: np.asarray(variable.numpy(), order="C") for name, variable in variables.items()}
    snapshot = Snapshot([Piece(name, array.dtype.name, array.shape) for name, array in arrays.items()])
    try:
        for index, array in enumerate(arrays.values()):
            snapshot.memory(index)[:] = array.reshape(-1).view(np.uint8)
        return snapshot.write(directory, step, **more)
    finally:
        snapshot.close()


def load(path: str | os.PathLike, model: Any) -> None:
    """Assigns what save() wrote to the variables of a model with the same paths. Raises Error if they differ,
    or if a byte is damaged: then nothing is assigned."""
    checkpoint, variables = Checkpoint(str(path)), _variables_of(model)
    described = {name: (dtype, tuple(shape)) for name, dtype, shape in checkpoint.tensors}
    arrays = {}
    for name, variable in variables.items():
        dtype, shape = described.get(name, (None, None))
        if dtype is None or shape != tuple(variable.shape):
            raise Error(f"checkpoint {path}: no {name} of shape {tuple(variable.shape)}", "invalid argument")
        arrays[name] = np.empty(shape, _numpy_type(dtype, variable))
        checkpoint.read_into(name, arrays[name].reshape(-1).view(np.uint8))
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _variables_of(model: Any) -> dict[str, Any]:
    """By their paths without the model's name, and the optimizer's by number: Keras counts names up."""
    named = [(v.path.removeprefix(f"{model.name}/"), v) for v in model.weights]
    if (optimizer := getattr(model, "optimizer", None)) is not None:
        named += [(f"optimizer/{i}", v) for i, v in enumerate(optimizer.variables)]
    out: dict[str, Any] = {}
    for name, variable in named:
        if name in out:
            raise Error(f"two variables have the path {name}", "invalid argument")
        out[name] = variable
    return out


def _numpy_type(dtype: str, variable: Any) -> Any:
    """bfloat16 is a type of ml_dtypes, which the variable's own values bring."""
    return variable.numpy().dtype if dtype == "bfloat16" else np.dtype(dtype)
