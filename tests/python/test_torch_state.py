"""State hand-over: what one member saves, another loads, and both go on with the same bits."""

import io
import math
from types import SimpleNamespace

import pytest
import regroup
import torch
from regroup._torch_changes import Changes, check_marks, marks_of
from regroup._torch_gradient import Gradient
from regroup._torch_state import TrainingState
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel


def make(optimizer_of, scheduler_of, seed, dtype=torch.float32):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to(dtype)
    optimizer = optimizer_of(model.parameters())
    extra = [scheduler_of(optimizer)] if scheduler_of else []
    return TrainingState(model, [optimizer], extra, None)


def advance(state, steps, seed=9):
    generator = torch.Generator().manual_seed(seed)
    dtype = next(state.model.parameters()).dtype
    for _ in range(steps):
        state.optimizers[0].zero_grad()
        state.model(torch.randn(5, 4, generator=generator).to(dtype)).square().mean().backward()
        state.optimizers[0].step()
        for scheduler in state.extra:
            scheduler.step()


def bytes_of(state):
    return b"".join(
        bytes(memoryview(p.numpy() if isinstance(p, torch.Tensor) else p)) for p in state.save()
    )


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, betas=(0.8, 0.99)),
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "groups": lambda p: (
        lambda q: torch.optim.SGD([{"params": q[:2], "lr": 0.5}, {"params": q[2:]}], lr=0.1)
    )(list(p)),
}
SCHEDULERS = {
    "none": None,
    "steps": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "chain": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[3],
    ),
}


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_go_on_with_the_same_bits(name, steps):
    check(OPTIMIZERS[name], None, steps)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_go_on_with_the_same_bits(name):
    check(OPTIMIZERS["momentum"], SCHEDULERS[name], 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_go_on_with_the_same_bits(dtype):
    check(OPTIMIZERS["adam"], None, 3, dtype)


def check(optimizer_of, scheduler_of, steps, dtype=torch.float32):
    source = make(optimizer_of, scheduler_of, 1, dtype)
    advance(source, steps)
    source.epoch_loss = 0.1 * steps
    target = make(optimizer_of, scheduler_of, 2, dtype)
    advance(target, 1)  # what it had is overwritten
    assert bytes_of(source) != bytes_of(target)
    target.load(memoryview(bytes_of(source)))
    assert bytes_of(source) == bytes_of(target)
    advance(source, 3, seed=4)
    advance(target, 3, seed=4)
    assert bytes_of(source) == bytes_of(target)
    assert target.epoch_loss == source.epoch_loss


def test_an_optimizer_may_keep_wider_values_than_its_parameters():
    source = make(OPTIMIZERS["momentum"], None, 1, torch.bfloat16)
    advance(source, 1)
    for values in source.optimizers[0].state.values():
        values["momentum_buffer"] = values["momentum_buffer"].float() + 2**-20  # not a bfloat16
    target = make(OPTIMIZERS["momentum"], None, 2, torch.bfloat16)
    target.load(memoryview(bytes_of(source)))
    assert bytes_of(source) == bytes_of(target)


def test_the_default_place_is_large_enough_for_adam_and_its_size_is_checked():
    state = make(OPTIMIZERS["amsgrad"], SCHEDULERS["chain"], 1)
    advance(state, 3)
    assert len(bytes_of(state)) <= state.capacity()
    state.limit = len(bytes_of(state))
    state.check_size()
    state.limit -= 1
    for call in (state.check_size, state.save):
        with pytest.raises(regroup.Error, match="pass state_bytes="):
            call()


def test_another_model_is_told():
    source = make(OPTIMIZERS["sgd"], None, 1)
    target = make(OPTIMIZERS["sgd"], None, 1)
    target.model.add_module("more", nn.Linear(1, 1))
    with pytest.raises(regroup.Error, match="another model: more.bias, more.weight"):
        target.load(memoryview(bytes_of(source)))


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "why"),
    [
        (
            "groups",
            "steps",
            r"the numbers of parameters in the groups of optimizer are \[6\] in the saved state",
        ),
        (
            "sgd",
            "cosine",
            r"extra\[0\] is MultiStepLR in the saved state, CosineAnnealingLR in this program",
        ),
        ("sgd", "none", r"extra is \[MultiStepLR\] in the saved state, \[\] in this program"),
    ],
)
def test_another_optimizer_or_scheduler_is_told_before_anything_is_loaded(
    optimizer, scheduler, why
):
    source = make(OPTIMIZERS["sgd"], SCHEDULERS["steps"], 1)
    target = make(OPTIMIZERS[optimizer], SCHEDULERS[scheduler], 2)
    before = bytes_of(target)
    with pytest.raises(regroup.Refused, match=why):
        target.load(memoryview(bytes_of(source)))
    assert bytes_of(target) == before


