#!/usr/bin/env bash
# HDF5 stores half of a small number in a float16 dataset, and NaN for an integer that is too large.
# Versions: h5py 3.14.0 (with HDF5 1.14.6) and 3.16.0 (with HDF5 2.0.0), numpy 2.4.6 (PyPI), Python 3.11.
#
# Below 6.1e-5 float16 has subnormal numbers. Where rounding a float32 up reaches the next power of two, HDF5's own
# conversion forgets to step up with it, and the number that is stored is half as large: 0.0000305 becomes 0.0000153.
# Integers above 65535 should become infinity; those between powers of two become NaN. A number in the middle between
# two of float16 is rounded away from zero, which others round to even. Reading a float32 dataset as float16
# does the same. HDF5 2.0 lets the processor convert to float16, unless it is of the other byte order. NumPy's astype()
# before the write is right; h5py does so by itself in create_dataset(data=...), but not in dataset[...] = array.
#
# Output seen (each time numpy, then h5py 3.14.0, and 3.16.0 with big-endian float16):
#   9.4708e-07: numpy 9.54e-07, 3.14.0 4.77e-07, 3.16.0 big-endian 4.77e-07
#   3.05e-05: numpy 3.05e-05, 3.14.0 1.53e-05, 3.16.0 big-endian 1.53e-05
#   integer 70000: numpy inf, 3.14.0 nan, 3.16.0 big-endian nan
#   1.00048828125: numpy 1.00000, 3.14.0 1.00098, 3.16.0 big-endian 1.00098
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH

cat >"$dir/convert.py" <<'PY'
import sys

import h5py
import numpy as np


def stored(values):
    with h5py.File(f"{sys.argv[1]}/file.h5", "w") as file:
        dataset = file.create_dataset("x", values.shape, dtype=sys.argv[2])
        dataset[...] = values
        return dataset[()]


small = np.array([9.4708e-07, 3.05e-05], dtype=np.float32)
large = np.array([70000])
middle = np.array([1 + 2.0**-11], dtype=np.float32)
with np.errstate(over="ignore"):
    for values, form in ((small, ".2e"), (large, ""), (middle, ".5f")):
        for value in values.astype(np.float16) if sys.argv[3] == "numpy" else stored(values):
            print(format(float(value), form))
PY
# usage: convert VERSION_OF_H5PY TYPE WHO >FILE
convert() {
  [ -d "$dir/$1" ] || { python3 -m venv "$dir/$1" && timeout 600 "$dir/$1/bin/pip" install --quiet "h5py==$1" numpy==2.4.6; }
  timeout 60 "$dir/$1/bin/python" "$dir/convert.py" "$dir" "$2" "$3"
}
convert 3.14.0 '<f2' numpy >"$dir/numpy"
convert 3.14.0 '<f2' hdf5 >"$dir/old"
convert 3.16.0 '>f2' hdf5 >"$dir/new"
printf '%s\n' 9.4708e-07 3.05e-05 'integer 70000' 1.00048828125 |
  paste -d'|' - "$dir/numpy" "$dir/old" "$dir/new" |
  awk -F'|' '{printf "%s: numpy %s, 3.14.0 %s, 3.16.0 big-endian %s\n", $1, $2, $3, $4}' >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qx '9.4708e-07: numpy 9.54e-07, 3.14.0 4.77e-07, 3.16.0 big-endian 4.77e-07' "$dir/out"
grep -qx '3.05e-05: numpy 3.05e-05, 3.14.0 1.53e-05, 3.16.0 big-endian 1.53e-05' "$dir/out"
grep -qx 'integer 70000: numpy inf, 3.14.0 nan, 3.16.0 big-endian nan' "$dir/out"
grep -qx '1.00048828125: numpy 1.00000, 3.14.0 1.00098, 3.16.0 big-endian 1.00098' "$dir/out"
