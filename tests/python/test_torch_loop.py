"""What join() takes besides model and data: several optimizers, schedulers, a scaler, averaged
weights, callbacks; and what a session and a step offer for them. In a world of one."""

import json
import math
import re
import subprocess
import sys

import pytest
import regroup
import regroup.torch
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

SAMPLES, BATCH, EPOCHS = 21, 8, 2  # 6 steps


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def samples(n=SAMPLES):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 6, generator=generator)
    return TensorDataset(x, torch.randn(n, 2, generator=generator))


def join(model, optimizer, **options):
    return regroup.torch.join(
        model, optimizer, samples(), batch_size=BATCH, epochs=EPOCHS, **options
    )


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def bits(module):
    return [value.clone() for value in module.state_dict().values()]


def assert_same(a, b):
    assert len(a) == len(b)
    assert all(torch.equal(left, right) for left, right in zip(a, b, strict=True))


def train(model, session):
    for step in session:
        for x, y in step:
            step.backward(loss_of(model, x, y))
        step.apply()
    session.finish()


def test_the_timeline_has_the_data_and_spans_of_the_script(tmp_path, monkeypatch):
    monkeypatch.setenv("REGROUP_TIMELINE", str(tmp_path / "t.json"))
    model = network()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in session:
        for x, y in step:
            with session.span("forward"):
                loss = loss_of(model, x, y)
            step.backward(loss)
        with session.span("left open"):
            step.apply()
            session.collective(lambda communicator: None)  # ends the spans of the step
    session.finish()
    events = json.loads((tmp_path / "t.json").read_text()[:-2] + "]")
    names, depth = [], 0
    for event in events:
        depth += {"B": 1, "E": -1}.get(event["ph"], 0)
        assert depth >= 0
        if event["ph"] == "B":
            names.append((depth, event["name"]))
    assert depth == 0
    shards = [(2, "shard 0"), (3, "data"), (3, "forward")]
    first = names.index((1, "step 1"))
    assert names[0] == (1, "join")
    assert names[first + 1 : first + 4] == shards
    assert names[-1] == (1, "finish")
    assert names.count((3, "left open")) == 6


def trained_by_hand(model, optimizers, schedulers=(), epoch_schedulers=(), ema=None):
    """The same training with all calls in the script."""
    session = join(model, optimizers, extra=[*schedulers, *epoch_schedulers])
    losses = []
    for step in session:
        for x, y in step:
            loss = loss_of(model, x, y)
            loss.backward()
            step.record(loss)
        losses.append(step.loss * step.samples)
        for optimizer in optimizers:
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        if session.is_last_of_epoch(step.number):
            for scheduler in epoch_schedulers:
                if isinstance(scheduler, ReduceLROnPlateau):
                    scheduler.step(sum(losses) / SAMPLES)
                else:
                    scheduler.step()
            losses.clear()
        if ema is not None:
            ema.update_parameters(model)
    session.finish()
    return bits(model)


def two_optimizers(model):
    return [
        torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW(model[2].parameters(), lr=0.01),
    ]


def test_apply_does_what_the_calls_by_hand_do():
    def parts(model):
        optimizers = two_optimizers(model)
        schedulers = [ExponentialLR(optimizers[0], 0.9)]
        plateau = ReduceLROnPlateau(optimizers[1], "min", 0.1, 0, 10.0)
        return optimizers, schedulers, [plateau, ExponentialLR(optimizers[0], 0.5)]

    one, other = network(), network()
    ema = AveragedModel(one, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    optimizers, schedulers, epoch_schedulers = parts(one)
    by_hand = trained_by_hand(one, optimizers, schedulers, epoch_schedulers, ema)
    average = AveragedModel(other, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    optimizers, schedulers, epoch_schedulers = parts(other)
    session = join(
        other,
        optimizers,
        schedulers=schedulers,
        epoch_schedulers=epoch_schedulers,
        ema=average,
    )
    train(other, session)
    assert_same(bits(other), by_hand)
    assert_same(bits(average), bits(ema))
    assert average.n_averaged == 6
    assert optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.9**6 * 0.5**2)
    assert optimizers[1].param_groups[0]["lr"] == pytest.approx(0.0001)


def test_a_scaler_scales_unscales_and_skips():
    """A power of two changes no bit. Where the sum overflows, the step changes nothing and the
    scale is halved."""
    plain, scaled = network(), network()
    by_hand = trained_by_hand(plain, [torch.optim.Adam(plain.parameters())])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    train(scaled, join(scaled, torch.optim.Adam(scaled.parameters()), scaler=scaler))
    assert_same(bits(scaled), by_hand)
    overflowing = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    model = network()
    before = bits(model)
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1), scaler=overflowing)
    for step in session:
        for x, y in step:
            step.backward(1e10 * loss_of(model, x, y))
        step.apply()
        if step.number == 1:
            assert_same(bits(model), before)
            assert overflowing.get_scale() == 2.0**119


