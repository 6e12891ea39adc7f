#!/usr/bin/env bash
# safetensors.numpy.save_file() stores other numbers than the array has, without an error, if the array is a transpose.
# Versions: safetensors 0.8.0, with 0.7.0 for comparison, numpy 2.4.6 (PyPI), Python 3.11.
#
# 0.7.0 and older wrote the elements in the order of the shape. 0.8.0 writes the bytes at the address of the array and
# takes no notice of its strides, so `weight.T` comes back with its elements permuted and every second element of an
# array comes back as the first half of it. The doc string asks for contiguous arrays and nothing checks it; the same
# call for torch refuses such a tensor. np.ascontiguousarray() before the call cures it.
#
# Output seen:
#   0.7.0: a transpose saved as [[0, 3], [1, 4], [2, 5]] is loaded as [[0, 3], [1, 4], [2, 5]]; every second of 0..5 as [0, 2, 4]
#   0.8.0: a transpose saved as [[0, 3], [1, 4], [2, 5]] is loaded as [[0, 1], [2, 3], [4, 5]]; every second of 0..5 as [0, 1, 2]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet numpy==2.4.6

cat >"$dir/save.py" <<'PY'
import sys

import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

file = sys.argv[1]
transpose = np.arange(6, dtype=np.int32).reshape(2, 3).T
save_file({"transpose": transpose, "second": np.arange(6, dtype=np.int32)[::2]}, file)
loaded = load_file(file)
print(
    f"{safetensors.__version__}: a transpose saved as {transpose.tolist()} is loaded as "
    f"{loaded['transpose'].tolist()}; every second of 0..5 as {loaded['second'].tolist()}"
)
PY
for version in 0.7.0 0.8.0; do
  timeout 600 "$dir/venv/bin/pip" install --quiet safetensors==$version
  timeout 60 "$dir/venv/bin/python" "$dir/save.py" "$dir/$version.safetensors" | tee "$dir/$version.out"
done
echo "seen: $(<"$dir/0.8.0.out")"
grep -q 'loaded as \[\[0, 3\], \[1, 4\], \[2, 5\]\]; .* as \[0, 2, 4\]$' "$dir/0.7.0.out"
grep -q 'loaded as \[\[0, 1\], \[2, 3\], \[4, 5\]\]; .* as \[0, 1, 2\]$' "$dir/0.8.0.out"
