"""State of PyTorch, torch.distributed.checkpoint and Keras in checkpoints, and out of them
again."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import regroup
import torch
import torch.distributed.checkpoint as dcp
from regroup import checkpoint, optim, torch_checkpoint


def sample_state():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.BatchNorm1d(30))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 40)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "half": torch.randn(5).bfloat16(),
        "scalar": torch.tensor(3.5),
        "none": torch.empty(0, 4),
        "epoch": 7,
        "names": ["a", ("b", 1.5, None)],
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_state_dict_comes_back(tmp_path):
    state = sample_state()
    path = torch_checkpoint.save(tmp_path, 12, state)
    assert path.name == "step-00000012" and checkpoint.newest_checkpoint(str(tmp_path)) == str(path)
    assert same(torch_checkpoint.load(path), state)
    assert checkpoint.newest_checkpoint(str(tmp_path / "nowhere")) is None


def test_a_file_of_torch_save_is_imported(tmp_path, monkeypatch, capsys):
    state = sample_state()
    torch.save(state, tmp_path / "a.pt")
    monkeypatch.setattr(
        sys, "argv", ["torch_checkpoint", str(tmp_path / "a.pt"), str(tmp_path / "c"), "9"]
    )
    torch_checkpoint._main()
    assert capsys.readouterr().out.strip().endswith("step-00000009")
    assert same(torch_checkpoint.load(tmp_path / "c/step-00000009"), state)


def test_a_path_that_a_save_returns_is_there_whatever_its_step(tmp_path):
    for step in (100, 200, 300):
        torch_checkpoint.save(tmp_path, step, {"x": torch.ones(2)}, keep_last=2)
    path = torch_checkpoint.save(tmp_path, 5, {"x": torch.full((2,), 5.0)}, keep_last=2)
    assert torch.equal(torch_checkpoint.load(path)["x"], torch.full((2,), 5.0))
    assert sorted(p.name for p in tmp_path.glob("step-*")) == [
        "step-00000005",
        "step-00000200",
        "step-00000300",
    ]
    snapshot = checkpoint.Snapshot([checkpoint.Piece("x", "float32", (2,))])
    part = snapshot.write(tmp_path, 400, commit=False)
    assert sorted(p.name for p in part.iterdir()) == ["PART-0000", "shard-0000-of-0001.h5"]
    assert not (tmp_path / "step-00000400").exists()


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "uint4", "complex32", "x\x1b"])
def test_a_piece_of_an_unknown_type_is_refused_before_it_takes_memory(dtype):
    shown = "x\\\\x1b" if dtype == "x\x1b" else dtype
    why = (
        f"^tensor a has type {shown}, which checkpoints cannot hold; expected one of float32, "
        f".*complex128"
    )
    with pytest.raises(regroup.Refused, match=why):
        checkpoint.Snapshot([checkpoint.Piece("a", dtype, (1 << 50,))])


def test_an_import_removes_no_checkpoint(tmp_path, monkeypatch):
    torch.save({"x": torch.ones(2)}, tmp_path / "a.pt")
    for step in (100, 200, 300, 400, 5):
        monkeypatch.setattr(
            sys,
            "argv",
            ["torch_checkpoint", str(tmp_path / "a.pt"), str(tmp_path / "c"), str(step)],
        )
        torch_checkpoint._main()
    assert len(list((tmp_path / "c").glob("step-*"))) == 5


def import_by_command(*words, **environment):
    return subprocess.run(
        ["regroup", "checkpoint", "import", *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_command_imports_a_file_of_torch_save(tmp_path):
    state = sample_state()
    torch.save(state, tmp_path / "a.pt")
    done = import_by_command(tmp_path / "a.pt", tmp_path / "c", "--step", 9, "--from", "torch")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/c/step-00000009\n"
    assert same(torch_checkpoint.load(tmp_path / "c/step-00000009"), state)
    again = import_by_command(tmp_path / "a.pt", tmp_path / "d")  # by the name of the file
    assert again.stdout == f"{tmp_path}/d/step-00000000\n", again.stderr


def test_the_command_says_why_it_cannot_import(tmp_path):
    (tmp_path / "bad.pt").write_bytes(b"no archive")
    done = import_by_command(tmp_path / "bad.pt", tmp_path / "c")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"regroup checkpoint: {tmp_path}/bad.pt: no file of torch.save()" in done.stderr
    python = tmp_path / "python3"  # stands in for one that has not got the packages
    python.write_text("#!/bin/sh\nexit 4\n")
    python.chmod(0o755)
    done = import_by_command(
        tmp_path / "bad.pt", tmp_path / "c", PATH=f"{tmp_path}:{os.environ['PATH']}"
    )
    assert done.returncode == 2
    assert "requires a Python with the packages regroup and torch (" in done.stderr
    assert "python3: package torch is missing)" in done.stderr
    assert not (tmp_path / "c").exists()


def pickle_streams():
    folder = Path(__file__).parents[1] / "fuzz/corpus/torch_load"
    return sorted(folder.iterdir())


@pytest.mark.parametrize("path", pickle_streams(), ids=lambda path: path.name[:8])
def test_a_damaged_pickle_is_refused_with_a_sentence(path, tmp_path, monkeypatch, capsys):
    """Streams for which loading or saving raised KeyError, IndexError, TypeError, RecursionError,
    ..."""
    torch.save({"w": torch.ones(2, 3), "b": torch.zeros(2)}, tmp_path / "whole.pt")
    with (
        zipfile.ZipFile(tmp_path / "whole.pt") as whole,
        zipfile.ZipFile(tmp_path / "a.pt", "w") as damaged,
    ):
        for name in whole.namelist():
            pickled = name.endswith("data.pkl")
            damaged.writestr(name, path.read_bytes() if pickled else whole.read(name))
    monkeypatch.setattr(
        sys, "argv", ["torch_checkpoint", str(tmp_path / "a.pt"), str(tmp_path / "c"), "1"]
    )
    if path.name.startswith("6721641e"):  # has keys without an order among them, which are kept
        torch_checkpoint._main()
        kept = torch_checkpoint.load(tmp_path / "c/step-00000001")
        assert (
            kept
            == torch.load(tmp_path / "a.pt", weights_only=True)
            == {None: 1, (1,): 2, (None,): 3}
        )
        return
    with pytest.raises(SystemExit) as end:
        torch_checkpoint._main()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"regroup checkpoint: {tmp_path}/a.pt")


def nested_lists(depth):
    """2 ** depth values, and some bytes for each depth in a file."""
    value = [1]
    for _ in range(depth):
        value = [value, value]
    return value


def names_of_one_storage(count):
    """Views, which torch.save() keeps as views."""
    one = torch.zeros(1 << 18)
    return {str(index): one[:] for index in range(count)}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (
            lambda: {"w": torch.zeros(1).expand(1 << 25, 1 << 25)},
            r"state\.w: the state takes 4503599627370497 bytes with this expanded tensor of shape "
            r"\[33554432, 33554432\] with strides \[0, 0\] \(save its clone\(\) instead\); "
            r"a file of \d+ bytes may ask for at most 67108864",
        ),
        (
            lambda: {"w": torch.zeros(2, 1).expand(2, 1 << 24)},
            r"state\.w: the state takes 134217729 bytes with this expanded tensor .*",
        ),
        (
            lambda: names_of_one_storage(80),
            r"state\.63: .* with this tensor of shape \[262144\], whose storage others have, too; "
            r".*",
        ),
        (
            lambda: ["a" * (1 << 20)] * 100,
            r"state\[64\]: the state takes 68157440 bytes with this text; .*",
        ),
        (lambda: nested_lists(20), r"state.*: more than 1048576 values in a file of \d+ bytes: .*"),
    ],
    ids=["petabytes", "expanded", "shared-storage", "shared-text", "shared-lists"],
)
def test_a_small_file_that_asks_for_much_is_refused(state, reason, tmp_path, monkeypatch, capsys):
    file = tmp_path / "a.pt"
    torch.save(state(), file)
    assert file.stat().st_size < 3 << 20
    monkeypatch.setattr(sys, "argv", ["torch_checkpoint", str(file), str(tmp_path / "c"), "1"])
    with pytest.raises(SystemExit) as end:
        torch_checkpoint._main()
    assert end.value.code == 2 and not (tmp_path / "c").exists()
    assert re.fullmatch(
        f"regroup checkpoint: {file} into {tmp_path}/c: {reason}\n", capsys.readouterr().err
    )


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["strided", "jagged"])
def test_a_file_with_a_nested_tensor_is_refused_by_name(layout, tmp_path, monkeypatch, capsys):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    torch.save({"w": nested}, tmp_path / "a.pt")
    monkeypatch.setattr(
        sys, "argv", ["torch_checkpoint", str(tmp_path / "a.pt"), str(tmp_path / "c"), "1"]
    )
    with pytest.raises(SystemExit) as end:
        torch_checkpoint._main()
    assert end.value.code == 2 and not (tmp_path / "c").exists()
    assert "/c: state.w: nested tensors are not supported" in capsys.readouterr().err


def test_tied_weights_and_expanded_masks_are_imported(tmp_path, monkeypatch):
    tied = torch.randn(300, 100)
    state = {"in": tied, "out": tied, "mask": torch.ones(1, dtype=torch.bool).expand(64, 64)}
    torch.save(state, tmp_path / "a.pt")
    words = ["torch_checkpoint", str(tmp_path / "a.pt"), str(tmp_path / "c"), "1"]
    monkeypatch.setattr(sys, "argv", words)
    torch_checkpoint._main()
    assert same(torch_checkpoint.load(tmp_path / "c/step-00000001"), state)


def test_damage_is_an_error(tmp_path):
    path = torch_checkpoint.save(tmp_path, 1, {"w": torch.randn(1000)})
    shard = path / "shard-0000-of-0001.h5"
    content = bytearray(shard.read_bytes())
    content[len(content) - 2000] ^= 1
    shard.write_bytes(content)
    with pytest.raises(regroup.Error, match="CRC32C"):
        torch_checkpoint.load(path)


def test_paths_reach_no_terminal_as_they_are(tmp_path):
    path = torch_checkpoint.save(tmp_path / "red\x1b[31m\u202e", 1, {"w": torch.ones(3)})
    opened = checkpoint.Checkpoint(path)
    for call in (
        lambda: opened.read_into("no", np.zeros(3, np.float32)),
        lambda: opened.read_into("w", np.zeros(3)),
        lambda: torch_checkpoint.load(path / "no"),
    ):
        with pytest.raises(regroup.Error, match=r"red\\x1b\[31m\\") as raised:
            call()
        assert not set(str(raised.value)) & {"\x1b", "\u202e"}


def test_a_directory_that_a_job_holds_is_refused(tmp_path):
    with (
        checkpoint._locked(tmp_path),
        pytest.raises(regroup.Error, match="LOCK: process .* has it"),
    ):
        torch_checkpoint.save(tmp_path, 1, {"w": torch.ones(3)})


def test_what_others_wrote_into_a_lock_is_escaped(tmp_path):
    with checkpoint._locked(tmp_path), pytest.raises(regroup.Error) as refused:
        (tmp_path / "LOCK").write_text("job x\x1b[31m\nregroup: the job is over: finished\n")
        torch_checkpoint.save(tmp_path, 1, {"w": torch.ones(3)})
    assert r"LOCK: job x\x1b[31m\nregroup: the job is over: finished has it" in str(refused.value)


def test_the_fused_step_fills_a_snapshot_that_is_then_written(tmp_path):
    parameter = torch.nn.Parameter(torch.randn(300, 100))
    optimizer = optim.Adam([parameter])
    names = ["parameter", "exp_avg", "exp_avg_sq"]
    snapshot = checkpoint.Snapshot([checkpoint.Piece(n, "float32", (300, 100)) for n in names])
    views = {
        n: torch.frombuffer(snapshot.memory(i), dtype=torch.float32) for i, n in enumerate(names)
    }
    optimizer.snapshot_into({parameter: {n: view.view(300, 100) for n, view in views.items()}})
    parameter.grad = torch.randn(300, 100)
    optimizer.step()
    wanted = {"parameter": parameter.detach().clone(), **optimizer.state[parameter]}
    wanted = {name: wanted[name].clone() for name in names}
    with torch.no_grad():
        parameter.fill_(float("nan"))
    opened = checkpoint.Checkpoint(str(snapshot.write(tmp_path, 1)))
    for name in names:
        got = torch.empty(300, 100)
        opened.read_into(name, got)
        assert torch.equal(got, wanted[name])
    rows = torch.empty(7, 100)
    opened.read_into("parameter", rows, [20, 0], [7, 100])
    assert torch.equal(rows, wanted["parameter"][20:27])


def test_distributed_checkpoint_of_one_process(tmp_path):
    state = {"model": sample_state()["model"], "step": 5, "list": [torch.ones(3), "text"]}
    dcp.save(state, storage_writer=torch_checkpoint.Writer(tmp_path, 5), no_dist=True)
    empty = {
        "model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()},
        "step": 0,
        "list": [torch.zeros(3), ""],
    }
    reader = torch_checkpoint.Reader(checkpoint.newest_checkpoint(str(tmp_path)))
    dcp.load(empty, storage_reader=reader, no_dist=True)
    assert same(empty, state)


def test_reader_warns_of_moments_that_a_load_drops(tmp_path, recwarn):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {"model": model, "optimizer": optimizer}
    dcp.save(state, storage_writer=torch_checkpoint.Writer(tmp_path, 1), no_dist=True)
    path = checkpoint.newest_checkpoint(str(tmp_path))
    fresh = torch.optim.Adam(model.parameters())
    with pytest.warns(UserWarning, match=r"has 6 entries .*, optimizer\.state\..* first"):
        dcp.load({"optimizer": fresh}, storage_reader=torch_checkpoint.Reader(path), no_dist=True)
    recwarn.clear()
    dcp.load({"model": model}, storage_reader=torch_checkpoint.Reader(path), no_dist=True)
    dcp.load(state, storage_reader=torch_checkpoint.Reader(path), no_dist=True)
    assert not [one for one in recwarn if "entries" in str(one.message)]


# Ranks are forked by a process that has imported torch, which takes longer than all the rest.
MEMBERS = """
import os, sys, traceback, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard, init_device_mesh, distribute_tensor
from regroup import torch_checkpoint

