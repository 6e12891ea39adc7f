#!/usr/bin/env bash
# `import tensorflow` replaces HDF5_PLUGIN_PATH: it and all programs that it starts cannot read compressed HDF5 files.
# Versions: tensorflow-cpu 2.21.0, h5py 3.14.0, hdf5plugin 6.0.0 (PyPI), Python 3.11.
#
# HDF5 finds filters such as LZ4, Blosc and Zstandard in the folder that HDF5_PLUGIN_PATH names, as module files of
# clusters set it. The import overwrites the variable with the word "disable", also where the user has set it, and
# without a line that says so. This hardens the process itself; it is inherited, too: a data loader, a converter or
# h5dump that a training program starts fails on files that it reads when it is started alone. The message names a
# folder "disable", which nobody has made. Unset, the variable becomes "disable" as well.
#
# Output seen:
#   alone: reads 299995
#   started after import h5py: reads 299995
#   started after import tensorflow: OSError: Can't synchronously read data (can't open directory (disable). Please
#   verify its existence)
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 h5py==3.14.0 hdf5plugin==6.0.0 numpy==2.4.6

cat >"$dir/write.py" <<'PY'
import sys

import h5py
import hdf5plugin
import numpy

with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("x", data=numpy.arange(100_000) % 7, **hdf5plugin.LZ4())
print(hdf5plugin.PLUGIN_PATH)
PY
cat >"$dir/read.py" <<'PY'
import sys

import h5py

try:
    print("reads", h5py.File(sys.argv[1])["x"][:].sum())
except OSError as error:
    print(f"OSError: {error}")
PY
cat >"$dir/start.py" <<'PY'
import importlib
import subprocess
import sys

importlib.import_module(sys.argv[1])
subprocess.run([sys.executable, *sys.argv[2:]], check=True, timeout=60)
PY
python=$dir/venv/bin/python
HDF5_PLUGIN_PATH=$(timeout 60 "$python" "$dir/write.py" "$dir/data.h5")
export HDF5_PLUGIN_PATH TF_CPP_MIN_LOG_LEVEL=3
{
  echo "alone: $(timeout 60 "$python" "$dir/read.py" "$dir/data.h5")"
  for module in h5py tensorflow; do
    said=$(timeout 120 "$python" "$dir/start.py" "$module" "$dir/read.py" "$dir/data.h5")
    echo "started after import $module: $said"
  done
} >"$dir/out" 2>"$dir/err" || { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(tail -1 "$dir/out")"
grep -qxF 'alone: reads 299995' "$dir/out"
grep -qxF 'started after import h5py: reads 299995' "$dir/out"
grep -qF 'started after import tensorflow: OSError' "$dir/out"
grep -qF '(disable)' "$dir/out"
