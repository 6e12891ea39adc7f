#!/usr/bin/env bash
# mpiexec of MPICH ends a job whose standard input is longer than a pipe holds, before a rank has read any of it.
# Versions: mpich 5.0.2, and 3.4.3 beside it (PyPI).
#
# mpiexec passes its standard input on to rank 0, so one expects that a rank reads a file of any length, at its own
# speed. The process that serves the ranks of a host writes what arrives into a pipe to rank 0; once the pipe is full
# (64 KiB on Linux, of a rank that still starts), it does not wait until the rank has read some, but ends with all
# ranks; in most runs it says "process reading stdin too slowly; can't keep up". Nothing of what the rank had read is
# printed. The exit status of mpiexec is 0, 141 or 255, it differs from run to run: a script that looks at the status may take the
# lost job for a done one. 60 KiB pass; so a program works with a small input file and ends with a larger one.
#
# Output seen (status and message differ from run to run):
#   mpich 5.0.2, 60894 bytes: 12000 lines, status 0
#   mpich 5.0.2, 588895 bytes: 0 lines, status 141, process reading stdin too slowly
#   mpich 3.4.3, 60894 bytes: 12000 lines, status 0
#   mpich 3.4.3, 588895 bytes: 0 lines, status 255, process reading stdin too slowly
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/5.0.2"
timeout 600 "$dir/5.0.2/bin/pip" install --quiet mpich==5.0.2
python3 -m venv "$dir/3.4.3"
timeout 600 "$dir/3.4.3/bin/pip" install --quiet mpich==3.4.3

# usage: read_by_rank VERSION NUMBERS; sets `lines`, `status` and `said`
read_by_rank() {
  status=0
  seq "$2" >"$dir/in"
  timeout 60 "$dir/$1/bin/mpiexec" -n 1 sh -c 'sleep 1; cat' <"$dir/in" >"$dir/out" 2>"$dir/err" || status=$?
  lines=$(wc -l <"$dir/out")
  said=$(grep -o -m1 'process reading stdin too slowly' "$dir/err" || true)
  echo "mpich $1, $(stat -c %s "$dir/in") bytes: $lines lines, status $status${said:+, $said}"
}

for version in 5.0.2 3.4.3; do
  read_by_rank "$version" 12000
  [[ $lines == 12000 && $status == 0 && ! $said ]]
  read_by_rank "$version" 100000
  [[ $lines == 0 ]]
done
echo "seen: mpich 5.0.2 and 3.4.3 end a job that gets 588895 bytes of standard input before it prints one line"