def test_clipping_is_of_the_unscaled_gradient_of_the_whole_batch():
    def norms(**options):
        model = network()
        found = []
        for step in join(model, torch.optim.SGD(model.parameters(), lr=0.1), **options):
            for x, y in step:
                step.backward(loss_of(model, x, y))
            found.append(step.clip_grad_norm_(0.01))
            now = torch.linalg.vector_norm(
                torch.cat([p.grad.flatten() for p in model.parameters()])
            )
            assert now == pytest.approx(0.01, rel=1e-3)
            step.apply()
        return torch.stack(found)

    assert torch.equal(norms(), norms(scaler=torch.amp.GradScaler("cpu", init_scale=256.0)))


@pytest.mark.parametrize("call", ["apply", "clip_grad_norm_"])
def test_a_call_within_the_inner_loop_is_refused(call):
    model = network()
    for step in join(model, torch.optim.SGD(model.parameters(), lr=0.1)):
        for x, y in step:
            step.backward(loss_of(model, x, y))
            with pytest.raises(regroup.Refused, match=rf"step\.{call}\(\): .*after the inner loop"):
                getattr(step, call)(*([1.0] if call == "clip_grad_norm_" else []))
        step.apply()
        with pytest.raises(regroup.Refused, match=f"apply.*twice in step {step.number}"):
            step.apply()
        break


@pytest.mark.parametrize("name", ["schedulers", "epoch_schedulers"])
def test_a_plateau_without_a_loss_is_refused(name):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in join(model, optimizer, **{name: [ReduceLROnPlateau(optimizer)]}):
        for x, y in step:
            loss_of(model, x, y).backward()
        if name == "schedulers" or step.end_of_epoch:
            with pytest.raises(regroup.Refused, match="ReduceLROnPlateau needs the loss"):
                step.apply()
            break
        step.apply()


def test_an_overflow_in_one_optimizer_leaves_the_other_alone():
    """Clipping does not spread it. The gradients of both stay unscaled."""
    model = network()
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.1),
        torch.optim.SGD(model[2].parameters(), lr=0.1),
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = bits(model)
    for step in join(model, optimizers, scaler=scaler):
        for x, y in step:
            step.backward(loss_of(model, x, y))
        model[0].weight.grad[0, 0] = math.inf
        assert step.clip_grad_norm_(1.0) == math.inf
        step.apply()
        assert_same(bits(model[0]), before[:2])
        assert all(torch.isfinite(value).all() for value in bits(model[2]))
        assert not torch.equal(model[2].weight, before[2])
        assert scaler.get_scale() == 2.0
        break


def test_gradients_without_an_optimizer_do_not_count_in_the_norm():
    model = network()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    for step in join(model, optimizer, scaler=scaler):
        for x, y in step:
            step.backward(loss_of(model, x, y))
        norm = step.clip_grad_norm_(1e9)
        own = torch.cat([p.grad.flatten() for p in model[2].parameters()])
        assert norm == pytest.approx(torch.linalg.vector_norm(own).item())
        break


def test_a_script_may_unscale_and_clip_by_hand():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in join(model, optimizer, scaler=scaler):
        for x, y in step:
            step.backward(loss_of(model, x, y))
        if step.number == 1:
            step.unscale_()
        else:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        step.apply()
        with pytest.raises(regroup.Refused, match=r"step\.backward\(\): .*in the inner loop"):
            step.backward(loss_of(model, torch.zeros(1, 6), torch.zeros(1, 2)))


def refused(match, optimizer=None, **options):
    model = network()
    made = optimizer(model) if optimizer else torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(regroup.Refused, match=match):
        join(model, made, **options)


