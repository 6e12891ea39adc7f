"""Members are held to their cpus and memory: by control groups where these may be made, else
otherwise.

Where they may not, for want of root or of controllers, the tests of them are skipped.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import BIN, until

EAT = "x = bytearray(256 << 20)"  # several times what is allowed
BURN = (
    "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: "
    "pass\nprint(time.process_time())"
)


def groups() -> list[str]:
    """Those of jobs; the unit tests make others, which may go away meanwhile."""
    found = [Path(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    return [str(path) for path in found if re.match("regroup-[0-9a-f]{8}", path.name)]


@pytest.fixture(scope="module")
def controlled():
    """Control groups of cpu and memory can be made here."""
    said = subprocess.run(
        [str(BIN / "regroup"), "-np", "1", "--cpus", "1", "--memory", "64M", "true"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "control groups" in said.stderr:
        pytest.skip(said.stderr.strip())


@pytest.fixture
def without_rights() -> list[str]:
    """A command in front of another that takes away root's right to write where it pleases."""
    if os.geteuid() == 0 and shutil.which("setpriv"):
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid() == 0:
        pytest.skip("setpriv, to take root's rights away, is not here")
    return []


def test_member_that_needs_more_memory_is_killed_and_named(regroup, controlled):
    script = (
        f"import os\nprint('up', os.getpid(), flush=True)\nif os.environ['RANK'] == '1': {EAT}\n"
    )
    job = regroup.start(
        "--oversubscribe", "-np", "2", "--memory", "64M", sys.executable, "-c",
        script + "import time; time.sleep(1000)",
    )  # fmt: skip
    assert job.wait() == 137
    said = re.search(
        r"rank 1 \(pid (\d+)\) was killed for exceeding its memory limit of 64 MiB: ending the "
        r"other",
        job.err,
    )
    assert said, job.err
    assert f"up {said[1]}" in job.out
    job.assert_nothing_left()
    assert not groups()


def test_member_within_its_memory_lives(regroup, controlled):
    job = regroup.run(
        "-np", "1", "--memory", "128M", sys.executable, "-c", "x = bytearray(64 << 20)"
    )
    assert (job.process.returncode, job.err) == (0, "")
    assert not groups()


def test_process_of_a_member_that_needs_more_is_named(regroup, controlled):
    job = regroup.run(
        "-np", "1", "--memory", "64M", "sh", "-c", f"{sys.executable} -c '{EAT}'; exit 7"
    )
    assert job.process.returncode == 7
    assert (
        "exited with code 7 after one of its processes was killed for exceeding its memory limit "
        "of 64 MiB" in job.err
    )


def test_a_kill_is_not_taken_for_one_for_memory(regroup, controlled):
    job = regroup.run("-np", "1", "--memory", "64M", "sh", "-c", "kill -9 $$")
    assert job.process.returncode == 137
    assert "was killed by signal 9 (SIGKILL)" in job.err
    assert "memory" not in job.err


def test_each_program_has_its_own_limit(regroup, controlled):
    ok = ["-np", "1", "--memory", "512M", sys.executable, "-c", EAT]
    job = regroup.run(
        "--oversubscribe", *ok, ":", "-np", "1", "--memory", "64M", sys.executable, "-c", EAT
    )
    assert re.search(
        r"rank 1 \(pid \d+\) was killed for exceeding its memory limit of 64 MiB", job.err
    ), job.err
    assert "rank 0" not in job.err


def test_a_member_that_always_exceeds_its_memory_is_not_replaced_for_ever(
    regroup, controlled, tmp_path
):
    path = tmp_path / "train.py"
    path.write_text(
        "import numpy as np, regroup\n"
        "w = np.zeros(4, np.float32)\n"
        "s = regroup.Session(regroup.TrackedState(w=w), elements=4, samples=8000, batch=4, "
        "epochs=1)\n"
        "for step in s:\n"
        "    for shard in step: shard.gradient[:] = 1\n"
        f"    if step.number > 3: {EAT}\n"
    )
    job = regroup.run("-np", "1:1", "--memory", "200M", sys.executable, str(path))
    assert job.wait() == 137
    assert re.search(
        r"^regroup: the job failed: .* killed for exceeding its memory limit of 200 MiB",
        job.err,
        re.MULTILINE,
    ), job.err
    assert job.err.count("was killed for exceeding its memory limit of 200 MiB\n") <= 4, job.err