def member(verb, directory, rank, size):
    method = f"file://{directory}.{verb}"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    full = torch.arange(700, dtype=torch.float32).reshape(70, 10)
    if verb == "save":
        state = {"w": distribute_tensor(full, mesh, [Shard(0)]), "b": torch.ones(5), "step": 3}
        dcp.save(state, storage_writer=torch_checkpoint.Writer(directory, 3))
    else:
        w = distribute_tensor(torch.zeros(70, 10), mesh, [Shard(0)])
        state = {"w": w, "b": torch.zeros(5), "step": 0}
        dcp.load(state, storage_reader=torch_checkpoint.Reader(directory + "/step-00000003"))
        assert torch.equal(state["w"].full_tensor(), full) and state["step"] == 3
        assert torch.equal(state["b"], torch.ones(5))
    dist.barrier()  # nobody leaves while another still hears from it

def together(verb, directory, size):
    ranks = []
    for rank in range(size):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            try:
                member(verb, directory, rank, size)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)  # torch's own end of a process group calls std::terminate now and then
    statuses = [os.waitpid(pid, 0)[1] for pid in ranks]
    assert statuses == [0] * size, (verb, statuses)

for number, sizes in enumerate(sys.argv[2:]):
    saved, loaded = map(int, sizes.split(","))
    together("save", f"{sys.argv[1]}/c{number}", saved)
    together("load", f"{sys.argv[1]}/c{number}", loaded)
