"""Train on scikit-learn's handwritten digits with tf.distribute.ParameterServerStrategy.

regroup --role chief=1 --role worker=2 --role ps=1 python examples/tensorflow/parameter_server.py
"""

import argparse
import os

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()

os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a lost worker is an error at once, not a wait
cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        cluster.cluster_spec(),
        job_name=cluster.task_type,
        task_index=cluster.task_id,
        protocol="grpc",
    )
    server.join()  # serves the chief; never returns

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(
    (digits.data / 16).astype("float32"), digits.target, test_size=0.2, random_state=1
)
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():  # variables live on the ps
    model = tf.keras.Sequential(
        [tf.keras.Input((64,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)]
    )
    variables = model.trainable_variables


def make_dataset():
    data = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    return data.shuffle(len(x_train)).repeat().batch(args.batch_size)


@tf.function
def train_step(batches):
    x, y = next(batches)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        )
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.15 * gradient)  # asynchronous: workers do not wait for each other
    return loss


batches = iter(coordinator.create_per_worker_dataset(make_dataset))
steps = len(x_train) // args.batch_size
for epoch in range(args.epochs):
    losses = [coordinator.schedule(train_step, args=(batches,)) for _ in range(steps)]
    coordinator.join()  # another worker repeats the steps of one that died
    print(f"epoch {epoch + 1:2}  loss {sum(coordinator.fetch(losses)) / steps:.4f}", flush=True)

accuracy = (model(x_test).numpy().argmax(axis=1) == y_test).mean()
print(f"test accuracy {accuracy:.2%}")
