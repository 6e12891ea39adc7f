#!/usr/bin/env bash
# Orbax saves two arrays in one place if the path of one, joined by dots, is the key of the other, without an error.
# Versions: orbax-checkpoint 0.12.8, jax 0.10.2, numpy 2.4.6 (PyPI), Python 3.11.
#
# The tree {"ema": {"w": ...}, "ema.w": ...} has two leaves. Orbax names arrays in a checkpoint by their keys joined with
# dots, so both are called "ema.w" and are written to it at the same time. Which of the two stays may differ from run to
# run. Saving, finalizing and restoring report success, and both leaves come back with the numbers of one; the other's
# are nowhere. Lists do it as well: {"w": [...], "w.0": ...}. Names with dots come with every state_dict() of PyTorch,
# and nested trees with Flax. Only arrays of two shapes or types lead to an error. PyTorch's own
# torch.distributed.checkpoint refuses such names ("duplicated flatten key").
#
# Output seen (the number that both have may be 2.0, too):
#   saved ema/w 1.0 and ema.w 2.0, restored 1.0 for both
#   saved w[0] 1.0 and w.0 2.0, restored 1.0 for both
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1200 "$dir/venv/bin/pip" install --quiet orbax-checkpoint==0.12.8 jax==0.10.2 numpy==2.4.6

cat >"$dir/keys.py" <<'PY'
import sys

import numpy as np
import orbax.checkpoint as ocp


def restored(name, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{sys.argv[1]}/{name}", tree)
        checkpointer.wait_until_finished()
        return checkpointer.restore(f"{sys.argv[1]}/{name}")


def report(inner, outer, values):
    what = f"{values[0]} for both" if values[0] == values[1] else f"{values[0]} and {values[1]}"
    print(f"saved {inner} 1.0 and {outer} 2.0, restored {what}")


one, two = np.array([1.0]), np.array([2.0])
tree = restored("nested", {"ema": {"w": one}, "ema.w": two})
report("ema/w", "ema.w", (tree["ema"]["w"].item(), tree["ema.w"].item()))
tree = restored("listed", {"w": [one], "w.0": two})
report("w[0]", "w.0", (tree["w"][0].item(), tree["w.0"].item()))
PY
JAX_PLATFORMS=cpu timeout 120 "$dir/venv/bin/python" "$dir/keys.py" "$dir" >"$dir/out" 2>"$dir/log" || { cat "$dir/log"; exit 1; }
cat "$dir/out"
echo "seen: $(head -1 "$dir/out")"
grep -qxE 'saved ema/w 1.0 and ema.w 2.0, restored [12].0 for both' "$dir/out"
grep -qxE 'saved w\[0\] 1.0 and w.0 2.0, restored [12].0 for both' "$dir/out"
