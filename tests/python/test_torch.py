"""regroup.torch in a world of one: what a step is to model, optimizer and user code."""

import math
import os
import random
import re
import warnings

import numpy as np
import pytest
import regroup
import regroup.torch
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset


def linear(dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Linear(6, 2).to(dtype)


def samples(n=21, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 6, generator=generator, dtype=dtype)
    return TensorDataset(x, torch.randn(n, 2, generator=generator, dtype=dtype))


def join(model, optimizer=None, dataset=None, batch_size=8, epochs=1, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = dataset or samples()
    return regroup.torch.join(
        model, optimizer, dataset, batch_size=batch_size, epochs=epochs, **options
    )


class Recorded(Dataset):
    """A data set that remembers what was asked of it."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.asked = []

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        self.asked.append(index)
        return self.dataset[index]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_p_grad_is_that_of_the_whole_batch_and_loss_its_mean(dtype):
    model, dataset = linear(dtype), Recorded(samples(dtype=dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = []
    for step in join(model, optimizer, dataset):
        dataset.asked = []
        for x, y in step:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            step.record(loss)
        sizes.append(step.samples)
        assert len(set(dataset.asked)) == step.samples
        x, y = dataset.dataset[dataset.asked]
        whole = nn.functional.mse_loss(model(x), y)
        expected = list(torch.autograd.grad(whole, list(model.parameters())))
        found = [p.grad for p in model.parameters()]
        if dtype == torch.bfloat16:  # eight bits, and the shards' gradients are rounded to them
            torch.testing.assert_close(found, expected, rtol=0.05, atol=0.005)
        else:
            torch.testing.assert_close(found, expected)
        assert step.loss == pytest.approx(
            whole.item(), rel=0.02 if dtype == torch.bfloat16 else 1e-5
        )
        optimizer.step()
    assert sizes == [8, 8, 5]


def test_each_sample_is_fetched_once_per_epoch():
    # the last batch has one sample: three of its four shards are empty
    dataset = Recorded(samples(n=9))
    for step in join(linear(), dataset=dataset, epochs=2):
        assert all(len(x) > 0 for x, _ in step)
    assert sorted(dataset.asked[:9]) == sorted(dataset.asked[9:]) == list(range(9))


class Partial(nn.Module):
    """A parameter that is used only for certain samples, one that is never used, and a frozen
    one."""

    def __init__(self):
        super().__init__()
        self.main = nn.Linear(6, 2)
        self.sometimes = nn.Parameter(torch.ones(2))
        self.never = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.use = True

    def forward(self, x):
        y = self.main(x) * self.frozen
        return y * self.sometimes if self.use else y


def test_a_parameter_has_a_gradient_if_any_shard_gave_it_one():
    model = Partial()
    first, second = join(model, dataset=samples(n=16)), None
    shards = 0
    for step in first:
        for x, _ in step:
            model.use = step.number == 1 and shards == 2
            shards += 1
            model(x).mean().backward()
        grads = {name: p.grad for name, p in model.named_parameters()}
        assert grads["never"] is None
        assert grads["frozen"] is None
        assert (grads["sometimes"] is not None) == (step.number == 1)
        second = grads["main.weight"]
    assert second is not None


class Empty(nn.Module):
    """Its last parameter has no elements, as one that only tells the device."""

    def __init__(self):
        super().__init__()
        self.main = nn.Linear(6, 2)
        self.norm = nn.BatchNorm1d(2)
        self.device = nn.Parameter(torch.empty(0))

    def forward(self, x):
        return self.norm(self.main(x)) + self.device.sum()


def test_a_parameter_without_elements_is_like_any_other():
    model = Empty()
    for step in join(model, dataset=samples(n=16)):
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()
        assert model.device.grad is not None and model.device.grad.shape == (0,)
        assert model.norm.running_mean.abs().max() > 0


def test_a_parameter_that_changed_its_shape_is_refused_by_name():
    model = linear()
    with pytest.raises(regroup.Refused, match=r"^bias has a gradient of \(1,\), but was \(2,\) "):
        for step in join(model):
            model.bias.data = model.bias.data[:1]
            for x, _ in step:
                model(x).mean().backward()


def test_a_gradient_in_another_order_of_memory_is_taken_as_it_is():
    """Channels last, transposed, and one that torch negates when it is read."""
    model = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    data = TensorDataset(torch.randn(4, 2, 5, 5), torch.zeros(4))
    for step in join(model, dataset=data, batch_size=4):
        for _ in step:
            weight = torch.arange(54.0).view(3, 2, 3, 3).to(memory_format=torch.channels_last)
            model.weight.grad = weight
            model.bias.grad = torch._neg_view(torch.tensor([1.0, 2.0, 3.0]))
        assert torch.equal(model.weight.grad, torch.arange(54.0).view(3, 2, 3, 3))
        assert torch.equal(model.bias.grad, torch.tensor([-1.0, -2.0, -3.0]))


def test_unfreezing_after_join_is_refused_unless_it_was_announced():
    model = Partial()
    with pytest.raises(regroup.Refused, match="frozen requires a gradient now.*unfreeze=True"):
        for step in join(model):
            model.frozen.requires_grad_(True)
            for x, _ in step:
                model(x).mean().backward()
    with pytest.raises(regroup.Refused, match="unfreeze: expected True or False, got an int"):
        join(model, unfreeze=1)


def test_parameters_are_frozen_and_unfrozen_between_two_steps():
    """A frozen one has no gradient, as in a loop without regroup, also where shards are empty."""
    model = Partial()
    seen = []
    for step in join(model, dataset=samples(n=18), unfreeze=True):
        model.frozen.requires_grad_(step.number >= 2)
        model.main.bias.requires_grad_(step.number != 2)
        for x, _ in step:
            model(x).mean().backward()
        grads = {name: p.grad is not None for name, p in model.named_parameters()}
        seen.append((step.samples, grads["frozen"], grads["main.bias"], grads["main.weight"]))
    assert seen == [(8, False, True, True), (8, True, False, True), (2, True, True, True)]


def test_freezing_in_some_shards_only_is_refused():
    model = linear()
    with pytest.raises(regroup.Refused, match="^bias requires a gradient in some shards of the"):
        for step in join(model):
            for number, (x, _) in enumerate(step):
                model.bias.requires_grad_(number < 3)
                model(x).mean().backward()


def grow_a_head(model):
    model.head = nn.Linear(2, 2)


def put_another_bias(model):
    model.bias = nn.Parameter(torch.ones(2))


def delete_the_bias(model):
    del model.bias
    model.register_parameter("bias", None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (grow_a_head, "has got head.weight, head.bias"),
        (put_another_bias, "has another bias"),
        (delete_the_bias, "has lost bias"),
    ],
)
@pytest.mark.parametrize("when", ["before the shards", "after the step"])
def test_another_set_of_parameters_is_refused_by_name(change, what, when):
    model = linear()
    told = rf"^step 2: the model {what} since join\(\): .* join\(unfreeze=True\)$"
    with pytest.raises(regroup.Refused, match=told):
        for step in join(model):
            assert step.number <= 2
            if step.number == 2 and when == "before the shards":
                change(model)
            for x, _ in step:
                model(x).mean().backward()
            if step.number == 2:
                change(model)


def test_changes_that_cannot_be_made_are_refused():
    """Each in the third step of a training that made one in the first."""
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(attempt, reserve=80):
        def add(outputs=2, dtype=torch.float32):
            model.head = nn.Linear(2, outputs, dtype=dtype)

        def add_frozen(name):
            model.add_module(name, nn.Linear(2, 2).requires_grad_(False))

        def replace_bias():
            model.bias = nn.Parameter(torch.ones(2))

        changes = {"add": add, "replace_bias": replace_bias}
        changes["add_wide"] = lambda: add(dtype=torch.float64)
        changes["add_frozen"] = add_frozen
        changes["add_complex"] = lambda: add(dtype=torch.complex64)
        changes["freeze"] = lambda: model.requires_grad_(False)
        changes["add_lazy"] = lambda: setattr(model, "late", nn.LazyLinear(2))
        session = join(model, optimizer, changes=changes, reserve=reserve)
        for step in session:
            if step.number == 3 and attempt == "early":
                session.change("add")
            for x, _ in step:
                model(x).mean().backward()
                if step.number == 3 and attempt == "between":
                    session.change("add")
            if step.number == 3 and callable(attempt):
                attempt(session)
            session.change("add") if step.number == 1 else None
            optimizer.step()
        session.change("add")

    def evaluate(session):
        session.stop_if(False)
        session.change("add")

    def unfreeze(session):
        session.change("add_frozen", name="late")
        model.late.weight.requires_grad_(True)
        session.change("add")

    def go_on(session):
        with pytest.raises(regroup.Refused, match="replace_bias"):
            session.change("replace_bias")

    def evaluate_half(session):
        go_on(session)
        session.stop_if(False)

    def change_half(session):
        go_on(session)
        session.change("add")

    half = r"^session.change: the change 'replace_bias' failed in step 3: the model is half changed"
    where = r"^session.change: call it in the body of the loop, after the inner loop$"
    for attempt, told in (
        ("early", where),
        ("between", where),
        ("after", where),
        (evaluate, r"^session.change: called after evaluate\(\), stop_if\(\) or collective\(\) in"),
        (
            lambda session: session.change("other"),
            r"no 'other', it has add, replace_bias, add_wide, add_frozen, add_complex, freeze, ",
        ),
        (lambda session: session.change("add", outputs=[1]), "outputs: expected a number, .* list"),
        (lambda session: session.change("add_wide"), "head.weight is float64; expected tensors li"),
        (
            lambda session: session.change("add_complex"),
            "^session.change: head.weight is .*complex",
        ),
        (
            lambda session: session.change("freeze"),
            "^session.change: no parameter .* a gradient af",
        ),
        (lambda session: session.change("add_lazy"), r"add_lazy'\): late.weight .* has no shape"),
        (
            lambda session: session.change("replace_bias"),
            r"^session.change\('replace_bias'\): parameter group 0 has 1 parameter that is not",
        ),
        (go_on, half),
        (evaluate_half, half),
        (change_half, half),
        (unfreeze, "^late.weight requires .*, but did not when the last change was made: unfreeze"),
    ):
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(regroup.Refused, match=told):
            train(attempt)


def test_a_parameter_that_the_script_unfreezes_before_a_change_is_refused():
    """Its place in a leaf would be one that a process that loads the state does not give it."""
    model = Partial()
    session = join(model, changes={"add": lambda: grow_a_head(model)}, reserve=80)
    told = "^frozen requires a gradient now, but did not when join.. was called: unfreeze it in"
    with pytest.raises(regroup.Refused, match=told):
        for step in session:
            for x, _ in step:
                model(x).mean().backward()
            model.frozen.requires_grad_(True)
            session.change("add")


def test_a_change_without_room_tells_how_much_to_reserve():
    def train(reserve):
        model = linear()

        def add():
            model.head = nn.BatchNorm1d(2)

        session = join(
            model, None, samples(n=48), batch_size=24, changes={"add": add}, reserve=reserve
        )
        for step in session:
            for x, _ in step:
                (model.head(model(x)) if step.number > 1 else model(x)).mean().backward()
            if step.number == 1:
                session.change("add")
        return model

    with pytest.raises(regroup.Refused) as refused:
        train(0)
    found = re.search(
        r"take (\d+) elements more .* 0 were reserved: pass reserve=\1 or more to join",
        str(refused),
    )
    assert train(int(found[1])).head.num_batches_tracked > 0
    with pytest.raises(regroup.Refused, match=f"where {int(found[1]) - 1} were reserved"):
        train(int(found[1]) - 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"changes": [len]}, r"^join: changes: expected such as \{.*\}, got a list$"),
        ({"changes": {}}, r"^join: changes: expected such as \{.*\}, got none$"),
        ({"changes": {"a": 1}}, "^join: changes: expected names with functions, got an int$"),
        ({"changes": {1: len}}, "^join: changes: expected names with functions, got an int$"),
        ({"reserve": 5}, "^join: reserve: only changes of the model take it; pass changes$"),
        ({"changes": {"a": len}, "reserve": -1}, "^join: reserve: expected a whole number >= 0"),
    ],
)
def test_wrong_changes_are_refused_at_join(options, told):
    with pytest.raises(regroup.Refused, match=told):
        join(linear(), **options)


def test_p_grad_is_private():
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = join(model, optimizer)
    for step in session:
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()
        committed = np.array(session._native.commit())
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
        assert sum(p.grad.norm() for p in model.parameters()) < 1e-4
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        np.testing.assert_array_equal(np.asarray(session._native.commit()), committed)
        assert np.abs(committed).max() > 1e-3


def test_a_grad_scaler_gives_the_same_weights():
    def train(scaler):
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in join(model, optimizer, extra=[scaler]):
            for x, y in step:
                scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
        return model.weight

    plain = train(torch.amp.GradScaler("cpu", enabled=False))
    # a power of two: exact
    assert torch.equal(plain, train(torch.amp.GradScaler("cpu", init_scale=1024.0)))


def test_batch_norm_statistics_are_the_weighted_mean_of_the_shards():
    torch.manual_seed(1)
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2))
    norm = model[0]
    means, weights = [], []
    for step in join(model, dataset=samples(n=26), batch_size=16):
        means, weights, before = [], [], norm.running_mean.clone()
        for x, _ in step:
            # each shard starts from the committed ones
            assert torch.equal(norm.running_mean, before)
            model(x).mean().backward()
            means.append(0.9 * before + 0.1 * x.mean(0))
            weights.append(len(x) / step.samples)
        expected = sum(w * m for w, m in zip(weights, means, strict=True))
        torch.testing.assert_close(norm.running_mean, expected)
        assert norm.num_batches_tracked.item() == step.number
    assert len(set(weights)) == 2  # ten samples in four shards


class Odd(nn.Module):
    """Buffers that are not statistics: infinite, boolean, left out of state_dict, replaced in
    forward()."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]), persistent=False)
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("last", torch.zeros(()))

    def forward(self, x):
        self.last = self.last + 1.0
        return self.linear(x) + 0 * self.last


def test_odd_buffers_survive():
    model = Odd()
    last = model.last
    for step in join(model):
        for x, _ in step:
            model(x).mean().backward()
        assert model.last is last
        assert last.item() == pytest.approx(step.number)
    assert model.mask.tolist() == [0.0, -torch.inf]
    assert model.flags.tolist() == [True, False]


class Noisy(Dataset):
    """Augments with all three generators."""

    def __len__(self):
        return 21

    def __getitem__(self, index):
        return torch.randn(6) + random.random() + float(np.random.rand()), torch.zeros(2)


def train_noisily(disturb):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    after = []
    for step in join(model, optimizer, Noisy(), epochs=2):
        disturb()
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()
            disturb()
        after.append((torch.rand(1).item(), random.random(), np.random.rand()))
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), after


def test_random_numbers_depend_on_the_shard_alone():
    def disturb():
        torch.rand(5)
        random.random()
        np.random.rand(7)

    weights, after = train_noisily(lambda: None)
    disturbed, after_disturbed = train_noisily(disturb)
    assert torch.equal(weights, disturbed)
    assert after == after_disturbed  # what follows the shards is the same on every member
    assert len(set(after)) == len(after)


def test_the_job_seed_decides_the_order_and_the_random_numbers(monkeypatch):
    weights, _ = train_noisily(lambda: None)
    monkeypatch.setenv("REGROUP_SEED", "8")
    other, _ = train_noisily(lambda: None)
    assert not torch.equal(weights, other)


def test_a_batch_may_be_collated_by_the_caller():
    for step in join(linear(), collate=lambda items: [len(items)]):
        assert sum(count for (count,) in step) == step.samples


def test_without_a_record_there_is_no_loss_and_a_step_is_over_once():
    model = linear()
    norm_steps = 0
    for step in join(model):
        for x, _ in step:
            model(x).mean().backward()
        grad = model.weight.grad.clone()
        assert list(step) == []
        assert torch.equal(model.weight.grad, grad)
        assert step.loss is None
        norm_steps += 1
    assert norm_steps == 3


def test_progress_is_a_line_per_epoch(capsys):
    losses = []
    for step in join(linear(), epochs=2, progress=True):
        for _ in step:
            step.record(float(step.number))
        losses.append(step.loss)
    assert losses == [1, 2, 3, 4, 5, 6]
    assert capsys.readouterr().out.splitlines() == [
        f"epoch  1  loss {(8 + 16 + 15) / 21:.4f}  members 1  generation 1",
        f"epoch  2  loss {(32 + 40 + 30) / 21:.4f}  members 1  generation 1",
    ]


LEFT = r"step 2: the inner loop was left at shard 1, by break or .* session.stop_if\(...\) after"


@pytest.mark.parametrize("then", ["next step", "optimizer", "stop_if", "finish"])
def test_an_inner_loop_that_is_left_by_break_is_told(then):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = join(model, optimizer)
    with pytest.raises(regroup.Refused, match=LEFT):
        for step in session:
            for number, (x, y) in enumerate(step):
                if step.number == 2 and number == 1:
                    break
                nn.functional.mse_loss(model(x), y).backward()
            if then == "optimizer":
                optimizer.step()
            elif then == "stop_if":
                session.stop_if(True)
            elif then == "finish" and step.number == 2:
                break
        session.finish()


def test_a_collective_section_between_shards_is_refused():
    session = join(linear())
    for step in session:
        with pytest.raises(regroup.Refused, match=r"step 1: session.collective\(\) was called"):
            for _ in step:
                session.stop_if(True)
        break


@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_of_the_optimizer_between_shards_is_refused(scaled):
    model, scaler = linear(), torch.amp.GradScaler("cpu", enabled=scaled)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    message = r"step 1: optimizer.step\(\) was called between shards; it belongs after the inner"
    with pytest.raises(regroup.Refused, match=message):
        for step in join(model, optimizer):
            for x, y in step:
                scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
                scaler.step(optimizer)
    assert torch.equal(model.weight, before)
    train_all(model, join(model, optimizer))  # another session may use the optimizer again
    optimizer.step()


def test_parameters_without_a_gradient_are_told_once(capsys):
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))})
    model["head"] = nn.Linear(6, 2)
    model.register_parameter("scale", nn.Parameter(torch.ones(1)))
    for step in join(model):
        for x, y in step:
            nn.functional.mse_loss(model["head"](x), y).backward()
    line = (
        "regroup: step 1: no gradient for 5 of 7 parameters in any shard (scale, encoder.*): are "
        "they used in the loss?\n"
    )
    assert capsys.readouterr().err == line


