"""A member that SIGKILL does not end, since it hangs in the kernel on a file system whose server is gone,
holds up nobody: neither the others' steps nor the end of the job."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_left_behind import state

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))
from late_mount import mounted, needs_fuse  # noqa: E402

pytestmark = needs_fuse
STEPS = "300"
HANGS = r"was killed, but hangs in the kernel \(\w+\)"


class Server:
    """Of a folder, which hangs who looks at `file` in it."""

    def __init__(self, folder: Path, place: Path, process: subprocess.Popen):
        self.place, self.process, self.hang = place, process, Path(f"{folder}.hang")

    def stop_at_a_look(self) -> None:
        self.hang.write_text("file -1")

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
    job = regroup.start("--oversubscribe", "--start", "3", *options, *words)
    job.wait_out("^step 5 ")
    return job


def stuck_one(job) -> int:
    """Its process, once it hangs where no signal ends it."""
    found = re.search(rf"member 1 \(pid (\d+)\): {HANGS}: the others go on without it", job.err)
    assert found, job.err
    assert state(int(found[1])) == "D"
    return int(found[1])


def finished(job, members: int) -> None:
    """With the sums of all steps, and what hangs is left behind, which is said."""
    assert job.wait() == 0, job.err
    weights = [line.split()[1] for line in job.out.splitlines() if line.startswith("finished")]
    assert weights == [f"{4 * int(STEPS)}.0"] * members, job.err
    assert re.search(rf"member 1 \(pid \d+\) {HANGS}: it is left behind", job.err), job.err


def kill_stuck(regroup, job, server) -> int:
    """Member 1, which the others wait for by then."""
    server.stop_at_a_look()
    time.sleep(0.5)
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
    assert job.wait() == 0 and "left behind" not in job.err, job.err
    job.assert_nothing_left(2)


def test_a_job_of_n_ends(regroup, server):
    script = 'if [ "$RANK" = 1 ]; then echo up; sleep 1; exec stat "$0/file"; fi; sleep 3; exit 7'
    job = regroup.start("--oversubscribe", "-np", "2", "sh", "-c", script, str(server.place))
    job.wait_out("up")
    server.stop_at_a_look()
    begun = time.monotonic()
    assert job.wait() == 7, job.err
    assert time.monotonic() - begun < 25
    assert re.search(rf"member 1 \(pid \d+\) {HANGS}: it is left behind", job.err), job.err
