"""A click model, wide and deep, on a parameter server.

regroup --role ps=1 --role worker=2 --ps-memory 256M python examples/tensorflow/ps_clicks.py

A record is a row of categories and a yes or no, as in a log of clicks. No package ships such a
log: this takes scikit-learn's 569 records of breast cancer, whose 30 numbers are cut into ten
categories each. The wide part has a weight for each category, by FTRL; the deep part has an
embedding for each, and a small network. All of it lies on the server. Kill regroup-ps while it
runs: nothing is lost.
"""

import argparse
import os
import time

import numpy as np
import regroup.ps as ps
import tensorflow as tf
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=100, help="of each worker")
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()

records = load_breast_cancer()
columns = records.data.shape[1]
cuts = np.quantile(records.data, np.linspace(0, 1, 11)[1:-1], axis=0)
category = np.stack(
    [np.searchsorted(cuts[:, c], records.data[:, c]) for c in range(columns)], axis=1
)
ids = category + 1000 * np.arange(columns)  # any int64 is an id
clicked = records.target.astype(np.float32)
order = np.random.default_rng(0).permutation(len(ids))
train, test = order[120:], order[:120]

client = ps.join()
tf.keras.utils.set_random_seed(0)  # all workers begin with the same network
network = tf.keras.Sequential(
    [
        tf.keras.Input((columns, 4)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(16, "relu"),
        tf.keras.layers.Dense(1),
    ]
)
wide = ps.tensorflow.Embedding(client, "wide", dim=1, optimizer=ps.Ftrl(lr=0.05, l1=0.001))
deep = ps.tensorflow.Embedding(
    client, "deep", dim=4, init=ps.Normal(std=0.1), optimizer=ps.RowAdagrad(lr=0.05)
)
top = ps.tensorflow.Dense(client, "top", network.trainable_variables, optimizer=ps.Adam(lr=1e-3))
done = client.dense("done", 1, dtype="int64", optimizer=ps.Sum())  # workers that are through


def scores(weights, rows, where):
    linear = tf.reduce_sum(tf.gather(weights, where), axis=1)
    return tf.squeeze(linear + network(tf.gather(rows, where)), axis=1)


@tf.function(reduce_retracing=True)  # the number of rows differs from batch to batch
def gradients(weights, rows, where, y):
    with tf.GradientTape() as tape:
        tape.watch([weights, rows])
        losses = tf.nn.sigmoid_cross_entropy_with_logits(y, scores(weights, rows, where))
        loss = tf.reduce_mean(losses)
    return loss, *tape.gradient(loss, [weights, rows, network.trainable_variables])


draw = np.random.default_rng(1 + int(os.environ["RANK"]))  # each worker draws batches of its own
for step in range(args.steps):
    batch = draw.choice(train, args.batch_size)
    weights, rows = wide.pull(ids[batch]), deep.pull(ids[batch])  # both have the same `where`
    top.pull()
    loss, of_wide, of_deep, of_top = gradients(weights.rows, rows.rows, rows.where, clicked[batch])
    wide.push(weights, of_wide)
    deep.push(rows, of_deep)
    top.push(of_top)
    if step % 25 == 24:
        print(f"step {step + 1}: loss {loss:.3f}", flush=True)
client.flush()
done.push(np.ones(1, np.int64)).wait()
while done.pull()[0] < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)

top.pull()
weights, rows = wide.pull(ids[test]), deep.pull(ids[test])
auc = roc_auc_score(clicked[test], scores(weights.rows, rows.rows, rows.where))
print(f"AUC {auc:.3f} on {len(test)} records", flush=True)
