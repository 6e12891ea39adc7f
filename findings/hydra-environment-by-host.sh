#!/usr/bin/env bash
# Hydra's -genvnone removes the environment from ranks on other hosts, but not from ranks on the launcher's host.
# Versions: mpich 5.0.2 (PyPI).
#
# "-genvnone" reads as "pass none of the environment", and "-genvlist A" as "only A". Hydra then sends no variables, but
# its proxy on the launcher's own host is a plain child that inherits them all, while ssh starts the proxies of the other
# hosts with the little that sshd sets. So one job has ranks with OMP_NUM_THREADS=8 and ranks without. A test on one
# machine shows neither option doing anything. Here a script stands for ssh: it drops the name of the host and runs the
# command with an empty environment, as sshd does.
#
# Output seen (rank 0 is on the launcher's host, rank 1 on the other):
#   no option: rank 0 has 8, rank 1 has 8
#   -genvnone: rank 0 has 8, rank 1 has nothing
#   -genvlist HOME: rank 0 has 8, rank 1 has nothing
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet mpich==5.0.2

cat >"$dir/ssh" <<'SH'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec env -i PATH=/usr/bin:/bin HOME=/ sh -c "$*"
SH
chmod +x "$dir/ssh"
export OMP_NUM_THREADS=8

# usage: ranks OPTIONS...
ranks() {
  timeout 60 "$dir/venv/bin/mpiexec" -launcher ssh -launcher-exec "$dir/ssh" -hosts localhost,elsewhere "$@" -n 2 \
    sh -c 'echo "rank $PMI_RANK has ${OMP_NUM_THREADS-nothing}"' | sort | paste -sd, | sed 's/,/, /'
}

{
  echo "no option: $(ranks)"
  echo "-genvnone: $(ranks -genvnone)"
  echo "-genvlist HOME: $(ranks -genvlist HOME)"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qx 'no option: rank 0 has 8, rank 1 has 8' "$dir/out"
grep -qx -e '-genvnone: rank 0 has 8, rank 1 has nothing' "$dir/out"
grep -qx -e '-genvlist HOME: rank 0 has 8, rank 1 has nothing' "$dir/out"
