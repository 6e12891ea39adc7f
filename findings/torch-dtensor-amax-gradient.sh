#!/usr/bin/env bash
# The gradient of amax() of a sharded DTensor is NaN and infinity; that of max(), the same number, is right.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# amax() divides the gradient among the elements that are the largest. Of a DTensor each rank counts those in its own
# shard, where most ranks have none: 0 / 0 for all elements there, and somewhere 1 / 0. A penalty on the largest weight,
# or a scale x.abs().amax() as of quantization, turns gradients into NaN at the first step, although no input has one and
# the value itself is right. Several equally large elements on different ranks get no NaN but a gradient each as if
# it were the only one. amin() and vector_norm(x, inf) do the same.
#
# Output seen (2 ranks, 2 elements on each):
#   amax of [1, 2, 3, 4]: DTensor 4.0 with gradients [nan, nan, nan, inf], tensor 4.0 with [0.0, 0.0, 0.0, 1.0]
#   max of [1, 2, 3, 4]: DTensor 4.0 with gradients [0.0, 0.0, 0.0, 1.0], tensor 4.0 with [0.0, 0.0, 0.0, 1.0]
#   amax of [4, 1, 1, 4]: DTensor 4.0 with gradients [1.0, 0.0, 0.0, 1.0], tensor 4.0 with [0.5, 0.0, 0.0, 0.5]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/largest.py" <<'PY'
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))


def compare(name, values):
    whole = torch.tensor(values, dtype=torch.float32)
    spread = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    whole.requires_grad_()
    for tensor in (spread, whole):
        getattr(tensor, name)().backward()
    value, gradients = getattr(spread, name)().full_tensor().item(), spread.grad.full_tensor().tolist()
    if rank == 0:
        expected = f"tensor {getattr(whole, name)().item()} with {whole.grad.tolist()}"
        print(f"{name} of {values}: DTensor {value} with gradients {gradients}, {expected}")


compare("amax", [1, 2, 3, 4])
compare("max", [1, 2, 3, 4])
compare("amax", [4, 1, 1, 4])
dist.destroy_process_group()
PY
timeout 120 "$dir/venv/bin/python" "$dir/largest.py" 1 "$dir/store" &
timeout 120 "$dir/venv/bin/python" "$dir/largest.py" 0 "$dir/store" >"$dir/out"
wait $!
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
right='[0.0, 0.0, 0.0, 1.0]'
grep -qxF "amax of [1, 2, 3, 4]: DTensor 4.0 with gradients [nan, nan, nan, inf], tensor 4.0 with $right" "$dir/out"
grep -qxF "max of [1, 2, 3, 4]: DTensor 4.0 with gradients $right, tensor 4.0 with $right" "$dir/out"
grep -qF '4]: DTensor 4.0 with gradients [1.0, 0.0, 0.0, 1.0], tensor 4.0 with [0.5, 0.0, 0.0, 0.5]' "$dir/out"
