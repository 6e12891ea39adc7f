#!/usr/bin/env bash
# mpiexec of MPICH with an empty standard input now and then dies of SIGPIPE, with the job's output lost.
# Versions: mpich 5.0.2 (PyPI). Debian's hydra 4.0.2 does the same.
#
# mpiexec passes the end of its own standard input on to the proxy that runs rank 0. If the ranks are quick, the proxy
# has ended by then, and mpiexec, which does not ignore SIGPIPE, is killed by its own write: status 141, and what the
# ranks printed is gone. It takes a job that is about as short as the launch, and standard input from /dev/null or a
# closed one, as services, cron, CI and `while read` loops give it. The busier the machine, the more often; with an
# input that stays open it does not happen. A job that has done its work is so reported as failed.
#
# Output seen (300 jobs of two ranks, 12 at a time, on 2 cores):
#   standard input /dev/null: some jobs end with status 141 and print nothing
#   standard input that stays open: all jobs end with status 0 and print two lines
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet mpich==5.0.2
export MPIEXEC="$dir/venv/bin/mpiexec"

job() { # prints its status and the number of lines that it printed
  local status=0 lines
  lines=$(timeout 60 "$MPIEXEC" -n 2 echo done | wc -l; exit "${PIPESTATUS[0]}") || status=$?
  echo "status $status, $lines lines"
}
export -f job
jobs_with() { # the different ends of 300 jobs whose standard input is file $1
  seq 300 | timeout 500 xargs -P 12 -I{} bash -c "job <\"$1\"" | sort -u
}
mkfifo "$dir/open"
exec 3<>"$dir/open" # a writer that writes nothing and stays

empty=$(jobs_with /dev/null)
open=$(jobs_with "$dir/open")
{
  if grep -qx "status 141, 0 lines" <<<"$empty"; then said="some jobs end with status 141 and print nothing"; else said=$empty; fi
  echo "standard input /dev/null: $said"
  if [ "$open" = "status 0, 2 lines" ]; then said="all jobs end with status 0 and print two lines"; else said=$open; fi
  echo "standard input that stays open: $said"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
grep -qx -e 'standard input /dev/null: some jobs end with status 141 and print nothing' "$dir/out"
grep -qx -e 'standard input that stays open: all jobs end with status 0 and print two lines' "$dir/out"
