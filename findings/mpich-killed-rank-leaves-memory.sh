#!/usr/bin/env bash
# A job of MPICH of which one rank is killed leaves its shared memory in /dev/shm, until somebody removes it.
# Versions: mpich 5.0.2, mpi4py 4.1.2 (both PyPI), Python 3.11, two ranks on one host.
#
# The name of the segment stays while the job runs. mpiexec ends the other ranks when one is killed, and nobody is left who
# would remove the name: 2 MiB for two ranks, more for more, of memory that counts for no process. The next job takes a new
# random name. On a node whose ranks are killed often (preemption, the OOM killer) the memory adds up until a reboot.
# A job that ends by itself leaves nothing.
#
# Output seen:
#   both ranks end: 0 segments left
#   one rank is killed: 1 segment left, 2118784 bytes
set -euo pipefail
dir=$(mktemp -d)
before=$dir/before
left() { comm -13 "$before" <(find /dev/shm -maxdepth 1 -name 'mpich_shm_*' -user "$(id -u)" | sort); }
trap 'left | xargs -r rm -f; rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet mpich==5.0.2 mpi4py==4.1.2
unset "${!SLURM_@}"

cat >"$dir/ranks.py" <<'PY'
import os
import signal
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
if sys.argv[1] == "killed":
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
PY
run() {
  find /dev/shm -maxdepth 1 -name 'mpich_shm_*' -user "$(id -u)" | sort >"$before"
  timeout 60 "$dir/venv/bin/mpiexec" -np 2 "$dir/venv/bin/python" "$dir/ranks.py" "$1" >/dev/null 2>&1 || true
}

run end
echo "both ranks end: $(left | wc -l) segments left" >"$dir/out"
run killed
echo "one rank is killed: $(left | wc -l) segment left, $(left | xargs -r stat -c %s) bytes" >>"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qxF 'both ranks end: 0 segments left' "$dir/out"
grep -qE '^one rank is killed: 1 segment left, [0-9]{7} bytes$' "$dir/out"
