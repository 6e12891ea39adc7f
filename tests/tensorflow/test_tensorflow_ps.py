"""TensorFlow and Keras 3 on the parameter server."""

import json
import re

import keras
import numpy as np
import pytest
import regroup.ps as ps
import tensorflow as tf

SERVED = ("--oversubscribe", "--role", "ps=1", "--role", "worker=2", "--ps-memory", "128M")


@pytest.fixture
def client():
    with ps.Server("64M", seed=7) as server, server.attach(0, deadline=60) as attached:
        yield attached


def test_rows_train_as_variables_do(client):
    """Gradients come as IndexedSlices of a tf.function, and as a tensor."""
    ours = ps.tensorflow.Embedding(client, "e", 4, init=ps.Normal(), optimizer=ps.SGD(lr=0.5))
    plain = tf.Variable(ours.pull(np.arange(10)).rows)

    def of_gather(rows, where):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            loss = tf.reduce_sum(tf.square(tf.gather(rows, where)))
        return tape.gradient(loss, rows)

    traced = tf.function(of_gather, reduce_retracing=True)
    random = np.random.default_rng(1)
    for step in range(4):
        ids = random.integers(0, 10, (3, 5))
        pulled = ours.pull(tf.constant(ids))
        assert pulled.where.shape == ids.shape
        gradient = traced(pulled.rows, pulled.where)
        assert isinstance(gradient, tf.IndexedSlices)
        ours.push(pulled, tf.convert_to_tensor(gradient) if step == 0 else gradient)
        plain.assign_sub(0.5 * tf.convert_to_tensor(of_gather(tf.convert_to_tensor(plain), ids)))
        client.flush()
    assert np.allclose(ours.pull(np.arange(10)).rows, plain, rtol=1e-5, atol=1e-6)
    assert ours.push(pulled, None) is None


def test_rows_that_the_loss_does_not_use_are_not_pushed(client):
    ours = ps.tensorflow.Embedding(client, "e", 1, optimizer=ps.Sum())
    pulled = ours.pull([7, 8, 9, 8])
    with tf.GradientTape() as tape:
        tape.watch(pulled.rows)
        loss = 2 * tf.reduce_sum(tf.gather(pulled.rows, pulled.where[1:2]))
    ticket = ours.push(pulled, tape.gradient(loss, pulled.rows))
    ticket.wait(60)
    assert ours.table.pull([7, 8, 9]).tolist() == [[0], [2], [0]]
    assert ours.pull(8).where.shape == ()


def test_a_keras_model_trains_as_with_kerass_optimizer(client):
    def make():
        keras.utils.set_random_seed(2)
        layers = [keras.layers.Embedding(6, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
        return keras.Sequential([keras.Input((3,), dtype="int32"), *layers])

    plain, model = make(), make()
    adam = keras.optimizers.Adam(0.01, epsilon=1e-8)
    ours = ps.tensorflow.Dense(client, "top", model.trainable_variables, optimizer=ps.Adam(lr=0.01))

    def gradients(of, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(of(x) - 1))
        return tape.gradient(loss, of.trainable_variables)

    random = np.random.default_rng(3)
    for _ in range(5):
        x = random.integers(0, 6, (8, 3))
        ours.pull()
        found = gradients(model, x)
        assert isinstance(found[0], tf.IndexedSlices)
        ours.push(found)
        client.flush()
        # Keras 3.15.1 squares IndexedSlices before it adds up those of equal indices.
        tensors = [tf.convert_to_tensor(gradient) for gradient in gradients(plain, x)]
        adam.apply_gradients(zip(tensors, plain.trainable_variables, strict=True))
    ours.pull()
    for mine, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    before = ours.variables[2].numpy()
    ours.push([None, None, 100 * tf.ones(before.shape)]).wait(60)
    assert ours.push([None, None, None]) is None
    ours.pull()
    assert (ours.variables[2].numpy() < before).all()


def test_a_pull_lacks_one_push_of_its_own_at_most(client):
    ours = ps.tensorflow.Embedding(client, "e", 1, optimizer=ps.Sum())
    one = tf.Variable([0.0])
    dense = ps.tensorflow.Dense(client, "top", [one], optimizer=ps.SGD(lr=1.0))
    for step in range(50):
        pulled = ours.pull([3])
        dense.pull()
        assert step - 1 <= pulled.rows.numpy().item() <= step
        assert step - 1 <= -one.numpy().item() <= step
        ours.push(pulled, tf.ones((1, 1)))
        dense.push([tf.ones(1)])


def symbolic_pull(rows):
    tf.function(lambda ids: rows.pull(ids).rows, autograph=False)(tf.constant([1]))


WRONG = {
    "expected ids of int64, got float32": lambda r, _: r.pull(tf.constant([1.0])),
    "got a tensor of a tf.function; call it outside": lambda r, _: symbolic_pull(r),
    "expected 1 rows of 2 elements": lambda r, _: r.push(r.pull([1]), tf.ones((3, 2))),
    "expected a floating-point dtype for a layer, got int64": lambda r, _: ps.tensorflow.Embedding(
        r._client, "counts", 1, dtype="int64", optimizer=ps.Sum()
    ),
    "expected 2 gradients, got 1": lambda _, d: d.push([tf.ones(2)]),
    r"expected a gradient of shape \(2,\) for variable": lambda _, d: d.push([tf.ones(3), None]),
    "expected variables of float32": lambda r, _: ps.tensorflow.Dense(
        r._client, "other", [], optimizer=ps.SGD(lr=1)
    ),
    r"differ from those of the process .* keras.utils.set_random_seed\(\)": lambda r, _: (
        ps.tensorflow.Dense(r._client, "top", [tf.Variable([1.0] * 5)], optimizer=ps.SGD(lr=1))
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_refused(client, message):
    rows = ps.tensorflow.Embedding(client, "rows", 2, optimizer=ps.SGD(lr=1))
    variables = [tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0, 3.0])]
    dense = ps.tensorflow.Dense(client, "top", variables, optimizer=ps.SGD(lr=1))
    with pytest.raises(ps.Refused, match=message):
        WRONG[message](rows, dense)


def test_the_example_trains_in_a_job_that_has_a_tf_config(tensorflow, tmp_path):
    told = tmp_path / "config"
    words = f'echo "$TF_CONFIG" >> {told}; exec python examples/tensorflow/ps_clicks.py --steps 40'
    job = tensorflow(*SERVED, "sh", "-c", words)
    assert job.wait() == 0, job.job.err
    # Both evaluate what both have trained: about 0.98. Guesses have 0.5.
    first, second = [float(a) for a in re.findall(r"AUC (\S+) on", job.job.out)]
    assert first == second > 0.8, job.job.out
    configs = [json.loads(line) for line in told.read_text().splitlines()]
    assert {one["task"]["index"] for one in configs} == {0, 1}
