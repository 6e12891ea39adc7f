"""A PyTorch member for random schedules: a small model with dropout, and a data set that logs every
access.

usage: torch_member.py DIR EPOCHS PACE_US
  DIR/computed.PID  one line per __getitem__, written before the sample is returned: step sample
  DIR/stood.PID     one line per step begun: step generation rank members
  DIR/weights.PID   SHA-256 of the final weights, of each member that finished
  DIR/left.PID      of each member that was let go before the end
"""

import hashlib
import importlib.util
import os
import sys
import time
from pathlib import Path

import numpy as np
import regroup.torch
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import _no_compiler  # noqa: E402, F401

folder, epochs, pace_us = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# To import scikit-learn takes two seconds of processor time.
sklearn = Path(importlib.util.find_spec("sklearn").origin).parent
digits = np.loadtxt(sklearn / "datasets/data/digits.csv.gz", delimiter=",")
current = 0  # the step whose shards are being fetched


def open_trail(kind: str) -> int:
    return os.open(f"{folder}/{kind}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


class LoggedDigits(torch.utils.data.Dataset):
    """scikit-learn's digits; an access is on disk before it is answered."""

    def __init__(self) -> None:
        self.images = torch.tensor(digits[:, :-1] / 16, dtype=torch.float32)
        self.labels = torch.tensor(digits[:, -1].astype(int))
        self.log = open_trail("computed")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        os.write(self.log, f"{current} {index}\n".encode())
        return self.images[index], self.labels[index]


def write_whole(kind: str, text: str) -> None:
    """The whole file or none, whenever SIGKILL comes."""
    path = f"{folder}/{kind}.{os.getpid()}"
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def train() -> None:
    global current
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    session = regroup.torch.join(model, optimizer, LoggedDigits(), batch_size=64, epochs=epochs)
    stood = open_trail("stood")
    for step in session:
        current = step.number
        world = step.world
        os.write(stood, f"{current} {world.generation} {world.rank} {world.size}\n".encode())
        for x, y in step:
            end = time.monotonic() + pace_us / 1e6
            nn.functional.cross_entropy(model(x), y).backward()
            while time.monotonic() < end:
                pass
        optimizer.step()
    session.finish()
    weights = b"".join(tensor.detach().numpy().tobytes() for tensor in model.state_dict().values())
    write_whole("weights", hashlib.sha256(weights).hexdigest())


try:
    train()
except SystemExit as end:
    if end.code == 0:
        write_whole("left", "")
    raise
