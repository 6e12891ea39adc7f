#!/usr/bin/env bash
# TensorFlow's SlurmClusterResolver replaces the GPUs that Slurm gave a task by the first ones of the host.
# Versions: tensorflow-cpu 2.21.0 (PyPI). The resolver is the same code with GPUs; it reads variables only.
#
# Slurm sets CUDA_VISIBLE_DEVICES for each task. cluster_spec() counts its entries, and writes numbers from 0 up to
# that count into it, so a task that was given 2,3 takes 0,1: those of another job or task, unless Slurm also confines
# devices by cgroups. One that was given none, by an empty variable, takes 0, since splitting an empty text gives one
# entry. UUIDs are replaced by numbers, too. It happens when the spec is asked for, without a line, and by default
# (auto_set_gpu=True).
#
# Output seen:
#   given '0,1': sees '0,1'
#   given '2,3': sees '0,1'
#   given '': sees '0'
#   given 'GPU-6d5d1c1b': sees '0'
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat >"$dir/resolve.py" <<'PY'
import os

import tensorflow as tf

given = os.environ["CUDA_VISIBLE_DEVICES"]
tf.distribute.cluster_resolver.SlurmClusterResolver().cluster_spec()
print(f"given '{given}': sees '{os.environ['CUDA_VISIBLE_DEVICES']}'")
PY
unset "${!SLURM_@}" TF_CONFIG
export TF_CPP_MIN_LOG_LEVEL=3 # and what Slurm sets for the only task of a step
export SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=n1 SLURM_STEP_TASKS_PER_NODE=1

for given in 0,1 2,3 '' GPU-6d5d1c1b; do
  CUDA_VISIBLE_DEVICES=$given timeout 300 "$dir/venv/bin/python" "$dir/resolve.py" 2>"$dir/err" ||
    { cat "$dir/err" >&2; exit 1; }
done >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out"); $(sed -n 3p "$dir/out")"
grep -qx "given '0,1': sees '0,1'" "$dir/out"
grep -qx "given '2,3': sees '0,1'" "$dir/out"
grep -qx "given '': sees '0'" "$dir/out"
grep -qx "given 'GPU-6d5d1c1b': sees '0'" "$dir/out"
