#!/usr/bin/env bash
# Keras's BackupAndRestore with save_freq=N goes on from the weights of step N and repeats the epoch from its first step.
# Versions: keras 3.15.1, torch 2.13.0 (PyPI, CPU) as its backend, Python 3.11, one process.
#
# With an integer as save_freq the callback saves in mid-epoch. The file names the batch, and after an interruption the
# weights, the optimizer's state and its count of steps are those of that batch. fit() however starts the epoch again at
# its first batch: what was trained before the interruption is trained twice, and learning rates that follow the count
# of steps run ahead. No warning is given.
#
# Output seen:
#   undisturbed: 12 steps, samples [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
#   interrupted in step 5, saved after step 4: 16 steps, samples [0, 1, 2, 3] + [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
#   same weights: False
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet keras==3.15.1 torch==2.13.0 numpy==2.4.6

cat >"$dir/resume.py" <<'PY'
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy


class Samples(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return numpy.full((1, 1), float(index), "float32"), numpy.ones((1, 1), "float32")


class Model(keras.Sequential):
    def train_step(self, data):
        self.trained.append(int(data[0].item()))
        return super().train_step(data)


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 4:
            raise KeyboardInterrupt


def model():
    dense = keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer="zeros")
    out = Model([keras.Input((1,)), dense])
    out.trained = []
    out.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse", run_eagerly=True)
    return out


def fit(what, *callbacks):
    what.fit(Samples(), epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    return int(what.optimizer.iterations)


whole = model()
print(f"undisturbed: {fit(whole)} steps, samples {whole.trained}")

first = model()
try:
    fit(first, keras.callbacks.BackupAndRestore(sys.argv[1], save_freq=4), Interrupt())
except KeyboardInterrupt:
    pass
second = model()
steps = fit(second, keras.callbacks.BackupAndRestore(sys.argv[1], save_freq=4))
samples = f"{first.trained} + {second.trained}"
print(f"interrupted in step 5, saved after step 4: {steps} steps, samples {samples}")
equal = all(map(numpy.array_equal, whole.get_weights(), second.get_weights()))
print(f"same weights: {equal}")
PY
timeout 300 "$dir/venv/bin/python" "$dir/resume.py" "$dir/backup" >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
epochs='0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5'
grep -qxF "undisturbed: 12 steps, samples [$epochs]" "$dir/out"
grep -qxF "interrupted in step 5, saved after step 4: 16 steps, samples [0, 1, 2, 3] + [$epochs]" "$dir/out"
grep -qxF 'same weights: False' "$dir/out"
