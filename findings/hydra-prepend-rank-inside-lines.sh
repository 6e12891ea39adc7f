#!/usr/bin/env bash
# mpiexec -prepend-rank of MPICH writes the rank into the middle of lines: "loss 0.25" becomes "loss [0] 0.25".
# Versions: mpich 5.0.2 (PyPI), Python 3.11. Debian's hydra 4.0.2 does the same; Open MPI 5 no longer does.
#
# "[0] " is put before whatever one read of a rank's output returns, and after each line end in it, not before each
# line. A line that a rank writes in parts gets a rank before each part, so a value that is printed after its name looks
# like another one. A rank that writes whole lines is not safe either: where it writes more than 64 KiB at once, the
# reads end within a line, and the rank stands in the middle of a word or a number. -prepend-pattern and the files of
# -outfile-pattern have it too. With several ranks the parts of their lines are mixed, so that no filter can mend it.
#
# Output seen:
#   in two parts: [0] loss [0] 0.25
#   in two parts, into a file: [0] loss [0] 0.25
#   of 300 lines of 1000 digits that are written at once: some have a rank among their digits
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet mpich==5.0.2
run() { timeout 60 "$dir/venv/bin/mpiexec" -prepend-rank "$@" -n 1 "${program[@]}" </dev/null; }

{
  program=(sh -c 'printf "loss "; sleep 0.5; echo 0.25')
  echo "in two parts: $(run)"
  run -outfile-pattern "$dir/rank.%r"
  echo "in two parts, into a file: $(cat "$dir/rank.0")"
  program=(python3 -c 'import os; os.write(1, (b"7" * 1000 + b"\n") * 300)')
  run >"$dir/long"
  among=none
  if grep -Eq '7\[0\] 7' "$dir/long"; then among=some; fi
  echo "of 300 lines of 1000 digits that are written at once: $among have a rank among their digits"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
grep -qx -e 'in two parts: \[0\] loss \[0\] 0.25' "$dir/out"
grep -qx -e 'in two parts, into a file: \[0\] loss \[0\] 0.25' "$dir/out"
grep -q -e 'written at once: some have a rank among their digits' "$dir/out"
