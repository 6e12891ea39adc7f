#!/usr/bin/env bash
# In a batch script of Slurm, PyTorch Lightning gives each process rank 0, whatever RANK says, unless torchrun's id is set.
# Versions: lightning 2.6.6, torch 2.13.0 (PyPI, CPU), Python 3.11; the variables are those of a batch script of Slurm 22.05.
#
# sbatch runs its script as task 0 of the job: SLURM_NTASKS, and SLURM_PROCID=0 and SLURM_LOCALID=0, which everything
# inherits that the script starts. Lightning takes the rank from SLURM_PROCID as soon as SLURM_NTASKS is set, so ranks
# that mpirun or a loop starts there, with RANK, WORLD_SIZE and LOCAL_RANK set for each, are all rank 0: they wait for
# each other, or each writes rank 0's files. Only TORCHELASTIC_RUN_ID, which torchrun sets, comes before Slurm's
# variables; its value does not matter. Jobs named "bash" or "interactive" are left alone.
#
# Output seen:
#   RANK=1 without Slurm: LightningEnvironment, rank 1
#   RANK=1 in a batch script: SLURMEnvironment, rank 0
#   RANK=1 in a batch script, TORCHELASTIC_RUN_ID=x: TorchElasticEnvironment, rank 1
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH "${!SLURM_@}"
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet lightning==2.6.6 torch==2.13.0 numpy==2.4.6

cat >"$dir/rank.py" <<'PY'
from lightning.pytorch import Trainer

trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False, barebones=True)
environment = trainer.strategy.cluster_environment
print(f"{type(environment).__name__}, rank {trainer.global_rank}")
PY
place=(RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500)
batch=(SLURM_JOB_ID=7 SLURM_JOB_NAME=train SLURM_JOB_NODELIST=node1 SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2
  SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0)
rank() { timeout 300 env "$@" "$dir/venv/bin/python" "$dir/rank.py" 2>/dev/null; }
{
  echo "RANK=1 without Slurm: $(rank "${place[@]}")"
  echo "RANK=1 in a batch script: $(rank "${place[@]}" "${batch[@]}")"
  echo "RANK=1 in a batch script, TORCHELASTIC_RUN_ID=x: $(rank "${place[@]}" "${batch[@]}" TORCHELASTIC_RUN_ID=x)"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qxF 'RANK=1 without Slurm: LightningEnvironment, rank 1' "$dir/out"
grep -qxF 'RANK=1 in a batch script: SLURMEnvironment, rank 0' "$dir/out"
grep -qxF 'RANK=1 in a batch script, TORCHELASTIC_RUN_ID=x: TorchElasticEnvironment, rank 1' "$dir/out"