def test_a_second_loop_over_all_steps_is_told_once(capsys):
    """As `for epoch in range(3): for step in session`, whose scheduler would step once."""
    session = join(linear(), epochs=3)
    for _ in range(3):
        for step in session:
            for x, y in step:
                nn.functional.mse_loss(session._state.model(x), y).backward()
    said = capsys.readouterr().err
    assert step.number == 9 and said.count("the session has made all its steps") == 1, said
    assert "step.epoch tells which it is, session.is_last_of_epoch(step.number)" in said
    session = regroup.Session(regroup.TrackedState(), elements=1, samples=4, batch=4, epochs=1)
    for _ in range(2):
        for step in session:
            for shard in step:
                shard.gradient[:] = 0
    assert "step.epoch tells which it is\n" in capsys.readouterr().err


def test_epochs_whose_loops_end_by_break_are_no_second_loop(capsys):
    session = join(linear(), epochs=2)
    for epoch in range(2):
        for step in session:
            for x, y in step:
                nn.functional.mse_loss(session._state.model(x), y).backward()
            if session.is_last_of_epoch(step.number):
                break
        assert step.epoch == epoch
    assert capsys.readouterr().err == ""


class Held:
    """An object of the script's that has a scheduler."""

    def __init__(self, *schedulers):
        self.schedulers = schedulers

    def state_dict(self):
        return {str(i): one.state_dict() for i, one in enumerate(self.schedulers)}

    def load_state_dict(self, state):
        for i, one in enumerate(self.schedulers):
            one.load_state_dict(state[str(i)])


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (lambda schedule: [], True),
        (lambda schedule: [Held()], True),
        (lambda schedule: [schedule], False),
        (lambda schedule: [Held(schedule)], False),
        (lambda schedule: [torch.optim.lr_scheduler.ChainedScheduler([schedule])], False),
    ],
)
def test_a_scheduler_that_is_not_in_extra_is_told(extra, told, capsys):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # dropped at once
    train_all(model, join(model, optimizer))
    assert capsys.readouterr().err == ""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    session = join(model, optimizer, extra=extra(schedule))
    train_all(model, session)
    line = "regroup: a StepLR refers to the optimizer and was not passed to join() as schedulers="
    assert capsys.readouterr().err.count(line) == told


