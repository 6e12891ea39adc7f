"""Checkpoints of torch state that come back exactly, and arguments of join() that cannot work."""

import collections
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import warnings
import zipfile

import numpy as np
import pytest
import regroup.torch
import safetensors
import torch
from regroup import _native
from regroup._dtypes import holds_all
from regroup._torch_state import TrainingState
from regroup.torch_checkpoint import Reader, Writer, _write, load, newest_checkpoint, save
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.utils.data import IterableDataset, TensorDataset


def run(*words: object) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("path", "got"),
    [(None, r"None: newest_checkpoint\(\) found no checkpoint"), (3, "an int"), ([], "a list")],
)
def test_what_is_no_path_is_named(path, got):
    expected = "^load: path: expected the path of a checkpoint, got " + got + "$"
    with pytest.raises(regroup.Refused, match=expected):
        load(path)


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
        ("bool", "uint8"), ("uint8", "int16"), ("int32", "int64"), ("int16", "float32"), ("int32",
        "float64"),
        ("float16", "float32"), ("bfloat16", "float32"), ("float8_e5m2", "float16"), ("float32",
        "complex64"),
        ("int8", "bfloat16"), ("float8_e4m3fn", "float16"), ("float8_e5m2", "bfloat16"),
        ("float8_e8m0fnu", "bfloat16"), ("int32", "complex128"), ("bool", "float8_e5m2"),
        ("float16", "complex64"), ("uint32", "float64"),
    ],
)  # fmt: skip
def test_a_type_holds_all_values_of_a_narrower_one(narrow, wide):
    assert holds_all(narrow, narrow)
    assert holds_all(wide, narrow)
    assert not holds_all(narrow, wide)


