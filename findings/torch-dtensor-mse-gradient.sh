#!/usr/bin/env bash
# The gradient of mse_loss() of a sharded DTensor is too large by the number of shards, while the loss itself is right.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# A DTensor stands for the whole tensor, so one expects the numbers of an ordinary one. The backward pass divides by the
# number of elements of the local shard instead of all: on two ranks each gradient is twice, on eight ranks eight times
# what it should be, also that of weights before the loss. The printed loss shows nothing as long as all shards are
# equal. If they are not, it is wrong too: a mean of the means of the shards. smooth_l1_loss, huber_loss,
# soft_margin_loss and binary_cross_entropy_with_logits do the same; l1_loss and the mean of squares written out are
# right, and so is reduction="sum" with a division.
#
# Output seen (2 ranks, each element x of the tensor, target 0; true gradients 2x/n):
#   mse_loss of [1, 2, 3, 4]: loss 7.5, gradients [1.0, 2.0, 3.0, 4.0]
#   mean of squares: loss 7.5, gradients [0.5, 1.0, 1.5, 2.0]
#   weight of a linear model: gradient 30.0 with mse_loss, 15.0 with the mean of squares
#   3 elements [3, 3, 6], 2 and 1 on the ranks: mse_loss 22.5, mean of squares 18.0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/gradient.py" <<'PY'
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import mse_loss

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))


def spread(values, placement):
    return distribute_tensor(torch.tensor(values), mesh, [placement])


def library(x):
    return mse_loss(x, torch.zeros_like(x))


def by_hand(x):
    return (x - torch.zeros_like(x)).square().mean()


def of_values(loss, values):
    x = spread(values, Shard(0)).requires_grad_()
    result = loss(x)
    result.backward()
    return result.full_tensor().item(), x.grad.full_tensor().tolist()


def of_weight(loss):
    weight = spread([[1.0]], Replicate()).requires_grad_()
    loss(spread([[1.0], [2.0], [3.0], [4.0]], Shard(0)) @ weight).backward()
    return weight.grad.full_tensor().item()


equal = [of_values(loss, [1.0, 2.0, 3.0, 4.0]) for loss in (library, by_hand)]
weights = [of_weight(loss) for loss in (library, by_hand)]
uneven = [of_values(loss, [3.0, 3.0, 6.0])[0] for loss in (library, by_hand)]
if rank == 0:
    print("mse_loss of [1, 2, 3, 4]: loss {}, gradients {}".format(*equal[0]))
    print("mean of squares: loss {}, gradients {}".format(*equal[1]))
    print("weight of a linear model: gradient {} with mse_loss, {} with the mean of squares".format(*weights))
    print("3 elements [3, 3, 6], 2 and 1 on the ranks: mse_loss {}, mean of squares {}".format(*uneven))
dist.destroy_process_group()
PY
timeout 120 "$dir/venv/bin/python" "$dir/gradient.py" 1 "$dir/store" &
timeout 120 "$dir/venv/bin/python" "$dir/gradient.py" 0 "$dir/store" >"$dir/out"
wait $!
cat "$dir/out"
echo "seen: $(sed -n 3p "$dir/out")"
grep -qxF 'mse_loss of [1, 2, 3, 4]: loss 7.5, gradients [1.0, 2.0, 3.0, 4.0]' "$dir/out"
grep -qxF 'mean of squares: loss 7.5, gradients [0.5, 1.0, 1.5, 2.0]' "$dir/out"
grep -q 'gradient 30.0 with mse_loss, 15.0 with the mean of squares$' "$dir/out"
grep -q 'mse_loss 22.5, mean of squares 18.0$' "$dir/out"