def test_member_of_an_elastic_job_is_named_too(regroup, controlled):
    job = regroup.start(
        "-np", "1:2", "--initial-size", "1", "--memory", "64M", sys.executable, "-c", EAT
    )
    job.wait_err(
        r"^regroup: member 0 \(pid \d+\) was killed for exceeding its memory limit of 64 MiB$"
    )
    job.process.terminate()
    job.process.terminate()
    job.wait()
    job.assert_nothing_left()
    assert not groups()


def test_cpus_are_held(regroup, controlled):
    job = regroup.run("-np", "1", "--cpus", "0.25", sys.executable, "-c", BURN)
    assert job.process.returncode == 0
    assert float(job.out) < 0.25 * 2 + 0.3  # start of Python, and the period that was begun


def test_cpus_that_are_enough_are_not_in_the_way(regroup, controlled):
    job = regroup.run("-np", "1", "--cpus", "1", "sh", "-c", "echo ok")
    assert (job.out, job.err) == ("ok\n", "")


def test_nothing_is_made_where_nobody_has_limits(regroup):
    job = regroup.start("-np", "1", "sh", "-c", "echo up; exec sleep 1000")
    job.wait_out("up")
    assert not groups()
    job.process.terminate()
    job.wait()


def test_groups_end_all_that_is_in_them_even_after_crashes(regroup, controlled):
    script = "env -i setsid sleep 1000 >/dev/null 2>&1 & echo stranger $!; exec sleep 1000"
    job = regroup.start("-np", "1", "--memory", "64M", "sh", "-c", script)
    stranger = int(job.wait_out(r"stranger (\d+)")[1])
    assert groups()
    for pid in (job.process.pid, job.reaper, job.agent):
        os.kill(pid, signal.SIGSTOP)
    for pid in (job.process.pid, job.reaper, job.agent):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not job.living(), "the end of the member")
    assert os.path.exists(f"/proc/{stranger}")
    assert groups()
    regroup.run("-np", "1", "true")
    assert not groups()
    until(
        lambda: not os.path.exists(f"/proc/{stranger}"),
        "the end of the process with an empty environment",
    )


@pytest.fixture
def open_folder():
    """One that other users can enter and write to."""
    folder = Path(tempfile.mkdtemp(prefix="rg"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_groups_of_other_hosts_are_removed_too(regroup, controlled):
    job = regroup.run(
        "--launcher",
        "fork",
        "-H",
        "other:2",
        "-np",
        "2",
        "--memory",
        "100M",
        "cat",
        "/proc/self/cgroup",
    )
    assert job.wait() == 0, job.err
    (name,) = set(re.findall(r"/(regroup-[0-9a-f]{8}-1)/member", job.out))
    assert not [group for group in groups() if name in group]


@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["said", "quiet"])
def test_without_rights_it_is_said_once_and_done_otherwise(open_folder, without_rights, quiet):
    shutil.copy(BIN / "regroup", open_folder)
    show = "taskset -p $$ | sed 's/.*: //'; ulimit -d"
    done = subprocess.run(
        [*without_rights, str(open_folder / "regroup"), *quiet, "--oversubscribe", "-np", "2",
         "--cpus", "1", "--memory", "64M", "sh", "-c", show],
        capture_output=True, text=True, timeout=60, cwd="/",
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(open_folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if quiet:
        assert done.stderr == ""
    else:
        assert done.stderr.count("limits are not enforced by control groups (") == 1
        assert "cores by affinity, memory by RLIMIT_DATA of each process" in done.stderr
    lines = done.stdout.split()
    assert lines.count(str(64 << 10)) == 2  # KiB
    masks = [int(line, 16) for line in lines if line != str(64 << 10)]
    assert [mask.bit_count() for mask in masks] == [1, 1]
    if len(os.sched_getaffinity(0)) > 1:
        assert masks[0] != masks[1]
