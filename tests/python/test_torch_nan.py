"""Steps with a loss or gradient that is not finite, in a world of one with four shards."""

import math

import pytest
import regroup
import regroup.torch
import torch
from regroup import _torch_nan
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, SHARDS = 3, 4  # samples in a shard, shards in a step; three steps


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def samples():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(36, 6, generator=generator)
    return TensorDataset(x, torch.randn(36, 2, generator=generator))


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


class Loop:
    """A loop over steps, whose loss is multiplied with `bad` in shards 1 and 3 of step 2."""

    def __init__(self, record=True, scaler=None, bad=math.nan):
        self.record, self.scaler, self.bad = record, scaler, bad
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.losses = []
        self.after = {0: self.bits()}

    def bits(self):
        state = [one["momentum_buffer"] for one in self.optimizer.state.values()]
        values = [value.clone() for value in [*self.model.state_dict().values(), *state]]
        assert all(torch.isfinite(value).all() for value in values)
        return values

    def run(self, **options):
        session = regroup.torch.join(
            self.model,
            self.optimizer,
            samples(),
            batch_size=BATCH * SHARDS,
            epochs=1,
            extra=[self.scaler] if self.scaler else [],
            **options,
        )
        for step in session:
            for number, (x, y) in enumerate(step):
                loss = loss_of(self.model, x, y)
                loss = loss * self.bad if step.number == 2 and number in (1, 3) else loss
                (self.scaler.scale(loss) if self.scaler else loss).backward()
                if self.record:
                    step.record(loss)
            self.losses.append(step.loss)
            self.apply()
            if "nan" in options:
                self.after[step.number] = self.bits()
        session.finish()

    def apply(self):
        if self.scaler is None:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        else:
            self.scaler.unscale_(self.optimizer)
            self.scaler.step(self.optimizer)
            self.scaler.update()


def changed(before, after):
    return [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("record", "scaled"),
    [(True, False), (False, False), (True, True)],
    ids=["loss", "gradient", "scaled loss"],
)
def test_a_skipped_step_changes_nothing(record, scaled, bad, capsys):
    """Not even the statistics of BatchNorm. A scaler sees to gradients by itself."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if scaled else None
    loop = Loop(record, scaler, bad)
    loop.run(nan="skip")
    assert not any(changed(loop.after[1], loop.after[2]))
    # the bias before BatchNorm has hardly a gradient
    assert sum(changed(loop.after[2], loop.after[3])) >= len(loop.after[2]) - 2
    what = f"loss is {bad}" if record else "gradient is not finite"
    line = f"regroup: step 2: the {what} in shards 1, 3; the step is skipped\n"
    assert capsys.readouterr().err == line
    if record:
        assert [math.isfinite(loss) for loss in loop.losses] == [True, False, True]


@pytest.mark.parametrize("record", [True, False], ids=["loss", "gradient"])
def test_the_training_stops_before_the_step_changes_anything(record):
    loop = Loop(record)
    what = "loss is nan" if record else "gradient is not finite"
    with pytest.raises(regroup.Error, match=f"step 2: the {what} in shards 1, 3; the train") as got:
        loop.run(nan="stop")
    assert got.value.final  # no use in trying again
    assert not any(changed(loop.after[1], loop.bits()))


def test_a_loss_that_is_ignored_is_told_once(capsys):
    loop = Loop()
    with pytest.raises(AssertionError):  # the weights are NaN
        loop.run() or loop.bits()
    line = (
        'regroup: step 2: the loss is nan in shards 1, 3; nan="skip" of join() leaves such a step '
        'out, nan="stop" ends the training\n'
    )
    assert capsys.readouterr().err == line


def test_a_prepared_loop_skips_too(capsys):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(samples(), BATCH, shuffle=True)
    ddp, optimizer, loader = regroup.torch.prepare(model, optimizer, loader, epochs=1, nan="skip")
    computed = 0
    for _ in loader.epochs():
        for x, y in loader:
            loss = loss_of(ddp, x, y)
            (loss * math.nan if computed == 6 else loss).backward()
            computed += 1
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            assert all(torch.isfinite(p).all() for p in model.parameters())
    said = capsys.readouterr().err
    assert "step 2: the gradient is not finite in shard 2; the step is skipped" in said
    assert optimizer.state[model[0].weight]["step"] == 2


def test_another_word_is_refused():
    with pytest.raises(regroup.Refused, match="join: nan: expected ignore, skip or stop, got 'no'"):
        Loop().run(nan="no")


@pytest.mark.parametrize(
    ("leaves", "where"),
    [
        ([16000], "in shard 16000"),
        ([3, 5, 70], "in shards 3, 5, 70"),
        ([3, 35], "in 2 shards"),  # of one slot
        (range(9), "in 9 shards"),
    ],
)
def test_marked_shards_are_named_where_their_sum_tells_them_apart(leaves, where):
    total = torch.zeros(_torch_nan.ELEMENTS)
    for leaf in leaves:
        section = torch.zeros(_torch_nan.ELEMENTS)
        _torch_nan.mark(section, leaf, "skip")
        total += section
    found = _torch_nan.read(total.tolist())
    assert (found.skip, found.stop) == (True, False)
    assert found.describe(math.nan) == f"the loss is nan {where}"
    assert _torch_nan.read([0.0] * _torch_nan.ELEMENTS) is None
