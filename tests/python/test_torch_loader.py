"""join() with a DataLoader: its workers fetch the shards of this member in advance, with the
bits of a DataLoader without workers."""

import functools
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import regroup
import regroup.torch
import torch
from regroup._torch_loader import Epochs, Loader, parts_of
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

SAMPLES, BATCH = 21, 8


class Counted(Dataset):
    """Draws from all three generators and counts how often each sample was fetched, in whichever
    process."""

    def __init__(self, samples=SAMPLES):
        self.counts = torch.zeros(samples, dtype=torch.int64).share_memory_()

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        self.counts[index] += 1
        return torch.randn(6) + index + random.random() + float(np.random.rand()), torch.zeros(2)


def join(loader, model=None, epochs=1, **options):
    model = model or nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return regroup.torch.join(model, optimizer, loader, epochs=epochs, **options)


def load(dataset, workers=2, **options):
    return DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, **options)


def wait_for(condition, what):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@functools.cache
def weights(workers, **options):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    session = regroup.torch.join(model, optimizer, load(Counted(), workers, **options), epochs=2)
    for step in session:
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()
            random.random(), torch.rand(3), np.random.rand()
        optimizer.step()
    session.finish()
    assert multiprocessing.active_children() == []
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (1, {}),
        (2, {"prefetch_factor": 1}),
        (2, {"persistent_workers": True, "pin_memory": True}),
        (1, {"multiprocessing_context": "spawn"}),
    ],
)
def test_the_bits_do_not_depend_on_the_workers(workers, options):
    assert weights(workers, **options) == weights(0)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_is_fetched_once_per_epoch(workers):
    dataset = Counted()
    for step in join(load(dataset, workers), epochs=3):
        assert sum(len(x) for x, _ in step) == step.samples
    assert dataset.counts.tolist() == [3] * SAMPLES


def test_workers_fetch_in_advance():
    dataset = Counted()
    for step in join(load(dataset)):
        for _ in step:
            if step.number == 1:
                ahead = "no sample of the second step while the first is computed"
                wait_for(lambda: dataset.counts.sum() > BATCH, ahead)
    assert dataset.counts.tolist() == [1] * SAMPLES


def test_batch_size_and_collate_are_those_of_the_loader():
    for workers in (0, 1):
        session = join(load(Counted(), workers, collate_fn=len), batch_size=BATCH)
        assert [sum(step) for step in session] == [8, 8, 5]


class Opened(Counted):
    """A data set that worker_init_fn prepares, as torch's documentation shows."""

    opened = 0


def open_it(worker):
    info = get_worker_info()
    info.dataset.opened = 10 + info.num_workers


class Reports(Opened):
    def __getitem__(self, index):
        return self.opened


def test_worker_init_fn_sees_the_data_set():
    for step in join(load(Reports(), 2, worker_init_fn=open_it, collate_fn=list)):
        assert {one for batch in step for one in batch} == {12}


class Batched(Counted):
    def __getitems__(self, indices):
        assert len(indices) > 1
        return [("batched", index) for index in indices]


def test_getitems_is_used_as_by_torch():
    for workers in (0, 1):
        loader = load(Subset(Batched(16), range(16)), workers, collate_fn=list)
        fetched = [one for step in join(loader) for batch in step for one in batch]
        assert sorted(fetched) == [("batched", index) for index in range(16)]


class Failing(Counted):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def __getitem__(self, index):
        if index == 17:
            raise self.error
        return super().__getitem__(index)


class Odd(Exception):
    """pickle cannot make it again."""

    def __init__(self, a, b):
        super().__init__(a + b)


def run(session):
    for step in session:
        for _ in step:
            pass


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(SAMPLES))])
def test_an_exception_of_the_data_set_names_step_shard_and_sample(workers, wrap):
    with pytest.raises(KeyError, match="lost") as raised:
        run(join(load(wrap(Failing(KeyError("lost"))), workers)))
    (note,) = raised.value.__notes__
    assert note.startswith("in sample 17 of shard ") and " of step " in note
    assert multiprocessing.active_children() == []
    if workers:  # the worker's own traceback
        assert "in __getitem__" in str(raised.value.__cause__)


