"""Programs of tests/gpu/torch_phase.py: members and ranks that train on a GPU, or on the CPU.

usage: torch_member.py elastic|prepared|gpt|ddp FOLDER DEVICE [NAME=VALUE...]
elastic    a member of regroup.torch.join() that trains a convolutional network with BatchNorm and
           dropout and a perceptron; ends after steps=N, or when FOLDER/stop exists; pace=MS is the
           least time of a shard
prepared   the same in a loop of DistributedDataParallel; ends after epochs=N
gpt        one member, alternating with a plain loop over the same shards: tiny=1, steps=N, shards=N
ddp        a rank of DistributedDataParallel over gloo; trains until it is killed
FOLDER/timeline.PID gets a line per event: time in ns, name, step, generation, members. The digest
of the weights is printed at the end; gpt writes FOLDER/gpt.json.
"""

import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

SAMPLES, BATCH = 480, 96


class Timeline:
    def __init__(self, folder: Path) -> None:
        path = folder / f"timeline.{os.getpid()}"
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.session = None

    def note(self, what: str, step: int) -> None:
        at, world = time.monotonic_ns(), self.session.world if self.session else None
        place = f"{world.generation} {world.size}" if world else "0 0"
        os.write(self._fd, f"{at} {what} {step} {place}\n".encode())