"""


def test_distributed_checkpoint_of_other_numbers_of_ranks(tmp_path):
    (tmp_path / "members.py").write_text(MEMBERS)
    words = [sys.executable, str(tmp_path / "members.py"), str(tmp_path), "3,2", "1,4"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for number, saved in enumerate((3, 1)):
        assert len(list((tmp_path / f"c{number}" / "step-00000003").glob("shard-*"))) == saved


KERAS = """
import sys, numpy as np, keras
from regroup import keras_checkpoint
def model():
    made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, name="one"),
                             keras.layers.BatchNormalization(name="norm"),
                             keras.layers.Dense(2, name="two")])
    made.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return made
x, y = np.random.randn(32, 6).astype("float32"), np.random.randn(32, 2).astype("float32")
trained, fresh = model(), model()
trained.fit(x, y, epochs=1, verbose=0)
fresh.train_on_batch(x, y)
path = keras_checkpoint.save(sys.argv[1], 4, trained)
keras_checkpoint.load(path, fresh)
assert np.array_equal(trained.predict(x, verbose=0), fresh.predict(x, verbose=0))
for a, b in zip(trained.optimizer.variables, fresh.optimizer.variables, strict=True):
    assert np.array_equal(a.numpy(), b.numpy()), a.path
other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, name="one")])
try:
    keras_checkpoint.load(path, other)
