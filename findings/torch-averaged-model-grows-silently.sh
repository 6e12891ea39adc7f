#!/usr/bin/env bash
# AveragedModel goes on averaging a model that has got more layers, with the wrong ones or without the new ones.
# Versions: torch 2.13.0 (PyPI), Python 3.11.
#
# A model that grows in mid-run, or gets a head, keeps its AveragedModel (SWA or EMA), and one expects that
# update_parameters() names the layers that the average lacks, as load_state_dict() would. It pairs the parameters of both
# models by their order and stops at the end of the shorter list. A layer that is appended is never averaged: the average
# that is evaluated or saved lacks it. A layer inserted in front shifts the pairs, and where shapes are equal, as in a
# stack of blocks, each average from then on is that of another layer. No call raises or warns, with and without
# multi_avg_fn.
#
# Output seen (3 layers of equal shape with weights 0, 1 and 2, of which the first was inserted after the average was made):
#   avg_fn: 2 averages of 3 layers after 100 updates: 0.01, 1.01
#   multi_avg_fn: 2 averages of 3 layers after 100 updates: 0.00, 1.00
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 2>"$dir/pip"

cat >"$dir/grow.py" <<'PY'
import warnings

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

warnings.filterwarnings("ignore", message=".*NumPy.*")


def layer(value: float) -> nn.Linear:
    made = nn.Linear(1, 1, bias=False)
    nn.init.constant_(made.weight, value)
    return made


for name, options in (
    ("avg_fn", {}),
    ("multi_avg_fn", {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}),
):
    model = nn.Sequential(layer(1.0), layer(2.0))
    average = AveragedModel(model, **options)
    average.update_parameters(model)
    model.insert(0, layer(0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            average.update_parameters(model)
    found = [each.weight.item() for each in average.module]
    print(
        f"{name}: {len(found)} averages of {len(model)} layers after 100 updates:",
        ", ".join(f"{max(value, 0.0):.2f}" for value in found),
    )
    assert len(found) == 2 and found[0] < 0.1 and abs(found[1] - 1) < 0.1, found
    assert torch.equal(model[1].weight, torch.ones(1, 1))
PY
timeout 300 "$dir/venv/bin/python" "$dir/grow.py"
echo "seen: after a layer was inserted, averages of layers with weights 1 and 2 are those of 0 and 1"
