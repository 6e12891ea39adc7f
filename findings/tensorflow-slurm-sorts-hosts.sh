#!/usr/bin/env bash
# TensorFlow's SlurmClusterResolver gives tasks the addresses of other hosts where names have numbers of unequal length.
# Versions: tensorflow-cpu 2.21.0 (PyPI).
#
# Slurm numbers the tasks of a step in the order of its node list: with n[9-10] task 0 runs on n9, task 1 on n10. The
# resolver expands the list to n9 and n10, as it should, and then sorts the names as strings, so that n10 comes first.
# The rank is that of Slurm. Task 0 thus runs on n9 and is listed at n10, and the other way round: each server listens
# on a port of its own host and is looked for on the other one. With two tasks a host both ports exist there, and a
# worker talks to another one than it means. Nodes n[1-2], or n[09-10], come in order, so a test on few nodes works,
# and the same script is wrong on the first ten or more. A list of nodes that Slurm has not sorted, as under
# `--distribution=arbitrary`, is sorted as well.
#
# Output seen:
#   n[1-2]: task 0 of n1 is told worker 0, the addresses are n1:8888 n2:8888
#   n[9-10]: task 0 of n9 is told worker 0, the addresses are n10:8888 n9:8888
#   n[8-11]: task 0 of n8 is told worker 0, the addresses are n10:8888 n11:8888 n8:8888 n9:8888
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
cat >"$dir/resolve.py" <<'PY'
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.SlurmClusterResolver()
addresses = resolver.cluster_spec().as_dict()["worker"]
print(f"is told {resolver.task_type} {resolver.task_id}, the addresses are", *addresses)
PY
unset "${!SLURM_@}" TF_CONFIG
export TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=0

# usage: task_0_of HOST LIST COUNT: the variables that Slurm sets for task 0, which runs on the first host of LIST
task_0_of() {
  local told
  told=$(SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=$3 SLURM_STEP_NODELIST=$2 SLURM_STEP_TASKS_PER_NODE="1(x$3)" \
    timeout 300 "$dir/venv/bin/python" "$dir/resolve.py" 2>"$dir/err") || { cat "$dir/err" >&2; exit 1; }
  echo "$2: task 0 of $1 $told"
}
{
  task_0_of n1 'n[1-2]' 2
  task_0_of n9 'n[9-10]' 2
  task_0_of n8 'n[8-11]' 4
} >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qxF 'n[1-2]: task 0 of n1 is told worker 0, the addresses are n1:8888 n2:8888' "$dir/out"
grep -qxF 'n[9-10]: task 0 of n9 is told worker 0, the addresses are n10:8888 n9:8888' "$dir/out"
grep -qxF 'n[8-11]: task 0 of n8 is told worker 0, the addresses are n10:8888 n11:8888 n8:8888 n9:8888' "$dir/out"