class Both(nn.Module):
    """A convolutional network and a perceptron, of one image of 16 by 16."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(32 * 64, 10),
        )
        self.mlp = nn.Sequential(
            nn.Flatten(),
            nn.Linear(256, width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cnn(x) + self.mlp(x)


def images() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, 1, 16, 16, generator=generator)
    return torch.utils.data.TensorDataset(x, torch.randint(10, (SAMPLES,), generator=generator))


def made(device: str, options: dict[str, str]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = Both(int(options.get("width", 1024))).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def tell_weights(model: nn.Module, step: int) -> None:
    values = [value.detach().cpu().contiguous() for value in model.state_dict().values()]
    data = b"".join(v.reshape(-1).view(torch.uint8).numpy().tobytes() for v in values)
    print(f"weights {hashlib.sha256(data).hexdigest()} step {step}", flush=True)


def elastic(folder: Path, device: str, options: dict[str, str]) -> None:
    import regroup.torch

    last, pace = int(options.get("steps", 10**9)), float(options.get("pace", 0)) / 1e3
    model, optimizer = made(device, options)
    timeline = Timeline(folder)
    session = regroup.torch.join(
        model,
        optimizer,
        images(),
        batch_size=BATCH,
        epochs=math.inf,
        nan="stop",
        observer=timeline.note,
    )
    timeline.session = session
    timeline.note("entered", session.last_step)
    for step in session:
        for x, y in step:
            begin = time.monotonic()
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            step.backward(loss)
            time.sleep(max(0.0, begin + pace - time.monotonic()))
        optimizer.step()
        timeline.note("applied", step.number)
        if step.number % 10 == 0 and session.stop_if((folder / "stop").exists()):
            break
        if step.number == last:
            break
    session.finish()
    tell_weights(model, session.last_step)


def prepared(folder: Path, device: str, options: dict[str, str]) -> None:
    import regroup.torch

    pace = float(options.get("pace", 0)) / 1e3
    model, optimizer = made(device, options)
    timeline = Timeline(folder)
    data = torch.utils.data.DataLoader(images(), 16, shuffle=True)
    ddp, optimizer, loader = regroup.torch.prepare(
        model, optimizer, data, epochs=int(options["epochs"]), observer=timeline.note
    )
    timeline.session = loader.session
    timeline.note("entered", loader.session.last_step)
    for _ in loader.epochs():
        for x, y in loader:
            begin = time.monotonic()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(x.to(device)), y.to(device))
            loader.record(loss)
            loss.backward()
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            time.sleep(max(0.0, begin + pace - time.monotonic()))
    tell_weights(model, loader.step)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """As GPT-2 small: 124 million parameters with tied embeddings."""

    def __init__(self, tokens: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.token(x) + self.place.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def gpt(folder: Path, device: str, options: dict[str, str]) -> None:
    """Step times of three loops over the same shards, block by block in turn: the elastic one, a
    plain one with the deterministic kernels that join() asks for, and one with torch's defaults."""
    import regroup.torch

    tiny, shards = options.get("tiny") == "1", int(options["shards"])
    size = (512, 32, 64, 4, 2) if tiny else (50304, 1024, 768, 12, 12)
    per_shard = 2 if tiny else int(options.get("samples", 16))
    cuda, seconds = device == "cuda", float(options["seconds"])
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(size[0], (64, size[1] + 1), generator=generator)

    def sync() -> None:
        if cuda:
            torch.cuda.synchronize()

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = Gpt(*size).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=cuda)

    def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.to(device)
        with torch.autocast(device, torch.bfloat16, enabled=cuda):
            logits = model(x[:, :-1])
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), x[:, 1:].flatten())

    times: dict[str, list[float]] = {"elastic": [], "plain, deterministic": [], "plain": []}
    waits = {"harvest": 0.0, "collect": 0.0, "take_sum": 0.0}
    plain_model, plain_optimizer = make()
    model, optimizer = make()
    session = regroup.torch.join(
        model,
        optimizer,
        torch.utils.data.TensorDataset(tokens),
        batch_size=shards * per_shard,
        epochs=math.inf,
    )
    # Where the elastic loop's time goes. collect(), a part of harvest(), waits for the device too.
    gradient = session._gradient
    for one, name in (
        (gradient, "harvest"),
        (gradient.transfer, "collect"),
        (gradient, "take_sum"),
    ):
        _clock(one, name, waits)

    def plain_step() -> None:
        plain_optimizer.zero_grad()
        for shard in range(shards):
            at = shard * per_shard % (len(tokens) - per_shard + 1)
            (loss_of(plain_model, tokens[at : at + per_shard]) / shards).backward()
        plain_optimizer.step()
        sync()

    end, warm = time.monotonic() + seconds, 3
    for step in session:
        sync()
        begin = time.perf_counter()
        for (x,) in step:
            step.backward(loss_of(model, x))
        optimizer.step()
        sync()
        times["elastic"].append(time.perf_counter() - begin)
        for name, deterministic in (("plain, deterministic", True), ("plain", False)):
            torch.use_deterministic_algorithms(deterministic and cuda)
            begin = time.perf_counter()
            plain_step()
            times[name].append(time.perf_counter() - begin)
        torch.use_deterministic_algorithms(cuda)
        if time.monotonic() > end and step.number > 2 * warm:
            break
    steps = session.last_step
    session.finish()
    result = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "shards": shards,
        "samples per shard": per_shard,
        "context": size[1],
        "steps": steps - warm,
        "seconds": {name: sorted(values[warm:]) for name, values in times.items()},
        "seconds per step in": {name: value / steps for name, value in waits.items()},
        "loss": step.loss,
    }
    (folder / "gpt.json").write_text(json.dumps(result))


def _clock(one: object, name: str, waits: dict[str, float]) -> None:
    """Adds the time of each call of that method to waits[name]."""
    call = getattr(one, name)

    def timed(*args: object, **kwargs: object) -> object:
        begin = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            waits[name] += time.perf_counter() - begin

    setattr(one, name, timed)


def ddp(folder: Path, device: str, options: dict[str, str]) -> None:
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model, _ = made(device, options)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    timeline, part = Timeline(folder), BATCH // size
    x, y = (tensor[rank * part : (rank + 1) * part].to(device) for tensor in images().tensors)
    timeline.note("entered", 0)
    for step in range(1, 10**9):
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        timeline.note("applied", step)


if __name__ == "__main__":
    program, where, kind, *words = sys.argv[1:]
    if kind == "cpu":
        torch.set_num_threads(1)
    {"elastic": elastic, "prepared": prepared, "gpt": gpt, "ddp": ddp}[program](
        Path(where), kind, dict(word.split("=") for word in words)
    )
