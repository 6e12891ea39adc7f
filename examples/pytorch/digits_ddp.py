"""Train a small convolutional network on scikit-learn's handwritten digits with
DistributedDataParallel: regroup -np 2 python digits_ddp.py, or torchrun.

digits_ddp_elastic.py is the same training made elastic.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=15)
epochs = parser.parse_args().epochs
torch.manual_seed(0)

digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)  # 1,797 of 1 x 8 x 8
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels))
train, test = order[360:], order[:360]
train_set = TensorDataset(images[train], labels[train])

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(16 * 4 * 4, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
distributed.init_process_group("regroup")
ddp = DistributedDataParallel(model)
loader = DataLoader(train_set, 32, sampler=DistributedSampler(train_set))
rank = distributed.get_rank()

for epoch in range(epochs):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    if rank == 0:
        print(f"epoch {epoch + 1:2}  loss of the last batch {loss.item():.4f}", flush=True)

model.eval()
with torch.no_grad():
    correct = (model(images[test]).argmax(dim=1) == labels[test]).sum().item()
if rank == 0:
    print(f"test accuracy {correct / len(test):.2%}")