class Renamed(torch.optim.lr_scheduler.MultiStepLR):
    """The same scheduler under a name of the caller's."""


def test_a_scheduler_of_another_name_and_the_same_state_is_loaded():
    source = make(OPTIMIZERS["sgd"], SCHEDULERS["steps"], 1)
    advance(source, 3)
    target = make(OPTIMIZERS["sgd"], lambda optimizer: Renamed(optimizer, [7]), 2)
    target.load(memoryview(bytes_of(source)))
    assert target.extra[0].last_epoch == 3


def test_what_cannot_be_handed_over_is_named():
    state = make(OPTIMIZERS["sgd"], None, 1)
    state.optimizers[0].param_groups[0]["hook"] = object()
    with pytest.raises(regroup.Refused, match=r"optimizer.param_groups\[0\].hook: an object"):
        state.save()


class Counting(nn.Linear):
    """Has an extra state, which state_dict() asks for."""

    def __init__(self, kept):
        super().__init__(2, 2)
        self.kept = kept

    def get_extra_state(self):
        return self.kept

    def set_extra_state(self, state):
        self.kept = state


def counting(*kept):
    model = nn.Sequential(*[Counting(one) for one in kept])
    return TrainingState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], None)


def test_extra_states_of_modules_are_handed_over():
    kept = {"calls": 7, "seen": torch.arange(3.0), "names": ["a", ("b", None)]}
    target = counting({"calls": 0}, None)
    target.load(memoryview(bytes_of(counting(kept, torch.ones(1 << 19)))))
    first, second = (module.kept for module in target.model)
    assert (
        first["calls"] == 7
        and torch.equal(first["seen"], kept["seen"])
        and first["names"] == kept["names"]
    )
    assert torch.equal(second, torch.ones(1 << 19))


def test_an_extra_state_that_cannot_be_handed_over_is_named_and_left_alone():
    with pytest.warns(
        UserWarning, match=r"^join: 1._extra_state of the model is not in checkpoints.*a BytesIO"
    ):
        state = counting({"calls": 7}, io.BytesIO(b"x"))
    target = counting({"calls": 0}, 5)
    target.load(memoryview(bytes_of(state)))
    assert [module.kept for module in target.model] == [{"calls": 7}, 5]


def test_what_is_compared_among_members_has_names_that_users_know():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    parts = dict(TrainingState(model, [optimizer], [scheduler], None).replicated())
    assert parts["optimizer.param_groups[0]['lr']"] == "0.25"
    assert parts["optimizer.param_groups[0]['betas'][1]"] == "0.999"
    assert parts["model.1.running_mean"].numel() == 8
    assert parts["optimizer.state[0]['exp_avg']"].numel() == 16
    assert not [name for name in parts if "extra" in name or "last_epoch" in name]


