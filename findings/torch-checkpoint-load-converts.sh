#!/usr/bin/env bash
# torch.distributed.checkpoint.load() refuses a tensor of another shape and converts one of another type silently: large
# integers lose their upper bits, complex numbers their imaginary part.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# The checkpoint's metadata hold type and shape of each tensor. load() compares the shape with that of the tensor to be
# filled and raises an error that names both; the type it does not compare, it copies element by element. A count of
# samples that was saved as int64 and is loaded by a script that keeps it as int32 starts again at a small number;
# a large float32 becomes infinity in float16.
#
# Output seen:
#   int64 [1099511627777] -> int32 [1]; float32 [70000.0] -> float16 [inf]; complex64 [(1+2j)] -> float32 [1.0]
#   another shape: ValueError: Size mismatch between saved torch.Size([1]) and current: torch.Size([2]) for samples
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/load.py" <<'PY'
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.simplefilter("ignore")  # that there is no process group, that imaginary parts are discarded


def name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


saved = {
    "samples": torch.tensor([2**40 + 1]),
    "scale": torch.tensor([70000.0]),
    "phase": torch.tensor([1 + 2j]),
}
dcp.save(saved, checkpoint_id=sys.argv[1])
loaded = {
    "samples": torch.zeros(1, dtype=torch.int32),
    "scale": torch.zeros(1, dtype=torch.float16),
    "phase": torch.zeros(1),
}
dcp.load(loaded, checkpoint_id=sys.argv[1])
pairs = [(saved[key], loaded[key]) for key in saved]
print("; ".join(f"{name(a)} {a.tolist()} -> {name(b)} {b.tolist()}" for a, b in pairs))
try:
    dcp.load({"samples": torch.zeros(2, dtype=torch.int64)}, checkpoint_id=sys.argv[1])
except dcp.api.CheckpointException as error:
    print("another shape:", str(error).strip().splitlines()[-1])
PY
timeout 120 "$dir/venv/bin/python" "$dir/load.py" "$dir/checkpoint" 2>"$dir/errors" >"$dir/out" || {
    cat "$dir/errors" >&2
    exit 1
}
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qxF 'int64 [1099511627777] -> int32 [1]; float32 [70000.0] -> float16 [inf]; complex64 [(1+2j)] -> float32 [1.0]' "$dir/out"
grep -qF 'Size mismatch between saved torch.Size([1]) and current: torch.Size([2]) for samples' "$dir/out"
