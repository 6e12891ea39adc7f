"""Hints and refusals for what scripts commonly get wrong, without a job."""

import pytest
import regroup
import torch
import torch.distributed as dist
from regroup import _torch_collectives, _torch_group, _torch_hints
from torch.testing._internal.distributed import fake_pg


@pytest.mark.parametrize(
    ("shards", "members", "most", "better"),
    [(12, 8, 2, 16), (5, 2, 3, 8), (3, 2, 2, 4)],
)
def test_a_number_of_shards_that_keeps_members_waiting_is_told(
    shards, members, most, better, capsys
):
    assert _torch_hints.tell_uneven_shards(shards, members)
    assert capsys.readouterr().err == (
        f"regroup: join: V = {shards} is not a power of two: of {members} members some compute "
        f"{most} shards of a step, and the others wait for them; --shards {better} is faster\n"
    )


@pytest.mark.parametrize(
    ("shards", "members"), [(12, 1), (12, 4), (12, 6), (6, 6), (5, 5), (16, 6), (8, 3), (1, 1)]
)
def test_a_number_of_shards_that_the_next_power_of_two_does_not_beat_is_no_mistake(
    shards, members, capsys
):
    assert not _torch_hints.tell_uneven_shards(shards, members)
    assert capsys.readouterr().err == ""


class Training:
    open_step = 7


@pytest.fixture
def training(monkeypatch):
    """A training that is in step 7 of an elastic job, with a process group of two ranks whose
    collectives do nothing."""
    for name in _torch_collectives._REDUCTIONS:
        if (method := getattr(dist.ProcessGroup, name, None)) is not None:
            monkeypatch.setattr(dist.ProcessGroup, name, method)  # restores it
    monkeypatch.setenv("REGROUP_AGENT", "/nowhere")
    monkeypatch.delenv("REGROUP_WORLD", raising=False)
    dist.init_process_group("fake", rank=0, world_size=2, store=fake_pg.FakeStore())
    training = Training()
    _torch_collectives.guard(training)
    _torch_collectives.guard(training)  # a second session of the process
    try:
        yield training
    finally:
        dist.destroy_process_group()


def reductions():
    four, eight = torch.ones(4), torch.ones(8)
    return {
        "all_reduce": lambda: dist.all_reduce(four),
        "reduce": lambda: dist.reduce(four, 0),
        "reduce_scatter": lambda: dist.reduce_scatter(four, [four, four]),
        "reduce_scatter_": lambda: dist.reduce_scatter_tensor(four, eight),
    }


@pytest.mark.parametrize("name", reductions())
def test_a_reduction_between_shards_is_refused(training, name):
    message = (
        rf"^step 7: {name}\w* of 4 float32 inside a step: its bits depend on the number of "
        r"members; use session.collective\(\) between steps, or step.clip_grad_norm_\(\)$"
    )
    with pytest.raises(regroup.Refused, match=message):
        reductions()[name]()
    training.open_step = 0
    reductions()[name]()


class InPython(dist.ProcessGroup):
    """Overrides what guard() wraps, as the group in Python does."""

    def size(self):
        return 2

    def allreduce(self, tensors, opts):
        return "reduced"


def test_a_group_in_python_is_guarded(training):
    _torch_collectives.guard(training)  # of a process that has the class
    group = InPython(0, 2)
    with pytest.raises(regroup.Refused, match="step 7: all_reduce of 4 float32 inside a step"):
        group.allreduce([torch.ones(4)], None)
    training.open_step = 0
    assert group.allreduce([torch.ones(4)], None) == "reduced"
    own = _torch_group.ProcessGroup
    assert vars(own)["allreduce"]._regroup_guards == "all_reduce"
    assert vars(own)["_reduce_scatter_base"]._regroup_guards


def test_other_collectives_are_left_alone(training):
    dist.all_reduce(torch.ones(4, dtype=torch.int64))
    dist.broadcast(torch.ones(4), 0)
    dist.barrier()


def test_jobs_whose_members_are_fixed_are_left_alone(training, monkeypatch):
    monkeypatch.setenv("REGROUP_WORLD", "fixed")
    monkeypatch.setattr(_torch_collectives, "_training", None)
    _torch_collectives.guard(training)
    dist.all_reduce(torch.ones(4))