def train_all(model, session):
    for step in session:
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()


def test_a_step_without_any_gradient_is_told_once(capsys):
    model = linear()
    for step in join(model):
        for x, y in step:
            loss = nn.functional.mse_loss(model(x), y)
            if step.number == 1:
                loss.backward()
    line = (
        "regroup: step 2: no parameter has a gradient in any shard; was loss.backward() called?\n"
    )
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("late", [False, True])
def test_what_changes_after_a_collective_section_is_told_once(late, capsys):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    session = join(model, optimizer, epochs=2, extra=[schedule])
    for step in session:
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if not late:
            schedule.step()
        session.collective(lambda communicator: communicator.size)
        if late:
            schedule.step()
    session.finish()
    told = "regroup: step 1: optimizer.param_groups[0]['lr'] and "
    assert [line.startswith(told) for line in capsys.readouterr().err.splitlines()] == [True] * late


def test_last_step_is_the_last_that_is_applied():
    model = linear()
    session = join(model, epochs=math.inf)
    assert session.last_step == 0
    for step in session:
        assert session.last_step == step.number - 1
        for x, y in step:
            nn.functional.mse_loss(model(x), y).backward()
        assert session.last_step == step.number
        if step.number == 7:  # behind two epochs
            break
    session.finish()
    assert session.last_step == 7


