"""Members whose states have gone apart: the job fails, says whose and what, and keeps no checkpoint
of it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import regroup.checkpoint

MEMBER = pathlib.Path(__file__).parent / "_diverging.py"


@pytest.fixture
def train(monkeypatch):
    """The status and the output of a job of so many members."""
    runtime = tempfile.mkdtemp(prefix="rg")  # short: sockets are in it
    for name in ("REGROUP_SHARDS", "REGROUP_SEED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)

    def run(members: int | str, *words: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        size = f"{members}:{members}" if isinstance(members, int) else members
        launcher = ["regroup", "--oversubscribe", "-np", size, *options]
        done = subprocess.run(
            [*launcher, sys.executable, str(MEMBER), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env=os.environ,
        )
        return done.returncode, done.stdout

    yield run
    shutil.rmtree(runtime, ignore_errors=True)


def failure(text: str) -> str:
    """The one line that says why the job failed."""
    (line,) = re.findall(r"^regroup: the job failed: (.*)$", text, re.MULTILINE)
    assert "Traceback" not in text, text
    assert "finished" not in text.splitlines(), text
    return line


def steps_in(directory: pathlib.Path) -> list[int]:
    return sorted(int(p.name[5:]) for p in directory.glob("step-*"))


def steps_told(why: str, directory: pathlib.Path) -> list[int]:
    """Of the checkpoints that the line speaks of: the newest, and one that is on its way to the
    disk."""
    newest = r"(?:the newest checkpoint is that of step (\d+)|no checkpoint in)"
    written = r"(?: \(that of step (\d+) is being written\))?"
    told = rf"{newest} in {re.escape(str(directory))}(?: yet)?{written}[; ]"
    found = re.search(told, why)
    assert found, why
    return [int(step) for step in found.groups() if step]


def test_a_scheduler_that_join_was_not_given_is_found_behind_the_join(train, tmp_path):
    status, text = train(
        2, "torch", options=("--checkpoint", str(tmp_path), "--checkpoint-interval", "5")
    )
    assert status == 1, text
    why = failure(text)
    found = re.search(
        r"after step (\d+) members 0 and 2 have different states; "
        r"optimizer\.param_groups\[0\]\['lr'\] is ([\d.e-]+) in member 0 and ([\d.e-]+) in member "
        r"2;",
        why,
    )
    assert found, why
    assert float(found[2]) != float(found[3])
    assert "a scheduler" in why and "extra=[...]" in why
    newest = steps_in(tmp_path)[-1]
    assert newest in steps_told(why, tmp_path) and newest < int(found[1]), why


def test_a_buffer_that_differs_is_named_in_the_midst_of_training(train):
    """No checkpoint is made, nobody joins, and the end is far."""
    status, text = train(3, "numpy", "buffer=2,40")
    assert status == 1, text
    why = failure(text)
    assert "after step 64 member 2 has another state than members 0 and 1" in why
    assert "the first tensor that differs is buffer;" in why
    assert "their states were equal after step 8" in why


def test_no_checkpoint_is_made_of_members_that_differ(train, tmp_path):
    status, text = train(
        2,
        "numpy",
        "buffer=1,14",
        str(tmp_path),
        options=(
            "--checkpoint",
            str(tmp_path),
            "--checkpoint-interval",
            "5",
            "--max-restarts",
            "2",
        ),
    )
    assert status == 1, text
    why = failure(text)
    found = re.search(r"after step (\d+) members 0 and 1 have different states", why)
    assert found and 14 <= int(found[1]) <= 64, why  # as soon as another snapshot is taken
    newest = steps_in(tmp_path)[-1]
    assert newest < 14
    assert newest in steps_told(why, tmp_path), why
    assert "restart" not in text  # the same would come of it


def test_the_last_step_counts(train, tmp_path):
    status, text = train(
        2,
        "numpy",
        "buffer=1,100",
        options=("--checkpoint", str(tmp_path), "--checkpoint-interval", "100"),
    )
    assert status == 1, text
    assert "after step 100 members 0 and 1 have different states" in failure(text)
    assert steps_in(tmp_path) == []


def test_what_a_member_does_to_its_weights_behind_the_last_step_is_its_own(train, tmp_path):
    status, text = train(
        2,
        "numpy",
        "export",
        options=("--checkpoint", str(tmp_path), "--checkpoint-interval", "100"),
    )
    assert status == 0, text
    assert text.splitlines().count("finished") == 2
    assert steps_in(tmp_path) == [100]


@pytest.mark.parametrize("interval", ["12", "100"])
def test_so_it_is_behind_a_break_and_the_checkpoint_of_that_step_is_as_the_loop_left_it(
    train, interval, tmp_path
):
    options = ("--checkpoint", str(tmp_path), "--checkpoint-interval", interval)
    status, text = train(2, "numpy", "leave=12", options=options)
    assert status == 0, text
    assert text.splitlines().count("finished") == 2
    assert steps_in(tmp_path) == [12]
    weight = np.ones(8, np.float32)
    regroup.checkpoint.Checkpoint(tmp_path / "step-00000012").read_into("weight", weight)
    expected = np.zeros(8, np.float32)
    for _ in range(12):
        expected -= 0.1 * np.ones(8, np.float32)
    assert weight.tobytes() == expected.tobytes()


def test_a_world_of_fixed_size_fails_as_well(train):
    """Its ranks raise: no coordinator speaks for them."""
    status, text = train("2", "numpy", "buffer=1,40")
    assert status == 1, text
    assert "after step 64 members 0 and 1 have different states" in text
    assert "finished" not in text.splitlines()


def test_members_that_may_compute_other_bits_are_not_compared(train):
    status, text = train(2, "numpy", "buffer=1,20", options=("--reproducible=off",))
    assert status == 0, text
    assert text.splitlines().count("finished") == 2
