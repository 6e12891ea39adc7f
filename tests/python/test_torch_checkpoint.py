"""Checkpoints of torch state that come back exactly, and arguments of join() that cannot work."""

import collections
import os
import subprocess
import sys

import pytest
import regroup.torch
import torch
from regroup.torch_checkpoint import Reader, Writer, load, newest_checkpoint, save
from regroup.torch_checkpoint import _holds_all as holds_all
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


def run(*words: object) -> subprocess.CompletedProcess:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def test_keys_come_back_in_the_order_in_which_they_were_saved(tmp_path):
    state = {
        "model": nn.Sequential(*[nn.Linear(1, 1) for _ in range(11)]).state_dict(),
        "z": {10: torch.zeros(1), 9: torch.ones(0, 2), "9": 1},
        "a": [collections.OrderedDict(b=1, a=torch.ones(2))],
    }
    save(tmp_path, 1, state)
    loaded = load(newest_checkpoint(tmp_path))
    assert list(loaded) == list(state)
    assert list(loaded["model"]) == list(state["model"])
    assert list(loaded["z"]) == [10, 9, "9"] and loaded["z"][9].shape == (0, 2)
    assert list(loaded["a"][0]) == ["b", "a"]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("bool", "uint8"), ("uint8", "int16"), ("int32", "int64"), ("int16", "float32"), ("int32", "float64"),
        ("float16", "float32"), ("bfloat16", "float32"), ("float8_e5m2", "float16"), ("float32", "complex64"),
        ("int8", "bfloat16"),
    ],
)  # fmt: skip
def test_a_type_holds_all_values_of_a_narrower_one(narrow, wide):
    narrow, wide = getattr(torch, narrow), getattr(torch, wide)
    assert holds_all(narrow, narrow)
    assert holds_all(wide, narrow)
    assert not holds_all(narrow, wide)


@pytest.mark.parametrize(
    ("one", "other"), [("bfloat16", "float16"), ("int8", "uint8"), ("int32", "float32"), ("int64", "float64")]
)
def test_neither_of_two_types_holds_all_values_of_the_other(one, other):
    one, other = getattr(torch, one), getattr(torch, other)
    assert not holds_all(one, other)
    assert not holds_all(other, one)


def test_loading_into_another_type_rounds_nothing_unless_it_is_asked_for(tmp_path):
    saved = {"a": torch.full((3,), 1 + 2**-20), "b": torch.tensor([1000, 70000]), "c": torch.ones(2).half()}
    dcp.save(saved, storage_writer=Writer(tmp_path, 1))
    path = newest_checkpoint(tmp_path)

    def into(name: str, dtype: torch.dtype, **more) -> torch.Tensor:
        target = {name: torch.zeros(saved[name].shape, dtype=dtype)}
        dcp.load(target, storage_reader=Reader(path, **more))
        return target[name]

    assert torch.equal(into("c", torch.float64), torch.ones(2).double())
    for name, dtype in (("a", torch.bfloat16), ("b", torch.int8), ("b", torch.float32)):
        with pytest.raises(
            CheckpointException, match=rf"{name} is .*does not hold all its values.*lossy=\['{name}'\]"
        ):
            into(name, dtype)
    assert torch.equal(into("a", torch.bfloat16, lossy=["a"]), torch.ones(3).bfloat16())


def test_what_is_exported_for_torch_is_imported_again(tmp_path):
    tensors = {"x": torch.ones(2, dtype=torch.bfloat16), "nothing": torch.ones(0, 3), "y": torch.arange(5)}
    path = save(tmp_path / "one", 1, tensors)
    run("regroup", "checkpoint", "export", path, tmp_path / "one.pt", "--to", "torch")
    run(
        "regroup",
        "checkpoint",
        "import",
        tmp_path / "one.pt",
        tmp_path / "two",
        "--from",
        "torch",
        "--step",
        1,
    )
    run("regroup", "checkpoint", "diff", path, newest_checkpoint(tmp_path / "two"))
    loaded = load(newest_checkpoint(tmp_path / "two"))
    assert list(loaded) == list(tensors)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


JOB = """
import torch, regroup
from torch import nn
model = nn.Linear(4, 1)
model.register_buffer("nothing", torch.zeros(0, 4))
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
data = [(torch.ones(4), torch.ones(1))] * 40
session = regroup.torch.join(model, optimizer, data, batch_size=4, epochs=1, extra=[schedule])
for step in session:
    for x, y in step:
        (model(x) - y).pow(2).mean().backward()
    optimizer.step()
    schedule.step()
session.finish()
torch.save([model.state_dict(), optimizer.state_dict(), schedule.state_dict()], "end.pt")
"""


def test_the_checkpoint_of_a_job_opens_in_load_and_has_all_its_buffers(tmp_path):
    """Also: regroup.torch is there after a mere `import regroup`."""
    (tmp_path / "train.py").write_text(JOB)
    job = ["regroup", "-np", "1:1", "--checkpoint", "kept", "--every", "10", sys.executable, "train.py"]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    subprocess.run(job, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=120)
    loaded = load(newest_checkpoint(tmp_path / "kept"))
    model, optimizer, schedule = torch.load(tmp_path / "end.pt", weights_only=True)
    assert loaded["model"].keys() == model.keys()
    assert all(torch.equal(loaded["model"][name], tensor) for name, tensor in model.items())
    assert loaded["optimizer"]["param_groups"] == optimizer["param_groups"]
    for index, values in optimizer["state"].items():
        assert all(torch.equal(loaded["optimizer"]["state"][index][k], v) for k, v in values.items())
    assert loaded["extra"][0]["last_epoch"] == schedule["last_epoch"] == 10
    assert list(loaded) == ["epoch_loss", "extra", "model", "optimizer"]


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.ones(1)


MODEL = nn.Linear(1, 1)
SGD = torch.optim.SGD(MODEL.parameters(), lr=0.1)
DATA = TensorDataset(torch.ones(4, 1))


@pytest.mark.parametrize(
    ("model", "optimizer", "dataset", "why"),
    [
        (MODEL, SGD, DataLoader(DATA, batch_size=2), r"a DataLoader was given; give its data set"),
        (MODEL, SGD, Endless(), r"the data set, a Endless, has no len\(\) and \[index\]"),
        (MODEL, SGD, iter([1]), r"the data set, a list_iterator, has no len\(\) and \[index\]"),
        (MODEL, [SGD, SGD], DATA, r"a list of 2 optimizers was given; one is wanted"),
        (MODEL, MODEL.parameters(), DATA, r"the optimizer is a generator, not a torch.optim.Optimizer"),
        (MODEL.parameters(), SGD, DATA, r"the model is a generator, not a torch.nn.Module"),
    ],
)
def test_join_says_what_it_cannot_take(model, optimizer, dataset, why):
    with pytest.raises(regroup.Refused, match=f"^join: {why}"):
        regroup.torch.join(model, optimizer, dataset, batch_size=2, epochs=1)


def test_a_module_that_is_none_is_no_attribute():
    with pytest.raises(AttributeError, match="'regroup' has no attribute 'torsch'"):
        regroup.torsch  # noqa: B018
