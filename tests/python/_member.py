"""A member for test_torch_elastic.py: training with everything that has state, and faults at exact
moments.

usage: _member.py FOLDER [FAULT...]
FAULT: kill=MEMBER,STEP | leave=MEMBER,STEP | grow=STEP,MEMBERS | width=MEMBER,FEATURES
fall=MEMBER,STEP kills within the evaluation after that step, which loop=1 has.
samples=MEMBER,SAMPLES | threads=MEMBER,THREADS: what one member has otherwise than the others.
group=1 makes a process group of torch.distributed after join(); sum=1 reduces each loss over it.
loader=WORKERS[,1] passes a DataLoader, with so many workers, instead of the data set; with 1, its
sampler draws some samples more often than others.
stream=1 passes an IterableDataset, in a DataLoader if there is one; stream=2 one in batches of 25
that can be read in parts, and writes what is read of it into FOLDER/asked-MEMBER; stream=3 one
whose parts have a state.
prepare=WORKERS,BATCH trains in a loop of DistributedDataParallel that prepare() makes elastic.
accumulate=K: K batches for each shard.
gan=1 trains two networks, each in a step of its own on every batch; optimizers=1 takes one of each
class of torch.optim, and writes FOLDER/log.
nan=INDEX gives a loss that is NaN for that sample: such steps are skipped; with stop=1 the first
one ends the training.
device=1 takes the memory of the CPU for that of a device (_fake_device.py).
loop=1 takes two optimizers, a scaler, for which the gradient of step 7 overflows, averaged weights,
evaluation and callbacks.
layers=1 trains a model with a weight in two layers, and unfreezes and freezes parameters; layers=2
compiles that model.
changes=1 adds a layer after step 6 (with prepare: 7) and replaces one after step 13 (15);
kill=MEMBER,6 (7) is within the first change; differ=MEMBER adds another layer than the others;
wider=MEMBER reserves one element more.
Writes FOLDER/asked-MEMBER, a line per sample fetched (step, index), and prints the digest of the
weights.
learner=STEP: rank 0 asks for a second member then and goes on, slowly until that has joined.
epochs=N, of prepare only.
rails=1: steps of two members are slow enough for votes in which NCCL connects them; after eight of
them a member waits for that.
"""

import hashlib
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import _fake_device
import regroup.optim
import regroup.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

folder = pathlib.Path(sys.argv[1])
faults = {
    name: tuple(map(int, text.split(","))) for name, text in (a.split("=") for a in sys.argv[2:])
}
member = int(os.environ.get("REGROUP_MEMBER", "0"))
now = {"step": 0, "fetched": 0, "shared": 0}  # of this process; a worker does not see the step
trainer = os.getpid()
asked = open(folder / f"asked-{member}", "w", buffering=1)  # noqa: SIM115


def differing(name, usual):
    """What this member has as `name`."""
    one, value = faults.get(name, (member, usual))
    return value if one == member else usual


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return differing("samples", 61)

    def __getitem__(self, index):
        print(now["step"], index, file=asked)
        now["fetched"] += 1
        if now["fetched"] >= 3 and os.getpid() == trainer:
            die()  # within a shard, after a finished one
        x = torch.full((4,), index / 61) + 0.1 * torch.randn(4) + 0.01 * random.random()
        return x, x.sum().sin() + (math.nan if index == faults.get("nan", (-1,))[0] else 0.0)


class Stream(torch.utils.data.IterableDataset):
    """Draws its order, through a buffer, and what its samples are."""

    def __init__(self):
        self.epoch = 0

    def __len__(self):
        return 61

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order, buffer = iter(range(61)), []
        for index in order:
            buffer.append(index)
            if len(buffer) == 7:
                yield self.sample(buffer.pop(random.randrange(7)))
        while buffer:
            yield self.sample(buffer.pop())

    def sample(self, index):
        x = torch.full((4,), index / 61) + 0.1 * torch.randn(4) + 0.1 * self.epoch
        return x, x.sum().sin()


