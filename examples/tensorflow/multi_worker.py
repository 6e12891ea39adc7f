"""Train on scikit-learn's handwritten digits with tf.distribute.MultiWorkerMirroredStrategy.

regroup --role worker=2 python examples/tensorflow/multi_worker.py
"""

import argparse
import hashlib

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="of all workers together")
args = parser.parse_args()

# first of all: it starts this worker's server
strategy = tf.distribute.MultiWorkerMirroredStrategy()
worker = strategy.cluster_resolver.task_id

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(
    (digits.data / 16).astype("float32"), digits.target, test_size=0.2, random_state=1
)
steps = len(x_train) // args.batch_size
data = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(len(x_train), seed=0).repeat()
batches = iter(strategy.experimental_distribute_dataset(data.batch(args.batch_size)))

with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((64,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)]
    )
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)


def train_on_replica(x, y):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        loss = tf.reduce_sum(losses) / args.batch_size  # gradients of the workers are added
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


@tf.function
def train_epoch():
    total = 0.0
    for _ in tf.range(steps):
        loss = strategy.run(train_on_replica, next(batches))
        total += strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
    return total / steps


for epoch in range(args.epochs):
    loss = train_epoch()
    if worker == 0:
        print(f"epoch {epoch + 1:2}  loss {loss:.4f}", flush=True)

accuracy = (model(x_test).numpy().argmax(axis=1) == y_test).mean()
weights = b"".join(variable.numpy().tobytes() for variable in model.trainable_variables)
print(
    f"worker {worker}  test accuracy {accuracy:.2%}  weights sha256 "
    f"{hashlib.sha256(weights).hexdigest()}"
)