def edges_of(dtype: torch.dtype) -> torch.Tensor:
    """Values at which conversions begin to round."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)
    if dtype.is_floating_point:
        about = torch.finfo(dtype)
        return torch.tensor(
            [1 + about.eps, -about.max, about.smallest_normal, about.tiny * about.eps]
        ).to(dtype)
    about = torch.iinfo(dtype)
    return torch.tensor([about.min, about.max, about.max - 1, about.max // 2], dtype=dtype)


def test_what_one_type_holds_of_another_comes_back_through_it():
    names = [name for name in _native.DTYPES if "complex" not in name and "e8m0" not in name]
    # torch converts few
    names = [name for name in names if not name.startswith("uint") or name == "uint8"]
    for narrow in names:
        values = edges_of(getattr(torch, narrow))
        for wide in names:
            there = values.to(getattr(torch, wide)).to(values.dtype).double()
            same = (there == values.double()) | (there.isnan() & values.double().isnan())
            assert same.all() or not holds_all(wide, narrow), (narrow, wide)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bfloat16", "float16"), ("int8", "uint8"), ("int32", "float32"), ("int64", "float64"),
        ("int64", "complex128"), ("uint64", "complex128"), ("int32", "complex64"), ("uint8",
        "float8_e4m3fn"),
        ("float8_e5m2", "float8_e4m3fn"), ("float8_e8m0fnu", "float16"), ("bool", "float8_e8m0fnu"),
        ("float32", "int64"),
    ],
)  # fmt: skip
def test_neither_of_two_types_holds_all_values_of_the_other(one, other):
    assert not holds_all(one, other)
    assert not holds_all(other, one)


def test_loading_into_another_type_rounds_nothing_unless_it_is_asked_for(tmp_path):
    saved = {
        "a": torch.full((3,), 1 + 2**-20),
        "b": torch.tensor([1000, 70000]),
        "c": torch.ones(2).half(),
    }
    dcp.save(saved, storage_writer=Writer(tmp_path, 1))
    path = newest_checkpoint(tmp_path)

    def into(name: str, dtype: torch.dtype, **more) -> torch.Tensor:
        target = {name: torch.zeros(saved[name].shape, dtype=dtype)}
        dcp.load(target, storage_reader=Reader(path, **more))
        return target[name]

    assert torch.equal(into("c", torch.float64), torch.ones(2).double())
    for name, dtype in (("a", torch.bfloat16), ("b", torch.int8), ("b", torch.float32)):
        with pytest.raises(
            CheckpointException,
            match=rf"{name} is .*does not hold all its values.*lossy=\['{name}'\]",
        ):
            into(name, dtype)
    assert torch.equal(into("a", torch.bfloat16, lossy=["a"]), torch.ones(3).bfloat16())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1 + 2j, -3j]).conj(),
        torch.tensor([1 + 2j, -3j]).conj().imag,
        torch.tensor(2 - 1j).conj(),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.ones(1).expand(3, 2),
        torch.arange(3).to(torch.uint16),
        torch.zeros(0, 3, dtype=torch.float8_e5m2),
    ],
    ids=["conjugate", "negative", "of-no-dimension", "transposed", "expanded", "uint16", "empty"],
)
def test_views_are_saved_with_the_values_that_they_show(tensor, tmp_path):
    loaded = load(save(tmp_path, 1, {"x": tensor}))["x"]
    assert loaded.dtype == tensor.dtype and loaded.shape == tensor.shape
    assert loaded.dtype == torch.float8_e5m2 or torch.equal(loaded, tensor)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: torch.eye(2).to_sparse(),
            "only dense tensors on the CPU or a GPU are supported, not torch.sparse_coo",
        ),
        (lambda: torch.empty(2, device="meta"), "only dense tensors on the CPU .* on meta"),
        (
            lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "quantized tensors are not",
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
            "nested tensors are not",
        ),
        (
            lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float8_e4m3fnuz),
            "no type float8_e4m3fnuz",
        ),
        (
            lambda: torch.zeros(2, dtype=torch.complex32),
            "no type complex32: save it as view_as_real",
        ),
        (nn.parameter.UninitializedParameter, "a parameter that has no shape yet"),
    ],
    ids=["sparse", "meta", "quantized", "nested", "float8_e4m3fnuz", "complex32", "lazy"],
)
def test_a_tensor_that_no_checkpoint_has_is_refused_by_name(make, why, tmp_path):
    with warnings.catch_warnings():  # torch is about to change some of these
        warnings.simplefilter("ignore")
        tensor = make()
    with pytest.raises(regroup.Refused, match=rf"^state.a\[0\].x: .*{why}"):
        save(tmp_path, 1, {"a": [{"x": tensor}]})
    assert not list(tmp_path.iterdir())


def test_names_that_a_checkpoint_cannot_have(tmp_path):
    for name, why in (
        ("\ud800", "its name is not UTF-8"),
        ("a" * 5000, "its name takes more than the 4096"),
    ):
        with pytest.raises(regroup.Refused, match=why):
            save(tmp_path, 1, {name: torch.ones(1)})
    ours = {"regroup.state": torch.ones(2), "regroup.state'": torch.zeros(1)}
    assert same_tensors(load(save(tmp_path, 1, ours)), ours)


def test_what_is_exported_for_torch_is_imported_again(tmp_path):
    tensors = {
        "x": torch.ones(2, dtype=torch.bfloat16),
        "nothing": torch.ones(0, 3),
        "y": torch.arange(5),
    }
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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 4)
        # tied: named_parameters() has it once, state_dict() twice
        self.head.weight = self.embed.weight
        self.register_buffer("nothing", torch.zeros(0, 4))
        self.register_buffer("mask", torch.ones(4), persistent=False)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)) * self.mask)


model = Model()
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)  # whose best loss is infinite
plateau.mode_worse, plateau.threshold = -float("inf"), float("nan")
data = [(torch.ones(4), torch.ones(1))] * 40
session = regroup.torch.join(model, optimizer, data, batch_size=4, epochs=1,
                             extra=[schedule, plateau])
for step in session:
    for x, y in step:
        (model(x) - y).pow(2).mean().backward()
    optimizer.step()
    schedule.step()
session.finish()
torch.save([model.state_dict(), optimizer.state_dict(), schedule.state_dict()], "end.pt")
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Where a job has kept checkpoints, and its end."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(JOB)
    words = [
        "regroup",
        "-np",
        "1:1",
        "--checkpoint",
        "kept",
        "--checkpoint-interval",
        "10",
        sys.executable,
        "train.py",
    ]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True, timeout=120)
    return folder


def same_tensors(one: dict, other: dict) -> bool:
    """The names in the same order, and the same values."""
    return list(one) == list(other) and all(
        one[name].dtype == tensor.dtype and torch.equal(one[name], tensor)
        for name, tensor in other.items()
    )


def test_the_checkpoint_of_a_job_opens_in_load_and_has_all_its_buffers(job):
    """Also: regroup.torch is there after a mere `import regroup`."""
    loaded = load(newest_checkpoint(job / "kept"))
    model, optimizer, schedule = torch.load(job / "end.pt", weights_only=True)
    assert loaded["model"].keys() == model.keys() - {"head.weight"} | {"mask"}
    assert all(
        torch.equal(tensor, model.get(name, torch.ones(4)))
        for name, tensor in loaded["model"].items()
    )
    assert loaded["optimizer"]["param_groups"] == optimizer["param_groups"]
    for index, values in optimizer["state"].items():
        assert all(
            torch.equal(loaded["optimizer"]["state"][index][k], v) for k, v in values.items()
        )
    assert loaded["extra"][0]["last_epoch"] == schedule["last_epoch"] == 10
    assert list(loaded) == ["epoch_loss", "extra", "model", "optimizer"]


def test_a_job_goes_on_for_more_epochs_and_refuses_another_scheduler_once(job, tmp_path):
    shutil.copytree(job / "kept", tmp_path / "kept")
    words = [
        "regroup",
        "-np",
        "1:1",
        "--checkpoint",
        "kept",
        "--checkpoint-interval",
        "5",
        sys.executable,
        "train.py",
    ]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    longer = JOB.replace("epochs=1", "epochs=2")
    (tmp_path / "train.py").write_text(
        longer.replace("StepLR(optimizer, 100)", "ExponentialLR(optimizer, 0.5)")
    )
    other = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert other.returncode == 1
    why = "extra[0] is StepLR in the saved state, ExponentialLR in this program"
    assert f"step-00000010 belongs to another training: {why}. Start the program" in other.stderr
    assert other.stderr.count("generation 1") == 1 and other.stderr.count(why) == 1, other.stderr
    (tmp_path / "train.py").write_text(longer)
    same = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert same.returncode == 0, same.stderr
    assert load(newest_checkpoint(tmp_path / "kept"))["extra"][0]["last_epoch"] == 20


def test_a_job_does_not_go_on_from_what_no_job_has_written(job, tmp_path):
    """At step 0 it began anew with the file's number of shards, and said that it went on."""
    np.savez(tmp_path / "x.npz", x=np.ones(2))
    torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
    run("regroup", "checkpoint", "export", job / "kept", tmp_path / "job.npz", "--to", "npz")
    for file, step in [("x.npz", 0), ("x.pt", 0), ("x.pt", 520), ("job.npz", 10)]:
        run(
            "regroup",
            "checkpoint",
            "import",
            tmp_path / file,
            tmp_path / f"{file}-{step}",
            "--step",
            step,
        )
    save(tmp_path / "saved", 3, {"x": torch.ones(2)})
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    for place in ["x.npz-0", "x.pt-0", "x.pt-520", "job.npz-10", "saved"]:
        words = [
            "regroup",
            "-np",
            "1:1",
            "--checkpoint",
            tmp_path / place,
            "touch",
            tmp_path / "started",
        ]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        made = r'"process \d+", not by a job' if place == "saved" else "`regroup checkpoint import`"
        why = (
            rf"{place}/step-\d+ was made by {made}: it contains tensors, but no training to resume"
        )
        assert done.returncode != 0 and re.search(why, done.stderr), done.stderr
        assert done.stderr.count("\n") == 1 and not (tmp_path / "started").exists()


