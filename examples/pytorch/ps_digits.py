"""Train embeddings on a parameter server, on scikit-learn's handwritten digits.

regroup --role ps=1 --role worker=2 --ps-memory 256M python examples/pytorch/ps_digits.py

Each pixel is a feature of 17 values, as a column of a click log is: its embedding is one of 64 * 17
rows, which lie on the server, as does the small network above them. Workers push gradients without
waiting for each other. Kill the process regroup-ps while it runs: nothing is lost.
"""

import argparse
import os
import time

import numpy as np
import regroup.ps as ps
import torch
from sklearn.datasets import load_digits
from torch import nn

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=400, help="of each worker")
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()

digits = load_digits()
pixels = torch.tensor(digits.data, dtype=torch.int64)  # 1,797 of 64, each 0 to 16
ids = pixels + 17 * torch.arange(64)
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
train, test = order[360:], order[:360]

client = ps.join()
torch.manual_seed(0)  # all workers begin with the same network
pixel = ps.torch.EmbeddingBag(
    client, "pixel", dim=32, mode="sum",
    init=ps.Uniform(-0.01, 0.01), optimizer=ps.RowAdagrad(lr=0.01),
)  # fmt: skip
network = nn.Sequential(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
top = ps.torch.Dense(client, "top", network, optimizer=ps.Adam(lr=3e-3))
done = client.dense("done", 1, dtype="int64", optimizer=ps.Sum())  # workers that are through

torch.manual_seed(1 + int(os.environ["RANK"]))  # each worker draws batches of its own
for step in range(args.steps):
    batch = train[torch.randint(len(train), (args.batch_size,))]
    loss = nn.functional.cross_entropy(top(pixel(ids[batch])), labels[batch])
    client.push(loss)
    if step % 100 == 99:
        print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
client.flush()
done.push(np.ones(1, np.int64)).wait()
while done.pull()[0] < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)

with torch.no_grad():
    correct = (top(pixel(ids[test])).argmax(dim=1) == labels[test]).sum().item()
print(f"accuracy {correct / len(test):.3f} on {len(test)} digits", flush=True)