class Dealt(torch.utils.data.IterableDataset):
    """Can be read in parts: sample i is in part i % parts."""

    def __init__(self, parts=1, index=0):
        self.parts, self.index = parts, index

    def __len__(self):
        return 61

    def shard(self, num_shards, index):
        return Dealt(num_shards, index)

    def __iter__(self):
        for number in range(self.index, 61, self.parts):
            print(now["step"], number, file=asked)
            x = torch.full((4,), number / 61) + 0.1 * torch.randn(4) + 0.01 * random.random()
            yield x, x.sum().sin()


class Resumed(Dealt):
    def __init__(self, parts=1, index=0):
        super().__init__(parts, index)
        self.part, self.done = index, 0

    def shard(self, num_shards, index):
        return Resumed(num_shards, index)

    def state_dict(self):
        return {"done": self.done, "of": {"part": [self.part, 'a "part"']}}

    def load_state_dict(self, state):
        assert state["of"]["part"][0] == self.part
        self.done = state["done"]
        self.index = self.part + self.done * self.parts

    def __iter__(self):
        for one in super().__iter__():
            self.done += 1
            yield one


def streamed():
    return {1: Stream, 2: Dealt, 3: Resumed}[faults["stream"][0]]()


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
    while status()["generation"] == now["session"].generation:
        assert time.monotonic() < end, "no new member in 120 s"
        time.sleep(0.02)


if "group" not in faults and faults.get("layers") != (2,):  # which ask the compiler
    import _no_compiler  # noqa: F401
if "device" in faults:
    _fake_device.install()
torch.manual_seed(1)
if threads := differing("threads", 0):
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
hidden = differing("width", 8)
norm = nn.LayerNorm if "accumulate" in faults else nn.BatchNorm1d  # that one refuses one sample
model = nn.Sequential(nn.Linear(4, hidden), norm(hidden), nn.Dropout(0.2), nn.Linear(hidden, 1))


class Events:
    """Prints what callbacks are told, but for steps."""

    def on_epoch(self, session, step):
        print(f"member {member}: epoch {step.epoch} over", flush=True)

    def on_regroup(self, session, world):
        print(f"member {member}: world of {world.size}", flush=True)

    def on_leave(self, session):
        print(f"member {member}: leaves after step {session.last_step}", flush=True)


def join_plain():
    if "loader" in faults:
        workers, *weighted = faults["loader"]
        if "stream" in faults:
            data = DataLoader(streamed(), 24, num_workers=workers)
        else:
            sampler = WeightedRandomSampler(range(61), 61) if weighted else None
            data = DataLoader(Samples(), 24, sampler is None, sampler, num_workers=workers)
        batch_size = None
    else:
        data, batch_size = streamed() if "stream" in faults else Samples(), 24
        if isinstance(data, Dealt):
            batch_size = 25
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9, 20])
    session = regroup.torch.join(
        model,
        optimizer,
        data,
        batch_size=batch_size,
        epochs=10,
        parts=isinstance(data, Dealt),
        part_state=64 if isinstance(data, Resumed) else 0,
        accumulate=faults.get("accumulate", (1,))[0],
        extra=[scheduler],
        nan="stop" if "stop" in faults else "skip" if "nan" in faults else "ignore",
        progress=True,
    )
    return session, optimizer, scheduler


def join_loop():
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.05, momentum=0.9),
        torch.optim.AdamW(model[1:].parameters(), lr=0.01),
    ]
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizers[0], 0.1, total_steps=30)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizers[1], "min", 0.1, 1)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=8)
    session = regroup.torch.join(
        model,
        optimizers,
        Samples(),
        batch_size=24,
        epochs=10,
        schedulers=[scheduler],
        epoch_schedulers=[plateau],
        scaler=scaler,
        ema=average,
        callbacks=[Events()],
        progress=True,
    )
    return session, average, scheduler, scaler