def test_what_cannot_train_a_step_is_refused_by_name():
    refused("LBFGS computes the loss several", lambda m: torch.optim.LBFGS(m.parameters()))
    refused("SparseAdam takes sparse", lambda m: torch.optim.SparseAdam(list(m.parameters())))
    refused(r"optimizer\[1\]: expected a torch.optim.Optimizer, got an int",
            lambda m: [torch.optim.SGD(m.parameters(), lr=1.0), 3])  # fmt: skip
    refused("expected an optimizer or a list of them, got none", lambda m: [])
    refused(r"optimizer\[1\]: .* got one twice",
            lambda m: [torch.optim.SGD(m.parameters(), lr=1.0)] * 2)  # fmt: skip
    refused("each parameter in one optimizer, got one in two",
            lambda m: [torch.optim.SGD(m.parameters(), lr=1.0) for _ in range(2)])  # fmt: skip
    foreign = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    refused(r"parameter group 0 of optimizer\[1\] has 2 parameters that are not the model's \(was ",
            lambda m: [torch.optim.SGD(m.parameters(), lr=1.0), foreign])  # fmt: skip
    refused("schedulers: expected a list such as", schedulers=ExponentialLR(foreign, 0.1))
    refused(r"schedulers\[0\]: expected step\(\)", schedulers=[nn.Linear(1, 1)])
    both = [ExponentialLR(foreign, 0.1)]
    refused("ExponentialLR: expected in schedulers or", schedulers=both, epoch_schedulers=both)
    refused(r"scaler: expected scale\(\)", scaler=1)
    refused(r"ema: expected update_parameters\(\)", ema=nn.Linear(1, 1))


class Calls:
    def __init__(self):
        self.seen = []

    def on_step(self, session, step):
        assert session.last_step == step.number
        self.seen.append(("step", step.number))

    def on_epoch(self, session, step):
        self.seen.append(("epoch", step.epoch))


def test_callbacks_are_called_after_the_body():
    calls, model = Calls(), network()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1), callbacks=[calls])
    for step in session:
        for x, y in step:
            step.backward(loss_of(model, x, y))
        calls.seen.append(("body", step.number))
        step.apply()
        assert step.end_of_epoch == (step.number in (3, 6))
    body = [[("body", number), ("step", number)] for number in range(1, 7)]
    body[2].append(("epoch", 0))
    body[5].append(("epoch", 1))
    assert calls.seen == [one for part in body for one in part]


class Misspelt:
    def on_epoch_end(self, session, step):
        pass


def test_callbacks_that_would_never_be_called_are_refused():
    refused(r"callbacks\[0\]: expected one or more of on_step.*got on_epoch_end\(\)",
            callbacks=[Misspelt()])  # fmt: skip
    refused(r"callbacks\[0\]: .*got an object without", callbacks=[object()])
    refused(r"callbacks\[0\]: expected an object, got the class Calls", callbacks=[Calls])
    refused("callbacks: expected a list of objects, got a Calls", callbacks=Calls())


def test_evaluate_is_the_exact_mean_over_the_samples():
    model = network()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = samples(37)
    metric = nn.MSELoss(reduction="none")
    found = session.evaluate(model, data, metric, batch_size=10)
    with torch.no_grad():
        rows = torch.cat(
            [metric(model(x), y) for x, y in
             (data[begin : min(begin + 10, 37)] for begin in range(0, 37, 10))]
        )  # fmt: skip
    exact = [math.fsum(column) / 37 for column in rows.double().T.tolist()]
    assert found.tolist() == exact
    single = session.evaluate(model, data, lambda out, y: metric(out, y)[:, 0], batch_size=10)
    assert single == exact[0] and isinstance(single, float)
    assert torch.equal(session.evaluate(model, DataLoader(data, batch_size=10), metric), found)


def test_evaluate_leaves_modes_and_random_numbers_alone():
    model = nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.5))
    model[1].eval()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    state = torch.random.get_rng_state()
    modes = []

    def metric(out, y):
        modes.append(model.training)
        torch.rand(1)
        return (out - y).abs()[:, 0]

    session.evaluate(model, samples(), metric)
    assert modes == [False] * 3
    assert model.training and model[0].training and not model[1].training
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda out, y: (out - y).mean(), r"got \[\]: a loss takes reduction='none'"),
        (lambda out, y: (out - y).mean(0), r"expected a tensor \[8\] or \[8, k\].*got \[2\]"),
        (lambda out, y: 0.5, "got a float"),
        (lambda out, y: torch.zeros(len(y), len(y)), "as many values for each sample"),
        (None, "metric: expected a function, got None"),
    ],
)
def test_a_metric_without_a_row_for_each_sample_is_refused(metric, message):
    model = network()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(regroup.Refused, match=message):
        session.evaluate(model, samples(), metric)


