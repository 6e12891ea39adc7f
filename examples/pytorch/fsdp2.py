"""Train a model whose parameters are divided over all ranks (FSDP2), with a fixed number of ranks:
regroup -np 2 python fsdp2.py. Ranks use Regroup's backend of torch.distributed.
"""

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
distributed.init_process_group("regroup")

digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)  # [1797, 64]
labels = torch.tensor(digits.target)
train_set = TensorDataset(pixels[360:], labels[360:])
loader = DataLoader(train_set, 32, sampler=DistributedSampler(train_set))

model = nn.Sequential(
    nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)
)
mesh = distributed.device_mesh.init_device_mesh("cpu", (distributed.get_world_size(),))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for epoch in range(10):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

with torch.no_grad():
    correct = (model(pixels[:360]).argmax(dim=1) == labels[:360]).sum().item()
own = sum(parameter.to_local().numel() for parameter in model.parameters())
whole = sum(parameter.numel() for parameter in model.parameters())
print(f"rank {distributed.get_rank()} has {own:,} of {whole:,} parameters", flush=True)
distributed.barrier()
if distributed.get_rank() == 0:
    print(f"test accuracy {correct / 360:.2%}")
distributed.destroy_process_group()
