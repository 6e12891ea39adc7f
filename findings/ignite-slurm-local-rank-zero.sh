#!/usr/bin/env bash
# In a batch script of Slurm, ignite.distributed sets LOCAL_RANK of each process of torchrun to 0.
# Versions: pytorch-ignite 0.5.5, torch 2.13.0 (PyPI, CPU), Python 3.11, two processes on one host.
#
# torchrun numbers the processes that it starts by RANK and LOCAL_RANK. If the process group exists already,
# ignite.distributed takes the local rank from SLURM_LOCALID where SLURM_JOB_ID is set, and overwrites LOCAL_RANK with it.
# Processes of torchrun inherit SLURM_LOCALID from the script: 0, whichever they are. get_local_rank() and idist.device()
# then name the first GPU in each of them, without a warning; libraries that read LOCAL_RANK later do, too. Rank and world
# size stay right, since they come from the process group. The variables below are those that sbatch sets in the script.
#
# Output seen:
#   outside Slurm: rank 0: LOCAL_RANK 0, local rank of ignite 0, LOCAL_RANK afterwards 0
#   outside Slurm: rank 1: LOCAL_RANK 1, local rank of ignite 1, LOCAL_RANK afterwards 1
#   in a batch script: rank 0: LOCAL_RANK 0, local rank of ignite 0, LOCAL_RANK afterwards 0
#   in a batch script: rank 1: LOCAL_RANK 1, local rank of ignite 0, LOCAL_RANK afterwards 0
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet torch==2.13.0 pytorch-ignite==0.5.5 numpy==2.4.6

cat >"$dir/local_rank.py" <<'PY'
import os
import sys

import torch.distributed
from ignite import distributed as idist

torch.distributed.init_process_group("gloo")
given = os.environ["LOCAL_RANK"]
seen = idist.get_local_rank()
sys.stdout.write(
    f"{sys.argv[1]}: rank {torch.distributed.get_rank()}: LOCAL_RANK {given}, local rank of ignite {seen}, "
    f"LOCAL_RANK afterwards {os.environ['LOCAL_RANK']}\n"
)
torch.distributed.destroy_process_group()
PY

unset "${!SLURM_@}"
run() {
  timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/local_rank.py" "$1" 2>>"$dir/err" | sort
}
{
  run "outside Slurm"
  export SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n1 SLURM_JOB_NUM_NODES=1
  run "in a batch script"
} >"$dir/out" || { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(tail -n 1 "$dir/out")"
grep -qxF 'outside Slurm: rank 1: LOCAL_RANK 1, local rank of ignite 1, LOCAL_RANK afterwards 1' "$dir/out"
grep -qxF 'in a batch script: rank 0: LOCAL_RANK 0, local rank of ignite 0, LOCAL_RANK afterwards 0' "$dir/out"
grep -qxF 'in a batch script: rank 1: LOCAL_RANK 1, local rank of ignite 0, LOCAL_RANK afterwards 0' "$dir/out"