except Exception as error:
    assert "one/kernel" in str(error), error
else:
    raise AssertionError("a model of another shape was loaded")
def dense(dtype):
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, dtype=dtype, name="dense")])
made, narrow = dense("float32"), dense("bfloat16")
path = keras_checkpoint.save(sys.argv[1], 5, made)
before = [np.array(weight) for weight in narrow.weights]
names = [weight.path.removeprefix(f"{narrow.name}/") for weight in narrow.weights]
for lossy in ((), names[:1]):
    try:
        keras_checkpoint.load(path, narrow, lossy=lossy)
    except Exception as error:
        assert f"{names[len(lossy)]} is float32, and bfloat16" in str(error), error
        assert f"lossy=['{names[len(lossy)]}']" in str(error), error
    else:
        raise AssertionError("a model of another type was loaded")
    assert all(np.array_equal(a, np.array(b)) for a, b in zip(before, narrow.weights, strict=True))
keras_checkpoint.load(path, narrow, lossy=names)
for a, b in zip(made.weights, narrow.weights, strict=True):
    assert np.array_equal(a.numpy().astype(b.numpy().dtype), b.numpy()), a.path
def towers(*order):  # save_weights() of Keras itself forgets their names
    inputs = {name: keras.Input((2,)) for name in order}
    rows = [keras.layers.Dense(3, name=name)(inputs[name]) for name in order]
    return keras.Model(list(inputs.values()), keras.layers.Dot(1)(rows))
