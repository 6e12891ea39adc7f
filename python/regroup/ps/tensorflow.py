"""TensorFlow and Keras 3: rows and variables that live on the parameter server, for training loops
with a GradientTape.

    client = ps.join()
    users = ps.tensorflow.Embedding(client, "users", dim=64, optimizer=ps.RowAdagrad(lr=0.05))
    top = ps.tensorflow.Dense(client, "top", model.trainable_variables, optimizer=ps.Adam(lr=1e-3))

    @tf.function(reduce_retracing=True)  # the number of rows differs from batch to batch
    def gradients(rows, where, y):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            value = loss(y, model(tf.gather(rows, where)))
        return value, *tape.gradient(value, [rows, model.trainable_variables])

    for user, y in batches:
        pulled = users.pull(user)
        top.pull()
        value, of_rows, of_top = gradients(pulled.rows, pulled.where, y)
        users.push(pulled, of_rows)
        top.push(of_top)
    client.flush()

Call pull() and push() outside of a tf.function. No optimizer runs in this process. Tensors are on
the CPU. TF_CONFIG is neither read nor changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from regroup._errors import Refused
from regroup.ps import Client, Initializer, Ticket, Zeros, _check_trained, _Optimizer, _Parameters

__all__ = ["Dense", "Embedding", "Pulled"]


class Pulled(NamedTuple):
    """Rows of a batch, for `tf.gather(pulled.rows, pulled.where)`."""

    ids: np.ndarray[Any, Any]
    """The unique ids of the batch."""
    rows: tf.Tensor
    """Their rows, [len(ids), dim]."""
    where: tf.Tensor
    """The row of each id of the batch, of the batch's shape."""


class _Pushes:
    """Lets a layer's push wait for the one before, so that a pull lacks one push of this process at
    most."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._before: Ticket | None = None

    def _wait(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            before.wait(self._client._deadline)

    def _begun(self, ticket: Ticket) -> Ticket:
        self._before = ticket
        return ticket


class Embedding(_Pushes):
    """A table of rows, of any int64 ids, or of ids below `rows`."""

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
    ) -> None:
        super().__init__(client)
        _check_trained(name, dtype)
        self.table = client.table(name, dim, rows=rows, dtype=dtype, init=init, optimizer=optimizer)

    def pull(self, ids: Any) -> Pulled:
        """The rows of a batch of ids, a tensor or an array of any shape."""
        array = self.table._ids(_eager(ids, f"pull() of table {self.table.name}"))
        unique, where = np.unique(array, return_inverse=True)
        rows = tf.constant(self.table.pull(unique))
        return Pulled(unique, rows, tf.constant(where.reshape(array.shape), tf.int64))

    def push(self, pulled: Pulled, gradient: Any) -> Ticket | None:
        """Pushes what a tape has found as the gradient of `pulled.rows`: a tensor, IndexedSlices,
        or None, which is no push. Before, it waits until the last push is applied, and raises its
        error."""
        if gradient is None:
            return None
        call = f"push() to table {self.table.name}"
        if isinstance(gradient, tf.IndexedSlices):
            touched, place = tf.unique(gradient.indices)
            values = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(touched))
            ids = pulled.ids[_eager(touched, call)]
        else:
            ids, values = pulled.ids, gradient
        array = np.asarray(_eager(values, call)).astype(self.table._gradient_dtype(), copy=False)
        self._wait()
        return self._begun(self.table.push(ids, array))


class Dense(_Pushes):
    """Variables of TensorFlow or Keras whose values live on the server.

    The table holds what training has added to the initial values, which all processes must
    therefore begin with alike: call keras.utils.set_random_seed() before making the model. Weight
    decay, which needs the whole value, is refused."""

    def __init__(
        self, client: Client, name: str, variables: Sequence[Any], *, optimizer: _Optimizer
    ) -> None:
        super().__init__(client)
        self.variables = list(variables)
        """Those that were passed, in their order."""
        if not self.variables or any(v.dtype != "float32" for v in self.variables):
            raise Refused(
                f"table {name}: expected variables of float32 of a model that is built",
                "invalid argument",
            )
        initial = np.concatenate([np.ravel(v.numpy()) for v in self.variables])
        seed = "keras.utils.set_random_seed()"
        self._values = _Parameters(client, name, initial, optimizer=optimizer, seed=seed)

    def pull(self) -> None:
        """Sets the variables to the values on the server."""
        values, at = self._values.pull(), 0
        for variable in self.variables:
            size = int(np.prod(variable.shape))
            variable.assign(values[at : at + size].reshape(variable.shape))
            at += size

    def push(self, gradients: Sequence[Any]) -> Ticket | None:
        """Pushes a gradient for each variable, as tape.gradient() returns them; None counts as
        zeros, and if all are None nothing is pushed. Before, it waits until the last push is
        applied, and raises its error."""
        gradients = list(gradients)
        call = f"push() to table {self._values.name}"
        if len(gradients) != len(self.variables):
            raise Refused(
                f"{call}: expected {len(self.variables)} gradients, got {len(gradients)}",
                "invalid argument",
            )
        if all(gradient is None for gradient in gradients):
            return None
        parts = []
        for variable, gradient in zip(self.variables, gradients, strict=True):
            if gradient is None:
                parts.append(np.zeros(int(np.prod(variable.shape)), np.float32))
                continue
            array = np.asarray(_eager(tf.convert_to_tensor(gradient), call), np.float32)
            if array.shape != tuple(variable.shape):
                raise Refused(
                    f"{call}: expected a gradient of shape {tuple(variable.shape)} for variable "
                    f"{variable.name}, got {array.shape}",
                    "invalid argument",
                )
            parts.append(array.ravel())
        self._wait()
        return self._begun(self._values.push(np.concatenate(parts)))


def _eager(value: Any, call: str) -> Any:
    """A tensor's values; an array or a list as it is."""
    if tf.is_tensor(value) and not hasattr(value, "numpy"):
        raise Refused(
            f"{call}: expected values, got a tensor of a tf.function; call it outside",
            "invalid argument",
        )
    return value.numpy() if tf.is_tensor(value) else value
