"""A member that SIGKILL does not end, since it hangs in the kernel on a file system whose server is
gone, holds up nobody: neither the others' steps nor the end of the job."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import until
from test_agreements import sleeps_on_a_futex
from test_elastic import pid_of
from test_left_behind import state

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))
from late_mount import mounted, needs_fuse  # noqa: E402

pytestmark = needs_fuse
STEPS = "300"
SOON = {"REGROUP_TIME_LIMIT_FACTOR": "0.2"}  # left behind after 2 s
HANGS = r"was killed, but hangs in the kernel \(\w+\)"


class Server:
    """Of a folder, which hangs who looks at `file` in it."""

    def __init__(self, folder: Path, place: Path, process: subprocess.Popen):
        self.place, self.process, self.hang = place, process, Path(f"{folder}.hang")

    def stop_at_a_look(self) -> None:
        self.hang.write_text("file -1")

    def until_stopped(self) -> None:
        until(lambda: state(self.process.pid) == "T", "a look at the file")

    def answer(self) -> None:
        self.hang.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def server(tmp_path):
    real, place = tmp_path / "real", tmp_path / "place"
    real.mkdir()
    place.mkdir()
    with mounted(real, place, 0) as process:
        server = Server(real, place, process)
        yield server
        server.answer()  # or no process that asks it could ever end


def begin(regroup, member, server, *options):
    """Member 1 looks at the file in each of its leaves."""
    folder = server.place.parent / "gates"
    folder.mkdir()
    (folder / "leaf.1").symlink_to(server.place / "file")
    words = [member, STEPS, "10", "", "sum", "0", "64", f"gates={folder}"]
    job = regroup.start("--oversubscribe", "--initial-size", "3", *options, *words, env=SOON)
    job.wait_out("^step 5 ")
    return job


def stuck_one(job) -> int:
    """Its process, once it hangs where no signal ends it."""
    found = re.search(
        rf"member 1 \(pid (\d+)\) {HANGS}: the other members continue without it", job.err
    )
    assert found, job.err
    assert state(int(found[1])) == "D"
    return int(found[1])


def finished(job, members: int) -> None:
    """With the sums of all steps, and what hangs is left behind, which is said."""
    job.hurry()
    assert job.wait() == 0, job.err
    weights = [line.split()[1] for line in job.out.splitlines() if line.startswith("finished")]
    assert weights == [f"{4 * int(STEPS)}.0"] * members, job.err
    assert re.search(rf"member 1 \(pid \d+\) {HANGS}: it is left behind", job.err), job.err


def kill_stuck(regroup, job, server) -> int:
    """Member 1, which the others wait for by then."""
    others = [pid_of(job, member) for member in (0, 2)]
    server.stop_at_a_look()
    server.until_stopped()
    until(lambda: all(map(sleeps_on_a_futex, others)), "the others wait")
    assert regroup.control("kill-member", "1").returncode == 0
    job.wait_err(HANGS)
    return stuck_one(job)


def test_the_others_go_on_and_end(regroup, member, server):
    job = begin(regroup, member, server, "-np", "1:4", "--replace", "never")
    pid = kill_stuck(regroup, job, server)
    finished(job, 2)
    assert state(pid) == "D"


def test_it_is_replaced_where_there_is_room(regroup, member, server):
    job = begin(regroup, member, server, "-np", "1:4")
    kill_stuck(regroup, job, server)
    job.wait_err("2 -> 3 members")
    finished(job, 3)


def test_its_place_is_taken_once_it_has_ended_after_all(regroup, member, server):
    job = begin(regroup, member, server, "-np", "1:3")
    pid = kill_stuck(regroup, job, server)
    time.sleep(1)
    assert "-> 3 members" not in job.err
    server.answer()
    job.wait_err("2 -> 3 members")
    assert state(pid) == ""
    job.hurry()
    assert job.wait() == 0 and "left behind" not in job.err, job.err
    job.assert_nothing_left()


def test_a_job_of_n_ends(regroup, server):
    folder = server.place.parent
    script = """await() { until [ -e "$0/$1" ]; do sleep 0.02; done; }
        if [ "$RANK" = 1 ]; then await look; exec stat "$0/place/file"; fi
        await end; exit 7"""
    words = ["--oversubscribe", "--term-grace", "0.3", "-np", "2", "sh", "-c", script, str(folder)]
    job = regroup.start(*words, env=SOON)
    server.stop_at_a_look()
    (folder / "look").touch()
    server.until_stopped()
    (folder / "end").touch()
    begun = time.monotonic()
    assert job.wait() == 7, job.err
    assert time.monotonic() - begun < 20
    assert re.search(rf"member 1 \(pid \d+\) {HANGS}: it is left behind", job.err), job.err