one, other = towers("users", "items"), towers("items", "users")
keras_checkpoint.load(keras_checkpoint.save(sys.argv[1], 7, one), other)
for name in ("users", "items"):
    for a, b in zip(one.get_layer(name).weights, other.get_layer(name).weights, strict=True):
        assert np.array_equal(a.numpy(), b.numpy()), name
for wrong in (None, {"a": made}, [made], keras.Sequential):
    for call, first in ((keras_checkpoint.save, (sys.argv[1], 6)),
                        (keras_checkpoint.load, (path,))):
        try:
            call(*first, wrong)
        except ValueError as error:
            assert str(error).startswith("keras_checkpoint: model: expected"), error
        else:
            raise AssertionError(f"{wrong} was taken for a model")
"""


def test_keras_weights_come_back(tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "keras_model.py").write_text(KERAS)
    words = [sys.executable, str(tmp_path / "keras_model.py"), str(tmp_path / "c")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    names = {
        name for name, _, _ in checkpoint.Checkpoint(str(tmp_path / "c/step-00000004")).tensors
    }
    assert any(name.endswith("one/kernel") for name in names)


@pytest.mark.parametrize(
    ("tensor", "memory"),
    [
        ("f", np.zeros(3, np.int32)),
        ("f", np.zeros(3, ">f4")),
        ("f", torch.zeros(6, dtype=torch.bfloat16)),
        ("f", [0.0, 0.0, 0.0]),
        ("f", None),
        ("f", b"0" * 12),
        ("f", np.zeros(6, np.float32)[::2]),
        ("i", np.zeros(3, np.float64)),
        ("i", np.zeros(3, np.uint64)),
        ("b", np.zeros(3, np.float16)),
        ("e", torch.zeros(3, dtype=torch.float8_e4m3fn)),
        ("c", np.zeros(3, np.float64)),
    ],
    ids=lambda value: (
        getattr(value, "dtype", type(value).__name__) if not isinstance(value, str) else value
    ),
)
def test_memory_of_another_type_is_refused_by_name(tensor, memory, of_each_type):
    with pytest.raises(
        regroup.Refused, match=rf"{tensor} is .* converts nothing|expected a contiguous, writable"
    ):
        of_each_type.read_into(tensor, memory)


@pytest.fixture(scope="module")
def of_each_type(tmp_path_factory):
    types = {
        "f": "float32",
        "i": "int64",
        "b": "bfloat16",
        "e": "float8_e5m2",
        "c": "complex64",
        "t": "bool",
    }
    snapshot = checkpoint.Snapshot(
        [checkpoint.Piece(name, dtype, (3,)) for name, dtype in types.items()]
    )
    for index in range(len(types)):
        memory = snapshot.memory(index)
        memory[:] = bytes(range(1, 1 + len(memory))) if index < 5 else bytes([1, 0, 1])
    return checkpoint.Checkpoint(snapshot.write(tmp_path_factory.mktemp("types"), 1))


@pytest.mark.parametrize(
    ("tensor", "memory"),
    [
        ("f", np.zeros(3, np.float32)),
        ("f", torch.zeros(3)),
        ("f", np.zeros(12, np.uint8)),
        ("f", memoryview(bytearray(12))),
        ("i", np.zeros(3, np.int64)),
        ("b", torch.zeros(3, dtype=torch.bfloat16)),
        ("b", np.zeros(3, np.uint16)),
        ("e", torch.zeros(3, dtype=torch.float8_e5m2)),
        ("c", np.zeros(3, np.complex64)),
        ("c", np.zeros((3, 2), np.float32)),
        ("t", torch.zeros(3, dtype=torch.bool)),
    ],
    ids=lambda value: (
        getattr(value, "dtype", type(value).__name__) if not isinstance(value, str) else value
    ),
)
def test_memory_that_holds_the_same_bits_is_filled(tensor, memory, of_each_type):
    of_each_type.read_into(tensor, memory)
    raw = memory.view(torch.uint8).numpy() if isinstance(memory, torch.Tensor) else memory
    wanted = bytes([1, 0, 1]) if tensor == "t" else bytes(range(1, 1 + len(bytes(raw))))
    assert bytes(raw) == wanted


def test_numpy_arrays_without_a_framework(tmp_path):
    snapshot = checkpoint.Snapshot([checkpoint.Piece("w", "float64", (3, 4))])
    snapshot.memory(0)[:] = np.arange(12.0).tobytes()
    path = snapshot.write(tmp_path, 2)
    got = np.empty((3, 4))
    checkpoint.Checkpoint(str(path)).read_into("w", got)
    assert np.array_equal(got, np.arange(12.0).reshape(3, 4))
    snapshot.close()