def test_what_cannot_be_handed_over_is_not_compared():
    """It is refused when another member needs it, as ever; a comparison is no reason to end."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["mine"] = object()
    optimizer.param_groups[0]["sparse"] = torch.eye(2).to_sparse()
    names = [name for name, _ in TrainingState(model, [optimizer], [], None).replicated()]
    assert "optimizer.param_groups[0]['lr']" in names
    assert not [name for name in names if "mine" in name or "sparse" in name]


def test_what_is_frozen_is_part_of_the_state():
    """Also that nothing is any more what was not at the begin."""

    def make():
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        model[1].bias.requires_grad_(False)
        return TrainingState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], None)

    def frozen(state):
        return [name for name, p in state.model.named_parameters() if not p.requires_grad]

    source, target = make(), make()
    plain = bytes_of(source)
    source.model[0].requires_grad_(False)
    source.model[1].bias.requires_grad_(True)
    target.load(memoryview(bytes_of(source)))
    assert frozen(target) == ["0.weight", "0.bias"]
    # a member without a shard has not run the code that froze them
    assert [name for name, _ in target.replicated()] == [name for name, _ in make().replicated()]
    target.load(memoryview(plain))
    assert frozen(target) == ["1.bias"]


@pytest.mark.parametrize("named", [False, True])
def test_parameter_groups_that_were_added_are_part_of_the_state(named):
    """Also that nothing was added yet."""

    def make(seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
        first = model[0].named_parameters() if named else model[0].parameters()
        return TrainingState(model, [torch.optim.Adam(first, lr=0.1)], [], None)

    source, target = make(1), make(2)
    plain = bytes_of(source)
    advance(source, 2)
    last = source.model[1]
    added = last.named_parameters() if named else last.parameters()
    source.optimizers[0].add_param_group({"params": list(added), "lr": 0.5})
    advance(source, 2)
    target.load(memoryview(bytes_of(source)))
    assert [len(group["params"]) for group in target.optimizers[0].param_groups] == [2, 2]
    assert target.optimizers[0].param_groups[1]["lr"] == 0.5
    assert bytes_of(target) == bytes_of(source)
    advance(source, 3)
    advance(target, 3)
    assert bytes_of(target) == bytes_of(source)
    target.load(memoryview(plain))
    assert bytes_of(target) == plain


def test_changes_of_the_model_are_part_of_the_state():
    """What is frozen, too, also if it was before the change; and the changes' order."""

    def make(seed, names=("widen", "drop")):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

        def widen(width):
            model.insert(1, nn.Sequential(nn.Linear(3, width), nn.Linear(width, 3)))
            optimizer.add_param_group({"params": model[1].parameters(), "lr": 0.5})

        def drop():
            del model[1][1], optimizer.param_groups[1]["params"][2:]
            model[1].append(nn.BatchNorm1d(3))

        functions = {"widen": widen, "drop": drop}
        changes = Changes({name: functions[name] for name in names})
        return TrainingState(model, [optimizer], [], None, changes=changes, room=4096)

    source, target = make(1), make(2)
    advance(source, 2)
    source.model[0].bias.requires_grad_(False)
    source.change("widen", {"width": 3})
    advance(source, 2)
    widened = bytes_of(source)
    source.change("drop", {})
    advance(source, 2)
    assert len(source.optimizers[0].state) == 6  # not those of the layer that is gone
    later = make(4)
    for state in (widened, bytes_of(source)):
        target.load(memoryview(state))
        assert bytes_of(target) == state
    later.load(memoryview(bytes_of(source)))
    for one in (source, target, later):
        advance(one, 3)
        assert not one.model[0].bias.requires_grad
        assert bytes_of(one) == bytes_of(source)
    made = r"has made widen\(width=3\), drop\(\): widen\(width=3\)$"
    with pytest.raises(regroup.Refused, match=f"other changes .* {made}"):
        target.load(memoryview(widened))
    told = r"^the state has the change 'widen' of the model: pass changes={\"widen\": ...} to join"
    with pytest.raises(regroup.Refused, match=told):
        make(5, ("drop",)).load(memoryview(widened))