def test_data_that_cannot_be_evaluated_is_refused():
    model = network()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    metric = nn.MSELoss(reduction="none")
    for data, message in (
        (iter([]), "expected len"),
        (TensorDataset(torch.zeros(0, 6)), "at least one sample"),
        (TensorDataset(torch.zeros(3, 6)), r"expected \(input, target\), got a list"),
        (DataLoader(samples(), batch_size=None), "got batch_size=None"),
        (
            DataLoader(samples(), 8, sampler=SubsetRandomSampler([1, 2])),
            "got a SubsetRandomSampler; pass the samples",
        ),
    ):
        with pytest.raises(regroup.Refused, match=message):
            session.evaluate(model, data, metric)


def test_stop_if_is_a_bool():
    model = network()
    session = join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert session.stop_if(True) is True
    assert session.stop_if(0) is False


CHECKPOINTED = """
import regroup.torch, torch

class Told:
    def on_checkpoint(self, session, number):
        print("copied", number, flush=True)

model = torch.nn.Linear(4, 1)
data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session = regroup.torch.join(model, optimizer, data, batch_size=8, epochs=7, callbacks=[Told()])
for step in session:
    for x, y in step:
        step.backward((model(x) - y).square().mean())
    step.apply()
session.finish()
"""


def test_a_callback_hears_of_the_member_s_part_of_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    kept = tmp_path / "checkpoints"
    job = ["regroup", "--checkpoint", kept, "--checkpoint-interval", "3", "-np", "1:1"]
    done = subprocess.run(
        [*job, sys.executable, "-c", CHECKPOINTED], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    copied = [int(number) for number in re.findall(r"^copied (\d+)$", done.stdout, re.M)]
    assert copied[:1] == [3] and set(copied) <= {3, 6, 7}, done.stdout


def test_substeps_step_their_own_optimizers():
    model = network()
    first, second = two_optimizers(model)
    decay = ExponentialLR(second, 0.5)
    session = join(model, [first, second], substeps={"a": first, "b": [second]}, schedulers=[decay])
    seen = []
    for step in session:
        before = bits(model[0]), bits(model[2]), second.param_groups[0]["lr"]
        batches = []
        for x, y in step:
            batches.append(x)
            step.backward(loss_of(model, x, y))
        step.apply()
        seen.append((step.substep, step.epoch, step.first_of_epoch, step.end_of_epoch))
        moved = [not torch.equal(a, b) for a, b in zip(before[0], bits(model[0]), strict=True)]
        others = [not torch.equal(a, b) for a, b in zip(before[1], bits(model[2]), strict=True)]
        rate = second.param_groups[0]["lr"]
        if step.substep == "a":
            assert all(moved) and not any(others) and rate == before[2]
            of_a = batches
        else:
            assert all(others) and not any(moved) and rate == before[2] / 2
            assert_same(batches, of_a)
    session.finish()
    epoch = [(n, 0, (n, i) == ("a", 0), (n, i) == ("b", 2)) for i in range(3) for n in "ab"]
    assert seen == [*epoch, *((n, 1, first, end) for n, _, first, end in epoch)]


@pytest.mark.parametrize(
    ("substeps", "message"),
    [
        (lambda a, b: ["a"], "expected names with optimizers, such as .* got a list"),
        (lambda a, b: {1: a, 2: b}, "expected names with optimizers, such as .* got a dict"),
        (lambda a, b: {"a": a}, "expected each optimizer of join.. in one substep, and no other"),
        (lambda a, b: {"a": [a, b], "b": a}, "expected each optimizer of join.. in one substep"),
    ],
)
def test_wrong_substeps_are_refused(substeps, message):
    model = network()
    optimizers = two_optimizers(model)
    with pytest.raises(regroup.Refused, match=f"join: substeps: {message}"):
        join(model, optimizers, substeps=substeps(*optimizers))
