#!/usr/bin/env bash
# With two optimizers, clip_grad_norm_() passes an overflow of one on to the weights of the other, which GradScaler lets
# through.
# Versions: torch 2.13.0 (PyPI), Python 3.11.
#
# A GradScaler skips the step of each optimizer whose gradients are not finite. The loop below has the documented
# order: scale, backward, unscale_ both optimizers, clip the gradients of all parameters together, step both, update. One layer
# overflows in one step. One expects that its optimizer skips the step and that the other one, whose gradients are
# finite, steps or skips. But unscale_() has looked before clip_grad_norm_() multiplies all gradients by a factor made of
# the norm over all: with a gradient of NaN the factor is NaN, and the second optimizer writes NaN into its weights for
# good. With an infinite gradient the factor is 0, and the second optimizer steps with a gradient of zeros. The scaler
# reports the overflow in both cases, as it does for one that was skipped whole. Clipping for each optimizer apart, or
# not at all if the norm is not finite, cures it.
#
# Output seen:
#   nan: first optimizer skipped True, weights of the second finite False
#   inf: first optimizer skipped True, weights of the second finite True, moved by its gradient False
#   apart: first optimizer skipped True, weights of the second finite True, moved by its gradient True
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 2>"$dir/pip"

cat >"$dir/clip.py" <<'PY'
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")


def step(value: float, apart: bool) -> tuple[bool, bool, bool]:
    first, second = (nn.Linear(1, 1, bias=False) for _ in range(2))
    for layer in (first, second):
        nn.init.ones_(layer.weight)
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (first, second)]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x = torch.ones(1, 1)
    # the loss of the first layer has a gradient of this value
    scaler.scale(first(x).sum() * value + second(x).sum()).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    if apart:
        for layer in (first, second):
            nn.utils.clip_grad_norm_(layer.parameters(), 10.0)
    else:
        nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 10.0)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0  # it has seen the overflow
    weight = second.weight.detach()
    return (
        first.weight.item() == 1.0,
        bool(torch.isfinite(weight).all()),
        bool((weight - 0.9).abs().max() < 1e-6),
    )


for name, value, apart in (("nan", float("nan"), False), ("inf", float("inf"), False), ("apart", float("nan"), True)):
    skipped, finite, moved = step(value, apart)
    text = f"{name}: first optimizer skipped {skipped}, weights of the second finite {finite}"
    print(text + (f", moved by its gradient {moved}" if finite else ""))
PY
timeout 120 "$dir/venv/bin/python" "$dir/clip.py" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; exit 1; }
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qxF 'nan: first optimizer skipped True, weights of the second finite False' "$dir/out"
grep -qxF 'inf: first optimizer skipped True, weights of the second finite True, moved by its gradient False' "$dir/out"
grep -qxF 'apart: first optimizer skipped True, weights of the second finite True, moved by its gradient True' "$dir/out"
