#!/usr/bin/env bash
# h5py stores bfloat16, float8_e4m3fn and int4 as opaque bytes without a type, and stores them without a word.
# Versions: h5py 3.16.0 with HDF5 2.0.0, ml_dtypes 0.6.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# ml_dtypes gives NumPy the types of JAX and TensorFlow: bfloat16, several 8-bit floats, int4. create_dataset() refuses
# float8_e5m2 by name and takes the others. What is read back has the type V2 or V1, not numbers, and nothing in the
# file says which type it was: float8_e4m3fn and int4 look alike. HDF5 2.0 has a type for bfloat16
# (H5T_FLOAT_BF16LE), which h5py 3.16 does not use. A reader that knows the type must say so: data[:].view(bfloat16).
#
# Output seen:
#   bfloat16: stored as |V2, opaque without a tag, read as numbers: ValueError
#   float8_e4m3fn: stored as |V1, opaque without a tag, read as numbers: ValueError
#   float8_e5m2: Unsupported float type (float8_e5m2)
#   int4: stored as |V1, opaque without a tag, read as numbers: ValueError
#   float16: stored as float16
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet h5py==3.16.0 ml_dtypes==0.6.0 numpy==2.4.6

cat >"$dir/store.py" <<'PY'
import sys

import h5py
import ml_dtypes
import numpy

with h5py.File(sys.argv[1], "w") as file:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float16"):
        values = numpy.arange(4).astype(getattr(ml_dtypes, name, None) or name)
        try:
            data = file.create_dataset(name, data=values)
        except TypeError as error:
            print(f"{name}: {error}")
            continue
        kind = data.id.get_type()
        if not isinstance(kind, h5py.h5t.TypeOpaqueID):
            print(f"{name}: stored as {data.dtype}")
            continue
        tag = kind.get_tag() or b"without a tag"
        try:
            numpy.zeros(4, "float32")[:] = data[:].astype("float32")
            read = "works"
        except (TypeError, ValueError) as error:
            read = type(error).__name__
        print(f"{name}: stored as {data.dtype}, opaque {tag.decode()}, read as numbers: {read}")
PY
timeout 300 "$dir/venv/bin/python" "$dir/store.py" "$dir/file.h5" >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
for name in bfloat16:2 float8_e4m3fn:1 int4:1; do
  grep -qxF "${name%:*}: stored as |V${name#*:}, opaque without a tag, read as numbers: ValueError" "$dir/out"
done
grep -qxF 'float8_e5m2: Unsupported float type (float8_e5m2)' "$dir/out"
grep -qxF 'float16: stored as float16' "$dir/out"
