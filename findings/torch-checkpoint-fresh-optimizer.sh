#!/usr/bin/env bash
# torch.distributed.checkpoint.load() into a fresh optimizer restores the learning rate and drops its moments, silently.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# dcp.load() takes objects with state_dict() and load_state_dict(), and an optimizer is one. It fills what the present
# state_dict() lists. That of an optimizer that has not taken a step lists no moments, so none is read, although the
# checkpoint holds them; a missing key would be an error, a surplus one is none. The learning rate is restored, which
# makes the load look complete. The next step of Adam begins with empty moments and moves the weights elsewhere: the
# resumed run is another one than the undisturbed. torch.load() with load_state_dict() restores everything;
# torch.distributed.checkpoint.state_dict.get_optimizer_state_dict() makes dcp.load() do so too.
#
# Output seen:
#   the checkpoint holds ['exp_avg', 'exp_avg_sq', 'step']; dcp.load restored lr 0.5 and moments of 0 parameters
#   next step: undisturbed 8.869, after torch.load 8.869, after dcp.load 9.500
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/resume.py" <<'PY'
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.simplefilter("ignore")  # that there is no process group


def fresh(lr, value=10.0):
    weight = torch.nn.Parameter(torch.tensor([value]))
    return weight, torch.optim.Adam([weight], lr=lr)


def step(weight, optimizer, gradient):
    weight.grad = torch.tensor([gradient])
    optimizer.step()
    return weight.item()


weight, optimizer = fresh(0.5)
step(weight, optimizer, 1.0)
reached = step(weight, optimizer, 1.0)
dcp.save({"optimizer": optimizer}, checkpoint_id=f"{sys.argv[1]}/dcp")
torch.save(optimizer.state_dict(), f"{sys.argv[1]}/file.pt")
names = dcp.FileSystemReader(f"{sys.argv[1]}/dcp").read_metadata().state_dict_metadata
held = sorted(name.rsplit(".", 1)[1] for name in names if ".state." in name)

by_dcp, by_file = fresh(0.001, reached), fresh(0.001, reached)
dcp.load({"optimizer": by_dcp[1]}, checkpoint_id=f"{sys.argv[1]}/dcp")
by_file[1].load_state_dict(torch.load(f"{sys.argv[1]}/file.pt"))
lr, moments = by_dcp[1].param_groups[0]["lr"], len(by_dcp[1].state)
print(f"the checkpoint holds {held}; dcp.load restored lr {lr} and moments of {moments} parameters")
after = [step(*one, -1.0) for one in ((weight, optimizer), by_file, by_dcp)]
print("next step: undisturbed {:.3f}, after torch.load {:.3f}, after dcp.load {:.3f}".format(*after))
PY
timeout 120 "$dir/venv/bin/python" "$dir/resume.py" "$dir" >"$dir/out"
cat "$dir/out"
echo "seen: $(tail -1 "$dir/out")"
grep -qF "holds ['exp_avg', 'exp_avg_sq', 'step']; dcp.load restored lr 0.5 and moments of 0 parameters" "$dir/out"
grep -qx 'next step: undisturbed 8.869, after torch.load 8.869, after dcp.load 9.500' "$dir/out"
