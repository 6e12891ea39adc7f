#!/usr/bin/env bash
# An HDF5 object reference to a deleted dataset stays valid and leads to another dataset that is created later.
# Versions: h5py 3.16.0 (with HDF5 2.0.0), numpy 2.4.6 (PyPI), Python 3.11.
#
# A reference holds the address of an object in the file, no name and no counter of generations. Deleting a dataset
# frees the address, the next dataset takes it, and the old reference then names that one: no error, and bool(reference)
# is True. Here a program replaces datasets "weights" and "moments" by longer ones, which needs a delete and a create.
# "best", a reference to "weights", reads moments afterwards. A path stored as a string would have been right here.
#
# Output seen:
#   before: the reference is true and leads to /weights
#   after both were replaced: the reference is true and leads to /moments, whose first number is 200.0
#   in the file opened again: the reference is true and leads to /moments, whose first number is 200.0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet h5py==3.16.0 numpy==2.4.6

cat >"$dir/refer.py" <<'PY'
import sys

import h5py
import numpy as np


def followed(file):
    reference = file["best"][()]
    dataset = file[reference]
    return f"the reference is {str(bool(reference)).lower()} and leads to {dataset.name}", dataset[0]


with h5py.File(sys.argv[1], "w") as file:
    file["weights"] = np.full(4, 1.0)
    file["moments"] = np.full(4, 2.0)
    file.create_dataset("best", data=file["weights"].ref, dtype=h5py.ref_dtype)
    print("before:", followed(file)[0])
    del file["weights"], file["moments"]
    file["moments"] = np.full(5, 200.0)
    file["weights"] = np.full(5, 100.0)
    print("after both were replaced: {}, whose first number is {}".format(*followed(file)))
with h5py.File(sys.argv[1], "r") as file:
    print("in the file opened again: {}, whose first number is {}".format(*followed(file)))
PY
timeout 60 "$dir/venv/bin/python" "$dir/refer.py" "$dir/file.h5" >"$dir/out"
cat "$dir/out"
echo "seen: $(tail -1 "$dir/out")"
grep -qx 'before: the reference is true and leads to /weights' "$dir/out"
grep -qx 'in the file opened again: the reference is true and leads to /moments, whose first number is 200.0' "$dir/out"