def exported(place, file, form: str) -> dict:
    run("regroup", "checkpoint", "export", place, file, "--to", form, "--model-only")
    if form == "torch":
        return torch.load(file, weights_only=True)
    if form == "safetensors":  # whose own reader gives names in the order of the alphabet
        with safetensors.safe_open(file, "pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.offset_keys()}
    with np.load(file) as opened:
        return {name: torch.from_numpy(opened[name]) for name in opened.files}


@pytest.mark.parametrize("form", ["torch", "safetensors", "npz"])
def test_the_exported_model_of_a_job_has_the_keys_of_its_state_dict(job, form, tmp_path):
    wanted = torch.load(job / "end.pt", weights_only=True)[0]
    assert "head.weight" in wanted and "mask" not in wanted
    assert same_tensors(exported(job / "kept", tmp_path / "model", form), wanted)


def state_of(model: nn.Module) -> TrainingState:
    return TrainingState(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], None)


def as_job(state: TrainingState, folder):
    """The checkpoint that a job makes of `state`."""
    pieces = [torch.frombuffer(bytearray(state.save()[0]), dtype=torch.uint8)]
    return _write(folder, 1, {"regroup.state": pieces[0], **state.named()})


class WithExtraState(nn.Linear):
    def get_extra_state(self):
        return torch.arange(3)

    def set_extra_state(self, state): ...