def test_a_collective_section_takes_tensors():
    session = join(linear())
    tensor = torch.arange(3.0)
    assert session.collective(lambda c: (c.allreduce(tensor), c.size)[1]) == 1
    assert tensor.tolist() == [0, 1, 2]
    assert (session.rank, session.size, session.generation) == (0, 1, 1)
    session.finish()


def test_a_model_without_values_is_refused():
    with pytest.raises(
        regroup.Refused, match=r"weight is on meta, without values: call model\.to_"
    ):
        join(nn.Linear(2, 2, device="meta"))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("model", "optimizer", "message"),
    [
        (
            linear(),
            torch.optim.SGD(linear().parameters()),
            "parameter group 0 has 2 parameters that are not the model's ",
        ),
        (linear().requires_grad_(False), None, "no parameter of the model requires a gradient"),
        (Complex(), None, "weight is torch.complex64"),
    ],
)
def test_what_cannot_be_trained_is_refused(model, optimizer, message):
    with pytest.raises(regroup.Refused, match=message):
        join(model, optimizer)


def test_a_state_that_outgrows_its_place_names_the_option():
    model = nn.Linear(1000, 10)
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(8, 1000))
    with pytest.raises(
        regroup.Error, match=r"outgrew the 50000 reserved at join: pass state_bytes=\d+"
    ):
        for step in join(model, optimizer, data, epochs=3, state_bytes=50_000):
            for (x,) in step:
                model(x).mean().backward()
            optimizer.step()
            assert step.number == 1