def train_prepared():
    """Returns the session and what else has state."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    workers, batch = faults["prepare"]
    if "stream" in faults:
        data = DataLoader(Stream(), batch, num_workers=workers)
    else:
        data = DataLoader(Samples(), batch, shuffle=True, num_workers=workers)
    (epochs,) = faults.get("epochs", (10,))
    (accumulate,) = faults.get("accumulate", (1,))
    total = epochs * regroup.torch.steps_per_epoch(data, accumulate)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=total)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", 0.5, 0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=7)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    ddp, optimizer, cycle, plateau, scaler, average, loader = regroup.torch.prepare(
        *(model, optimizer, cycle, plateau, scaler, average, data),
        epochs=epochs,
        accumulate=accumulate,
        callbacks=[Events()],
    )
    now["session"] = loader.session
    stand_ins = 0
    for epoch in loader.epochs():
        for number, (x, y) in enumerate(loader):
            now["step"] = loader.step
            stand_ins += loader.stand_in
            die()
            loss = nn.functional.mse_loss(ddp(x)[:, 0], y)
            scaler.scale(loss).backward()
            if (number + 1) % accumulate != 0:
                continue
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            cycle.step()
            average.update_parameters(model)
            optimizer.zero_grad()
            if loader.sync_gradients:
                after(loader.session, loader.step)
        model.eval()
        with torch.no_grad():
            held = torch.stack([x for x, _ in map(Held().__getitem__, range(10))])
            plateau.step(model(held).mean().item())
        model.train()
        assert not loader.session.stop_if(False)
        print(f"member {member}: epoch {epoch} over", flush=True)
    print(f"member {member}: {stand_ins} stand-ins", flush=True)
    return loader.session, [model, average, cycle]


def train_gan():
    """Returns the session and what has state."""
    generator = nn.Linear(3, 4)
    both = nn.ModuleDict({"d": model, "g": generator})
    optimizers = {
        "d": torch.optim.AdamW(model.parameters(), lr=0.01),
        "g": torch.optim.SGD(generator.parameters(), lr=0.05, momentum=0.9),
    }
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizers["g"], 0.95)
    average = torch.optim.swa_utils.AveragedModel(both)
    session = regroup.torch.join(
        both,
        list(optimizers.values()),
        Samples(),
        batch_size=24,
        epochs=10,
        substeps=optimizers,
        schedulers=[decay],
        ema=average,
        progress=True,
    )
    now["session"] = session
    for step in session:
        now.update(step=step.number, fetched=0)
        assert step.substep == "dg"[(step.number - 1) % 2]
        for x, _ in step:
            fake = generator(torch.randn(len(x), 3))
            if step.substep == "d":
                real = nn.functional.softplus(-model(x)).mean()
                step.backward(real + nn.functional.softplus(model(fake.detach())).mean())
            else:
                step.backward(nn.functional.softplus(-model(fake)).mean())
        step.clip_grad_norm_(0.5)
        step.apply()
        after(session, step.number)
    session.finish()
    return session, [both, average, decay]


def train_with_each_optimizer():
    kinds = [
        one
        for one in vars(torch.optim).values()
        if isinstance(one, type) and issubclass(one, torch.optim.Optimizer)
    ]
    others = (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
    kinds = [one for one in kinds if one not in others]
    assert len(kinds) >= 13, kinds
    layers = nn.ModuleList([nn.Linear(4, 3, bias=False) for _ in kinds])
    optimizers = [kind(layer.parameters()) for kind, layer in zip(kinds, layers, strict=True)]
    session = regroup.torch.join(
        layers, optimizers, Samples(), batch_size=24, epochs=10, log=folder / "log"
    )
    now["session"] = session
    for step in session:
        now.update(step=step.number, fetched=0)
        for x, y in step:
            step.backward(sum(((one(x).sum(1) - y) ** 2).mean() for one in layers))
        step.apply()
        session.log(norm=layers[0].weight.norm())
        after(session, step.number)
    session.finish()
    return session, [layers, *optimizers]


def train_layers():
    """What a job at some step has frozen, and the optimizer's parameter groups, a new member learns
    from its state: the script has passed the steps that changed them."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    layers[2].weight = layers[0].weight
    for late in (layers[0].bias, *layers[4].parameters()):
        late.requires_grad_(False)
    optimizer = torch.optim.AdamW(layers[:4].parameters(), lr=0.01, weight_decay=0.1)
    session = regroup.torch.join(
        layers, optimizer, Samples(), batch_size=24, epochs=10, unfreeze=True
    )
    now["session"] = session
    compiled = torch.compile(layers, backend="aot_eager") if faults["layers"] == (2,) else layers
    for step in session:
        now.update(step=step.number, fetched=0)
        if step.number == 6:
            layers[4].requires_grad_(True)
            optimizer.add_param_group({"params": layers[4].parameters(), "lr": 0.02})
        if step.number == 10:
            layers[0].bias.requires_grad_(True)
        for x, y in step:
            step.backward(nn.functional.mse_loss(compiled(x)[:, 0], y))
        assert (layers[4].weight.grad is None) == (step.number < 6)
        step.apply()
        if step.number == 13:
            layers[2].bias.requires_grad_(False)
        after(session, step.number)
    session.finish()
    assert [p.requires_grad for p in layers.parameters()] == [True, True, False, True, True]
    assert [len(group["params"]) for group in optimizer.param_groups] == [3, 2]
    assert optimizer.param_groups[1]["lr"] == 0.02
    return session, [layers, optimizer]


