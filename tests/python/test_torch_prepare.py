"""Loops of DistributedDataParallel that regroup.torch.prepare() makes elastic, in a world of one
with four shards: their weights are those of the loop over steps; and what is refused."""

import contextlib
import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import pytest
import regroup
import regroup.torch
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH, EPOCHS, SHARDS = 44, 3, 2, 4  # 4 steps in an epoch; the last one has 8 samples


def network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.2), nn.Tanh(), nn.Linear(5, 2)
    )


def loader(batch_size=BATCH, **options):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, 6, generator=generator)
    y = torch.randn(SAMPLES, 2, generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True, **options)


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def bits(*modules):
    return [value.clone() for module in modules for value in module.state_dict().values()]


def assert_same(a, b):
    assert len(a) == len(b)
    assert all(torch.equal(left, right) for left, right in zip(a, b, strict=True))


class Objects:
    """Everything that has state in the two trainings that are compared."""

    def __init__(self, scale=2.0**10):
        self.model = network()
        self.optimizers = [
            torch.optim.SGD(self.model[0].parameters(), lr=0.1, momentum=0.9),
            torch.optim.AdamW(self.model[1:].parameters(), lr=0.01),
        ]
        steps = EPOCHS * regroup.torch.steps_per_epoch(loader())
        self.cycle = OneCycleLR(self.optimizers[0], 0.1, total_steps=steps)
        self.decay = ExponentialLR(self.optimizers[1], 0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def bits(self):
        rates = [one.param_groups[0]["lr"] for one in self.optimizers]
        numbers = torch.tensor([*rates, self.scaler.get_scale()])
        return [*bits(self.model, self.average), numbers]


def train_steps(objects):
    """As a loop over steps."""
    session = regroup.torch.join(
        objects.model,
        objects.optimizers,
        loader(batch_size=BATCH * SHARDS),
        epochs=EPOCHS,
        schedulers=[objects.cycle],
        epoch_schedulers=[objects.decay],
        scaler=objects.scaler,
        ema=objects.average,
    )
    for step in session:
        for x, y in step:
            step.backward(loss_of(objects.model, x, y))
        if objects.scaler.get_scale() < 1e30:  # torch's own spreads an overflow to all parameters
            step.clip_grad_norm_(0.5)
        step.apply()
    session.finish()
    return objects.bits()


def prepare(objects, data=None, **options):
    given = (objects.model, *objects.optimizers, objects.cycle, objects.decay, objects.scaler)
    options.setdefault("epochs", EPOCHS)
    return regroup.torch.prepare(*given, objects.average, data or loader(), **options)


def train_prepared(objects, data=None):
    """As a loop of a script for DistributedDataParallel."""
    ddp, first, second, cycle, decay, scaler, average, batches = prepare(objects, data)
    numbers, computed = [], 0
    for epoch in batches.epochs():
        for x, y in batches:
            computed += 1
            first.zero_grad()
            second.zero_grad()
            scaler.scale(loss_of(ddp, x, y)).backward()
            scaler.unscale_(first)
            scaler.unscale_(second)
            if scaler.get_scale() < 1e30:
                nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
            scaler.step(first)
            scaler.step(second)
            scaler.update()
            cycle.step()
            average.update_parameters(ddp.module)
            if batches.sync_gradients:
                numbers.append((epoch, batches.step))
        decay.step()
    per_epoch = len(batches)
    assert numbers == [((n - 1) // per_epoch, n) for n in range(1, EPOCHS * per_epoch + 1)]
    assert computed == SHARDS * len(numbers)
    return objects.bits()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("scale", [2.0**10, 1e38], ids=["usual", "overflow"])
def test_the_weights_are_those_of_a_loop_over_steps(workers, scale):
    expected = train_steps(Objects(scale=scale))
    untrained = Objects(scale=scale).bits()
    data = loader(num_workers=workers)
    found = train_prepared(Objects(scale=scale), data)
    assert not torch.equal(found[0], untrained[0])
    assert_same(found, expected)


def test_what_is_returned_has_the_order_and_the_attributes_of_what_was_given():
    objects, data = Objects(), loader()
    returned = prepare(objects, data)
    assert isinstance(returned[0], regroup.torch.ElasticDDP)
    assert returned[0].module is objects.model
    assert list(returned[0].state_dict()) == ["module." + n for n in objects.model.state_dict()]
    assert returned[1] is objects.optimizers[0] and returned[3] is objects.cycle
    batches = returned[-1]
    assert len(batches) == regroup.torch.steps_per_epoch(data) == 4
    assert (batches.dataset, batches.batch_size) == (data.dataset, BATCH)
    assert (batches.session.rank, batches.session.size, batches.step) == (0, 1, 0)


def test_gradients_are_accumulated_in_no_sync():
    """Two calls of backward() in an iteration."""
    one, other = network(), network()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    session = regroup.torch.join(one, optimizer, loader(batch_size=BATCH * SHARDS), epochs=1)
    for step in session:
        for x, y in step:
            loss_of(one, x, y).backward()
            loss_of(one, x, y).backward()
        optimizer.step()
    session.finish()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    ddp, optimizer, batches = regroup.torch.prepare(other, optimizer, loader(), epochs=1)
    for _ in batches.epochs():
        for x, y in batches:
            with ddp.no_sync():
                loss_of(ddp, x, y).backward()
            loss_of(ddp, x, y).backward()
            optimizer.step()
    assert_same(bits(other), bits(one))


@pytest.mark.parametrize("workers", [0, 1])
def test_accumulated_gradients_are_those_of_torch(workers):
    """Of a loop that divides the loss by the number of batches."""
    models = [nn.Linear(6, 2), nn.Linear(6, 2)]
    models[1].load_state_dict(models[0].state_dict())
    batch = 4 * SHARDS * 2  # 44 samples: the last shards have 3, the last batches of them one
    data = loader(batch_size=batch, num_workers=workers)
    optimizer = torch.optim.SGD(models[0].parameters(), lr=0.1)
    session = regroup.torch.join(models[0], optimizer, data, epochs=1, accumulate=4)
    sizes = []
    for step in session:
        sizes.append([])
        gradients, recorded = [], 0.0
        for x, y in step:
            sizes[-1].append(len(x))
            if sum(sizes[-1][:-1]) % (step.samples // SHARDS) == 0:  # a shard begins
                models[1].zero_grad()
            loss = loss_of(models[0], x, y)
            step.backward(loss)
            recorded += float(loss.detach()) * len(x) / step.samples
            (loss_of(models[1], x, y) / 4).backward()
            if sum(sizes[-1]) % (step.samples // SHARDS) == 0:
                gradients.append([p.grad.clone() / 4 for p in models[1].parameters()])
        a, b, c, d = gradients
        tree = [(a[i] + b[i]) + (c[i] + d[i]) for i in range(2)]
        if step.number == 1:
            assert_same([p.grad for p in models[0].parameters()], tree)
        assert step.loss == pytest.approx(recorded)
        step.apply()
        models[1].load_state_dict(models[0].state_dict())
    assert sizes == [[2] * 4 * SHARDS, [1] * 3 * SHARDS]
    session.finish()


def small_network():
    """Without BatchNorm, which refuses a batch of one sample."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.2), nn.Tanh(), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("batch", "iterations"),
    [
        # 44 samples: shards of 6 samples, then of 5
        (2, [(2, False)] * 3 * SHARDS + [(1, False), (2, False), (2, False)] * SHARDS),
        # shards of 9 samples, then of 2, to which a stand-in is added
        (3, [(3, False)] * 3 * SHARDS + [(1, False), (1, False), (2, True)] * SHARDS),
    ],
)
def test_a_prepared_loop_accumulates_gradients(batch, iterations):
    """A shard has as many iterations as the script counts, also if it has fewer samples."""
    expected = small_network()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
    data = loader(batch_size=batch * 3 * SHARDS)
    session = regroup.torch.join(expected, optimizer, data, epochs=2, accumulate=3)
    for step in session:
        for x, y in step:
            step.backward(loss_of(expected, x, y))
        step.apply()
    session.finish()
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ddp, optimizer, batches = regroup.torch.prepare(
        model, optimizer, loader(batch_size=batch), epochs=2, accumulate=3
    )
    seen = []
    for _ in batches.epochs():
        for number, (x, y) in enumerate(batches):
            seen.append((len(x), batches.stand_in))
            loss_of(ddp, x, y).backward()
            if (number + 1) % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert seen == 2 * iterations
    assert_same(bits(model), bits(expected))


def test_a_backward_outside_the_loop_is_the_scripts_own():
    ddp, optimizer, batches = regroup.torch.prepare(
        model := network(), torch.optim.SGD(model.parameters(), lr=0.1), loader(), epochs=2
    )
    loss_of(ddp, torch.ones(3, 6), torch.ones(3, 2)).backward()
    seen = []
    for _ in batches.epochs():
        for x, y in batches:
            loss_of(ddp, x, y).backward()
            optimizer.step()
        optimizer.zero_grad()
        loss_of(ddp, torch.ones(3, 6), torch.ones(3, 2)).backward()
        seen.append(all(p.grad is not None for p in model.parameters()))
    assert seen == [True, True]


def test_a_script_stops_early_by_break():
    ddp, optimizer, batches = regroup.torch.prepare(
        model := network(), torch.optim.SGD(model.parameters(), lr=0.1), loader(), epochs=9
    )
    for epoch in batches.epochs():
        for x, y in batches:
            loss_of(ddp, x, y).backward()
            optimizer.step()
        if batches.session.stop_if(epoch == 2):
            break
    batches.session.finish()
    assert (epoch, batches.session.last_step) == (2, 12)


def twice(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()
        loss_of(model, x, y).backward()


def never(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y)


def without_step(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()


def with_closure(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()
        optimizer.step(lambda: None)


def twice_without_sync(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()
        with model.no_sync():
            loss_of(model, x, y).backward()


def too_early(model, optimizer, batches):
    for _ in batches:
        optimizer.step()


def second_pass(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()
        optimizer.step()
    next(iter(batches))


def recorded_late(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()
        batches.record(1.0)


def left(model, optimizer, batches):
    for x, y in batches:
        loss_of(model, x, y).backward()
        break


def again(model, optimizer, batches):
    next(batches.epochs())


WRONG = {
    twice: r"loss.backward\(\) was called twice in one iteration; call all but the last inside "
    r"`with model.no_sync\(\):`",
    never: r"step 1: the loop went on without loss.backward\(\)",
    without_step: r"step 1: optimizer.step\(\) was not called after its last batch",
    with_closure: r"SGD.step\(closure\): the batch of a step is computed once",
    twice_without_sync: r"loss.backward\(\) was called twice in one iteration",
    too_early: r"SGD.step\(\) was called before loss.backward\(\) outside no_sync\(\): ",
    second_pass: r"the batches of this epoch are over: for another pass over the data take a ",
    recorded_late: r"loader.record\(\) was called without a batch; call it before backward\(\)",
    left: r"epoch 0 was left before its end, in step 1: all members end it together",
    again: r"loader.epochs\(\) was called twice",
}


@pytest.mark.parametrize("body", WRONG, ids=lambda body: body.__name__)
def test_a_wrong_loop_is_refused(body):
    ddp, optimizer, batches = regroup.torch.prepare(
        model := network(), torch.optim.SGD(model.parameters(), lr=0.1), loader(), epochs=2
    )
    with pytest.raises(regroup.Refused, match=f"prepare: {WRONG[body]}"):
        for _ in batches.epochs():
            body(ddp, optimizer, batches)


def test_the_loader_alone_is_no_loop():
    *_, batches = regroup.torch.prepare(
        model := network(), torch.optim.SGD(model.parameters(), lr=0.1), loader(), epochs=2
    )
    with pytest.raises(regroup.Refused, match=r"loop over loader.epochs\(\), and over the loader"):
        next(iter(batches))


@pytest.mark.parametrize("put", ["module", "buffer"])
def test_a_change_of_what_prepare_returned_is_refused(put):
    """A function with the name of the model finds the wrapper there, but for a new member."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def regularize():
        if put == "module":
            model.drop = nn.Dropout(0.5)
        else:
            model.register_buffer("drop", torch.ones(1))

    model, optimizer, batches = regroup.torch.prepare(
        model, optimizer, loader(), epochs=1, changes={"regularize": regularize}
    )
    told = (
        r"^session.change\('regularize'\): drop is now in the wrapper that prepare\(\) has returned"
    )
    with pytest.raises(regroup.Refused, match=told):
        for _ in batches.epochs():
            for x, y in batches:
                loss_of(model, x, y).backward()
                optimizer.step()
                if batches.sync_gradients:
                    batches.session.change("regularize")


def test_a_removed_layer_is_not_kept():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    removed = weakref.ref(net[4].weight)

    def replace():
        del optimizer.param_groups[0]["params"][-2:]
        net[4] = nn.Linear(5, 2)
        optimizer.add_param_group({"params": net[4].parameters()})

    ddp, optimizer, batches = regroup.torch.prepare(
        net, optimizer, loader(), epochs=1, changes={"replace": replace}
    )
    for _ in batches.epochs():
        for x, y in batches:
            loss_of(ddp, x, y).backward()
            optimizer.step()
            if batches.sync_gradients and batches.step == 1:
                batches.session.change("replace")
        gc.collect()
        assert removed() is None and net[4].weight.grad is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, o, d: (m, o), "expected a DataLoader, that of the training set, got none"),
        (lambda m, o, d: (m, o, d, d), "expected a DataLoader, that of the training set, got 2"),
        (lambda m, o, d: (o, d), "expected a model, the one that is trained, got none"),
        (lambda m, o, d: (m, d), "expected an optimizer, got none"),
        (lambda m, o, d: (m, o, d, 5), "argument 4: expected a model, .* got an int"),
        (lambda m, o, d: (m, o, d, None), "argument 4: expected a model, .* got None"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    model = network()
    given = change(model, torch.optim.SGD(model.parameters(), lr=0.1), loader())
    with pytest.raises(regroup.Refused, match=f"prepare: {message}"):
        regroup.torch.prepare(*given, epochs=1)


def test_a_scheduler_that_was_not_passed_is_refused():
    optimizer = torch.optim.SGD((model := network()).parameters(), lr=0.1)
    forgotten = ExponentialLR(optimizer, 0.5)
    with pytest.raises(regroup.Refused, match="prepare: an ExponentialLR refers to an optimizer"):
        regroup.torch.prepare(model, optimizer, loader(), epochs=1)
    assert len(regroup.torch.prepare(model, optimizer, forgotten, loader(), epochs=1)) == 4


def test_a_scheduler_is_stepped_at_the_head_of_an_epoch_and_may_be_made_later():
    optimizer = torch.optim.SGD((model := network()).parameters(), lr=0.1)
    ddp, optimizer, batches = regroup.torch.prepare(model, optimizer, loader(), epochs=3)
    later = ExponentialLR(optimizer, 0.5)
    for epoch in batches.epochs():
        if epoch:
            later.step()
        assert not batches.session.stop_if(False)  # between two steps
        for x, y in batches:
            loss = loss_of(ddp, x, y)
            batches.record(loss)
            loss.backward()
            optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
    assert (batches.step, batches.stand_in) == (12, False)
    optimizer.step(lambda: None)  # the training is over


def test_the_loss_is_known_if_it_is_recorded(capsys):
    seen = []

    class Steps:
        def on_step(self, session, step):
            seen.append(step.loss)

    optimizer = torch.optim.SGD((model := network()).parameters(), lr=0.1)
    ddp, optimizer, batches = regroup.torch.prepare(
        model, optimizer, loader(), epochs=1, callbacks=[Steps()], progress=True
    )
    for _ in batches.epochs():
        for x, y in batches:
            batches.record(loss := loss_of(ddp, x, y))
            loss.backward()
            optimizer.step()
    assert len(seen) == 4
    assert all(0 < loss < 9 for loss in seen)
    assert capsys.readouterr().out.startswith("epoch  1  loss ")


def test_copies_of_prepared_objects_are_the_scripts_own():
    objects = Objects()
    objects.average = AveragedModel(objects.model)  # pickle refuses the usual one's function
    _, _, _, cycle, _, scaler, average, batches = prepare(objects)
    for one in (cycle, scaler, average):
        restored = pickle.loads(pickle.dumps(one))
        assert type(restored) is type(copy.deepcopy(one)) is type(one).__mro__[1]
    copied = copy.deepcopy(average)
    next(batches.epochs())
    copied.update_parameters(objects.model)
    assert (copied.n_averaged.item(), average.n_averaged.item()) == (1, 0)
    with pytest.raises(AttributeError):
        copy.copy(batches)._missing  # noqa: B018


def test_what_ends_the_loop_early_gives_the_objects_back():
    optimizer = torch.optim.SGD((model := network()).parameters(), lr=0.1)
    ddp, optimizer, batches = regroup.torch.prepare(model, optimizer, loader(), epochs=2)
    with pytest.raises(KeyError):
        for _ in batches.epochs():
            for x, y in batches:
                loss_of(ddp, x, y).backward()
                raise KeyError
    before = bits(model)
    optimizer.zero_grad()
    loss_of(model, torch.ones(3, 6), torch.ones(3, 2)).backward()
    optimizer.step()
    assert not torch.equal(before[0], bits(model)[0])


def test_a_backward_that_raised_may_be_tried_again():
    optimizer = torch.optim.SGD((model := network()).parameters(), lr=0.1)
    ddp, optimizer, batches = regroup.torch.prepare(model, optimizer, loader(), epochs=1)

    def once(gradient):
        if not failed:
            failed.append(True)
            raise KeyError("once")

    failed = []
    for _ in batches.epochs():
        for x, y in batches:
            for _ in range(2):
                output = model[:4](x)
                output.register_hook(once)
                with contextlib.suppress(KeyError):
                    nn.functional.mse_loss(model[4](output), y).backward()
                    break
                optimizer.zero_grad()
            optimizer.step()
    assert failed and batches.step == 4


def test_a_distributed_data_parallel_model_is_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, regroup.torch\n"
        "torch.distributed.init_process_group('gloo', rank=0, world_size=1, store="
        "torch.distributed.HashStore())\n"
        "m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
        "regroup.torch.prepare(m, torch.optim.SGD(m.parameters(), lr=0.1), epochs=1)\n"
    )
    done = subprocess.run(
        [sys.executable, script], text=True, capture_output=True, timeout=120, env=os.environ
    )
    assert done.returncode == 1
    assert "expected the model itself, got a DistributedDataParallel of it" in done.stderr


@pytest.mark.parametrize(
    ("data", "got"),
    [([1], "a list"), (DataLoader([1], batch_size=None), "a DataLoader without")],
)
def test_steps_per_epoch_needs_a_loader_of_batches(data, got):
    with pytest.raises(regroup.Refused, match=f"expected a DataLoader with batch_size, got {got}"):
        regroup.torch.steps_per_epoch(data)


def test_layers_are_unfrozen_and_frozen_between_two_epochs():
    """In the second one no parameter is trained that was at the begin."""
    model = network()
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ddp, optimizer, batches = regroup.torch.prepare(
        model, optimizer, loader(), epochs=EPOCHS, unfreeze=True
    )
    for epoch in batches.epochs():
        model[0].requires_grad_(epoch == 1)
        model[4].requires_grad_(epoch == 0)
        before = [p.detach().clone() for p in model.parameters()]
        for x, y in batches:
            optimizer.zero_grad()
            loss_of(ddp, x, y).backward()
            optimizer.step()
        same = [torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)]
        assert same == [epoch == 0] * 2 + [True] * 2 + [epoch == 1] * 2
    assert batches.step == 8
