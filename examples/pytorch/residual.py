"""Train a small residual network on scikit-learn's handwritten digits, elastically, with a
DataLoader, evaluation and early stopping: regroup -np 1:4 python residual.py.
"""

import argparse

import regroup.torch
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--epochs", type=int, default=20, help="at most; an accuracy of 99 %% ends it before"
)
parser.add_argument("--workers", type=int, default=0, help="of each member's DataLoader")
args = parser.parse_args()
torch.manual_seed(0)


class Digits(Dataset):
    """Images [1, 8, 8] and their digits; those to train with are shifted by up to one pixel."""

    def __init__(self, part, shifted):
        digits = load_digits()
        order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
        chosen = order[part]
        self.images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)[chosen]
        self.labels = torch.tensor(digits.target)[chosen]
        self.shifted = shifted

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.shifted:  # by torch's own generator, which is seeded for each shard
            image = image.roll(torch.randint(-1, 2, (2,)).tolist(), (1, 2))
        return image, self.labels[index]


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def error_of(output, label):
    """1 for each sample whose digit is not recognized."""
    return (output.argmax(dim=1) != label).float()


model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", 0.1, 2)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
loader = DataLoader(Digits(slice(360, None), True), 64, shuffle=True, num_workers=args.workers)
held_out = Digits(slice(360), False)
session = regroup.torch.join(
    model, optimizer, loader, epochs=args.epochs, epoch_schedulers=[plateau], ema=average
)

for step in session:
    for images, labels in step:
        step.backward(nn.functional.cross_entropy(model(images), labels))
    step.apply()
    if step.end_of_epoch:
        error = session.evaluate(average, held_out, error_of)
        session.print(f"epoch {step.epoch + 1:2}  loss {step.loss:.3f}  accuracy {1 - error:.1%}")
        if session.stop_if(error <= 0.01):
            break
session.finish()
