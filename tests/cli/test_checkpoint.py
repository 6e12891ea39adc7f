"""Jobs that keep checkpoints: interrupted and started again, they end with the sums of an
undisturbed run."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import conftest
import google_crc32c
import h5py
import pytest
from conftest import BIN, ROOT, TENTH, elastic, until

sys.path.insert(0, str(ROOT / "tests/checkpoint"))
from late_mount import mounted, needs_fuse, needs_mount, read_only  # noqa: E402

STEPS = 150
QUICK = elastic("1:4", "--shards", "4", interval=5)
NONE_SAVED = elastic("1:4", "--shards", "4", "--checkpoint-interval", "0")


def checkpoints(directory: Path) -> list[int]:
    return sorted(int(p.name[5:]) for p in directory.glob("step-*"))


def named(job) -> int:
    """The newest that a line has promised."""
    return max(map(int, re.findall(r"checkpoint of step (\d+): in", job.err)), default=0)


def steps_of(job) -> list[int]:
    return sorted(
        {int(line.split()[1]) for line in job.out.splitlines() if line.startswith("step")}
    )


def said_weights(job) -> set[str]:
    """What members say at their end."""
    return {line.split()[1] for line in job.out.splitlines() if line.startswith("finished")}


def start(regroup, member, directory, size: int, *more: str, pause_ms=40, steps=STEPS, **popen):
    """Its steps take 6 s, unless it is told to hurry: longer than a disk stalls."""
    words = [*QUICK, "--checkpoint", str(directory), "--initial-size", str(size), *more]
    return regroup.start(*words, member, str(steps), str(pause_ms), **popen)


def kill_everything(job) -> None:
    """The host's power fails: guardian, coordinator, agent, members and whoever writes."""
    for pid in [job.process.pid, *job.living()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.process.wait(60)
    job.assert_nothing_left()


def assert_goes_on(job, after: int) -> None:
    """It resumed after a step that is at least `after`, and ended with everything counted once."""
    job.hurry()
    assert job.wait() == 0, job.err
    resumed = int(re.search(r"the job resumes after step (\d+) from", job.err)[1])
    assert resumed >= after
    assert steps_of(job) == list(range(resumed + 1, STEPS + 1))
    assert said_weights(job) == {f"{4 * STEPS}.0"}
    job.assert_nothing_left()


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


def test_the_last_save_is_written_before_the_job_ends(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 2, pause_ms=0)
    assert job.wait() == 0, job.err
    assert checkpoints(tmp_path)[-1] == named(job) > 0
    job.assert_nothing_left()
    assert not list(tmp_path.glob(".*"))


def test_a_member_killed_right_after_its_snapshot_loses_nothing(regroup, member, tmp_path):
    steps = 6 * STEPS  # enough for the checkpoints of a slow disk: it hurries at the end
    job = start(regroup, member, tmp_path, 2, "--replace", "auto", steps=steps)
    until(lambda: named(job) >= 10, "a checkpoint")

    def active() -> list[int]:
        members = json.loads(regroup.control("status", "--json").stdout)["members"]
        return [m["id"] for m in members if m["state"] == "active"]

    for _ in range(3):
        until(lambda: len(active()) == 2, "both members")
        seen = named(job)
        until(lambda seen=seen: named(job) > seen, "a checkpoint that both have been through")
        seen = named(job)
        assert regroup.control("kill-member", str(active()[0])).returncode == 0
        until(
            lambda seen=seen: named(job) > seen + 5 or job.process.poll() is not None,
            "checkpoints go on",
        )
    job.hurry()
    assert job.wait() == 0, job.err
    assert said_weights(job) == {f"{4 * steps}.0"}
    assert "checkpoint of step" in job.err and " failed" not in job.err


def members_of(job) -> list[int]:
    return [pid for pid, line in job.living().items() if "elastic_member" in line.split()[0]]


def lose_all_members(job) -> None:
    for pid in members_of(job):
        os.kill(pid, signal.SIGKILL)


GOES_ON = "the job resumes from its newest checkpoint"


def assert_goes_on_by_itself(job) -> None:
    job.hurry()
    assert job.wait() == 0 and GOES_ON in job.err, job.err
    assert steps_of(job) == list(range(1, STEPS + 1))
    assert said_weights(job) == {f"{4 * STEPS}.0"}


def test_a_job_that_loses_all_members_goes_on_from_its_newest_checkpoint(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 3, "--max-restarts", "1")
    until(lambda: named(job) >= 20, "the checkpoint of step 20")
    lose_all_members(job)
    assert_goes_on_by_itself(job)
    assert "all members of generation" in job.err and "signal 9" in job.err, job.err
    assert f"{GOES_ON} in 1 s (restart 1 of 1)" in job.err
    assert int(re.search(r"the job resumes after step (\d+) from", job.err)[1]) >= 20
    attempts = json.loads((tmp_path / "ATTEMPTS").read_text())
    assert (attempts["attempts"], attempts["failed"], attempts["killed"]) == (2, 1, 0)
    job.assert_nothing_left()


def test_a_job_that_keeps_losing_all_members_stays_ended(regroup, member, tmp_path):
    job = start(
        regroup,
        member,
        tmp_path,
        2,
        "--max-restarts",
        "2",
        "--checkpoint-interval",
        "30",
        pause_ms=60,
    )
    until(lambda: named(job) >= 30, "the checkpoint of step 30")
    seen = 0
    for launch in range(1, 5):  # the first one made the checkpoint that the others begin with
        until(
            lambda n=launch: job.err.count("the job resumes after step 30") == n - 1,
            f"launch {launch}",
        )
        until(lambda n=seen: job.out.count("step 31 ") > n, "a step of this launch")
        lose_all_members(job)
        until(
            lambda n=launch: job.err.count("all members of generation") == n, "an end of the launch"
        )
        seen = job.out.count("step 31 ")
    assert job.wait() == 128 + signal.SIGKILL, job.err
    assert job.err.count(GOES_ON) == 3 and f"{GOES_ON} in 2 s (restart 2 of 2)" in job.err
    assert "the job was launched 3 times without a newer checkpoint (--max-restarts 2)" in job.err
    job.assert_nothing_left()


def test_without_a_checkpoint_or_restarts_a_job_that_loses_all_members_ends(
    regroup, member, tmp_path
):
    job = start(regroup, member, tmp_path / "none", 2, "--checkpoint-interval", "100000")
    until(lambda: job.out.count("step") >= 5, "some steps")
    lose_all_members(job)
    assert job.wait() == 128 + signal.SIGKILL, job.err
    assert (
        f"all members with the job's state are lost, and {tmp_path}/none contains no checkpoint of "
        f"it" in job.err
    )
    job = start(regroup, member, tmp_path / "never", 2, "--max-restarts", "0")
    until(lambda: named(job) >= 5, "a checkpoint")
    lose_all_members(job)
    assert job.wait() == 128 + signal.SIGKILL and GOES_ON not in job.err, job.err


def test_who_ends_a_job_between_two_launches_is_heard(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 2, "--notice-status", "99")
    until(lambda: named(job) >= 5, "a checkpoint")
    lose_all_members(job)
    until(lambda: GOES_ON in job.err, "the pause")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 99, job.err
    assert (
        "SIGTERM received: the job is not restarted" in job.err
        and "the job resumes after step" not in job.err
    )
    job.assert_nothing_left()


def test_a_job_under_nohup_goes_on_behind_the_end_of_its_terminal(regroup, member, tmp_path):
    job = start(
        regroup,
        member,
        tmp_path,
        2,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    until(lambda: named(job) >= 5, "a checkpoint")
    job.process.send_signal(signal.SIGHUP)
    lose_all_members(job)
    assert_goes_on_by_itself(job)


def test_members_that_die_of_a_signal_that_was_passed_on_to_them_end_the_job(
    regroup, member, tmp_path
):
    job = start(regroup, member, tmp_path, 2, "--forward-signals", "INT")
    until(lambda: named(job) >= 5, "a checkpoint")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 128 + signal.SIGINT and GOES_ON not in job.err, job.err


def test_the_second_job_on_a_directory_is_refused_and_told_who_has_it(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1)
    until(lambda: (tmp_path / "LOCK").exists() and (tmp_path / "LOCK").read_text(), "the lock")
    second = start(regroup, member, tmp_path, 1)
    assert second.wait() == 1
    assert re.search(
        r"--checkpoint .*LOCK: job \S+ \(process \d+ on \S+, PID .*\) has it", second.err
    )
    job.hurry()
    assert job.wait() == 0


def test_a_job_that_has_lost_its_launcher_is_waited_for(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1, "--orphan-timeout", "3", pause_ms=40)
    until(lambda: named(job) >= 5, "a checkpoint")
    job.process.kill()
    job.process.wait(60)
    again = start(regroup, member, tmp_path, 1, "--orphan-timeout", "3", pause_ms=40)
    again.wait_err(r"--checkpoint .*LOCK: job \S+ \(process \d+ on .*\) has it, "
                   r"but its launcher has ended: "
                   r"this job starts when that one has ended, within 8 s")  # fmt: skip
    assert_goes_on(again, 5)


@needs_fuse
@pytest.mark.parametrize("option", ["--checkpoint", "--checkpoint-shared"])
def test_a_directory_that_hangs_is_told_and_no_job_begins(regroup, member, option, tmp_path):
    own = {"--checkpoint": tmp_path / "own", "--checkpoint-shared": tmp_path / "shared"}
    for path in (tmp_path / "real", own[option]):
        path.mkdir()
    words = [word for name, path in own.items() for word in (name, str(path))]
    with mounted(tmp_path / "real", own[option], 0) as server:
        server.send_signal(signal.SIGSTOP)
        job = regroup.start(*NONE_SAVED, *words, "--initial-size", "1", member, "1", "0", env=TENTH)
        assert job.wait() == 1
        assert job.err == f"regroup: {option} {own[option]}: no answer for 1 s\n"
        job.assert_nothing_left()
        server.send_signal(signal.SIGCONT)
        again = regroup.start(*NONE_SAVED, *words, "--initial-size", "1", member, "1", "0")
        assert again.wait() == 0, again.err


@needs_fuse
def test_a_directory_that_hangs_once_its_lock_is_taken_holds_up_no_count_of_attempts(
    regroup, member, tmp_path
):
    own, real = tmp_path / "own", tmp_path / "real"
    for path in (own, real):
        path.mkdir()
    words = [*NONE_SAVED, "--checkpoint", str(own), "--initial-size", "1", member, "1", "0"]
    with mounted(real, own, 0) as server:
        assert regroup.start(*words).wait() == 0
        (tmp_path / "real.hang").write_text("ATTEMPTS 0")
        job = regroup.start(*words, env={"REGROUP_TIME_LIMIT_FACTOR": "0.2"})
        told = f"regroup: {own}/ATTEMPTS: no answer for 2 s\n"
        until(lambda: told in job.err or job.process.poll() is not None, "a line of it")
        (tmp_path / "real.hang").unlink()
        server.send_signal(signal.SIGCONT)  # until then the kernel keeps who has files open there
        assert job.wait() == 1 and told in job.err
        job.assert_nothing_left()
        assert json.loads((real / "ATTEMPTS").read_text())["attempts"] == 1
        again = regroup.start(*words)
        assert again.wait() == 0, again.err


def test_who_reads_checkpoints_at_the_start_and_says_nothing_is_not_waited_for(
    regroup, member, tmp_path, monkeypatch
):
    job = start(regroup, member, tmp_path / "ckpt", 1, pause_ms=0)
    assert job.wait() == 0, job.err
    programs = tmp_path / "bin"  # of which the one that reads hangs, as on a disk that does
    programs.mkdir()
    shutil.copy(BIN / "regroup", programs)
    (programs / "regroup-persist").write_text("#!/bin/sh\nexec sleep 600\n")
    (programs / "regroup-persist").chmod(0o755)
    monkeypatch.setattr(conftest, "BIN", programs)
    again = start(regroup, member, tmp_path / "ckpt", 1, pause_ms=0, env=TENTH)
    assert again.wait() == 1
    told = f"--checkpoint {tmp_path}/ckpt: regroup-persist printed nothing for 3 s"
    assert told in again.err
    again.assert_nothing_left()


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1)
    until(lambda: named(job) >= 20, "checkpoints")
    kill_everything(job)
    steps = checkpoints(tmp_path)
    shard = tmp_path / f"step-{steps[-1]:08d}" / "shard-0000-of-0001.h5"
    with open(shard, "r+b") as file:
        file.seek(300)
        file.write(b"damage")
    # What is set aside stays until as many newer ones as are kept are there.
    again = start(regroup, member, tmp_path, 2, "--checkpoint-keep", "1000", pause_ms=0)
    assert_goes_on(again, steps[-2])
    assert f"resumes after step {steps[-2]} from" in again.err
    assert "is damaged; using the one before it" in again.err
    assert (tmp_path / f"damaged-step-{steps[-1]:08d}" / "REASON").exists()


def test_a_disk_that_fails_costs_checkpoints_and_not_the_job(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path / "d", 2)
    until(lambda: named(job) >= 5, "a checkpoint")
    (tmp_path / "d").rename(tmp_path / "gone")
    (tmp_path / "d").write_text("a file now")
    job.wait_err(r"the checkpoint of step \d+ failed, the previous one is kept: .*/d/LOCK")
    (tmp_path / "d").unlink()
    (tmp_path / "gone").rename(tmp_path / "d")
    job.hurry()
    assert job.wait() == 0, job.err
    assert f"finished {4 * STEPS}.0" in job.out
    assert checkpoints(tmp_path / "d")[-1] == STEPS


@contextlib.contextmanager
def full_disk(folder: Path):
    """A file system, of which the yielded function takes all that is left."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True)

    def fill() -> None:
        with contextlib.suppress(OSError), open(folder / "full", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    try:
        yield fill
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@needs_mount
@pytest.mark.parametrize("size", [["-np", "1:2", "--initial-size", "2"], ["-np", "2"]])
def test_a_job_whose_last_checkpoint_cannot_be_written_fails(regroup, member, size, tmp_path):
    with full_disk(tmp_path / "d") as fill:
        words = [
            "--oversubscribe",
            *size,
            "--checkpoint-interval",
            "20",
            "--checkpoint",
            str(tmp_path / "d"),
        ]
        job = regroup.start(*words, member, str(STEPS), "40")
        until(lambda: named(job) >= 20, "a checkpoint")
        fill()
        job.hurry()
        assert job.wait() == 1, job.err
        assert "finished" in job.out
        assert re.search(
            f"the job failed: the training is complete, but the checkpoint of step {STEPS}, which "
            f"was due at "
            f"the end, is not in {tmp_path}/d: .*No space left on device.*exit status 1",
            job.err,
        ), job.err
        assert STEPS not in checkpoints(tmp_path / "d")


@needs_mount
def test_what_could_not_be_written_before_the_end_is_tried_again_there(regroup, member, tmp_path):
    with full_disk(tmp_path / "d") as fill:
        gates = tmp_path / "gates"
        gates.mkdir()
        (gates / "finish.0").touch()
        words = elastic("1:1", checkpoint=tmp_path / "d", interval=20)
        words += [member, "59", "50", "", "sum", "0", "64", f"gates={gates}"]
        job = regroup.start(*words)
        until(lambda: named(job) >= 20, "a checkpoint")
        fill()
        job.wait_err(r"the checkpoint of step 40 failed, the previous one is kept: .*No space left")
        (tmp_path / "d/full").unlink()
        job.hurry()
        (gates / "finish.0").unlink()
        assert job.wait() == 0, job.err
        assert checkpoints(tmp_path / "d")[-1] == 59


def test_a_slow_disk_delays_the_next_checkpoint_and_never_the_training(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 2)
    until(lambda: named(job) >= 5, "a checkpoint")
    writer = job.stop_one("regroup-persist")
    seen, before = checkpoints(tmp_path)[-1], max(steps_of(job))  # its line may come later
    until(lambda: max(steps_of(job)) >= before + 40, "forty steps without a disk")
    assert named(job) <= checkpoints(tmp_path)[-1] == seen
    os.kill(writer, signal.SIGCONT)
    waited = (
        r"the checkpoint due after step (\d+) waited for the disk: step (\d+) is done "
        r"\(--checkpoint-interval 5\)"
    )
    until(
        lambda: any(int(done) >= int(due) + 30 for due, done in re.findall(waited, job.err)),
        "a line that says so",
    )
    job.hurry()
    assert job.wait() == 0, job.err
    assert named(job) == checkpoints(tmp_path)[-1] > seen + 30


def test_another_fingerprint_than_the_checkpoints_is_told(regroup, member, tmp_path):
    words = [*QUICK, "--checkpoint", str(tmp_path), "--initial-size", "2"]
    job = regroup.start(*words, member, str(STEPS), "40", "isa=old libc=1")
    until(lambda: named(job) >= 10, "checkpoints")
    kill_everything(job)
    again = regroup.start(*words, member, str(STEPS), "0", "isa=new libc=1")
    assert again.wait() != 0
    assert re.search(
        r"member \d+ is refused: its numeric fingerprint is 'isa=new libc=1', the checkpoint's is "
        r"'isa=old libc=1': they differ in isa; --reproducible=off resumes the job with results",
        again.err,
    )
    bold = regroup.start(*words, "--reproducible=off", member, str(STEPS), "0", "isa=new libc=1")
    assert_goes_on(bold, named(job))
    assert "is admitted (--reproducible=off): results are not reproducible bit by bit" in bold.err


def test_a_checkpoint_whose_model_says_the_number_of_epochs_is_resumed(regroup, member, tmp_path):
    """As those that were written until 0.1.0, of a job of regroup.torch twice."""
    done = start(regroup, member, tmp_path, 1, pause_ms=0)
    assert done.wait() == 0, done.err
    for once in ("sum samples={} batch=16 epochs=7", "sum, 7 epochs samples={} batch=16 epochs=7"):
        path = max(tmp_path.glob("step-*")) / "MANIFEST"
        text = path.read_bytes()[:-16]
        saved = json.loads(text)["model"]
        assert saved == f"sum samples={16 * STEPS} batch=16"
        changed = text.replace(saved.encode(), once.format(16 * STEPS).encode())
        path.write_bytes(changed + b"crc32c=%08x\n" % google_crc32c.value(changed))
        again = start(regroup, member, tmp_path, 1, pause_ms=0)
        assert again.wait() == 0, again.err
        assert "the job resumes after step" in again.err and "damaged" not in again.err
        path.write_bytes(text + b"crc32c=%08x\n" % google_crc32c.value(text))


@pytest.mark.parametrize("hosts", [[], ["--launcher", "fork", "-H", "a:1,b:1"]], ids=["one", "two"])
@pytest.mark.parametrize("size", ["1:2", "2"])
def test_another_seed_or_number_of_shards_than_the_checkpoints_is_refused(
    regroup, member, hosts, size, tmp_path
):
    words = ["--oversubscribe", *hosts, "-np", size, "--checkpoint", str(tmp_path / "own")]
    words += ["--checkpoint-shared", str(tmp_path / "shared")]

    def run(*more: str):
        job = regroup.run(*words, *more, member, "10", "0")
        job.wait()
        return job

    assert run("--seed", "3", "--shards", "4").process.returncode == 0
    for option, given, saved in (("--seed", "7", "3"), ("--shards", "8", "4")):
        job = run(option, given)
        assert job.process.returncode == 1, job.err
        told = (
            rf"{option} {given}: checkpoint \S+/step-00000010 was made with {option} {saved}, "
            rf"which "
        )
        assert re.search(told, job.err), job.err
    for same in (["--seed", "3", "--shards", "4"], []):
        job = run(*same)
        assert job.process.returncode == 0 and "resumes after step 10" in job.err, job.err


def test_copies_behind_the_training_bring_a_job_back_without_its_own_directory(
    regroup, member, tmp_path
):
    words = ["--checkpoint-shared", str(tmp_path / "shared")]
    job = start(regroup, member, tmp_path / "local", 2, *words)
    copied = job.wait_err(r"checkpoint of step (\d+): copied to \S+/shared after [\d.]+ s")
    until(lambda: named(job) >= 30, "checkpoints")
    kill_everything(job)
    assert int(copied[1]) <= checkpoints(tmp_path / "shared")[-1]
    shutil.rmtree(tmp_path / "local")
    again = start(regroup, member, tmp_path / "local", 3, *words, pause_ms=5)
    assert_goes_on(again, int(copied[1]))
    assert f"from {tmp_path}/shared/step-" in again.err
    assert (
        checkpoints(tmp_path / "shared")[-1] == checkpoints(tmp_path / "local")[-1] == named(again)
    )


def test_the_newest_of_both_directories_is_used(regroup, member, tmp_path):
    words = ["--checkpoint-shared", str(tmp_path / "shared")]
    job = start(regroup, member, tmp_path / "local", 2, *words)
    until(lambda: named(job) >= 20, "checkpoints")
    kill_everything(job)
    shutil.rmtree(tmp_path / "shared")
    again = start(regroup, member, tmp_path / "local", 1, *words, pause_ms=0)
    assert_goes_on(again, named(job))
    assert f"from {tmp_path}/local/step-" in again.err
    alone = regroup.run("-np", "1:1", "--checkpoint-shared", str(tmp_path), "true")
    assert alone.process.returncode == 1
    assert "--checkpoint-shared: requires --checkpoint DIR" in alone.err


def test_of_two_equal_ones_only_the_first_directorys_is_read(regroup, member, tmp_path):
    words = ["--checkpoint-shared", str(tmp_path / "shared")]
    job = start(regroup, member, tmp_path / "local", 2, *words, pause_ms=0)
    assert job.wait() == 0, job.err
    newest = checkpoints(tmp_path / "local")[-1]
    assert checkpoints(tmp_path / "shared")[-1] == newest == named(job)
    with open(tmp_path / "shared" / f"step-{newest:08d}" / "shard-0000-of-0001.h5", "r+b") as file:
        file.seek(300)
        file.write(b"damage")
    again = start(regroup, member, tmp_path / "local", 1, *words, pause_ms=0)
    assert again.wait() == 0, again.err
    assert f"the job resumes after step {newest} from {tmp_path}/local/step-" in again.err
    assert "is damaged" not in again.err


def stop(job) -> None:
    job.process.send_signal(signal.SIGTERM)


def test_on_a_notice_a_last_save_is_persisted(regroup, member, tmp_path):
    words = ["--checkpoint-interval", "1000", "--term-grace", "20"]
    job = start(regroup, member, tmp_path, 2, *words)
    until(lambda: max(steps_of(job), default=0) >= 20, "steps")
    stop(job)
    time.sleep(0.02)
    stop(job)  # as a scheduler signals a process group and its leader: the same notice
    assert job.wait() != 0
    assert re.search(
        r"a final checkpoint is written before the end: a final save \(.* is attempted within",
        job.err,
    )
    assert named(job) == checkpoints(tmp_path)[-1] >= 20
    job.assert_nothing_left()
    assert_goes_on(start(regroup, member, tmp_path, 3, *words, pause_ms=0), named(job))


def lose_one_below_min(regroup, member, folder: Path, *more: str):
    """A job of two, whose second member is lost, and cannot be replaced soon."""
    words = ["--checkpoint-interval", "1000", "-np", "2:2", "--replace", "never", *more]
    job = start(regroup, member, folder, 2, *words)
    until(lambda: max(steps_of(job), default=0) >= 20, "steps")
    os.kill(members_of(job)[1], signal.SIGKILL)
    return job


def test_below_min_the_state_is_saved_when_the_job_ends(regroup, member, tmp_path):
    job = lose_one_below_min(regroup, member, tmp_path, "--term-grace", "20")
    stop(job)
    assert job.wait() != 0
    assert named(job) == checkpoints(tmp_path)[-1] >= 20, job.err
    job.assert_nothing_left()


def test_below_min_the_state_is_saved_when_the_wait_for_members_is_over(regroup, member, tmp_path):
    job = lose_one_below_min(regroup, member, tmp_path, "--min-members-timeout", "1")
    assert job.wait() == 1
    assert "1 of at least 2 members for 1 s (--min-members-timeout)" in job.err
    assert named(job) == checkpoints(tmp_path)[-1] >= 20, job.err


@pytest.mark.parametrize("hosts", [[], ["--launcher", "fork", "-H", "a:1,b:1"]], ids=["one", "two"])
def test_a_failure_that_ends_the_job_saves_the_state_of_the_others(regroup, tmp_path, hosts):
    script = tmp_path / "train.py"
    script.write_text(
        "import time, numpy as np, regroup\n"
        "w = np.zeros(4, np.float32)\n"
        "s = regroup.Session(regroup.TrackedState(w=w), elements=4, samples=8000, batch=4, "
        "epochs=1)\n"
        "for i, step in enumerate(s):\n"
        "    if i >= 20 and s.rank == 0: raise ValueError\n"
        "    for shard in step: shard.gradient[:] = 1\n"
        "    w -= step.gradient\n"
        "    time.sleep(0.01)\n"
    )
    words = ["--oversubscribe", *hosts, "-np", "2:2", "--checkpoint-interval", "100000"]
    kept = ["--checkpoint", str(tmp_path / "own"), "--checkpoint-shared", str(tmp_path / "shared")]
    job = regroup.run(*words, *kept, sys.executable, str(script))
    assert job.wait() == 1
    assert "the job failed: 3 members in a row" in job.err
    assert "a final checkpoint is written before the end" in job.err, job.err
    saved = checkpoints(tmp_path / "shared")
    assert saved and saved[-1] >= 20, job.err


def until_it_stands(regroup, job) -> None:
    seen = [max(steps_of(job)), 0]

    def stands() -> bool:
        answers = regroup.control("status").returncode == 0  # members have had the time of one
        seen.append(max(steps_of(job)))
        return answers and seen[-1] == seen[-2] == seen[-3]

    until(stands, "a standstill")


def test_members_that_wait_for_one_that_hangs_save_the_state(regroup, member, tmp_path):
    words = elastic("1:4", "--shards", "4", initial=2, checkpoint=tmp_path / "c", interval=1000)
    words += ["--term-grace", "4"]
    many = str(20 * STEPS)
    job = regroup.start(*words, member, many, "1", "", "sum", "0", "64", f"gates={tmp_path}")
    until(lambda: max(steps_of(job), default=0) >= 20, "steps")
    (tmp_path / "leaf.1").touch()  # there member 1 stays
    until(lambda: json.loads(regroup.control("status", "--json").stdout)["step"] >= 20, "its words")
    until_it_stands(regroup, job)
    stop(job)
    assert job.wait() != 0
    assert named(job) == checkpoints(tmp_path / "c")[-1] >= 20, job.err


def test_it_is_told_that_no_last_save_came(regroup, member, tmp_path):
    words = elastic("1:4", "--shards", "4", initial=1, checkpoint=tmp_path / "c", interval=1000)
    words += ["--term-grace", "1"]
    many = str(20 * STEPS)
    job = regroup.start(*words, member, many, "1", "", "sum", "0", "64", f"gates={tmp_path}")
    until(lambda: max(steps_of(job), default=0) >= 5, "steps")
    (tmp_path / "leaf.0").touch()
    until_it_stands(regroup, job)
    stop(job)
    assert job.wait() != 0
    assert checkpoints(tmp_path / "c") == [] and named(job) == 0
    assert re.search(
        r"the state after step \d+ is not saved: no member reached the end of its step", job.err
    )


def test_members_that_have_all_left_on_a_signal_of_their_own_save_the_state(
    regroup, member, tmp_path
):
    job = start(
        regroup,
        member,
        tmp_path,
        2,
        "--checkpoint-interval",
        "1000",
        "--replace",
        "never",
    )
    until(lambda: max(steps_of(job), default=0) >= 20, "steps")
    for pid in members_of(job):
        os.kill(pid, signal.SIGTERM)
    assert job.wait() != 0
    assert "the job ends: all members left on notice" in job.err
    assert named(job) == checkpoints(tmp_path)[-1] >= 20, job.err


def test_a_job_that_has_lost_its_launcher_saves_its_state_before_it_ends(regroup, member, tmp_path):
    job = start(
        regroup,
        member,
        tmp_path,
        2,
        "--checkpoint-interval",
        "1000",
        "--orphan-timeout",
        "2",
        pause_ms=40,
    )
    until(lambda: max(steps_of(job), default=0) >= 20, "steps")
    job.process.kill()
    job.process.wait(60)
    job.assert_nothing_left()
    assert checkpoints(tmp_path)[-1] >= 20, job.err


def test_what_is_due_at_the_end_is_there_however_slow_the_disk_is(regroup, member, tmp_path):
    steps = 1003  # the last is due only because it is the last
    job = start(regroup, member, tmp_path, 2, steps=steps)
    until(lambda: named(job) >= 5, "a checkpoint")
    writer = job.stop_one("regroup-persist")
    job.hurry()
    job.wait_out(f"^step {steps} ")
    os.kill(writer, signal.SIGCONT)
    assert job.wait() == 0, job.err
    assert checkpoints(tmp_path)[-1] == named(job) == steps, job.err


@pytest.mark.parametrize("interval", [20, 25, 1000])
@pytest.mark.parametrize(
    "size", [["-np", "1:2", "--initial-size", "2"], ["-np", "2"]], ids=["elastic", "fixed"]
)
def test_the_last_step_is_saved_once_whatever_the_interval(
    regroup, member, size, interval, tmp_path
):
    words = [
        "--oversubscribe",
        *size,
        "--checkpoint",
        str(tmp_path),
        "--checkpoint-interval",
        str(interval),
    ]
    job = regroup.run(*words, member, "50", "1")
    assert job.wait() == 0, job.err
    assert checkpoints(tmp_path)[-1] == 50, job.err
    assert job.err.count("checkpoint of step 50: in") == 1, job.err
    again = regroup.run(*words, member, "50", "1")
    assert again.wait() == 0 and "resumes after step 50" in again.err, again.err
    assert "checkpoint of step" not in again.err


def test_on_a_notice_the_checkpoint_being_written_is_finished(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 2, "--term-grace", "20")
    until(lambda: named(job) >= 5, "a checkpoint")
    writer = job.stop_one("regroup-persist")
    before, step = named(job), max(steps_of(job))
    until(lambda: max(steps_of(job)) >= step + 10, "a step of which a checkpoint is due")
    stop(job)
    said = job.wait_err(
        r"is finished before the end: the checkpoint of step (\d+) that is being written"
    )
    os.kill(writer, signal.SIGCONT)
    assert job.wait() != 0
    assert named(job) >= int(said[1]) > before
    stood = max(steps_of(job))  # and one of what the members have done meanwhile follows
    assert named(job) >= stood, job.err
    assert_goes_on(start(regroup, member, tmp_path, 1, pause_ms=0), named(job))


STANDS_A_STEP_BEHIND = """
import pathlib, sys, time, numpy as np, regroup
folder = pathlib.Path(sys.argv[1])

def until(name):
    end = time.monotonic() + 60
    while not (folder / name).exists() and time.monotonic() < end:
        time.sleep(0.001)

w = np.zeros(4, np.float32)
s = regroup.Session(regroup.TrackedState(w=w), elements=4, samples=8000, batch=4, epochs=1)
rank = s.rank
for step in s:
    for shard in step:
        if step.number == 7 and rank == 1:
            (folder / "begun").touch()
            until("end")
        shard.gradient[:] = 1
    w -= step.gradient
    if step.number == 6 and rank == 0:
        (folder / "stands").touch()
        until("leave")
    if step.number >= 7:
        (folder / "applied").touch()
"""


def signal_writers(job, number: int) -> None:
    for writer in job.named("regroup-persist"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(writer, number)


@pytest.mark.parametrize("moment", ["while the older one is written", "when it is written"])
def test_a_step_that_ends_behind_the_last_save_is_saved_too(regroup, moment, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(STANDS_A_STEP_BEHIND)
    words = elastic(
        "1:2", "--term-grace", "20", initial=2, checkpoint=tmp_path / "c", interval=1000
    )
    words += ["--replace", "never", sys.executable, str(script)]
    job = regroup.start(*words, str(tmp_path))
    until(
        lambda: (tmp_path / "stands").exists() and (tmp_path / "begun").exists(),
        "one behind the other",
    )
    stop(job)
    job.wait_err("a final checkpoint is written before the end")
    (tmp_path / "leave").touch()
    if moment == "when it is written":
        job.wait_err("checkpoint of step 6: in")
    else:
        until(lambda: job.named("regroup-persist") or named(job), "a writer")
        signal_writers(job, signal.SIGSTOP)
    (tmp_path / "end").touch()
    until(lambda: (tmp_path / "applied").exists(), "the step behind it")
    signal_writers(job, signal.SIGCONT)
    assert job.wait() != 0
    assert "is not saved" not in job.err, job.err
    assert checkpoints(tmp_path / "c")[-1] == named(job) == 7, job.err


def test_on_a_notice_without_time_the_last_commit_stays(regroup, member, tmp_path):
    job = start(
        regroup,
        member,
        tmp_path,
        2,
        "--checkpoint-interval",
        "60",
        "--term-grace",
        "1",
        pause_ms=40,
    )
    # nobody looks for checkpoints any more
    until(lambda: max(steps_of(job), default=0) >= 20, "steps")
    writer = job.stop_one("regroup-persist")
    until(lambda: max(steps_of(job)) >= 80, "more than a second after the step that is saved")
    os.kill(writer, signal.SIGCONT)
    until(lambda: named(job) == 60, "a slow checkpoint")
    stop(job)
    assert job.wait() != 0
    assert "no final checkpoint, the last committed one is kept: a final save" in job.err
    assert re.search(r"needs [\d.]+ s more, (1\.0|0\.\d) s are left", job.err), job.err
    assert checkpoints(tmp_path) == [60]
    job.assert_nothing_left()


def test_a_snapshot_larger_than_allowed_is_refused(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path, 1, "--checkpoint-memory", "1M")
    assert job.wait() != 0
    assert "--checkpoint-memory 1048576: a copy of this state takes" in job.err


def train(
    regroup,
    folder: Path,
    size: int,
    *more: str,
    program=("tests/chaos/torch_member.py",),
    epochs=2,
    pace_us=3000,
):
    """PyTorch members: dropout, Adam, epochs of 29 steps; or another program."""
    folder.mkdir(exist_ok=True)
    member = [
        sys.executable,
        str(ROOT / program[0]),
        str(folder),
        str(epochs),
        str(pace_us),
        *program[1:],
    ]
    words = ["--oversubscribe", "-np", "1:3", "--shards", "4", "--initial-size", str(size), *more]
    path = f"{BIN.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    return regroup.start(*words, *member, env={"PYTHONPATH": path})


def weights_of(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.glob("weights.*")}


def test_a_resumed_torch_job_has_the_bits_of_an_uninterrupted_one(regroup, tmp_path):
    undisturbed = train(regroup, tmp_path / "undisturbed", 1)
    keep = ["--checkpoint", str(tmp_path / "ckpt"), "--checkpoint-interval", "4"]
    job = train(regroup, tmp_path / "first", 2, *keep)
    until(lambda: named(job) >= 12, "checkpoints", 120)
    kill_everything(job)
    again = train(regroup, tmp_path / "again", 1, *keep)
    assert again.wait(180) == 0, again.err
    assert "the job resumes after step" in again.err
    assert undisturbed.wait(180) == 0, undisturbed.err
    assert weights_of(tmp_path / "again") == weights_of(tmp_path / "undisturbed") != set()
    newest = max((tmp_path / "ckpt").glob("step-*"))
    with h5py.File(newest / "model.h5") as view:
        assert view["model.0.weight"].shape == (32, 64)
        assert any(
            name.startswith("optimizer.state.") and name.endswith(".exp_avg") for name in view
        )


def test_a_finished_torch_job_goes_on_for_more_epochs_with_the_bits_of_a_longer_one(
    regroup, tmp_path
):
    longer = train(regroup, tmp_path / "longer", 1, pace_us=0)
    keep = ["--checkpoint", str(tmp_path / "ckpt")]
    first = train(
        regroup, tmp_path / "first", 1, *keep, "--checkpoint-interval", "29", epochs=1, pace_us=0
    )
    assert first.wait(180) == 0, first.err
    more = train(regroup, tmp_path / "more", 2, *keep, "--checkpoint-interval", "4", pace_us=0)
    assert more.wait(180) == 0, more.err
    assert "the job resumes after step 29 from" in more.err
    assert longer.wait(180) == 0, longer.err
    assert weights_of(tmp_path / "more") == weights_of(tmp_path / "longer") != set()


def fused(kind: str = "regroup") -> dict:
    """Two epochs of 75 steps, with an optimizer of regroup.optim or torch's own."""
    return {"program": ("tests/cli/fused_member.py", kind)}


def bytes_saved(directory: Path) -> tuple[int, int]:
    """Of one checkpoint: what an optimizer's step computes in fp32, and the rest."""
    with h5py.File(max(directory.glob("step-*")) / "model.h5") as view:
        sizes = {name: view[name].size * view[name].dtype.itemsize for name in view}
    ours = {
        name
        for name in sizes
        if name.endswith((".exp_avg", ".exp_avg_sq"))
        or (name.startswith("model.") and name.endswith((".weight", ".bias")))
    }
    return sum(sizes[name] for name in ours), sum(sizes[name] for name in sizes.keys() - ours)


def saves_of(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in folder.glob("saves.*")]


def copied_and_brought(folder: Path, directory: Path, members: int) -> tuple[int, int, int, int]:
    """Of all members and all their snapshots: bytes copied, bytes that the optimizer's step wrote;
    then what these are if the step writes all that it computes and nothing else is copied."""
    computed, rest = bytes_saved(directory)
    saves = saves_of(folder)
    assert len(saves) == members and len({one["snapshots"] for one in saves}) == 1
    snapshots = saves[0]["snapshots"]
    assert snapshots >= 2 and computed > 20 * rest
    copied, brought = sum(one["copied"] for one in saves), sum(one["fused"] for one in saves)
    return copied, brought, snapshots * (rest + 128), snapshots * computed


def assert_the_step_wrote_all(folder: Path, directory: Path, members: int) -> None:
    copied, brought, rest, computed = copied_and_brought(folder, directory, members)
    assert brought == computed
    assert copied <= rest  # text, counters and BatchNorm's statistics


def test_the_step_of_another_optimizer_writes_no_checkpoint(regroup, tmp_path):
    keep = ["--checkpoint", str(tmp_path / "ckpt"), "--checkpoint-interval", "5"]
    job = train(regroup, tmp_path / "job", 1, *keep, **fused("torch"))
    assert job.wait(180) == 0, job.err
    copied, brought, _, computed = copied_and_brought(tmp_path / "job", tmp_path / "ckpt", 1)
    assert brought == 0 and copied >= computed


def test_the_step_of_a_fused_optimizer_writes_the_checkpoint_and_a_resumed_job_has_the_same_bits(
    regroup, tmp_path
):
    """Nothing of what it writes is copied, whatever the number of members. Where a disk cannot keep
    up, the last snapshot is copied in finish(): none is due in the 30 steps before the last one.
    """
    keep = ["--checkpoint", str(tmp_path / "of_one"), "--checkpoint-interval", "40"]
    slowly = {**fused(), "pace_us": 12_000}
    undisturbed = train(regroup, tmp_path / "undisturbed", 1, *keep, **slowly)
    keep = ["--checkpoint", str(tmp_path / "ckpt"), "--checkpoint-interval", "4"]
    job = train(regroup, tmp_path / "first", 2, *keep, **fused(), pace_us=30_000)
    until(lambda: named(job) >= 12, "checkpoints", 120)
    kill_everything(job)
    keep = ["--checkpoint", str(tmp_path / "ckpt"), "--checkpoint-interval", "40"]
    again = train(regroup, tmp_path / "again", 3, *keep, **slowly)
    assert again.wait(180) == 0, again.err
    resumed = re.search(r"the job resumes after step (\d+) from", again.err)
    assert resumed and int(resumed[1]) >= 12
    assert_the_step_wrote_all(tmp_path / "again", tmp_path / "ckpt", 3)
    assert undisturbed.wait(180) == 0, undisturbed.err
    assert_the_step_wrote_all(tmp_path / "undisturbed", tmp_path / "of_one", 1)
    assert weights_of(tmp_path / "again") == weights_of(tmp_path / "undisturbed") != set()


def test_a_member_with_an_hdf5_file_of_its_own_open_keeps_checkpoints(regroup, tmp_path):
    member = [sys.executable, str(ROOT / "tests/cli/h5py_member.py"), str(tmp_path), "60"]
    path = f"{BIN.parent / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    words = [*QUICK, "--checkpoint", str(tmp_path / "ckpt"), "--initial-size", "2"]
    job = regroup.start(*words, *member, env={"PYTHONPATH": path})
    assert job.wait(180) == 0, job.err
    assert job.out.count("finished 60.0 60.0") == 2
    assert named(job) == checkpoints(tmp_path / "ckpt")[-1] >= 10 and " failed" not in job.err
    newest = max((tmp_path / "ckpt").glob("step-*"))
    with h5py.File(newest / "model.h5") as view:
        assert set(view["weight"][:]) == {int(newest.name[5:])}
    for own in tmp_path.glob("own.*.h5"):
        with h5py.File(own) as file:
            assert list(file["seen"]) == list(range(1, 61))


@needs_mount
def test_a_job_is_told_of_a_directory_that_is_read_only(regroup, member, tmp_path):
    job = start(regroup, member, tmp_path / "ckpt", 1, pause_ms=0)
    assert job.wait() == 0, job.err
    with read_only(tmp_path / "ckpt"):
        again = start(regroup, member, tmp_path / "ckpt", 1, pause_ms=0)
        assert again.wait() == 1
        assert f"--checkpoint open({tmp_path}/ckpt/LOCK): Read-only file system" in again.err
