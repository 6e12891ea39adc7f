"""A member whose optimizer is all its training: how long do its steps take, with checkpoints and
without?

usage: checkpoint_member.py FOLDER MIB fused|copied SAVES PAUSE_S
In a job with --checkpoint and --checkpoint-interval.

One parameter of MIB MiB with Adam's moments. FOLDER/steps.RANK: one line for each step, "save|plain
SECONDS COPIED FUSED": from the sum of the gradients until the next step may begin, and bytes of a
checkpoint.
"""

import sys
import time
from pathlib import Path

import regroup
import torch
from regroup import optim

folder, mib, kind, saves, pause_s = sys.argv[1:4] + [int(sys.argv[4]), float(sys.argv[5])]
torch.set_num_threads(1)
torch.manual_seed(1)
parameter = torch.nn.Parameter(torch.randn(int(mib) << 8, 1024))
parameter.grad = torch.randn(parameter.shape)
optimizer = optim.AdamW([parameter])
optimizer.step()
tensors = {"parameter": parameter.detach()} | {
    name: optimizer.state[parameter][name] for name in ("exp_avg", "exp_avg_sq")
}
state = regroup.TrackedState(**{name: tensor.numpy() for name, tensor in tensors.items()})
session = regroup.Session(state, elements=1)
native = session._native


def apply() -> None:
    copies = {}
    if kind == "fused":
        for name, begin, memory in native.save_targets():
            copies[name] = optim.Part(begin // 4, torch.frombuffer(memory, dtype=torch.float32))
    optimizer.snapshot_into({parameter: copies} if copies else None)
    optimizer.step()
    for number in range(len(copies)):
        native.saved(number)


lines = []
before = session.save_counts.snapshots, session.save_counts.copied, session.save_counts.fused
began = None
for step in session:
    if began is not None:
        took = time.perf_counter() - began
        counts = (
            session.save_counts.snapshots,
            session.save_counts.copied,
            session.save_counts.fused,
        )
        snapshots, copied, fused = (now - then for now, then in zip(counts, before, strict=True))
        before = counts
        lines.append(f"{'save' if snapshots else 'plain'} {took} {copied} {fused}\n")
        if snapshots:
            time.sleep(pause_s)  # until it is on the disk: what follows is to be measured alone
    for shard in step:
        shard.gradient[:] = 0
    began = time.perf_counter()
    apply()
    if session.save_counts.snapshots == saves:  # the step that is open was to be finished
        break
Path(folder, f"steps.{session.rank}").write_text("".join(lines))
session.finish()
