#!/usr/bin/env bash
# flax.serialization.from_bytes returns arrays of another shape and type than its target has, without an error.
# Versions: flax 0.12.8, jax 0.10.2 (PyPI, CPU), Python 3.11, one process.
#
# The target gives the structure: a missing or unknown key is an error that names it. Shapes and types of the target's
# arrays are not compared with those of the file, so a checkpoint of a model with another width is restored, and the
# first matrix product fails later or, where shapes broadcast (a bias of one element, a table with more rows), never.
#
# Output seen:
#   target (4, 2) bfloat16, restored (3, 2) float32
#   row 3 of the table: [4.0, 5.0]
#   a key that the target lacks: ValueError
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet flax==0.12.8 jax==0.10.2 numpy==2.4.6

cat >"$dir/restore.py" <<'PY'
import jax.numpy as jnp
import numpy
from flax import serialization

saved = serialization.to_bytes({"table": numpy.arange(6, dtype=numpy.float32).reshape(3, 2)})
target = {"table": jnp.zeros((4, 2), jnp.bfloat16)}
table = serialization.from_bytes(target, saved)["table"]
want = target["table"]
print(f"target {want.shape} {want.dtype}, restored {table.shape} {table.dtype}")
print(f"row 3 of the table: {jnp.asarray(table)[3].tolist()}")
try:
    serialization.from_bytes({"other": want}, saved)
except ValueError as error:
    print(f"a key that the target lacks: {type(error).__name__}")
PY
timeout 300 "$dir/venv/bin/python" "$dir/restore.py" 2>"$dir/err" >"$dir/out" || { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
grep -qxF 'target (4, 2) bfloat16, restored (3, 2) float32' "$dir/out"
grep -qxF 'row 3 of the table: [4.0, 5.0]' "$dir/out"
grep -qxF 'a key that the target lacks: ValueError' "$dir/out"
