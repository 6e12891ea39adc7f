"""A click model, wide and deep, on a parameter server.

regroup --role ps=1 --role worker=2 --ps-memory 256M python examples/pytorch/ps_clicks.py

A record is a row of categories and a yes or no, as in a log of clicks. No package ships such a
log: this takes scikit-learn's 569 records of breast cancer, whose 30 numbers are cut into ten
categories each. The wide part has a weight for each category, by FTRL; the deep part has an
embedding for each, and a small network. All of it lies on the server. Kill regroup-ps while it
runs: nothing is lost.
"""

import argparse
import os
import time

import numpy as np
import regroup.ps as ps
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from torch import nn

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=100, help="of each worker")
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()

records = load_breast_cancer()
columns = records.data.shape[1]
cuts = np.quantile(records.data, np.linspace(0, 1, 11)[1:-1], axis=0)
category = np.stack(
    [np.searchsorted(cuts[:, c], records.data[:, c]) for c in range(columns)], axis=1
)
ids = torch.tensor(category + 1000 * np.arange(columns))  # any int64 is an id
clicked = torch.tensor(records.target, dtype=torch.float32)
order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))
train, test = order[120:], order[:120]

client = ps.join()
torch.manual_seed(0)  # all workers begin with the same network
wide = ps.torch.EmbeddingBag(
    client, "wide", dim=1, mode="sum", optimizer=ps.Ftrl(lr=0.05, l1=0.001)
)
deep = ps.torch.Embedding(
    client, "deep", dim=4, init=ps.Normal(std=0.1), optimizer=ps.RowAdagrad(lr=0.05)
)
network = nn.Sequential(nn.Flatten(), nn.Linear(4 * columns, 16), nn.ReLU(), nn.Linear(16, 1))
top = ps.torch.Dense(client, "top", network, optimizer=ps.Adam(lr=1e-3))
done = client.dense("done", 1, dtype="int64", optimizer=ps.Sum())  # workers that are through


def scores(batch: torch.Tensor) -> torch.Tensor:
    return (wide(ids[batch]) + top(deep(ids[batch]))).squeeze(1)


torch.manual_seed(1 + int(os.environ["RANK"]))  # each worker draws batches of its own
for step in range(args.steps):
    batch = train[torch.randint(len(train), (args.batch_size,))]
    loss = nn.functional.binary_cross_entropy_with_logits(scores(batch), clicked[batch])
    client.push(loss)
    if step % 25 == 24:
        print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
client.flush()
done.push(np.ones(1, np.int64)).wait()
while done.pull()[0] < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)

with torch.no_grad():
    auc = roc_auc_score(clicked[test], scores(test))
print(f"AUC {auc:.3f} on {len(test)} records", flush=True)