class Adapted(nn.Module):
    """A layer that is trained no more, and a low-rank one beside it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, rank), nn.Linear(rank, base.out_features)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_adapters_and_their_averaged_weights_have_room_in_the_state():
    """The layers keep their parameters under other names; the optimizer has three values each."""
    width = 600  # more than what is spare anyway

    def make(seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, amsgrad=True)
        average = AveragedModel(model)

        def adapt(rank):
            for network in (model, average.module):
                network.insert(1, nn.Linear(width, rank))
                network.insert(2, nn.Linear(rank, width))
                for index in (0, 3):
                    network[index] = Adapted(network[index], 2)
            optimizer.param_groups[0]["params"] = [p for p in model.parameters() if p.requires_grad]

        changes, elements = Changes({"adapt": adapt}), 2 * 600 * width + 20 * width
        room = 4 * elements
        return TrainingState(model, [optimizer], [average], None, changes=changes, room=room)

    def train(state):
        for _ in range(2):
            loss = state.model(torch.ones(3, 4)).square().mean()
            state.optimizers[0].zero_grad()
            loss.backward()
            state.optimizers[0].step()
            state.extra[0].update_parameters(state.model)

    source, target = make(1), make(2)
    train(source)
    before = source.model[0].weight.clone()
    source.change("adapt", {"rank": width})
    train(source)
    assert torch.equal(source.model[0].base.weight, before)
    source.check_size()
    target.load(memoryview(bytes_of(source)))
    train(source), train(target)
    assert bytes_of(target) == bytes_of(source)


@pytest.mark.parametrize(
    ("outputs", "dtype", "told"),
    [(3, torch.float32, r"float32 \[3, 4\]"), (1, torch.bfloat16, r"bfloat16 \[1, 4\]")],
)
def test_a_change_that_makes_another_tensor_than_the_state_has_is_refused(outputs, dtype, told):
    """Before it has changed any weight."""

    def make(**options):
        model = nn.Sequential(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def add(size):
            model.append(nn.Linear(4, **options))
            assert math.isnan(size)

        return TrainingState(model, [optimizer], [], None, changes=Changes({"add": add}), room=4096)

    source, target = make(out_features=1), make(out_features=outputs, dtype=dtype)
    source.change("add", {"size": math.nan})
    before = target.model[0].weight.clone()
    told = rf"^1.weight is float32 \[1, 4\] in the state, {told} in this program: the functions of"
    with pytest.raises(regroup.Refused, match=told):
        target.load(memoryview(bytes_of(source)))
    assert torch.equal(target.model[0].weight, before)
    source.load(memoryview(bytes_of(source)))


def test_members_with_other_layouts_find_the_first_tensor_that_differs():
    """Each compares the sums of two leaves, one of its own, with what it expects."""

    def named(*tensors):
        return [(name, torch.empty(shape)) for name, shape in tensors]

    ours, made = named(("a", (2, 3)), ("b", (4,))), [["add", {"size": 4}]]
    own = marks_of(made, ours)
    assert len({*own}) == len(own) and all(1 <= mark <= 1023 for mark in own)
    check_marks(made, ours, own, [2 * mark for mark in own] + [0], 2)
    b = r"b of this one is float32 \[4\], of others it is not"
    models, after = "^members have different models: ", "others have tensors after b, the last of"
    for others, of_others, told in (
        (
            named(("a", (3, 2)), ("b", (4,))),
            made,
            models + r"a of this one is float32 \[2, 3\], of",
        ),
        (named(("a", (2, 3)), ("c", (4,))), made, models + b),
        (named(("a", (2, 3))), made, models + b),
        ([*ours, *named(("c", (1,)))], made, models + after),
        (ours, [["add", {"size": 5}]], r"^members have made .* of the model: this one add\(size=4"),
        (ours, [], r"^members have made different changes of the model: this one add\(size=4\)\. "),
    ):
        theirs = [*marks_of(of_others, others), 0, 0]
        sums = [one + other for one, other in zip([*own, 0], theirs, strict=False)]
        with pytest.raises(regroup.Refused, match=told):
            check_marks(made, ours, own, sums, 2)


def test_a_last_tensor_that_differs_is_found_although_its_mark_does_not():
    def marks(size):
        return marks_of([], [("a", torch.empty(2)), ("b", torch.empty(size))])

    other = next(size for size in range(2, 99999) if marks(size)[4] == marks(1)[4])
    sums = [one + other for one, other in zip(marks(1), marks(other), strict=True)]
    with pytest.raises(regroup.Refused, match="the last of this one, or another b. Call"):
        check_marks([], [("a", torch.empty(2)), ("b", torch.empty(1))], marks(1), [*sums, 0], 2)


def test_members_that_differ_by_a_change_that_makes_no_tensor_are_told():
    model = nn.Linear(2, 2)
    one, other = (Gradient(model, reserve=0) for _ in range(2))
    other.change([["regularize", {"p": 0.5}]])

    def sum_of_two(out):
        endings = [g._last[-len(g._marks) :] for g in (one, other)]
        out[-len(one._marks) :] = torch.tensor(endings).sum(0)

    for member, told in ((one, "none"), (other, r"regularize\(p=0.5\)")):
        told = f"^members have made different changes of the model: this one {told}. Call"
        with pytest.raises(regroup.Refused, match=told):
            member.take_sum(SimpleNamespace(commit_into=sum_of_two), 2, 1)


def lambdas(optimizer):
    return lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)


def sequence(optimizer):
    parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 9)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[9])


@pytest.mark.parametrize(
    ("scheduler_of", "lists"),
    [
        (lambdas, ""),
        (lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.5), "lr_lambdas and base_lrs"),
        (sequence, "base_lrs"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=9), "base_lrs"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, min_lr=[0.01]), "min_lrs"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, "min", 0.1, 0), ""),
        (lambda o: lr_scheduler.StepLR(o, 1), ""),
    ],
)
def test_a_scheduler_that_does_not_know_a_new_group_is_refused(scheduler_of, lists):
    """It would fail in a later step. Those that do not fail are left alone."""
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = scheduler_of(optimizer)

    def add(extended):
        model.append(nn.Linear(4, 4))
        optimizer.add_param_group({"params": model[-1].parameters()})
        if extended:
            scheduler.lr_lambdas.append(scheduler.lr_lambdas[0])
            scheduler.base_lrs.append(0.1)

    changes = Changes({"add": add})
    state = TrainingState(model, [optimizer], [scheduler], None, changes=changes, room=4096)
    if lists:
        told = rf"^session.change.*: [A-Z].* knows fewer parameter groups .* to its {lists}, or add"
        with pytest.raises(regroup.Refused, match=told):
            state.change("add", {"extended": False})
        return
    state.change("add", {"extended": scheduler_of is lambdas})
    for _ in range(3):
        optimizer.step()
        scheduler.step(*[1.0] * isinstance(scheduler, lr_scheduler.ReduceLROnPlateau))
    assert optimizer.param_groups[1]["lr"] < 0.1


@pytest.mark.parametrize("at", [0, 1])
def test_averaged_weights_without_the_new_layer_are_refused(at):
    """update_parameters() would average other layers, or leave out the last ones."""
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average, others = AveragedModel(model), AveragedModel(nn.Linear(2, 2))

    def add():
        model.insert(at, nn.BatchNorm1d(4))

    extra, changes = [average, others], Changes({"add": add})
    state = TrainingState(model, [optimizer], extra, None, changes=changes, room=4096)
    told = rf"^session.change\('add'\): AveragedModel.module has no {at}.weight as the model has"
    with pytest.raises(regroup.Refused, match=told):
        state.change("add", {})


def test_an_added_group_of_parameters_that_are_not_the_models_is_refused():
    model = nn.Linear(2, 2)
    state = TrainingState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], None)
    state.optimizers[0].add_param_group({"params": nn.Linear(2, 2).parameters()})
    with pytest.raises(regroup.Refused, match="group 1 of optimizer has a parameter that is not"):
        state.save()