def test_an_exception_that_cannot_be_copied_is_told_in_words():
    with pytest.raises(RuntimeError, match="Odd: ab") as raised:
        run(join(load(Failing(Odd("a", "b")))))
    assert "in sample 17 of shard" in raised.value.__notes__[0]


def test_an_exception_of_collate_fn_names_the_samples():
    with pytest.raises(ZeroDivisionError) as raised:
        run(join(load(Counted(), 1, collate_fn=lambda items: 1 // 0)))
    assert raised.value.__notes__[0].startswith("in collate_fn, of the samples ")


class Killed(Counted):
    def __getitem__(self, index):
        if index == 17:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_killed_worker_is_an_error():
    with pytest.raises(RuntimeError, match="DataLoader.*killed by signal.*Killed"):
        run(join(load(Killed())))
    wait_for(lambda: multiprocessing.active_children() == [], "a worker is left")


class Slow(Counted):
    def __getitem__(self, index):
        time.sleep(600)


def test_the_timeout_of_the_loader_holds_and_a_worker_that_hangs_is_ended():
    with pytest.raises(RuntimeError, match="timed out after 1 seconds") as raised:
        run(join(load(Slow(), 1, timeout=1)))
    assert raised.value.__notes__[0] == "while the workers fetched shard 0 of step 1"
    assert multiprocessing.active_children() == []


def test_workers_ignore_signals_that_are_meant_for_the_member():
    dataset = Counted()
    for step in join(load(dataset)):
        for _ in step:
            for one in multiprocessing.active_children():
                os.kill(one.pid, signal.SIGTERM)
                os.kill(one.pid, signal.SIGINT)
    assert dataset.counts.tolist() == [1] * SAMPLES


def test_workers_end_with_the_loop_and_begin_again_with_the_next():
    dataset = Counted()
    session = join(load(dataset), epochs=2)
    for _ in range(2):
        for step in session:
            for _ in step:
                assert len(multiprocessing.active_children()) == 2
            if session.is_last_of_epoch(step.number):
                break
        assert multiprocessing.active_children() == []
    session.finish()


KILLED = """
import os, signal, sys, torch, regroup.torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(1, 1)
loader = DataLoader(TensorDataset(torch.ones(8, 1)), 8, num_workers=2)
session = regroup.torch.join(
    model, torch.optim.SGD(model.parameters(), lr=0.1), loader, epochs=1000)
for step in session:
    for (x,) in step:
        model(x).mean().backward()
    if step.number == 3:
        sys.argv[2] == "kill" and os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("mine")
"""


def processes_of(word):
    """Processes that have `word` as an argument; a forked one has those of its parent."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.parametrize(("how", "status"), [("kill", -signal.SIGKILL), ("raise", 1)])
def test_a_member_that_ends_leaves_no_worker(how, status, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), how], stderr=subprocess.PIPE, timeout=240
    )
    assert done.returncode == status, done.stderr
    wait_for(lambda: processes_of(str(tmp_path)) == [], "a worker outlives its member")


class Plan:
    """A session of one epoch of which this member computes the leaves 0, 2 and 3; then, after a
    regroup, the leaves 0 to 3."""

    world = types.SimpleNamespace(rank=1)
    job_seed = 3
    leaves = (0, 2, 3)

    def planned_shards(self, step):
        return [(leaf, 9, [4 * step + leaf]) for leaf in self.leaves] if step <= 4 else []


def test_a_regroup_begins_the_plan_anew():
    native, dataset = Plan(), Counted(24)
    loader = Loader(native, DataLoader(dataset, 4, num_workers=1, collate_fn=len), Epochs(24, 4), 6)
    begun = []
    begin = loader._begin_plan
    loader._begin_plan = lambda keys: (begun.append(keys[0][:2]), begin(keys))

    def fetch(step, leaf):
        shard = types.SimpleNamespace(leaf=leaf, seed=9, samples=[4 * step + leaf])
        assert loader.batch_of(step, shard, *parts_of(9, 1, 1)) == 1

    for step in (1, 2):
        for leaf in native.leaves:
            fetch(step, leaf)
    assert begun == [(1, 0)]
    native.leaves = (0, 1, 2, 3)
    for step in (3, 4):
        for leaf in native.leaves:
            fetch(step, leaf)
    assert 1 < len(begun) <= 4 and begun[0] == (1, 0)
    loader.close()
    assert (dataset.counts[4:20] >= torch.tensor([1, 0, 1, 1] * 2 + [1] * 8)).all()


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.ones(1)


class Numbered(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return torch.tensor([float(index)] * 6), torch.zeros(2)


def taken(epochs=2, workers=0, batch_size=4, **options):
    """Returns the indices of each step's samples, by step."""
    loader = DataLoader(Numbered(), batch_size, num_workers=workers, **options)
    return [
        [int(number) for x, _ in step for number in x[:, 0]] for step in join(loader, epochs=epochs)
    ]


class Halves(Sampler):
    """The first half of the samples, then the second, each in an order of its own."""

    def __init__(self):
        self.seen = []

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        self.seen.append(torch.initial_seed())
        yield from torch.randperm(10).tolist()
        yield from (torch.randperm(11) + 10).tolist()


def test_a_loader_that_does_not_shuffle_keeps_the_order():
    steps = taken(shuffle=False)
    epoch = [list(range(at, min(at + 4, SAMPLES))) for at in range(0, SAMPLES, 4)]
    assert steps == epoch + epoch
    ordered = DistributedSampler(Numbered(), 2, 0, shuffle=False)
    assert taken(sampler=ordered) == steps


def test_a_short_last_batch_may_be_left_out():
    steps = taken(shuffle=True, drop_last=True, epochs=30)
    assert [len(step) for step in steps] == [4] * 5 * 30
    seen = [sorted(sum(steps[5 * epoch : 5 * epoch + 5], [])) for epoch in range(30)]
    assert all(len(set(epoch)) == 20 for epoch in seen)
    assert set().union(*seen) == set(range(SAMPLES))  # each epoch leaves out another one


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_of_the_scripts_own_gives_the_order(workers):
    steps = taken(sampler=Halves(), workers=workers)
    for epoch in (steps[:6], steps[6:]):
        order = sum(epoch, [])
        assert sorted(order[:10]) == list(range(10))
        assert sorted(order[10:]) == list(range(10, SAMPLES))
        assert order[:10] != list(range(10))
    assert steps[:6] != steps[6:]
    assert taken(sampler=Halves()) == steps  # by another member, with or without workers


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_samplers_of_torch_that_draw_are_the_same_on_every_member(generator):
    weights = [0.0] * 15 + [1.0] * 6

    def drawn():
        sampler = WeightedRandomSampler(weights, 30, generator=generator)
        return taken(sampler=sampler)

    first = drawn()
    assert [len(step) for step in first] == [4, 4, 4, 4, 4, 4, 4, 2] * 2
    assert min(min(step) for step in first) >= 15
    torch.manual_seed(5)
    assert drawn() == first
    some = taken(sampler=RandomSampler(Numbered(), num_samples=5, generator=generator))
    assert [len(step) for step in some] == [4, 1, 4, 1]


def test_a_sampler_that_gives_too_few_is_named():
    class Short(Halves):
        def __iter__(self):
            yield from range(7)

    with pytest.raises(regroup.Refused, match=r"\(a Short\) gave 7 indices in epoch 0, .* 21"):
        taken(sampler=Short())


def test_the_length_of_an_epoch_is_that_of_the_sampler():
    loader = DataLoader(Numbered(), 4, sampler=[5, 1, 5, 3, 2, 0, 9])
    session = join(loader, epochs=2)
    model = nn.Linear(6, 2)
    ends = []
    for step in session:
        for x, y in step:
            step.backward(nn.functional.mse_loss(model(x), y))
        ends.append((step.end_of_epoch, step.samples))
    assert ends == [(False, 4), (True, 3)] * 2
    assert regroup.torch.steps_per_epoch(DataLoader(Numbered(), 1, sampler=range(9))) == 3


class Own(DataLoader):
    def __iter__(self):
        return iter([])


DATA = TensorDataset(torch.ones(SAMPLES, 6))
SEQUENTIAL = SequentialSampler(DATA)


@pytest.mark.parametrize(
    ("loader", "options", "why"),
    [
        (
            DataLoader(DATA, batch_sampler=BatchSampler(SEQUENTIAL, 4, False)),
            {},
            r"the DataLoader has a batch_sampler \(a BatchSampler\); pass batch_size to",
        ),
        (DataLoader(DATA, batch_size=None), {}, "the DataLoader has batch_size=None"),
        (
            DataLoader(DATA, 4, sampler=(n for n in range(9))),
            {},
            r"the DataLoader's sampler \(a generator\) has no len\(\), which is that of an epoch",
        ),
        (DataLoader(DATA, 4, sampler=[]), {}, r"the DataLoader's sampler \(a list\) is empty"),
        (
            DataLoader(DATA, 22, drop_last=True),
            {},
            "drop_last=True leaves no batch of 22 samples: an epoch has 21",
        ),
        (DataLoader(Endless(), 4), {}, r"an Endless has no len\(\); pass samples="),
        (Own(DATA, 4), {}, "expected a torch.utils.data.DataLoader, got an Own with batches of"),
        (
            DataLoader(DATA, 4),
            {"batch_size": 8},
            "batch_size: expected 4, that of the DataLoader, or no batch_size, got 8",
        ),
        (DataLoader(DATA, 4), {"collate": len}, "collate: the DataLoader has a collate_fn"),
        (DATA, {}, "batch_size: expected a whole number >= 1, got None"),
    ],
)
def test_loaders_that_a_job_cannot_take_the_place_of_are_refused(loader, options, why):
    with pytest.raises(regroup.Refused, match=why) as raised:
        join(loader, **options)
    assert raised.value.final


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"shuffle": True}, []),
        ({}, []),
        ({"shuffle": True, "drop_last": True, "batch_size": 7}, []),
        (
            {"sampler": DistributedSampler(DATA, 2, 0)},
            ["the job's sampler replaces the DataLoader's DistributedSampler: a step has 4 "],
        ),
        (
            {"shuffle": True, "num_workers": 1},
            ["num_workers=1 of the DataLoader, but this member may use 1 core: its workers and "],
        ),
    ],
)
def test_what_a_script_may_not_expect_is_told_once(options, lines, capsys, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    session = join(DataLoader(DATA, **{"batch_size": 4, **options}), epochs=2)
    run(session)
    told = capsys.readouterr().err.splitlines()
    told = [line for line in told if "no parameter has a gradient" not in line]
    assert len(told) == len(lines)
    assert all(map(str.startswith, told, [f"regroup: {line}" for line in lines]))


def test_a_loader_is_part_of_the_fingerprint(monkeypatch):
    """Its random numbers are other ones than those of a data set."""
    said = []
    native = regroup._native.Session
    monkeypatch.setattr(
        regroup._native,
        "Session",
        lambda **options: (said.append(options["fingerprint"]), native(**options))[1],
    )
    join(load(Counted(), 0))
    join(Counted(), batch_size=4)
    assert said == [f"{regroup.torch.fingerprint()} data=loader", regroup.torch.fingerprint()]
