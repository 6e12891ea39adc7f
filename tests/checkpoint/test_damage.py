"""Damage of every kind: what loads is what was written, or it is refused; nothing crashes or
hangs."""

import os
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from late_mount import mounted, needs_fuse
from saving import BIN, DEADLINE_S, Save, newest, sample_tensors, save, tool

TINY = {
    "w": ("float32", np.arange(20, dtype=np.float32).reshape(5, 4)),
    "b": ("bfloat16", np.arange(3, dtype=np.uint16)),
    "s": ("int64", np.array(7, np.int64)),
}


def flip(path: Path, byte: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(byte)
        old = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([old ^ 1 << bit]))


def found(checkpoint: Path) -> bool:
    done = tool("verify", checkpoint)
    # neither crash nor hang
    assert done.returncode in (0, 1), (done.returncode, done.stdout, done.stderr)
    return done.returncode == 1


def test_flips_here_and_there_are_found(tmp_path):
    """By the command; flips_test.cc tries every byte, and thousands in a large checkpoint."""
    path = save(tmp_path, 1, sample_tensors(), writers=2)
    chance, files = random.Random(2), sorted(path.iterdir())
    for number in range(20):
        file = files[number % len(files)]
        byte, bit = chance.randrange(file.stat().st_size), chance.randrange(8)
        flip(file, byte, bit)
        assert found(path), (file.name, byte, bit)
        flip(file, byte, bit)
    assert not found(path)


@pytest.mark.parametrize("how", ["cut", "longer", "missing", "folder", "pipe", "empty", "link"])
def test_a_file_that_is_not_as_it_was(how, tmp_path):
    path = save(tmp_path / "c", 1, TINY)
    for name in [p.name for p in path.iterdir()]:
        kept = shutil.copytree(path, tmp_path / f"kept-{name}")
        file = kept / name
        size = file.stat().st_size
        if how in ("missing", "folder", "pipe", "link"):
            file.unlink()
        if how == "cut":
            os.truncate(file, size - 1)
        elif how == "longer":
            os.truncate(file, size + 1)
        elif how == "empty":
            os.truncate(file, 0)
        elif how == "folder":
            file.mkdir()
        elif how == "pipe":
            os.mkfifo(file)
        elif how == "link":
            file.symlink_to("/dev/zero")
        done = tool("verify", kept)
        assert done.returncode != 0 and name in done.stdout + done.stderr, (name, done)


def test_a_damaged_one_is_set_aside_and_the_one_before_used(tmp_path):
    for step in (1, 2, 3):
        path = save(tmp_path, step, TINY)
    flip(path / "shard-0000-of-0001.h5", 500, 3)
    os.truncate(tmp_path / "step-00000002" / "model.h5", 10)
    done = newest(tmp_path)
    assert done.returncode == 0 and '"step":1' in done.stdout, done
    assert "step-00000003 is damaged; using the one before it" in done.stderr
    assert (tmp_path / "damaged-step-00000003" / "REASON").read_text().strip()
    assert (tmp_path / "damaged-step-00000002" / "REASON").read_text().strip()


def test_the_only_one_is_damaged_and_none_before_it_is_promised(tmp_path):
    path = save(tmp_path, 1, TINY)
    flip(path / "shard-0000-of-0001.h5", 500, 3)
    done = newest(tmp_path)
    assert (done.returncode, done.stdout) == (0, "{}\n"), done
    assert "step-00000001 is damaged; no other one is left: " in done.stderr
    assert (tmp_path / "damaged-step-00000001" / "REASON").read_text().strip()


def test_no_checkpoint_and_no_directory_are_no_error(tmp_path):
    assert newest(tmp_path).stdout == "{}\n"
    assert newest(tmp_path / "nowhere").stdout == "{}\n"


def test_a_directory_that_vanishes_is_named(tmp_path):
    with Save(tmp_path / "gone", 1, TINY) as part:
        part.description["directory"] = "/proc/nowhere"
        done = part.run()
    assert done.returncode == 1 and "/proc/nowhere" in done.stderr.decode()