def test_the_fingerprint_names_what_the_bits_depend_on():
    fingerprint = regroup.torch.fingerprint()
    assert regroup.default_fingerprint() in fingerprint
    assert f"torch={torch.__version__}" in fingerprint
    assert f"torch-threads={torch.get_num_threads()}" in fingerprint
    assert torch.backends.cpu.get_cpu_capability() in fingerprint
    assert f" libc={os.confstr('CS_GNU_LIBC_VERSION').split()[1]} " in fingerprint
    assert re.search(r" build=[0-9a-f]{8} ", fingerprint)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (torch.use_deterministic_algorithms, "deterministic=True"),
        (lambda on: setattr(torch.backends.cudnn, "deterministic", on), "cudnn-deterministic=True"),
        (lambda on: setattr(torch.backends.cudnn, "benchmark", on), "cudnn-benchmark=True"),
        (
            lambda on: torch.set_float32_matmul_precision("medium" if on else "highest"),
            "matmul=medium",
        ),
    ],
)
def test_the_fingerprint_names_the_deterministic_flags(change, told):
    before = regroup.torch.fingerprint()
    try:
        change(True)
        assert told in regroup.torch.fingerprint().split()
    finally:
        change(False)
    assert regroup.torch.fingerprint() == before


def test_no_warning_is_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = linear()
        for step in join(model):
            for x, _ in step:
                model(x).mean().backward()
