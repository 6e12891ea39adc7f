#!/usr/bin/env bash
# An epoch that Accelerate resumes by load_state() and skip_first_batches() goes on in another order: some samples are
# trained twice and others never, although the checkpoint holds the random states and the sampler.
# Versions: accelerate 1.15.0, torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11, one process.
#
# The documented way to resume in mid-epoch is load_state(), which restores the states of the random number generators,
# and skip_first_batches(loader, n). By default the sampler draws the order of an epoch when the epoch begins, from a
# generator that by then has gone on; the restored state is that of the middle of the epoch, so another order is drawn
# and its first n batches are skipped. With use_seedable_sampler=True, described as fully reproducible, the order
# depends on a seed and the number of the epoch; neither the loader nor the one that skips knows that number after
# load_state(), both count from 0. So the resumed epoch has the order of epoch 0, and so has the next one.
# Where the script calls set_epoch() on the loader before each epoch, the seedable sampler goes on rightly.
#
# Output seen:
#   default:  epoch 1 is resumed behind [[5, 6]]: [1, 6, 3, 0, 7, 4]; twice: [6], never: [2]
#   seedable: epoch 1 is resumed behind [[2, 7]]: [3, 5, 1, 0, 6, 7]; twice: [7], never: [4]
#   seedable: epoch 2 has the order of epoch 0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 accelerate==1.15.0

cat >"$dir/resume.py" <<'PY'
import sys
import warnings

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState
from accelerate.utils import DataLoaderConfiguration, set_seed

warnings.simplefilter("ignore")


def start(seedable):
    AcceleratorState._reset_state(True)  # as a new process
    configuration = DataLoaderConfiguration(use_seedable_sampler=seedable)
    accelerator = Accelerator(cpu=True, dataloader_config=configuration)
    set_seed(3)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, shuffle=True)
    return accelerator, accelerator.prepare(model, optimizer, loader)[2]


def samples(batches):
    return [int(sample) for batch in batches for sample in batch]


for name, seedable in (("default", False), ("seedable", True)):
    accelerator, loader = start(seedable)
    orders = []
    for epoch in range(3):
        orders.append([])
        for number, batch in enumerate(loader):
            orders[-1].append(batch.tolist())
            if (epoch, number) == (1, 0):
                accelerator.save_state(f"{sys.argv[1]}/{name}")
    accelerator, loader = start(seedable)
    accelerator.load_state(f"{sys.argv[1]}/{name}")
    before = orders[1][:1]
    rest = samples(skip_first_batches(loader, 1))
    trained = samples(before) + rest
    twice = sorted({sample for sample in trained if trained.count(sample) > 1})
    never = sorted(set(range(8)) - set(trained))
    print(f"{name}: epoch 1 is resumed behind {before}: {rest}; twice: {twice}, never: {never}")
    if samples(loader) == samples(orders[0]) != samples(orders[2]):
        print(f"{name}: epoch 2 has the order of epoch 0")
PY
timeout 300 "$dir/venv/bin/python" "$dir/resume.py" "$dir" 2>"$dir/errors" >"$dir/out" || {
    cat "$dir/errors" >&2
    exit 1
}
cat "$dir/out"
echo "seen: $(tail -1 "$dir/out")"
grep -qx 'default: epoch 1 is resumed behind \[\[5, 6\]\]: \[1, 6, 3, 0, 7, 4\]; twice: \[6\], never: \[2\]' "$dir/out"
grep -qx 'seedable: epoch 1 is resumed behind \[\[2, 7\]\]: \[3, 5, 1, 0, 6, 7\]; twice: \[7\], never: \[4\]' "$dir/out"
grep -qx 'seedable: epoch 2 has the order of epoch 0' "$dir/out"
