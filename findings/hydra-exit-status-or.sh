#!/usr/bin/env bash
# Hydra's exit status is the bitwise OR of those of all ranks, so it may be one that no rank ended with.
# Versions: mpich 5.0.2 (PyPI).
#
# One expects the status of the first rank that failed, as from Open MPI, or the largest. Hydra joins them all: 8 and 7
# make 15, and 15 is also what it returns for a rank that SIGTERM killed, because it reports signal N as N and not as
# 128 + N. A batch script that requeues a job on 15, or skips what ended with 3, acts on a status that nobody returned.
# That the statuses of all ranks are there to be joined has a second cause: a rank that exits with 1 does not end the
# job. Its peers run on to their own ends, unlike under Open MPI, which kills them.
#
# Output seen:
#   ranks exit with 8 and 7: mpiexec exits with 15
#   ranks exit with 1 and 2: mpiexec exits with 3; the second rank still ran a second later: yes
#   one rank is killed by SIGTERM: mpiexec exits with 15
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet mpich==5.0.2

# usage: status FIRST SECOND; runs the commands as two ranks of one job and prints the exit status of mpiexec.
status() {
  local code=0
  timeout 60 "$dir/venv/bin/mpiexec" -n 1 sh -c "$1" : -n 1 sh -c "$2" >"$dir/job" 2>&1 </dev/null || code=$?
  echo "$code"
}

{
  echo "ranks exit with 8 and 7: mpiexec exits with $(status 'exit 8' 'exit 7')"
  code=$(status 'exit 1' 'sleep 1; echo ran on; exit 2')
  ran=$(grep -qx 'ran on' "$dir/job" && echo yes || echo no)
  echo "ranks exit with 1 and 2: mpiexec exits with $code; the second rank still ran a second later: $ran"
  echo "one rank is killed by SIGTERM: mpiexec exits with $(status 'kill -TERM $$' 'exit 0')"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qx 'ranks exit with 8 and 7: mpiexec exits with 15' "$dir/out"
grep -qx 'ranks exit with 1 and 2: mpiexec exits with 3; the second rank still ran a second later: yes' "$dir/out"
grep -qx 'one rank is killed by SIGTERM: mpiexec exits with 15' "$dir/out"
