"""Jobs that keep checkpoints: interrupted and started again, they end with the sums of an undisturbed run."""

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import h5py
import pytest
from conftest import BIN, ROOT, until

STEPS = 150
QUICK = ["--oversubscribe", "-np", "1:4", "--shards", "4", "--every", "5"]


def checkpoints(directory: Path) -> list[int]:
    return sorted(int(p.name[5:]) for p in directory.glob("step-*"))


def named(job) -> int:
    """The newest that a line has promised."""
    return max(map(int, re.findall(r"checkpoint of step (\d+): in", job.err)), default=0)


def steps_of(job) -> list[int]:
    return sorted({int(line.split()[1]) for line in job.out.splitlines() if line.startswith("step")})


def start(regroup, member, directory, size: int, *more: str, pause_ms=10):
    words = [*QUICK, "--checkpoint", str(directory), "--start", str(size), *more]
    return regroup.start(*words, member, str(STEPS), str(pause_ms))


def kill_everything(job) -> None:
    """The host's power fails: guardian, coordinator, agent, members and whoever writes."""
    for pid in [job.process.pid, *job.living()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.process.wait(30)
    job.assert_nothing_left(30)


def assert_goes_on(job, after: int) -> None:
    """It resumed after a step that is at least `after`, and ended with everything counted once."""
    assert job.wait() == 0, job.err
    resumed = int(re.search(r"the job goes on after step (\d+), from", job.err)[1])
    assert resumed >= after
    assert steps_of(job) == list(range(resumed + 1, STEPS + 1))
    weights = {line.split()[1] for line in job.out.splitlines() if line.startswith("finished")}
    assert weights == {f"{4 * STEPS}.0"}
    job.assert_nothing_left(5)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4)])
def test_a_job_killed_altogether_goes_on_with_another_number_of_members(
    regroup, member, before, after, tmp_path
):
    job = start(regroup, member, tmp_path, before)
    until(lambda: named(job) >= 20, "the checkpoint of step 20")
    kill_everything(job)
    promised = named(job)
    assert_goes_on(start(regroup, member, tmp_path, after, pause_ms=0), promised)
    assert 2 <= len(checkpoints(tmp_path)) <= 3 and checkpoints(tmp_path)[-1] >= promised


def test_the_last_snapshot_is_written_before_the_job_ends(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 2, pause_ms=0)
    assert job.wait() == 0, job.err
    assert checkpoints(tmp_path)[-1] == named(job) > 0
    job.assert_nothing_left(5)
    assert not list(tmp_path.glob(".*"))


def test_a_member_killed_right_after_its_snapshot_loses_nothing(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 2, "--replace", "auto")
    until(lambda: named(job) >= 10, "a checkpoint")
    for _ in range(3):
        seen = named(job)
        first = json.loads(regroup.control("status", "--json").stdout)["members"]
        victim = next(m["id"] for m in first if m["state"] == "active")
        assert regroup.control("kill-member", str(victim)).returncode == 0
        until(lambda seen=seen: named(job) > seen + 5 or job.process.poll() is not None, "checkpoints go on")
    assert job.wait() == 0, job.err
    weights = {line.split()[1] for line in job.out.splitlines() if line.startswith("finished")}
    assert weights == {f"{4 * STEPS}.0"}
    assert "checkpoint of step" in job.err and " failed" not in job.err


def test_the_second_job_on_a_directory_is_refused_and_told_who_has_it(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1)
    until(lambda: (tmp_path / "LOCK").exists() and (tmp_path / "LOCK").read_text(), "the lock")
    second = start(regroup, member, tmp_path, 1)
    assert second.wait() == 1
    assert re.search(r"--checkpoint .*LOCK: job \S+ \(process \d+ on \S+\) has it", second.err)
    assert job.wait() == 0


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1)
    until(lambda: named(job) >= 20, "checkpoints")
    kill_everything(job)
    steps = checkpoints(tmp_path)
    shard = tmp_path / f"step-{steps[-1]:08d}" / "shard-0000-of-0001.h5"
    with open(shard, "r+b") as file:
        file.seek(300)
        file.write(b"damage")
    again = start(regroup, member, tmp_path, 2, pause_ms=0)
    assert_goes_on(again, steps[-2])
    assert f"goes on after step {steps[-2]}," in again.err
    assert "is damaged, the one before is used" in again.err
    assert (tmp_path / f"damaged-step-{steps[-1]:08d}" / "REASON").exists()


def test_a_disk_that_fails_costs_checkpoints_and_not_the_job(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path / "d", 2)
    until(lambda: named(job) >= 5, "a checkpoint")
    (tmp_path / "d").rename(tmp_path / "gone")
    (tmp_path / "d").write_text("a file now")
    job.wait_err(r"the checkpoint of step \d+ failed, the one before stays: .*mkdir")
    assert job.wait() == 0, job.err
    assert f"finished {4 * STEPS}.0" in job.out


def test_a_snapshot_larger_than_allowed_is_refused(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1, "--checkpoint-memory", "1M")
    assert job.wait() != 0
    assert "--checkpoint-memory 1048576: a snapshot of this state takes" in job.err


def train(regroup, folder: Path, size: int, *more: str):
    """PyTorch members: dropout, Adam, two epochs of 29 steps."""
    folder.mkdir(exist_ok=True)
    member = [sys.executable, str(ROOT / "tests/chaos/torch_member.py"), str(folder), "2", "3000"]
    words = ["--oversubscribe", "-np", "1:3", "--shards", "4", "--start", str(size), *more]
    path = f"{BIN.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    return regroup.start(*words, *member, env={"PYTHONPATH": path})


def weights_of(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.glob("weights.*")}


def test_a_resumed_torch_job_has_the_bits_of_an_uninterrupted_one(regroup, tmp_path):
    undisturbed = train(regroup, tmp_path / "undisturbed", 1)
    keep = ["--checkpoint", str(tmp_path / "ckpt"), "--every", "4"]
    job = train(regroup, tmp_path / "first", 2, *keep)
    until(lambda: named(job) >= 12, "checkpoints", 120)
    kill_everything(job)
    again = train(regroup, tmp_path / "again", 3, *keep)
    assert again.wait(180) == 0, again.err
    assert "the job goes on after step" in again.err
    assert undisturbed.wait(180) == 0, undisturbed.err
    assert weights_of(tmp_path / "again") == weights_of(tmp_path / "undisturbed") != set()
    newest = max((tmp_path / "ckpt").glob("step-*"))
    with h5py.File(newest / "model.h5") as view:
        assert view["model.0.weight"].shape == (32, 64)
        assert any(name.startswith("optimizer.state.") and name.endswith(".exp_avg") for name in view)
