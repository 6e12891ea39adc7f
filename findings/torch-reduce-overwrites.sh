#!/usr/bin/env bash
# torch.distributed.reduce() with gloo overwrites the tensors of the ranks that get no result with partial sums.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# "Only the process with rank dst is going to receive the final result", says the documentation, so one expects the
# tensors of the others unchanged, as after MPI_Reduce, which has a separate result. gloo uses them as scratch memory.
# Reducing a loss to rank 0 for its log, or a gradient to its owner, changes the value that the other ranks go on with,
# and each gets another one. In a long tensor the elements differ by position: of one contribution per rank some hold
# sums of two, others of three. Pass a clone, or call all_reduce().
#
# Output seen (rank r contributes 10 to the power r):
#   1 element: rank 0 has [1111], rank 1 has [1110], rank 2 has [1100], rank 3 has [1000]
#   1000 elements: rank 1 contributed 10 and holds 4 different values
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/reduce.py" <<'PY'
import sys

import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=4)


def after_reduce(elements):
    tensor = torch.full((elements,), 10**rank)
    dist.reduce(tensor, dst=0)
    held = [None] * 4
    dist.all_gather_object(held, tensor.unique().tolist())
    return held


short, long = after_reduce(1), after_reduce(1000)
if rank == 0:
    print("1 element: " + ", ".join(f"rank {r} has {values}" for r, values in enumerate(short)))
    print(f"1000 elements: rank 1 contributed 10 and holds {len(long[1])} different values")
dist.destroy_process_group()
PY
peers=()
for rank in 1 2 3; do
  timeout 180 "$dir/venv/bin/python" "$dir/reduce.py" $rank "$dir/store" &
  peers+=($!)
done
timeout 180 "$dir/venv/bin/python" "$dir/reduce.py" 0 "$dir/store" >"$dir/out"
for peer in "${peers[@]}"; do wait "$peer"; done
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qxF '1 element: rank 0 has [1111], rank 1 has [1110], rank 2 has [1100], rank 3 has [1000]' "$dir/out"
grep -qxF '1000 elements: rank 1 contributed 10 and holds 4 different values' "$dir/out"
