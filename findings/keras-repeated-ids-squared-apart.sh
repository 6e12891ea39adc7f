#!/usr/bin/env bash
# Keras's Adam, Adagrad and RMSprop update the rows of an Embedding by other numbers if an id occurs twice in a batch.
# Versions: keras 3.15.1, tensorflow-cpu 2.21.0 (PyPI) as its backend, Python 3.11, one process.
#
# The gradient of a looked-up table is a tf.IndexedSlices in which an id that occurs twice has two slices. Its value is
# their sum. Optimizers that square the gradient square each slice alone and add the squares up, so the second moment
# is (a*a + b*b) where it should be (a + b)*(a + b): rows of frequent ids move too far. The same model with a Dense
# layer over one-hot rows, or with the gradient converted to a tensor, gives other weights. The first step of Adam, whose
# length is the learning rate whatever the gradient, shows it: 0.134 instead of 0.1. SGD, and rows that occur once, are
# right. It holds in fit(), with jit_compile, and in loops of one's own.
#
# Output seen:
#   SGD: row of the repeated id moves by 0.1000, as a dense gradient 0.1000
#   Adagrad: row of the repeated id moves by 0.1312, as a dense gradient 0.0988
#   RMSprop: row of the repeated id moves by 0.4243, as a dense gradient 0.3162
#   Adam: row of the repeated id moves by 0.1342, as a dense gradient 0.1000
#   Adam: row of the id that occurs once moves by 0.1000, as a dense gradient 0.1000
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet keras==3.15.1 tensorflow-cpu==2.21.0 numpy==2.4.6

cat >"$dir/rows.py" <<'PY'
import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy

IDS = numpy.array([0, 0, 1])
WANTED = numpy.array([[3.0], [2.0], [1.5]], "float32")


def moved(layer, optimizer, inputs, samples):
    model = keras.Sequential([inputs, layer])
    layer.set_weights([numpy.ones((2, 1), "float32")])
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(samples, WANTED, batch_size=3, shuffle=False, verbose=0)
    return layer.get_weights()[0][:, 0] - 1


for name in ("SGD", "Adagrad", "RMSprop", "Adam"):
    new = getattr(keras.optimizers, name)
    table = moved(keras.layers.Embedding(2, 1), new(0.1 if name != "SGD" else 0.05),
                  keras.Input((), dtype="int32"), IDS)
    dense = moved(keras.layers.Dense(1, use_bias=False), new(0.1 if name != "SGD" else 0.05),
                  keras.Input((2,)), numpy.eye(2, dtype="float32")[IDS])
    print(f"{name}: row of the repeated id moves by {table[0]:.4f}, as a dense gradient {dense[0]:.4f}")
print(f"{name}: row of the id that occurs once moves by {table[1]:.4f}, as a dense gradient {dense[1]:.4f}")
PY
TF_CPP_MIN_LOG_LEVEL=3 timeout 300 "$dir/venv/bin/python" "$dir/rows.py" 2>"$dir/err" >"$dir/out" ||
  { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(sed -n 4p "$dir/out")"
grep -qxF 'SGD: row of the repeated id moves by 0.1000, as a dense gradient 0.1000' "$dir/out"
grep -qxF 'Adagrad: row of the repeated id moves by 0.1312, as a dense gradient 0.0988' "$dir/out"
grep -qxF 'RMSprop: row of the repeated id moves by 0.4243, as a dense gradient 0.3162' "$dir/out"
grep -qxF 'Adam: row of the repeated id moves by 0.1342, as a dense gradient 0.1000' "$dir/out"
grep -qxF 'Adam: row of the id that occurs once moves by 0.1000, as a dense gradient 0.1000' "$dir/out"
