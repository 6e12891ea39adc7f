"""Train a small convolutional network on scikit-learn's handwritten digits.

digits_plain.py is an ordinary PyTorch script for one process, digits.py the same training made
elastic.
"""

import argparse
import hashlib

import torch
from regroup.torch import join
from sklearn.datasets import load_digits
from torch import nn
from torch.utils import data

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
batch, epochs = args.batch_size, args.epochs
torch.manual_seed(args.seed)

digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)  # 1,797 of 1 x 8 x 8
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
train, test = order[360:], order[:360]  # the same 20 % is held out whatever the seed
train_set = data.TensorDataset(images[train], labels[train])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 4 * 4, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
session = join(model, optimizer, train_set, batch_size=batch, epochs=epochs, progress=True)

for step in session:
    for x, y in step:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        step.record(loss)
    optimizer.step()
session.finish()

model.eval()
with torch.no_grad():
    correct = (model(images[test]).argmax(dim=1) == labels[test]).sum().item()
print(f"test accuracy {correct / len(test):.2%}")
weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
print(f"weights sha256 {hashlib.sha256(weights).hexdigest()}")
