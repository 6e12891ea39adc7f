"""Copies behind a directory, on a file system without atomic rename whose files are visible
late."""

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from late_mount import mounted, needs_fuse
from saving import BIN, Save, persist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from waiting import until  # noqa: E402

PERSIST = str(BIN / "regroup-persist")
LATE_S = 0.5


def save(directory: Path, step: int) -> None:
    array = np.arange(1 << 18, dtype="float32") + step
    with Save(directory, step, {"w": ("float32", array), "b": ("float32", array[:7])}) as one:
        done = one.run()
        assert done.returncode == 0, done.stderr


def copy_words(local: Path, shared: Path, keep: int = 3) -> list[str]:
    return ["copy", str(local), str(shared), "test", str(keep), "0"]


def copy(local: Path, shared: Path, keep: int = 3) -> subprocess.CompletedProcess:
    return persist(*copy_words(local, shared, keep))


def newest(shared: Path) -> dict:
    done = persist("newest", shared, "pass-over")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def take(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "LOCK").write_text("job test (process 1 on here)")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen]:
    (tmp_path / "real").mkdir()
    (tmp_path / "late").mkdir()
    with mounted(tmp_path / "real", tmp_path / "late", LATE_S) as process:
        take(tmp_path / "real")
        yield process


@pytest.fixture
def late(tmp_path: Path, server: subprocess.Popen) -> Path:
    return tmp_path / "late"


def log_of(late: Path) -> list[str]:
    return (late.parent / "real.log").read_text().splitlines()


@needs_fuse
def test_the_manifest_commits_where_no_folder_can_be_renamed(late: Path, tmp_path: Path):
    save(tmp_path / "local", 1)
    began = time.monotonic()
    done = copy(tmp_path / "local", late)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert time.monotonic() - began >= LATE_S, "acknowledged before it could be seen"
    assert newest(late) | {"path": str(late / "step-00000001")} == newest(late)
    log = log_of(late)
    assert not [line for line in log if line.startswith("rename")]
    manifest = log.index("create /step-00000001/MANIFEST")
    for name in ("shard-0000-of-0001.h5", "model.h5"):
        assert log.index(f"fsync /step-00000001/{name}") < manifest
    assert "fsyncdir /step-00000001" in log[manifest:]
    assert copy(tmp_path / "local", late).stdout == ""  # it is there


