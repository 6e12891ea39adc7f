"""Checkpoints as others see them: our reader of a hundred lines, h5py, h5dump, safetensors, torch,
numpy."""

import contextlib
import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import reader
import regroup.checkpoint
import safetensors.numpy
import torch
from saving import BIN, DEADLINE_S, Save, sample_tensors, save, tool

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "checkpoints" / "step-00000007"


def same(got: np.ndarray, wanted: np.ndarray) -> bool:
    return got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


@pytest.fixture(scope="module", params=[1, 2, 3], ids="{}-writers".format)
def saved(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("ckpt")
    tensors = sample_tensors()
    return save(directory, 1234, tensors, writers=request.param), tensors


def test_the_independent_reader_agrees(saved):
    path, tensors = saved
    manifest, arrays = reader.load(str(path))
    assert manifest["step"] == 1234 and manifest["seed"] == 7 and manifest["shards"] == 4
    assert set(arrays) == set(tensors)
    for name, (_, array) in tensors.items():
        assert same(arrays[name], array), name


def test_nothing_but_the_files_of_the_manifest_is_there(saved):
    path, _ = saved
    names = {file["name"] for file in reader.read_manifest(str(path))["files"]}
    assert set(os.listdir(path)) == names | {"MANIFEST"}
    assert (path.parent / "LATEST").read_text() == "step-00001234\n"
    assert not list(path.parent.glob(".*"))


def test_h5py_opens_the_view_from_anywhere(saved, monkeypatch, tmp_path):
    path, tensors = saved
    monkeypatch.chdir(tmp_path)
    with h5py.File(path / "model.h5") as view:
        assert set(view) == {name.replace("/", "@2F") for name in tensors}
        for name, (dtype, array) in tensors.items():
            dataset = view[name.replace("/", "@2F")]
            assert same(dataset[()], array), name
            if dtype in ("bfloat16", "float8_e4m3fn", "bool"):
                assert dataset.attrs["dtype"] in (dtype, dtype.encode())


def test_h5dump_opens_the_view_and_the_shards(saved):
    path, _ = saved
    for file in path.glob("*.h5"):
        done = subprocess.run(
            ["h5dump", "-H", file.name], cwd=path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 and "DATASET" in done.stdout, done.stderr
    done = subprocess.run(
        ["h5dump", "-d", "steps", "model.h5"], cwd=path, capture_output=True, text=True, timeout=60
    )
    assert "(0): 1" in done.stdout


def test_shards_open_with_bounds_of_1_8(saved):
    path, _ = saved
    for file in path.glob("shard-*.h5"):
        with h5py.File(file, libver=("v108", "v108")) as shard:
            # of the superblock: with a checksum
            assert shard.id.get_create_plist().get_version()[0] >= 2


def test_show_and_ls(saved):
    path, tensors = saved
    shown = json.loads(tool("show", path, "--json").stdout)
    assert {t["name"]: (t["dtype"], t["shape"]) for t in shown["tensors"]} == {
        name: (dtype, list(array.shape)) for name, (dtype, array) in tensors.items()
    }
    assert "layer.weight  float32  [65, 33]" in tool("show", path.parent).stdout
    (row,) = json.loads(tool("ls", path.parent, "--json").stdout)
    assert row["step"] == 1234 and row["bytes"] == sum(f.stat().st_size for f in path.glob("*.h5"))
    assert "1234" in tool("ls", path.parent).stdout


def test_ls_prints_heads_on_a_terminal_only(saved):
    folder = saved[0].parent
    piped = tool("ls", folder).stdout.splitlines()
    ours, theirs = pty.openpty()
    command = [str(BIN / "regroup-checkpoint"), "ls", str(folder)]
    assert subprocess.run(command, stdout=theirs, timeout=DEADLINE_S).returncode == 0
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while more := os.read(ours, 4096):
            shown += more
    os.close(ours)
    head, *rows = shown.decode().splitlines()
    assert head.split() == ["STEP", "SIZE", "TENSORS", "JOB"]
    assert rows == piped and len(rows) == 1


def test_verify_is_content_with_it(saved):
    done = tool("verify", saved[0])
    assert done.returncode == 0 and "good" in done.stdout, done


def test_export_to_torch(saved, tmp_path):
    path, tensors = saved
    assert tool("export", path, tmp_path / "m.pt", "--to", "torch").returncode == 0
    loaded = torch.load(tmp_path / "m.pt", weights_only=True)
    assert list(loaded) == list(tensors)
    for name, (dtype, array) in tensors.items():
        assert str(loaded[name].dtype) == f"torch.{dtype}"
        assert loaded[name].shape == array.shape
        if array.size:
            assert (
                loaded[name].reshape(-1).view(torch.uint8).numpy().tobytes() == array.tobytes()
            ), name


@pytest.mark.parametrize("form", ["safetensors", "npz"])
def test_export_and_import(form, tmp_path):
    kinds = {"bfloat16", "float8_e4m3fn"}  # which numpy does not have
    tensors = {
        name: of
        for name, of in sample_tensors().items()
        if form == "safetensors" or of[0] not in kinds
    }
    path = save(tmp_path / "a", 5, tensors, writers=2)
    file = tmp_path / f"m.{form}"
    assert tool("export", path, file, "--to", form).returncode == 0
    if form == "npz":
        loaded = np.load(file)
    else:
        loaded = (
            safetensors.numpy.load_file(file)
            if not kinds & {of[0] for of in tensors.values()}
            else {}
        )
        with safetensors.safe_open(file, "pt") as opened:
            assert set(opened.keys()) == set(tensors)
            assert opened.metadata()["step"] == "5"
    for name in loaded:
        assert same(np.asarray(loaded[name]), tensors[name][1]), name
    done = tool("import", file, tmp_path / "b", "--step", "5")
    assert done.returncode == 0, done.stderr
    assert tool("diff", path, tmp_path / "b").returncode == 0


def test_imports_what_others_wrote(tmp_path):
    arrays = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.array(3, np.int64)}
    np.savez(tmp_path / "x.npz", **arrays)
    safetensors.numpy.save_file(arrays, tmp_path / "x.safetensors")
    for form in ("npz", "safetensors"):
        assert tool("import", tmp_path / f"x.{form}", tmp_path / form).returncode == 0
        loaded = reader.load(reader.newest(str(tmp_path / form)))[1]
        assert all(same(loaded[name], array) for name, array in arrays.items())
    np.savez_compressed(tmp_path / "y.npz", **arrays)
    assert "compressed" in tool("import", tmp_path / "y.npz", tmp_path / "y").stderr


def test_diff_names_what_differs(tmp_path):
    a, b = sample_tensors(), sample_tensors()
    b["layer.weight"][1][3, 4] += 1
    b["mask"] = ("bool", np.array([True, False]))
    del b["half"]
    done = tool("diff", save(tmp_path / "a", 1, a), save(tmp_path / "b", 1, b, writers=3))
    assert done.returncode == 1
    assert "layer.weight: 1 of 2145 elements differ" in done.stdout
    assert "mask: bool [0:3] and bool [0:2]" in done.stdout
    assert "half: only in" in done.stdout
    assert "large" not in done.stdout


def test_prune_never_leaves_fewer_than_two(tmp_path):
    for step in (10, 20, 30, 40):
        save(tmp_path, step, {"x": ("float32", np.zeros(3, np.float32))})
    assert tool("prune", tmp_path, "--keep-last", "0", "--keep-every", "20").returncode == 0
    assert sorted(p.name for p in tmp_path.glob("step-*")) == [
        "step-00000020",
        "step-00000030",
        "step-00000040",
    ]


def test_many_small_tensors_are_packed(tmp_path):
    count = 100_000 if os.environ.get("REGROUP_TEST_FULL") else 3_000
    tensors = {f"t{i}": ("float32", np.full((3,), i, np.float32)) for i in range(count)}
    path = save(tmp_path, 1, tensors, writers=1)
    assert sum(f.stat().st_size for f in path.glob("shard-*")) < count * 12 + 10_000
    assert same(reader.load(str(path))[1]["t77"], tensors["t77"][1])
    with h5py.File(path / "model.h5") as view:
        assert view["t77"][2] == 77


@pytest.mark.skipif("REGROUP_TEST_FULL" not in os.environ, reason="5 GiB on the disk: --full only")
def test_a_tensor_of_more_than_4_gib(tmp_path):
    """Written out of memory that is mostly holes; read at both ends and around the 4 GiB in
    between."""
    rows, columns = 5 << 10, 1 << 18  # 5 GiB of fp32
    marks = {0: 1.0, (1 << 30) - 1: 2.0, 1 << 30: 3.0, rows * columns - 1: 4.0}  # by element
    with Save(tmp_path, 1, {}) as part:
        os.ftruncate(part.memory, 64 + rows * columns * 4 + 4096)
        for element, value in marks.items():
            os.pwrite(part.memory, np.float32(value).tobytes(), 4096 + element * 4)
        part.description["tensors"] = [
            {"name": "w", "dtype": "float32", "shape": [rows, columns], "offset": 4096}
        ]
        done = part.run()
        assert done.returncode == 0, done.stderr
    path = tmp_path / "step-00000001"
    assert tool("verify", path).returncode == 0
    checkpoint = regroup.checkpoint.Checkpoint(str(path))
    row = np.empty((1, columns), np.float32)
    for element, value in marks.items():
        checkpoint.read_into("w", row, [element // columns, 0], [1, columns])
        assert row[0, element % columns] == value and np.count_nonzero(row) == 1
    with h5py.File(path / "model.h5") as view:
        assert view["w"][rows - 1, columns - 1] == 4.0 and view["w"][rows - 1, 0] == 0.0


def test_golden_checkpoint_of_version_1_loads(tmp_path):
    path = shutil.copytree(GOLDEN, tmp_path / GOLDEN.name)
    assert tool("verify", path).returncode == 0
    arrays = reader.load(str(path))[1]
    assert same(arrays["w"], np.arange(20, dtype=np.float32).reshape(5, 4))
    assert arrays["steps"] == 7
    kinds = {"w": "float32", "b": "bfloat16", "steps": "int64", "nothing": "float32"}
    fresh = save(
        tmp_path / "fresh", 7, {name: (kinds[name], array) for name, array in arrays.items()}
    )
    assert tool("diff", path, fresh).returncode == 0
