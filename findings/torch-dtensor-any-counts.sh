#!/usr/bin/env bash
# any() of a sharded DTensor, turned into a number, counts the shards with a true element instead of giving 1.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# any() keeps a pending sum of the shards' booleans. As booleans they are right: the sum ends as True. If a program goes
# on with numbers (.float(), .int(), .sum(), a product) before it reads the result, the conversion is done to each
# shard's boolean and the numbers are added: on two ranks an element is 2, on eight up to 8, and the share of columns
# with an overflow is more than 1. all() is right, and so are ~, &, where() and a full_tensor() before the conversion.
#
# Output seen (2 ranks, 4 rows, sharded by rows):
#   columns with a positive element: [True, False, True, True]
#   .any(0).float(): [2.0, 0.0, 2.0, 2.0], of a plain tensor [1.0, 0.0, 1.0, 1.0]
#   .any(0).sum(): 6, of a plain tensor 3
#   .any(0).float().mean(): 1.5, of a plain tensor 0.75
#   isnan().any().float(): 2.0, of a plain tensor 1.0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/any.py" <<'PY'
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
plain = torch.tensor([[1.0, -1, 1, -1], [1, -1, -1, 1], [1, -1, 1, -1], [1, -1, -1, 1]])
sharded = distribute_tensor(plain, mesh, [Shard(0)])


def both(text, function):
    seen, expected = function(sharded).full_tensor().tolist(), function(plain).tolist()
    if rank == 0:
        print(f"{text}: {seen}, of a plain tensor {expected}")


columns = (sharded > 0).any(0).full_tensor().tolist()
if rank == 0:
    print(f"columns with a positive element: {columns}")
both(".any(0).float()", lambda x: (x > 0).any(0).float())
both(".any(0).sum()", lambda x: (x > 0).any(0).sum())
both(".any(0).float().mean()", lambda x: (x > 0).any(0).float().mean())
both("isnan().any().float()", lambda x: (x * 0 / 0).isnan().any().float())
dist.destroy_process_group()
PY
timeout 300 "$dir/venv/bin/python" "$dir/any.py" 1 "$dir/store" 2>"$dir/err1" &
other=$!
timeout 300 "$dir/venv/bin/python" "$dir/any.py" 0 "$dir/store" 2>"$dir/err0" >"$dir/out" || cat "$dir/err0" >&2
wait "$other"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qxF 'columns with a positive element: [True, False, True, True]' "$dir/out"
grep -qxF '.any(0).float(): [2.0, 0.0, 2.0, 2.0], of a plain tensor [1.0, 0.0, 1.0, 1.0]' "$dir/out"
grep -qxF '.any(0).sum(): 6, of a plain tensor 3' "$dir/out"
grep -qxF '.any(0).float().mean(): 1.5, of a plain tensor 0.75' "$dir/out"
grep -qxF 'isnan().any().float(): 2.0, of a plain tensor 1.0' "$dir/out"
