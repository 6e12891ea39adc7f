#!/usr/bin/env bash
# MPICH's mpiexec ends with the bitwise OR of its ranks' exit statuses: a status that no rank had.
# Versions: mpich 5.0.2 (PyPI), its hydra, ranks that are shell commands, one host.
#
# One rank that ends with 1 and one with 2 make 3; 128 and 4 make 132, by which a shell means that signal 4 ended the
# program. A script that looks a status up in a program's list finds another error, or one of the shell's. Open MPI's
# mpirun passes on the status of the first rank that ended with one.
#
# Output seen:
#   ranks end with 1 and 2: mpiexec ends with 3
#   ranks end with 128 and 4: mpiexec ends with 132
#   ranks end with 0 and 4: mpiexec ends with 4
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet mpich==5.0.2
unset "${!SLURM_@}"

for pair in "1 2" "128 4" "0 4"; do
  read -r first second <<<"$pair"
  status=0
  timeout 60 "$dir/venv/bin/mpiexec" -np 1 sh -c "exit $first" : -np 1 sh -c "exit $second" \
    >/dev/null 2>&1 || status=$?
  printf 'ranks end with %d and %d: mpiexec ends with %d\n' "$first" "$second" "$status"
done >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out"); $(sed -n 2p "$dir/out")"
grep -qxF 'ranks end with 1 and 2: mpiexec ends with 3' "$dir/out"
grep -qxF 'ranks end with 128 and 4: mpiexec ends with 132' "$dir/out"
grep -qxF 'ranks end with 0 and 4: mpiexec ends with 4' "$dir/out"
