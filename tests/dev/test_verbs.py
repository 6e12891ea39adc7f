"""The verbs of ./dev that install nothing, and the end of ./dev by a signal."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from waiting import until  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]


def test_help_works_where_nothing_can_be_written(tmp_path):
    shutil.copy(ROOT / "dev", tmp_path)
    shutil.copytree(ROOT / "tools/dev", tmp_path / "tools/dev")
    (tmp_path / ".dev").write_text("a file where the folder of the logs would be made")
    done = subprocess.run([tmp_path / "dev", "help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ./dev VERB")


def test_only_benches_are_listed():
    done = subprocess.run([ROOT / "dev", "bench"], capture_output=True, text=True, timeout=60)
    names = done.stderr.partition("there are:")[2].split()
    assert done.returncode == 1 and {"collectives", "loop", "recovery"} <= set(names)
    for name in names:
        text = (ROOT / f"tests/bench/{name}.py").read_text()
        assert "common.main(" in text or "ArgumentParser" in text, name


# Waits for a child, has one in the background, and one whose parent SIGTERM ends first.
PROGRAM = """#!/bin/sh
sleep 1000 &
sh -c 'sleep 1000; :' &
sleep 1000
"""


def having(mark: str) -> set[int]:
    """Processes with this in their environment, zombies aside."""
    found = set()
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes():
                found.add(int(path.name))
        except OSError:
            continue
    return found


@pytest.fixture
def own_dev(tmp_path):
    """./dev in a folder of its own, which installs nothing; cmake and .venv/bin/python are
    PROGRAM."""
    shutil.copy(ROOT / "dev", tmp_path)
    shutil.copy(ROOT / "CMakePresets.json", tmp_path)
    shutil.copytree(ROOT / "tools/dev", tmp_path / "tools/dev")
    (tmp_path / "tools/dev/setup.sh").write_text("setup() { :; }\nsetup_finish() { :; }\n")
    for path in (tmp_path / "bin/cmake", tmp_path / ".venv/bin/python"):
        path.parent.mkdir(parents=True)
        path.write_text(PROGRAM)
        path.chmod(0o755)
    return tmp_path


def test_a_program_in_the_way_is_ended_with_dev(own_dev):
    """What cmake has started, through a substitution of a command."""
    assert_nothing_outlives(own_dev, signal.SIGTERM, "build")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_is_one_program_is_ended_with_dev(own_dev, number):
    (own_dev / "bin/cmake").write_text("#!/bin/sh\n")
    assert_nothing_outlives(own_dev, number, "chaos")


def assert_nothing_outlives(folder: pathlib.Path, number: signal.Signals, verb: str) -> None:
    mark = uuid.uuid4().hex
    env = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "REGROUP_TEST_MARK": mark}
    dev = subprocess.Popen(
        [folder / "dev", verb], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        until(lambda: sleeps(mark) == 3, "three sleeping processes")
        dev.send_signal(number)
        assert dev.wait(60) == -number
        assert not having(mark)
    finally:
        dev.kill()
        dev.wait()
        for pid in having(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def sleeps(mark: str) -> int:
    found = 0
    for pid in having(mark):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    return found
