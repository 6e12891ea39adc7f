#!/usr/bin/env bash
# get_optimizer_state_dict() takes an optimizer step: a checkpoint written before the first step changes the training.
# Versions: torch 2.13.0, numpy 2.4.6 (PyPI), Python 3.11.
#
# torch.distributed.checkpoint.state_dict.get_optimizer_state_dict() reads, by its name and by its documentation. On an
# optimizer without a state, before the first step or with a checkpoint of step 0, it fills the state by a real step()
# with gradients of zero and a learning rate of zero, and leaves what that step has counted and summed. The weights are
# as before, and whatever the optimizer does from then on is another run: Adam and its kin correct their bias as in a
# second step, SGD with momentum has the weight decay of a step in its buffer, Rprop keeps the smallest step size that it
# knows and hardly learns. Hooks of step() run as well, so that averages and counters get a step that never was. Adagrad,
# RMSprop, and SGD without weight decay are as they were. Nothing is said.
# A saver that writes step 0 in one of two runs, or at one of several ranks, makes them differ.
# (The project's issue 164929 tells of AdamW.)
#
# Output seen (loss after 20 steps, and how often a hook of step() ran before the first):
#   AdamW    without 8.9880  with a save of step 0 9.4748  hooks 1
#   RAdam    without 1.5682  with a save of step 0 7.4848  hooks 1
#   Rprop    without 11.4309  with a save of step 0 33.7019  hooks 1
#   RMSprop  without 0.0425  with a save of step 0 0.0425  hooks 1
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 2>"$dir/pip"

cat >"$dir/save.py" <<'PY'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict


def train(kind, options, saves):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = kind(model.parameters(), **options)
    x = torch.randn(64, 4)
    y = x @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    hooks = []
    handle = optimizer.register_step_post_hook(lambda *_: hooks.append(1))
    if saves:
        get_optimizer_state_dict(model, optimizer)
    handle.remove()
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    return loss.item(), len(hooks)


changed = []
for kind, options in (
    (torch.optim.AdamW, {"lr": 0.1}),
    (torch.optim.RAdam, {"lr": 0.1}),
    (torch.optim.Rprop, {}),
    (torch.optim.RMSprop, {"lr": 0.1}),
):
    (without, _), (with_save, hooks) = (train(kind, options, saves) for saves in (False, True))
    print(f"{kind.__name__:8} without {without:.4f}  with a save of step 0 {with_save:.4f}  hooks {hooks}")
    if without != with_save and hooks == 1:
        changed.append(kind.__name__)
assert changed == ["AdamW", "RAdam", "Rprop"], changed
PY
"$dir/venv/bin/python" "$dir/save.py" 2>"$dir/errors" | sed 's/^/  /' || { cat "$dir/errors" >&2; exit 1; }
echo "seen: get_optimizer_state_dict() before the first step changes what AdamW, RAdam and Rprop learn"
