#!/usr/bin/env bash
# mpi4py's Allreduce and Bcast of NumPy arrays permute elements where arrays differ in memory order, without an error.
# Versions: mpi4py 4.1.2, mpich 5.0.2, numpy 2.4.6 (PyPI), Python 3.11, two processes on one host.
#
# mpi4py refuses arrays whose elements have gaps between them. A transposed array, or one in Fortran order, has none, so
# it is taken, as the elements lie in memory: its first row is sent as the other array's first column. The sum of a
# transposed array into one from numpy.zeros() has the right shape and the right elements in wrong places; so has a
# matrix that one rank broadcasts and another receives in Fortran order. Results of LAPACK in SciPy are such arrays. The
# lower-case methods, which pickle, keep positions.
#
# Output seen:
#   sum of [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] on 2 ranks: Allreduce [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]
#   expected, and from allreduce: [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
#   rank 0 broadcasts [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], rank 1 has [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
#   every second column: BufferError
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6

cat >"$dir/order.py" <<'PY'
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
matrix = numpy.arange(6.0).reshape(2, 3)

total = numpy.zeros((3, 2))
world.Allreduce(matrix.T, total)
pickled = world.allreduce(matrix.T)
received = matrix if world.rank == 0 else numpy.zeros((2, 3), order="F")
world.Bcast(received)
all_received = world.gather(received.tolist())
if world.rank == 0:
    print(f"sum of {matrix.T.tolist()} on {world.size} ranks: Allreduce {total.tolist()}")
    print(f"expected, and from allreduce: {pickled.tolist()}")
    print(f"rank 0 broadcasts {all_received[0]}, rank 1 has {all_received[1]}")
try:
    world.Bcast(numpy.zeros((2, 6))[:, ::2])
except BufferError as error:
    if world.rank == 0:
        print(f"every second column: {type(error).__name__}")
PY
timeout 120 "$dir/venv/bin/mpiexec.hydra" -n 2 "$dir/venv/bin/python" "$dir/order.py" </dev/null >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 3p "$dir/out")"
grep -qxF 'sum of [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] on 2 ranks: Allreduce [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]' "$dir/out"
grep -qxF 'expected, and from allreduce: [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]' "$dir/out"
grep -qxF 'rank 0 broadcasts [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], rank 1 has [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]' "$dir/out"
grep -qxF 'every second column: BufferError' "$dir/out"
