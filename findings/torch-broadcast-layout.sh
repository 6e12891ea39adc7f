#!/usr/bin/env bash
# torch.distributed.broadcast() with gloo permutes the elements if the ranks hold the tensor in different memory layouts.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# Both ranks have a tensor of the shape (3, 2). Rank 0 made its own as a transpose, rank 1 with torch.empty. One expects
# equal tensors after a broadcast, or an error as from other calls that ask for contiguous tensors. gloo accepts every
# dense tensor and sends the bytes in the order of memory, so rank 1 gets the right numbers in the wrong places.
# all_reduce() adds elements of different positions in the same way. A view of every second element is accepted too, and
# the receiver gets one number of two. Weights that one rank keeps transposed or as channels_last and another got from
# torch.load() meet here; .contiguous() on every rank before the call cures it.
#
# Output seen:
#   broadcast: rank 0 has [[0, 3], [1, 4], [2, 5]], rank 1 has [[0, 1], [2, 3], [4, 5]]
#   all_reduce: twice [[0, 3], [1, 4], [2, 5]] is [[0, 7], [4, 6], [3, 10]]
#   broadcast of ones into every second element: rank 1 has [1, 0]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/layout.py" <<'PY'
import sys

import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
transpose = torch.arange(6).view(2, 3).t()
mine = transpose.clone() if rank == 0 else torch.zeros(3, 2, dtype=torch.int64)
dist.broadcast(mine, src=0)
both = [None, None]
dist.all_gather_object(both, mine.tolist())
second = (torch.ones if rank == 0 else torch.zeros)(4, dtype=torch.int64)[::2]
dist.broadcast(second, src=0)
every = [None, None]
dist.all_gather_object(every, second.tolist())
doubled = transpose.clone() if rank == 0 else transpose.contiguous()
dist.all_reduce(doubled)
if rank == 0:
    print(f"broadcast: rank 0 has {both[0]}, rank 1 has {both[1]}")
    print(f"all_reduce: twice {transpose.tolist()} is {doubled.tolist()}")
    print(f"broadcast of ones into every second element: rank 1 has {every[1]}")
dist.destroy_process_group()
PY
timeout 120 "$dir/venv/bin/python" "$dir/layout.py" 1 "$dir/store" &
timeout 120 "$dir/venv/bin/python" "$dir/layout.py" 0 "$dir/store" >"$dir/out"
wait $!
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qxF 'broadcast: rank 0 has [[0, 3], [1, 4], [2, 5]], rank 1 has [[0, 1], [2, 3], [4, 5]]' "$dir/out"
grep -qxF 'all_reduce: twice [[0, 3], [1, 4], [2, 5]] is [[0, 7], [4, 6], [3, 10]]' "$dir/out"
grep -qxF 'broadcast of ones into every second element: rank 1 has [1, 0]' "$dir/out"