class OwnStateDict(nn.Linear):
    def state_dict(self):
        return {"renamed": self.weight.detach(), "bias": self.bias}


class NoStateDict(nn.Linear):
    def state_dict(self, *args, **kwargs):
        raise KeyError("mine")


def cloning(module, state, prefix, metadata):
    state["bias"] = state["bias"].detach().clone()


def doubling(module, state, prefix, metadata):
    state["bias"] = state["bias"] + 1


def test_keys_of_a_state_dict_that_hooks_and_models_make(tmp_path):
    model = nn.Linear(2, 3)
    model._register_state_dict_hook(cloning)
    place = as_job(state_of(model), tmp_path / "clone")
    assert same_tensors(exported(place.parent, tmp_path / "file", "torch"), model.state_dict())
    kept = WithExtraState(2, 3)
    place = as_job(state_of(kept), tmp_path / "kept")
    assert same_tensors(exported(place.parent, tmp_path / "file", "torch"), kept.state_dict())
    own = OwnStateDict(2, 3)
    place = as_job(state_of(own), tmp_path / "own")
    assert same_tensors(exported(place.parent, tmp_path / "file", "torch"), own.state_dict())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: NoStateDict(2, 3), r"the state_dict\(\) of its model raised KeyError"),
        (
            lambda: hooked(doubling),
            r"bias in the state_dict\(\) of the model is neither a parameter",
        ),
        (
            lambda: no_longer_alike(),
            r"bias in the state_dict\(\) of the model is neither a parameter",
        ),
    ],
    ids=["raises", "another value", "another value later"],
)
def test_a_model_that_is_not_in_the_checkpoint_is_not_exported_in_part(make, why, tmp_path):
    made = make()
    as_job(made if isinstance(made, TrainingState) else state_of(made), tmp_path / "kept")
    words = [
        "regroup",
        "checkpoint",
        "export",
        tmp_path / "kept",
        tmp_path / "no",
        "--to",
        "npz",
        "--model-only",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and re.search(f"{why}.*export without --model-only", done.stderr), (
        done
    )
    assert not (tmp_path / "no").exists()


def hooked(hook) -> nn.Module:
    model = nn.Linear(2, 3)
    model._register_state_dict_hook(hook)
    return model


def no_longer_alike() -> TrainingState:
    """As of a model that shows an average of its weights, which begins with them."""
    model = nn.Linear(2, 3)
    average = model.bias.detach().clone()
    model._register_state_dict_hook(lambda module, state, *_: state.update(bias=average))
    state = state_of(model)
    with torch.no_grad():
        model.bias += 1
    return state


def test_the_model_of_any_other_checkpoint_is_exported(tmp_path):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict()
    save(tmp_path / "plain", 1, model)
    for place in ("model", "state_dict", "model_state_dict"):
        save(tmp_path / place, 1, {"epoch": 3, place: model, "optimizer": {"lr": torch.ones(1)}})
    dcp.save(
        {"model": model, "optimizer": {"lr": torch.ones(1)}},
        storage_writer=Writer(tmp_path / "dcp", 1),
    )
    for place in ("plain", "model", "state_dict", "model_state_dict"):
        assert same_tensors(exported(tmp_path / place, tmp_path / "file", "torch"), model), place
    got = exported(tmp_path / "dcp", tmp_path / "file", "torch")
    assert same_tensors({name: got[name] for name in model}, model) and len(got) == len(model)
    save(tmp_path / "none", 1, {"optimizer": {"lr": torch.ones(1)}})
    words = [
        "regroup",
        "checkpoint",
        "export",
        tmp_path / "none",
        tmp_path / "no",
        "--to",
        "npz",
        "--model-only",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "contains no model" in done.stderr


def test_load_gives_the_tensors_of_what_was_imported(tmp_path):
    tensors = {"b": torch.ones(2, 2), "a": torch.zeros(0), "c": torch.tensor(3.5)}
    np.savez(tmp_path / "x.npz", **{name: tensor.numpy() for name, tensor in tensors.items()})
    run("regroup", "checkpoint", "import", tmp_path / "x.npz", tmp_path / "x")
    assert same_tensors(load(newest_checkpoint(tmp_path / "x")), tensors)
    dcp.save({"n": {"x": [1, 2]}}, storage_writer=Writer(tmp_path / "dcp", 1))
    with pytest.raises(regroup.Error, match=r"is a pickle of torch.distributed.checkpoint"):
        load(newest_checkpoint(tmp_path / "dcp"))


def test_a_directory_of_checkpoints_is_told_from_one(tmp_path):
    for step in (3, 12):
        newest = save(tmp_path / "ck", step, {"x": torch.ones(2)})
    why = rf"ck is a directory of checkpoints; give one of them: {newest} is the newest"
    for call in (load, regroup.checkpoint.Checkpoint, lambda path: Reader(path).read_metadata()):
        with pytest.raises(regroup.Error, match=why):
            call(str(tmp_path / "ck"))
    with pytest.raises(regroup.Error, match="MANIFEST"):
        load(tmp_path)


def with_pickle(path, old: bytes, new: bytes, keep=lambda name: True):
    """A file of torch.save() whose pickle is another, or that lacks records."""
    torch.save({"w": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist() if keep(name)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            assert not name.endswith("data.pkl") or old in content
            archive.writestr(
                name, content.replace(old, new) if name.endswith("data.pkl") else content
            )


BAD_FILES = {
    "a function of another module": (
        b"ctorch._utils\n_rebuild_tensor_v2",
        b"cposix\nsystem",
        "posix.system",
    ),
    "sizes beyond the storage": (b"K\x04\x85", b"K\x7f\x85", "RuntimeError"),
    "strides beyond the storage": (b"K\x01\x85", b"K\x7f\x85", "RuntimeError"),
    "a negative size": (b"K\x04\x85", b"J\xff\xff\xff\xff\x85", "RuntimeError"),
    "an offset beyond the storage": (b"QK\x00", b"QK\x7f", "RuntimeError"),
    "no storage": (b"", b"", "data/0"),
    "an old tar archive": (None, None, "legacy .tar format"),
    "nothing": (None, None, "EOFError: it is cut off"),
    "a number of NumPy": (None, None, r"numpy\S*scalar"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_files_that_torch_does_not_load_are_refused_in_one_line(
    case, tmp_path, monkeypatch, capsys
):
    old, new, why = BAD_FILES[case]
    path = tmp_path / "bad\x1b[31m.pt"
    if case == "nothing":
        path.touch()
    elif case == "a number of NumPy":
        torch.save({"loss": np.float64(0.5)}, path)
    elif case == "an old tar archive":
        with tarfile.open(path, "w") as archive:
            for name in ("sys_info", "pickle", "storages", "tensors"):
                archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    else:
        with_pickle(path, old, new, lambda name: case != "no storage" or "/data/" not in name)
    monkeypatch.setattr(sys, "argv", ["import", str(path), str(tmp_path / "d"), "1"])
    with pytest.raises(SystemExit) as ended:
        regroup.torch_checkpoint._main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and len(said.splitlines()) == 1 and "\x1b" not in said, said
    assert re.search(why, said) and "bad\\x1b[31m.pt: no file of torch.save()" in said, said
    assert "Please use" not in said and "add_safe_globals" not in said, said


@pytest.mark.parametrize("dtype", ["quantized", "complex32"])
def test_torch_adds_no_lines_of_its_own(dtype, tmp_path):
    """Of what it is about to change."""
    path = tmp_path / "a.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        torch.save(
            {"q": one if dtype == "quantized" else torch.zeros(2, dtype=torch.complex32)}, path
        )
    words = [sys.executable, "-m", "regroup.torch_checkpoint", path, tmp_path / "d", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("regroup checkpoint: ") and "q: " in line


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.ones(1)


class Uncounted(TensorDataset):
    def __len__(self):
        raise TypeError("never")


MODEL = nn.Linear(1, 1)
SGD = torch.optim.SGD(MODEL.parameters(), lr=0.1)
DATA = TensorDataset(torch.ones(4, 1))


@pytest.mark.parametrize(
    ("model", "optimizer", "dataset", "why"),
    [
        (
            MODEL,
            SGD,
            Endless(),
            r"data set: an Endless has no len\(\); pass samples=, how many of them an epoch takes",
        ),
        (
            MODEL,
            SGD,
            iter([1]),
            r"data set: expected len\(\) and \[index\], .*, got a list_iterator without",
        ),
        (
            MODEL,
            SGD,
            Uncounted(),
            r"data set: got an Uncounted, whose len\(\) raises TypeError: never",
        ),
        (
            MODEL,
            SGD,
            TensorDataset,
            r"data set: expected an instance, got the class TensorDataset, not an instance of it",
        ),
        (
            MODEL,
            SGD,
            {"x": 1, "y": 2},
            r"data set: expected the keys 0 to 1, or a list of samples, got a dict",
        ),
        (MODEL, SGD, [], r"data set: expected at least one sample, got a list without"),
        (
            MODEL,
            [SGD, SGD],
            DATA,
            r"optimizer\[1\]: expected each optimizer once, got one twice",
        ),
        (
            MODEL,
            {"a": SGD},
            DATA,
            r"optimizer: expected an optimizer or a list of them, got a dict",
        ),
        (MODEL, None, DATA, r"optimizer: expected a torch.optim.Optimizer, got None"),
        (
            MODEL,
            torch.optim.SGD,
            DATA,
            r"optimizer: expected a torch.optim.Optimizer, got the class SGD, not an instance",
        ),
        (
            MODEL,
            MODEL.parameters(),
            DATA,
            r"optimizer: expected a torch.optim.Optimizer, got a generator",
        ),
        (MODEL.parameters(), SGD, DATA, r"model: expected a torch.nn.Module, got a generator"),
        ({"a": MODEL}, SGD, DATA, r"model: expected a torch.nn.Module, got a dict"),
        (nn.LazyLinear(2), SGD, DATA, r"weight of the model has no shape yet"),
    ],
)
def test_join_says_what_it_cannot_take(model, optimizer, dataset, why):
    with pytest.raises(regroup.Refused, match=f"^join: {why}"):
        regroup.torch.join(model, optimizer, dataset, batch_size=2, epochs=1)


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("batch_size", 0, "batch_size: expected a whole number >= 1, got 0"),
        ("batch_size", 2.0, "batch_size: expected a whole number >= 1, got a float"),
        ("epochs", 0, "epochs: expected a whole number >= 1, got 0"),
        ("epochs", None, "epochs: expected a whole number >= 1, got None"),
        (
            "extra",
            torch.optim.lr_scheduler.StepLR(SGD, 1),
            r"extra: expected a list such as extra=\[scheduler\], got a StepLR",
        ),
        (
            "extra",
            [SGD, 1],
            r"extra\[1\]: expected state_dict\(\) and load_state_dict\(\), got an int without",
        ),
        ("collate", "stack", "collate: expected a function, got a str"),
        ("state_bytes", "1G", "state_bytes: expected .*, got a str"),
        ("deadline", 0.5, "deadline: expected .*, got a float"),
        ("observer", 5, "observer: expected a function, got an int"),
    ],
)
def test_join_names_the_argument_that_cannot_be(argument, value, why):
    words = {"batch_size": 2, "epochs": 1, argument: value}
    with pytest.raises(regroup.Refused, match=f"^join: {why}"):
        regroup.torch.join(MODEL, SGD, DATA, **words)


class OwnOptimizer:
    """Wraps one, as libraries do, and is no torch.optim.Optimizer."""

    def __init__(self, wrapped):
        self.wrapped = wrapped

    def __getattr__(self, name):
        return getattr(self.wrapped, name)


def test_join_takes_an_optimizer_and_a_data_set_of_other_makes():
    model = nn.Linear(1, 1)
    optimizer = OwnOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    samples = {index: (torch.ones(1), torch.ones(1)) for index in range(4)}
    session = regroup.torch.join(model, optimizer, samples, batch_size=np.int64(2), epochs=1)
    for step in session:
        for x, y in step:
            (model(x) - y).sum().backward()
        optimizer.step()
    assert step.number == 2
    session.finish()


def test_a_module_that_is_none_is_no_attribute():
    with pytest.raises(AttributeError, match="'regroup' has no attribute 'torsch'"):
        regroup.torsch  # noqa: B018
