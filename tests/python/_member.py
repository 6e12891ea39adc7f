"""A member for test_torch_elastic.py: training with everything that has state, and faults at exact
moments.

usage: _member.py FOLDER [FAULT...]
FAULT: kill=MEMBER,STEP | leave=MEMBER,STEP | grow=STEP,MEMBERS | width=MEMBER,FEATURES
loader=WORKERS passes a DataLoader, with so many workers, instead of the data set.
Writes FOLDER/asked-MEMBER, a line per sample fetched (step, index), and prints the digest of the
weights.
"""

import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import regroup.torch
import torch
from torch import nn
from torch.utils.data import DataLoader

folder = pathlib.Path(sys.argv[1])
faults = {
    name: tuple(map(int, text.split(","))) for name, text in (a.split("=") for a in sys.argv[2:])
}
member = int(os.environ.get("REGROUP_MEMBER", "0"))
now = {"step": 0, "fetched": 0}  # of this process; a worker does not see the step
trainer = os.getpid()
asked = open(folder / f"asked-{member}", "w", buffering=1)  # noqa: SIM115


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 61

    def __getitem__(self, index):
        print(now["step"], index, file=asked)
        now["fetched"] += 1
        if now["fetched"] >= 3 and os.getpid() == trainer:
            die()  # within a shard, after a finished one
        x = torch.full((4,), index / 61) + 0.1 * torch.randn(4) + 0.01 * random.random()
        return x, x.sum().sin()


def die():
    if faults.get("kill") == (member, now["step"]):
        os.kill(trainer, signal.SIGKILL)


def status():
    return json.loads(
        subprocess.check_output(["regroup", "status", "--json"], text=True, timeout=60)
    )


def grow(members):
    """Asks for more members and waits until a World with them is announced: the next call joins
    it."""
    subprocess.run(
        ["regroup", "resize", str(members)], check=True, timeout=60, stdout=subprocess.DEVNULL
    )
    end = time.monotonic() + 120
    while status()["generation"] == session.generation:
        assert time.monotonic() < end, "no new member in 120 s"
        time.sleep(0.02)


torch.manual_seed(1)
width = faults.get("width", (member, 8))
hidden = width[1] if width[0] == member else 8
model = nn.Sequential(
    nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.Dropout(0.2), nn.Linear(hidden, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9, 20])
if "loader" in faults:
    data = DataLoader(Samples(), 24, shuffle=True, num_workers=faults["loader"][0])
    batch_size = None
else:
    data, batch_size = Samples(), 24
session = regroup.torch.join(
    model, optimizer, data, batch_size=batch_size, epochs=10, extra=[scheduler], progress=True
)
for step in session:
    now.update(step=step.number, fetched=0)
    for x, y in step:
        if "loader" in faults:
            die()
        loss = nn.functional.mse_loss(model(x)[:, 0], y)
        loss.backward()
        step.record(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if session.rank == 0 and step.number == faults.get("grow", (0,))[0]:
        grow(faults["grow"][1])
    if faults.get("leave") == (member, step.number):
        os.killpg(0, signal.SIGTERM) if "loader" in faults else os.kill(trainer, signal.SIGTERM)
total = torch.tensor([float(step.number)])
session.collective(lambda communicator: communicator.allreduce(total))
assert total.item() == step.number * session.size
session.finish()
values = [*model.state_dict().values(), torch.tensor(scheduler.get_last_lr())]
digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in values)).hexdigest()
print(f"weights sha256 {digest} size {session.size} generation {session.generation}", flush=True)
