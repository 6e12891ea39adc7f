"""Every call of a save fails, does half of its work, or is the last one: the acknowledged always
loads."""

import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import reader
from late_mount import mounted, needs_fuse, needs_mount, read_only
from saving import BIN, Save, newest, save

FULL = bool(os.environ.get("REGROUP_TEST_FULL"))
HERE = Path(__file__).resolve().parent
THREE = {
    "w": ("float32", np.arange(3000, dtype=np.float32).reshape(50, 60)),
    "b": ("bfloat16", np.arange(7, dtype=np.uint16)),
    "s": ("int64", np.array(1, np.int64)),
}
NEXT = {name: (dtype, array + array.dtype.type(1)) for name, (dtype, array) in THREE.items()}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "faulty.so"
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-o",
            library,
            HERE / "faulty.c",
            "-ldl",
        ],
        check=True,
    )
    return library


class Saving:
    """Step 2 behind an acknowledged step 1, with one call of one writer gone wrong."""

    def __init__(self, shim: Path, directory: Path, **options):
        self.shim, self.directory, self.options = shim, directory, options
        save(directory, 1, THREE, writers=2, **options)

    def clear(self) -> None:
        for path in [*self.directory.glob(".*-*"), *self.directory.glob("*step-00000002*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def attempt(self, writer: int, env: dict) -> subprocess.CompletedProcess:
        self.clear()
        for one in range(writer + 1):
            with Save(self.directory, 2, NEXT, one, 2, **self.options) as part:
                done = part.run(env if one == writer else {})
        return done

    def calls(self, writer: int, log: Path) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            log.unlink()
        env = {
            "LD_PRELOAD": str(self.shim),
            "FAULTY_DIR": str(self.directory),
            "FAULTY_LOG": str(log),
        }
        done = self.attempt(writer, env)
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines()

    def faulty(self, writer: int, at: int, how: str) -> subprocess.CompletedProcess:
        env = {"LD_PRELOAD": str(self.shim), "FAULTY_DIR": str(self.directory)}
        return self.attempt(writer, env | {"FAULTY_AT": str(at), "FAULTY_HOW": how})

    def loads(self, acknowledged: int, what: str) -> int:
        """The step that the newest is; it holds what was saved as that step."""
        done = newest(self.directory)
        assert done.returncode == 0, (what, done.stderr)
        path = reader.newest(str(self.directory))
        manifest, arrays = reader.load(path)
        assert f'"step":{manifest["step"]}' in done.stdout and manifest["step"] >= acknowledged, (
            what
        )
        assert "damaged" not in done.stderr, what
        wanted = THREE if manifest["step"] == 1 else NEXT
        assert all(
            arrays[name].tobytes() == array.tobytes() for name, (_, array) in wanted.items()
        ), what
        return manifest["step"]


@pytest.mark.parametrize("uring", [False, True], ids=["plain", "uring"])
@pytest.mark.parametrize("writer", [0, 1])
def test_a_kill_at_every_call_loses_nothing_acknowledged(shim, writer, uring, tmp_path):
    saving = Saving(shim, tmp_path / "d", uring=uring)
    calls = saving.calls(writer, tmp_path / "log")
    assert len(calls) > 15 and {"fsync", "open"} <= {*calls, "open" if "open64" in calls else ""}, (
        calls
    )
    assert not uring or "io_uring_submit after" in calls
    ends = set()
    for at in range(1, len(calls) + 1):
        done = saving.faulty(writer, at, "kill")
        assert done.returncode == -9, (at, calls[at - 1])
        what = f"killed at call {at} of writer {writer}: {calls[at - 1]}"
        ends.add(saving.loads(2 if b"2" in done.stdout else 1, what))
    assert ends == ({1} if writer == 0 else {1, 2})  # before and after the rename, both met


@pytest.mark.parametrize("writer", [0, 1])
def test_an_error_of_every_call_fails_the_save_and_nothing_else(shim, writer, tmp_path):
    saving = Saving(shim, tmp_path / "d", uring=False)
    calls = saving.calls(writer, tmp_path / "log")
    errors = [errno.EIO, errno.ENOSPC]
    for at in range(1, len(calls) + 1):
        for error in errors if FULL else errors[at % 2 :][:1]:
            done = saving.faulty(writer, at, str(error))
            what = (
                f"errno {error} at call {at} of writer {writer}: {calls[at - 1]}: "
                f"{done.stderr.decode()}"
            )
            assert done.returncode in (0, 1), what
            if done.returncode == 1:
                assert done.stderr.strip(), what
            # A failure after the rename is one of something less: the hint, or the cleaning.
            saving.loads(2 if done.returncode == 0 and writer == 1 else 1, what)


@pytest.mark.parametrize("how", ["short", str(errno.EINTR)], ids=["short", "EINTR"])
def test_short_and_interrupted_calls_are_completed(shim, how, tmp_path):
    saving = Saving(shim, tmp_path / "d", uring=False, direct=False)
    for writer in (0, 1):
        calls = saving.calls(writer, tmp_path / "log")
        for at, call in enumerate(calls, 1):
            transfer = call.startswith(("pwrite", "pread"))
            if not transfer and not (how != "short" and call.startswith("open")):
                continue
            done = saving.faulty(writer, at, how)
            assert done.returncode == 0, (at, call, done.stderr)
            saving.loads(1 + writer, f"{how} at {call}")


def test_a_failed_fsync_is_not_tried_again(shim, tmp_path):
    saving = Saving(shim, tmp_path / "d", uring=False)
    calls = saving.calls(0, tmp_path / "log")
    first = calls.index("fsync") + 1
    log = tmp_path / "again"
    env = {"LD_PRELOAD": str(shim), "FAULTY_DIR": str(tmp_path / "d"), "FAULTY_LOG": str(log)}
    done = saving.attempt(0, env | {"FAULTY_AT": str(first), "FAULTY_HOW": str(errno.EIO)})
    assert done.returncode == 1 and b"fsync(" in done.stderr
    assert log.read_text().splitlines().count("fsync") == 1


def test_bytes_that_the_disk_does_not_give_are_damage(shim, tmp_path):
    path = save(tmp_path / "d", 1, THREE)
    log = tmp_path / "log"
    env = os.environ | {"LD_PRELOAD": str(shim), "FAULTY_DIR": str(path), "FAULTY_LOG": str(log)}
    words = [str(BIN / "regroup-checkpoint"), "verify", str(path)]
    assert subprocess.run(words, env=env, timeout=60).returncode == 0
    calls = log.read_text().splitlines()
    # behind the manifest
    for at in [at for at, call in enumerate(calls, 1) if call.startswith("pread")][1:]:
        env |= {"FAULTY_AT": str(at), "FAULTY_HOW": str(errno.EIO)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "cannot be read: pread(" in done.stdout, (at, done)


@needs_mount
def test_a_read_only_disk_fails_the_save_and_loads_what_is_there(tmp_path):
    save(tmp_path / "d", 1, THREE)
    with read_only(tmp_path / "d"), Save(tmp_path / "d", 2, NEXT) as part:
        done = part.run()
        assert done.returncode == 1 and b"Read-only file system" in done.stderr
        assert '"step":1' in newest(tmp_path / "d").stdout
    save(tmp_path / "d", 2, NEXT)
    assert '"step":2' in newest(tmp_path / "d").stdout


@needs_fuse
def test_a_slow_disk_is_told_from_one_that_hangs(tmp_path):
    """While it takes what is written an empty line comes each second, by which finish() waits
    longer."""
    (tmp_path / "real").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "real.slow").write_text("0.015")  # each 128 KiB
    large = {"w": ("float32", np.zeros(6 << 20, np.float32))}
    with (
        mounted(tmp_path / "real", tmp_path / "place", 0),
        Save(tmp_path / "place", 1, large, commit=False) as part,
    ):
        done = part.run()
    assert done.returncode == 0, done.stderr
    assert set(done.stdout) == {ord("\n")}
