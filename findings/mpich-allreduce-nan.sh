#!/usr/bin/env bash
# MPI_Allreduce with MPI_MAX gives the two ranks different results when one of them contributes NaN.
# Versions: mpich 5.0.2, mpi4py 4.1.2, numpy 2.4.6 (PyPI), Python 3.11.
#
# One expects the same value on every rank, NaN or not: all-reduce is described as a reduction whose result all ranks
# get, and a loop like "stop when the largest error is below 1e-6" relies on it. In MPICH each rank compares its peer's
# value with its own, and a comparison with NaN is false on both sides. So rank 0 gets 1.0 and rank 1 gets NaN from the
# same call; one rank leaves the loop and its peer waits in the next collective. MPI_MIN does the same, and MPI_MAX of
# -0.0 and 0.0 differs in the sign bit. Reduce followed by Bcast gives every rank the same value.
#
# Output seen:
#   MAX of (nan, 1.0): rank 0 has 1.0, rank 1 has nan
#   MIN of (1.0, nan): rank 0 has nan, rank 1 has 1.0
#   MAX of (-0.0, 0.0): rank 0 has 0.0, rank 1 has -0.0
#   MAX of (nan, 1.0) with Reduce and Bcast: the same on both ranks
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet mpich==5.0.2 mpi4py==4.1.2 numpy==2.4.6

cat >"$dir/ranks.py" <<'PY'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
nan = float("nan")


def everywhere(operation, values, call="allreduce"):
    mine, result = np.array([values[world.rank]]), np.empty(1)
    if call == "allreduce":
        world.Allreduce(mine, result, op=operation)
    else:
        world.Reduce(mine, result, op=operation, root=0)
        world.Bcast(result, root=0)
    return [str(value) for value in world.allgather(float(result[0]))]


seen = [
    ("MAX of (nan, 1.0)", everywhere(MPI.MAX, [nan, 1.0])),
    ("MIN of (1.0, nan)", everywhere(MPI.MIN, [1.0, nan])),
    ("MAX of (-0.0, 0.0)", everywhere(MPI.MAX, [-0.0, 0.0])),
]
agreed = everywhere(MPI.MAX, [nan, 1.0], "reduce and bcast")
if world.rank == 0:
    for what, (first, second) in seen:
        print(f"{what}: rank 0 has {first}, rank 1 has {second}")
    same = "the same on both ranks" if agreed[0] == agreed[1] else f"differs: {agreed}"
    print(f"MAX of (nan, 1.0) with Reduce and Bcast: {same}")
PY
timeout 60 "$dir/venv/bin/mpiexec" -n 2 "$dir/venv/bin/python" "$dir/ranks.py" >"$dir/out"
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qx 'MAX of (nan, 1.0): rank 0 has 1.0, rank 1 has nan' "$dir/out"
grep -qx 'MIN of (1.0, nan): rank 0 has nan, rank 1 has 1.0' "$dir/out"
grep -qx 'MAX of (-0.0, 0.0): rank 0 has 0.0, rank 1 has -0.0' "$dir/out"
grep -q 'Reduce and Bcast: the same on both ranks' "$dir/out"