@needs_fuse
@pytest.mark.parametrize(
    "moment", ["mkdir /step-2", "create /step-2/shard", "create /step-2/model"]
)
def test_a_copy_that_is_killed_is_no_checkpoint(
    late: Path, server: subprocess.Popen, tmp_path: Path, moment: str
):
    def stopped() -> bool:
        stat = Path(f"/proc/{server.pid}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0] == "T"

    save(tmp_path / "local", 1)
    assert copy(tmp_path / "local", late).returncode == 0
    save(tmp_path / "local", 2)
    stop = late.parent / "real.stop"
    stop.write_text(moment.replace("-2", "-00000002"))
    with subprocess.Popen([PERSIST, *copy_words(tmp_path / "local", late)]) as process:
        until(stopped, moment)
        process.kill()  # it ends when its call is answered
        stop.unlink()
        server.send_signal(signal.SIGCONT)
    assert newest(late)["step"] == 1
    assert copy(tmp_path / "local", late).stdout == "2\n"
    assert newest(late)["step"] == 2


def test_copies_are_pruned_and_the_manifest_goes_first(tmp_path: Path):
    take(tmp_path / "shared")
    for step in range(1, 6):
        save(tmp_path / "local", step)
        assert copy(tmp_path / "local", tmp_path / "shared", keep=2).stdout == f"{step}\n"
    assert sorted(path.name for path in (tmp_path / "shared").glob("step-*")) == [
        "step-00000004",
        "step-00000005",
    ]


def test_a_damaged_copy_is_passed_over_and_made_again_and_another_jobs_directory_left_alone(
    tmp_path: Path,
):
    take(tmp_path / "shared")
    for step in (1, 2):
        save(tmp_path / "local", step)
        assert copy(tmp_path / "local", tmp_path / "shared").returncode == 0
    with open(tmp_path / "shared/step-00000002/shard-0000-of-0001.h5", "r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    assert newest(tmp_path / "shared")["step"] == 1
    assert copy(tmp_path / "local", tmp_path / "shared").stdout == "2\n"  # made again
    assert newest(tmp_path / "shared")["step"] == 2
    (tmp_path / "shared/LOCK").write_text("job other (process 1 on there)")
    save(tmp_path / "local", 3)
    done = copy(tmp_path / "local", tmp_path / "shared")
    assert done.returncode == 1 and "has it, not job test" in done.stderr


def damage(directory: Path, step: int) -> Path:
    shard = directory / f"step-{step:08d}" / "shard-0000-of-0001.h5"
    with open(shard, "r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    return shard


def test_a_damaged_checkpoint_that_is_not_copied_is_told(tmp_path: Path):
    take(tmp_path / "shared")
    for step in (1, 2):
        save(tmp_path / "local", step)
    shard = damage(tmp_path / "local", 2)
    done = copy(tmp_path / "local", tmp_path / "shared")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "is damaged; using the one before it" in done.stderr
    assert f"{shard}: bytes " in done.stderr


def test_the_checkpoint_that_the_caller_has_verified_is_copied(tmp_path: Path):
    take(tmp_path / "shared")
    for step in (1, 2):
        save(tmp_path / "local", step)
    words = copy_words(tmp_path / "local", tmp_path / "shared")
    done = persist(*words, "1")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert newest(tmp_path / "shared")["step"] == 1
    again = persist(*words, "1")
    assert (again.returncode, again.stdout) == (0, ""), again.stderr  # it is there


def newer(local: Path, *words: object) -> subprocess.CompletedProcess:
    return persist("newer", local, *words)


def test_the_newest_good_one_after_a_step_is_found_and_nothing_moved(tmp_path: Path):
    local = tmp_path / "local"
    assert newer(local, 0).stdout == "0\n"  # no directory is none the worse for it
    assert not local.exists()
    for step in (1, 2, 3):
        save(local, step)
    assert newer(local, 0).stdout == newer(local, 2).stdout == "3\n"
    assert newer(local, 3).stdout == "0\n"
    shard = damage(local, 3)
    done = newer(local, 1)
    assert done.stdout == "2\n"
    assert (
        f"checkpoint {local}/step-00000003 is damaged and not used: {shard}: bytes " in done.stderr
    )
    (local / "step-00000002/MANIFEST").unlink()
    assert newer(local, 1).stdout == "0\n"
    assert sorted(path.name for path in local.glob("*-*")) == [
        f"step-0000000{step}" for step in (1, 2, 3)
    ]


def test_what_is_newer_in_another_training_or_in_use_is_not_gone_on_from(tmp_path: Path):
    local = tmp_path / "local"
    save(local, 2)
    assert newer(local, 1, 7, 4).stdout == "2\n"
    for seed, shards in ((8, 4), (7, 5)):
        done = newer(local, 1, seed, shards)
        assert (done.returncode, done.stdout) == (0, "0\n")
        told = f"belongs to another training: seed 7 and 4 shards, expected {seed} and {shards}"
        assert done.stderr == f"checkpoint {local}/step-00000002 {told}\n"
    take(local)
    with open(local / "LOCK", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = newer(local, 1, 7, 4)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"{local}/LOCK: job test (process 1 on here) has it\n"
        with subprocess.Popen(
            [PERSIST, "newer", str(local), "1"], stdout=subprocess.PIPE, text=True
        ) as soon:
            assert soon.stdout.readline() == "\n"  # a sign of life
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert soon.stdout.read().strip() == "2"
    assert newer(local, 1, 7, 4).stdout == "2\n"
    assert (local / "LOCK").read_text() == "job test (process 1 on here)"


def await_copy(shared: Path, step: int, seconds: float) -> subprocess.CompletedProcess:
    return persist("await", shared, step, seconds)


@needs_fuse
def test_a_copy_is_awaited_until_it_is_seen(late: Path, tmp_path: Path):
    save(tmp_path / "local", 1)
    with subprocess.Popen([PERSIST, *copy_words(tmp_path / "local", late)]) as process:
        done = await_copy(late, 1, 30)
    assert process.wait(30) == 0
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == newest(late)
    assert await_copy(late, 2, 0).returncode == 1
    damage(tmp_path / "real", 1)
    done = await_copy(late, 1, 1)
    assert done.returncode == 1 and "shard-0000-of-0001.h5: bytes " in done.stderr


def test_copying_leaves_the_copy_whatever_is_newer_and_damaged(tmp_path: Path):
    take(tmp_path / "shared")
    for step in range(1, 4):
        save(tmp_path / "local", step)
        assert copy(tmp_path / "local", tmp_path / "shared", keep=2).returncode == 0
    for step in (2, 3):
        damage(tmp_path / "shared", step)
        damage(tmp_path / "local", step)
    done = copy(tmp_path / "local", tmp_path / "shared", keep=2)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert newest(tmp_path / "shared")["step"] == 1


class Holder:
    """`regroup-persist hold`, as an agent has it."""

    def __init__(self, local: Path, shared: Path, after: int, job: str = "test"):
        words = [PERSIST, "hold", local, shared, job, str(after), f"job {job} (process 1 on here)"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def lines(self) -> list[str]:
        """Until it holds the lock, or ends."""
        assert self.process.stdout is not None
        out = []
        for line in self.process.stdout:
            if line != "\n":  # a sign of life
                out.append(line.rstrip("\n"))
            if line == "held\n":
                break
        return out

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def test_a_hosts_own_directory_is_held_prepared_and_given_back(tmp_path: Path):
    local, shared = tmp_path / "deep" / "local", tmp_path / "shared"
    take(shared)
    first = Holder(local, shared, 0)  # makes it
    assert first.lines() == ["held"]
    second = Holder(local, shared, 0)  # on another host that sees the same
    assert second.lines() == [] and second.end() == (0, "")
    other = Holder(local, shared, 0, "other")
    assert other.lines() == []
    status, err = other.end()
    assert status == 3 and "has it, not job other" in err  # the agent tries again
    assert first.process.poll() is None
    assert first.end() == (0, "")  # the end of its input
    for step in (1, 2, 3):
        save(local, step)
    (local / ".stage-4-left").mkdir()
    third = Holder(local, shared, 2)
    said = third.lines()
    assert said[-1] == "held" and len(said) == 2
    assert "the checkpoint of step 3 is newer than that of step 2" in said[0]
    names = sorted(path.name for path in local.iterdir() if path.name != "LATEST")
    assert names == ["LOCK", "newer-step-00000003", "step-00000001", "step-00000002"]
    assert third.end() == (0, "")
