#!/usr/bin/env bash
# Keras's save_weights() stores layers by class and order, not by name: load_weights() swaps towers without an error.
# Versions: keras 3.15.1, h5py 3.14.0 (PyPI) with JAX 0.10.2 as backend, Python 3.11, one process.
#
# Layers of a functional model have names, which must be unique in it. A .weights.h5 file does not have them: it numbers
# the layers of each class in the order in which the model lists them (dense, dense_1, ...). A model of the same layers
# whose inputs are given in another order lists them in that order, so the weights of "users" are loaded into "items" if
# the shapes agree. Keras 2 stored names and had by_name=True for such cases; by_name is refused for this format.
#
# Output seen:
#   saved: users 1.0, items 2.0
#   loaded, inputs in the other order: users 2.0, items 1.0
#   layers in the file: dense, dense_1
#   load_weights(by_name=True): ValueError
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet keras==3.15.1 h5py==3.14.0 scipy==1.17.1 jax==0.10.2 numpy==2.4.6

cat >"$dir/towers.py" <<'PY'
import sys

import h5py
import keras
import numpy

NAMES = ("users", "items")
FILE = sys.argv[1]


def towers(order):
    inputs = {name: keras.Input((2,)) for name in NAMES}
    rows = {name: keras.layers.Dense(3, use_bias=False, name=name)(inputs[name]) for name in NAMES}
    return keras.Model([inputs[name] for name in order], keras.layers.Dot(1)([rows[name] for name in order]))


def said(model):
    return ", ".join(f"{name} {model.get_layer(name).get_weights()[0][0, 0]}" for name in NAMES)


saved = towers(NAMES)
for value, name in enumerate(NAMES, 1):
    saved.get_layer(name).set_weights([numpy.full((2, 3), value, "float32")])
saved.save_weights(FILE)
print(f"saved: {said(saved)}")
loaded = towers(NAMES[::-1])
loaded.load_weights(FILE)
print(f"loaded, inputs in the other order: {said(loaded)}")
with h5py.File(FILE) as file:
    print("layers in the file:", ", ".join(sorted(name for name in file["layers"] if "dense" in name)))
try:
    loaded.load_weights(FILE, by_name=True)
except ValueError as error:
    print(f"load_weights(by_name=True): {type(error).__name__}")
PY
KERAS_BACKEND=jax JAX_PLATFORMS=cpu timeout 200 "$dir/venv/bin/python" "$dir/towers.py" "$dir/model.weights.h5" 2>"$dir/err" >"$dir/out" ||
  { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out"); $(sed -n 2p "$dir/out")"
grep -qxF 'saved: users 1.0, items 2.0' "$dir/out"
grep -qxF 'loaded, inputs in the other order: users 2.0, items 1.0' "$dir/out"
grep -qxF 'layers in the file: dense, dense_1' "$dir/out"
grep -qxF 'load_weights(by_name=True): ValueError' "$dir/out"