def loop_changed(layers, optimizer, changes, reserve):
    session = regroup.torch.join(
        layers,
        optimizer,
        Samples(),
        batch_size=24,
        epochs=10,
        changes=changes,
        reserve=reserve,
    )
    now["session"] = session
    for step in session:
        now.update(step=step.number, fetched=0)
        for x, y in step:
            step.backward(nn.functional.mse_loss(layers(x)[:, 0], y))
        step.apply()
        if step.number == 6:
            now["fetched"] = 0
            session.change("deepen", width=5 if faults.get("differ") != (member,) else 7)
        if step.number == 13:
            session.change("replace_last")
        after(session, step.number)
    session.finish()
    return session


def loop_prepared(layers, optimizer, changes, reserve):
    """One change is after the last shard of a step, the other between two epochs."""
    _, batch = faults["prepare"]
    ddp, optimizer, loader = regroup.torch.prepare(
        layers,
        optimizer,
        DataLoader(Samples(), batch, shuffle=True),
        epochs=10,
        changes=changes,
        reserve=reserve,
    )
    session = now["session"] = loader.session
    for epoch in loader.epochs():
        for x, y in loader:
            now["step"] = loader.step
            nn.functional.mse_loss(ddp(x)[:, 0], y).backward()
            optimizer.step()
            if not loader.sync_gradients:
                continue
            if loader.step == 7:
                session.change("deepen", width=5)
            after(session, loader.step)
        if epoch == 4:
            session.change("replace_last")
    return session


def train_changed():
    """A network that grows: what the layers of a step are, a new member learns from the state."""
    layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = regroup.optim.AdamW(layers.parameters(), lr=0.01)

    def deepen(width):
        grown = [nn.Linear(8, width), nn.BatchNorm1d(width), nn.Dropout(0.2), nn.Linear(width, 8)]
        die()
        for layer in grown:
            layers.insert(len(layers) - 1, layer)
        added = [p for layer in grown for p in layer.parameters()]
        optimizer.add_param_group({"params": added, "lr": 0.02})

    def replace_last():
        group = optimizer.param_groups[0]["params"]
        del group[-2:]  # its state goes, too
        layers[-1] = nn.Linear(8, 1, bias=False)
        group.extend(layers[-1].parameters())

    changes = {"deepen": deepen, "replace_last": replace_last}
    reserve = faults.get("reserve", (600,))[0] + (faults.get("wider") == (member,))
    if "prepare" in faults:
        session = loop_prepared(layers, optimizer, changes, reserve)
    else:
        session = loop_changed(layers, optimizer, changes, reserve)
    assert [len(group["params"]) for group in optimizer.param_groups] == [5, 6]
    assert set(optimizer.state) == set(layers.parameters())
    return session, [layers, optimizer]


