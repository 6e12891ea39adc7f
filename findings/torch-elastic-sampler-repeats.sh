#!/usr/bin/env bash
# ElasticDistributedSampler, started again in the middle of an epoch, gives samples that were used and leaves out others.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# torch.distributed.elastic has this sampler for jobs that restart: `start_index` is where it begins. Its order for an
# epoch is a shuffle that depends on the epoch only, so one expects the rest of that order. It shuffles the indices from
# `start_index` on instead, which are not those that are left, as the first half was drawn from all indices: the numbers
# fit (every epoch has its 12 samples), no sampler complains, and a quarter of the data is used twice and a quarter
# never. Small indices are lost again at each restart. `start_index` also stays for later epochs, which then
# consist of the last indices only, unless somebody sets it back.
#
# Output seen (12 samples, 2 ranks, stopped after 3 samples of each rank):
#   before the restart: [0, 4, 5, 7, 8, 9], after it: [6, 7, 8, 9, 10, 11]
#   used twice: [7, 8, 9], never: [1, 2, 3]
#   next epoch of the same sampler: [6, 7, 8, 9, 10, 11]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/epoch.py" <<'PY'
from torch.distributed.elastic.utils.data import ElasticDistributedSampler

samples = list(range(12))


def drawn(epoch, start_index, count):
    used = []
    for rank in range(2):
        sampler = ElasticDistributedSampler(samples, num_replicas=2, rank=rank, start_index=start_index)
        sampler.set_epoch(epoch)
        used += list(sampler)[:count]
    return sorted(used)


before = drawn(0, 0, 3)
after = drawn(0, len(before), 3)
print(f"before the restart: {before}, after it: {after}")
twice, never = sorted(set(before) & set(after)), sorted(set(samples) - set(before) - set(after))
print(f"used twice: {twice}, never: {never}")
print(f"next epoch of the same sampler: {drawn(1, len(before), None)}")
PY
timeout 60 "$dir/venv/bin/python" "$dir/epoch.py" >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qxF 'before the restart: [0, 4, 5, 7, 8, 9], after it: [6, 7, 8, 9, 10, 11]' "$dir/out"
grep -qxF 'used twice: [7, 8, 9], never: [1, 2, 3]' "$dir/out"
grep -qxF 'next epoch of the same sampler: [6, 7, 8, 9, 10, 11]' "$dir/out"
