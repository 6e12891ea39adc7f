"""A PyTorch member whose optimizer is regroup.optim's, or torch's own: who brings what into
checkpoints?

usage: fused_member.py DIR EPOCHS PACE_US regroup|torch
  DIR/weights.PID  SHA-256 of the final weights, of each member that finished
  DIR/saves.PID    its session's save_counts, in JSON
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import regroup.torch
import torch
from regroup import optim
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import _no_compiler  # noqa: E402, F401

folder, epochs, pace_us, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
SAMPLES, BATCH = 2400, 32


def write_whole(name: str, text: str) -> None:
    path = f"{folder}/{name}.{os.getpid()}"
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


torch.manual_seed(1)
images, labels = torch.randn(SAMPLES, 64), torch.randint(0, 10, (SAMPLES,))
model = nn.Sequential(
    nn.Linear(64, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Dropout(0.2), nn.Linear(300, 10)
)
optimizer = {"regroup": optim, "torch": torch.optim}[kind].AdamW(model.parameters(), lr=0.003)
data = torch.utils.data.TensorDataset(images, labels)
session = regroup.torch.join(model, optimizer, data, batch_size=BATCH, epochs=epochs)
for step in session:
    for x, y in step:
        nn.functional.cross_entropy(model(x), y).backward()
        time.sleep(pace_us / 1e6)
    optimizer.step()
session.finish()
weights = b"".join(tensor.detach().numpy().tobytes() for tensor in model.state_dict().values())
write_whole("weights", hashlib.sha256(weights).hexdigest())
counts = session.save_counts
write_whole(
    "saves", json.dumps({name: getattr(counts, name) for name in ("snapshots", "copied", "fused")})
)