def await_rails():
    """Votes of the first steps begin a communicator, which writes a line with its process."""
    now["shared"] += 1
    file = pathlib.Path(os.environ["REGROUP_FAKE_NCCL"].removeprefix("folder=")) / "groups"
    until = time.monotonic() + (120 if now["shared"] == 8 else 0.3)
    while f" {trainer}\n" not in (file.read_text() if file.exists() else ""):
        if time.monotonic() > until:
            assert now["shared"] != 8, "NCCL has not connected in 120 s"
            break
        time.sleep(0.02)
    time.sleep(0.03)


def after(session, step):
    """What happens after a step."""
    if "rails" in faults and session.size > 1:
        await_rails()
    if session.rank == 0 and step == faults.get("grow", (0,))[0]:
        grow(faults["grow"][1])
    if "learner" in faults and step >= faults["learner"][0]:  # one joins meanwhile
        if step == faults["learner"][0] and session.rank == 0:
            subprocess.Popen(["regroup", "resize", "2"], stdout=subprocess.DEVNULL)
        if session.size == 1:
            time.sleep(0.3)
    if faults.get("leave") == (member, step):
        group = "loader" in faults or "prepare" in faults  # with the workers
        os.killpg(0, signal.SIGTERM) if group else os.kill(trainer, signal.SIGTERM)


def absolute_error(output, target):
    return (output[:, 0] - target).abs()


class Held(Samples):
    """For evaluation: a member is killed in it only where `fall` says so."""

    def __getitem__(self, index):
        if faults.get("fall") == (member, now["step"]):
            os.kill(trainer, signal.SIGKILL)
        return torch.full((4,), index / 61), torch.tensor(index / 61)


def tell_weights(session, values):
    digest = hashlib.sha256(b"".join(v.numpy().tobytes() for v in values)).hexdigest()
    print(
        f"weights sha256 {digest} size {session.size} generation {session.generation}", flush=True
    )


def tensors_of(one):
    if isinstance(one, torch.optim.Optimizer):
        states = sorted(one.state_dict()["state"].items())  # of any order
        named = (pair for _, state in states for pair in sorted(state.items()))
        return [value for _, value in named if isinstance(value, torch.Tensor)]
    if isinstance(one, nn.Module):
        return list(one.state_dict().values())
    return [torch.tensor(one.get_last_lr())]


for name, train in (
    ("changes", train_changed),
    ("prepare", train_prepared),
    ("gan", train_gan),
    ("optimizers", train_with_each_optimizer),
    ("layers", train_layers),
):
    if name in faults:
        session, objects = train()
        tell_weights(session, [tensor for one in objects for tensor in tensors_of(one)])
        sys.exit()
loop = "loop" in faults
session, other, scheduler, *scaler = join_loop() if loop else join_plain()
if "group" in faults:
    torch.distributed.init_process_group("gloo")
now["session"] = session
errors = []
for step in session:
    now.update(step=step.number, fetched=0)
    for x, y in step:
        if "loader" in faults or "stream" in faults:
            die()
        output = model(x)[:, 0]
        if loop and step.number == 7:
            output.register_hook(lambda gradient: gradient * math.inf)
        loss = nn.functional.mse_loss(output, y)
        if "sum" in faults:
            torch.distributed.all_reduce(loss.detach())
        if loop:
            step.backward(loss)
        else:
            loss.backward()
            step.record(loss)
    if loop:
        step.clip_grad_norm_(1.0)
        step.apply()
        if step.end_of_epoch:
            errors.append(session.evaluate(model, Held(), absolute_error, batch_size=10))
            if session.stop_if(session.rank == 0 and step.epoch == 8):
                break
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        other.step()
        scheduler.step()
    after(session, step.number)
if "group" in faults:  # between steps it may be used
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    assert ones.item() == torch.distributed.get_world_size() == 2
total = torch.tensor([float(step.number)])
session.collective(lambda communicator: communicator.allreduce(total))
assert total.item() == step.number * session.size
session.finish()
values = [*model.state_dict().values(), torch.tensor(scheduler.get_last_lr())]
if loop:
    (scale,) = (one.get_scale() for one in scaler)
    assert scale == 2.0 ** (10 - 1 + (27 - 7) // 8)  # halved once, then doubled
    values += [*other.state_dict().values(), torch.tensor(errors[-1])]
tell_weights(session, values)