@pytest.mark.parametrize(
    "change",
    [
        {"directory": ""},
        {"uuid": "../x"},
        {"writers": 0},
        {"step": -1},
        {"tensors": [{"name": "x", "dtype": "float32", "shape": [1 << 40], "offset": 0}]},
        {"tensors": [{"name": "x", "dtype": "float31", "shape": [1], "offset": 0}]},
        {"tensors": [{"name": "x", "dtype": "float32", "shape": [1], "offset": 1 << 63}]},
        {
            "tensors": [
                {
                    "name": "x",
                    "dtype": "float32",
                    "shape": [2],
                    "start": [1],
                    "count": [2],
                    "offset": 0,
                }
            ]
        },
        {"tensors": 5},
    ],
    ids=str,
)
def test_a_description_that_cannot_be_is_refused(change, tmp_path):
    with Save(tmp_path, 1, TINY) as part:
        part.description |= change
        done = part.run()
    assert done.returncode == 1 and done.stderr, done
    assert not list(tmp_path.glob("step-*"))


def test_a_description_of_an_unknown_type_names_the_tensor_and_the_types(tmp_path):
    with Save(tmp_path, 1, TINY) as part:
        part.description["tensors"] = [{"name": "x\n", "dtype": "uint4", "shape": [1], "offset": 0}]
        said = part.run().stderr.decode()
    assert said.startswith(
        r"tensor x\n has type uint4, which checkpoints cannot hold; expected one of float32,"
    )


def test_a_part_that_is_missing_makes_no_checkpoint(tmp_path):
    with Save(tmp_path, 1, TINY, writer=1, writers=2) as part:
        done = part.run()
    assert done.returncode == 1 and b"the part of this writer is missing" in done.stderr
    assert not list(tmp_path.glob("step-*"))


def test_what_several_threads_find_in_a_large_checkpoint_is_named_in_order(tmp_path):
    """From 64 MiB for each, `verify` has a thread for each core."""
    path = save(tmp_path, 1, {"w": ("uint8", np.zeros(200 << 20, np.uint8))})
    done = tool("verify", path)
    assert done.returncode == 0 and "good" in done.stdout
    shard = path / "shard-0000-of-0001.h5"
    places = [(9 << 20) + 1, 70 << 20, 130 << 20, 199 << 20]
    with open(shard, "r+b") as file:
        for at in places:
            file.seek(at)
            file.write(b"\x01")
    done = tool("verify", path)
    assert done.returncode == 1
    named = [
        tuple(map(int, pair))
        for pair in re.findall(r"bytes (\d+) to (\d+) have CRC32C", done.stdout)
    ]
    assert [begin <= at < end for at, (begin, end) in zip(places, named, strict=True)] == [True] * 4


def test_a_file_that_is_cut_while_it_is_verified_is_damage(tmp_path):
    """Its pages are mapped: what is behind the end is SIGBUS, at whatever moment that is met."""
    path = save(tmp_path, 1, {"w": ("uint8", np.zeros(128 << 20, np.uint8))})
    shard = path / "shard-0000-of-0001.h5"
    whole = shutil.copyfile(shard, tmp_path / "whole")
    words = [str(BIN / "regroup-checkpoint"), "verify", str(path)]
    for milliseconds in range(0, 48, 4):
        shutil.copyfile(whole, shard)  # and into the page cache
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(milliseconds / 1000)
        os.truncate(shard, 5000)
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, 1), (process.returncode, said)
        assert process.returncode == 0 or str(shard) in said, said
    done = tool("verify", path)
    assert done.returncode == 1 and "5000 bytes" in done.stdout, done.stdout


@needs_fuse
def test_what_a_file_system_fails_to_read_is_damage_with_its_place(tmp_path):
    path = save(tmp_path / "real", 1, {"w": ("uint8", np.zeros(32 << 20, np.uint8))})
    (tmp_path / "seen").mkdir()
    with mounted(tmp_path / "real", tmp_path / "seen", 0):
        seen = tmp_path / "seen" / path.name
        assert tool("verify", seen).returncode == 0
        (tmp_path / "real.broken").write_text(f"shard-0000-of-0001.h5 {17 << 20}")
        done = tool("verify", seen)
        assert done.returncode == 1
        named = re.findall(
            rf"bytes (\d+) to (\d+) cannot be read: pread\({seen}/shard-0000-of-0001.h5\): Input",
            done.stdout,
        )
        assert [int(begin) > 8 << 20 for begin, _ in named] == [True] * len(named) and named, (
            done.stdout
        )
