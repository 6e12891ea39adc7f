"""A resizable job of LSF, by a stand-in of bresize: it gets hosts, and gives hosts back."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import DEADLINE_S, PATIENT
from resizing import resize
from story import check_trained, digits_csv, undisturbed

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import waiting  # noqa: E402

BIN = ROOT / "build/bin"
STAND_IN = Path(__file__).with_name("stand_in.py")
SHARDS, EPOCHS = 4, 16
PACE_US = 250_000  # of a shard, until all has been seen that was to be


class Job:
    """An elastic job of one to four members, with two slots on hA and two on hB."""

    def __init__(self, folder: Path, **variables: str):
        folder.chmod(0o700)
        self.folder, self.log, self.trail = folder, folder / "log", folder / "trail"
        self.trail.mkdir()
        digits_csv(folder)
        self.weights = undisturbed(BIN, folder, EPOCHS)
        for command in ("blaunch", "bresize"):
            shutil.copy(STAND_IN, folder / command)
        self.environment = {
            **{k: v for k, v in os.environ.items() if k in ("HOME", "LANG")},
            **PATIENT,
            "PATH": f"{folder}:{BIN}:/usr/bin:/bin",
            "STAND_IN_LOG": str(self.log),
            "XDG_RUNTIME_DIR": str(folder),
            "REGROUP_GPU_CLAIMS": str(folder),
            "LSB_JOBID": "7",
            "LSB_DJOB_NUMPROC": "4",
            "LSB_MCPU_HOSTS": "hA 2 hB 2",
            **variables,
        }
        member = [
            "chaos_member",
            f"{folder}/digits.csv",
            str(self.trail),
            str(EPOCHS),
            str(PACE_US),
        ]
        own = ["unshare", "--uts", "sh", "-c", 'hostname hA; exec "$@"', "sh"]
        regroup = ["regroup", "--shards", str(SHARDS), "--seed", "7", "-np", "1:4"]
        self.output = folder / "output"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [*own, *regroup, *member],
                env=self.environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def until(self, text: str, where: Path | None = None) -> None:
        path = where or self.output
        found = waiting.until(
            lambda: (path.exists() and text in path.read_text()) or self.process.poll() is not None,
            text,
            DEADLINE_S,
        )
        assert found
        assert text in path.read_text(), self.output.read_text()

    def resize(self, members: int) -> subprocess.CompletedProcess:
        return resize(BIN / "regroup", members, self.folder, self.environment)

    def until_generations(self, text: str, count: int) -> None:
        def said() -> bool:
            return self.output.read_text().count(text) >= count

        waiting.until(
            lambda: said() or self.process.poll() is not None,
            f"{count} times '{text}'",
            DEADLINE_S,
        )
        assert said(), self.output.read_text()

    def until_trained(self) -> None:
        (self.folder / "hurry").touch()
        assert self.process.wait(180) == 0, self.output.read_text()
        assert "was lost" not in self.output.read_text()
        check_trained(self.trail, self.weights, EPOCHS)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path, STAND_IN_GROWTH="hC 2")
    yield made
    made.end()


def test_hosts_go_back_and_further_ones_come_by_bresize(job: Job):
    job.until("generation 1: 4 members")
    job.resize(2)
    job.until("LSF: host hB returned")
    assert "bresize release -rncn 2*hB 7" in job.log.read_text()
    assert "LSF: requested 2 slots more" in job.resize(4).stdout
    job.until("LSF grants 2 slots more")
    job.until("notified grow 0", job.log)
    assert re.search(r"^bresize request -c -rnc \S+/resized 1,2 7$", job.log.read_text(), re.M)
    job.until_generations(": 4 members", 2)
    assert "blaunch hC " in job.log.read_text()
    job.until_trained()


def test_slots_go_back_of_hosts_that_stay(job: Job):
    """Members that leave have the highest ranks. Of the first host LSF takes some, and never
    all."""
    job.until("generation 1: 4 members")
    job.resize(3)
    job.until("LSF: 1 slot of host hB returned")
    job.until(": 3 members")
    job.resize(1)
    job.until("LSF: host hB returned")
    job.until("LSF: 1 slot of host hA returned")
    released = re.findall(r"^bresize release -rncn (\S+) 7$", job.log.read_text(), re.M)
    assert sorted(released) == ["1*hA", "1*hB", "1*hB"]
    assert "LSF: requested 2 slots more" in job.resize(3).stdout
    job.until_generations(": 3 members", 2)
    job.until_trained()


def test_a_second_request_is_for_all_that_is_missing_and_is_cancelled_when_nothing_is(
    tmp_path: Path,
):
    """LSF has one request of a job at a time: a further one takes the place of the first."""
    job = Job(tmp_path, LSB_MCPU_HOSTS="hA 1 hB 1", LSB_DJOB_NUMPROC="2", STAND_IN_GROWTH="")
    try:
        job.until("generation 1: 2 members")
        assert "LSF: requested 1 slot more" in job.resize(3).stdout
        assert "LSF: requested 2 slots more" in job.resize(4).stdout
        asked = re.findall(r"^bresize request -c -rnc \S+ (\S+) 7$", job.log.read_text(), re.M)
        assert asked == ["1,1", "1,2"]
        job.resize(2)
        job.until("LSF: cancelled the request for 2 slots")
        assert job.log.read_text().endswith("bresize cancel 7\n")
        job.resize(1)
        job.until("LSF: host hB returned")
        assert job.log.read_text().count("bresize cancel") == 1
        job.until_trained()
    finally:
        job.end()


def test_the_user_is_told_that_the_allocator_takes_its_time(tmp_path: Path):
    job = Job(
        tmp_path,
        LSB_MCPU_HOSTS="hA 1 hB 1",
        LSB_DJOB_NUMPROC="2",
        STAND_IN_GROWTH="",
        STAND_IN_PAUSE="6",
    )
    try:
        job.until("generation 1: 2 members")
        told = job.resize(3)
        assert "regroup: the allocator has not answered for 5 s\n" in told.stderr
        assert told.stdout.endswith("LSF: requested 1 slot more\n")
        job.until_trained()
    finally:
        job.end()


def test_a_host_that_lsf_takes_leaves_before_lsf_is_answered(job: Job):
    job.until("generation 1: 4 members")
    told = {"LSB_RESIZE_EVENT": "shrink", "LSB_RESIZE_HOSTS": "hB 2", "LSB_RESIZE_NOTIFY_OK": "5"}
    whole = resized(job, told)
    assert whole.returncode == 5, whole.stderr
    job.until("host hB was returned")
    assert "bresize" not in job.log.read_text()  # LSF has taken it
    job.until_trained()


def resized(job: Job, told: dict[str, str]) -> subprocess.CompletedProcess:
    """What LSF runs on the first host of the job, and waits for."""
    command = [str(BIN / "regroup"), "join", "--resized"]
    return subprocess.run(
        command, env=job.environment | told, capture_output=True, text=True, timeout=60
    )


def test_slots_that_lsf_takes_of_a_host_are_left_by_as_many_members(job: Job):
    """`bresize release 1*hB 7`: "num_tasks*host_name" is a part of what the job has there. Of the
    first host LSF takes a part, too, and never all."""
    job.until("generation 1: 4 members")
    told = {"LSB_RESIZE_EVENT": "shrink", "LSB_RESIZE_NOTIFY_OK": "5"}
    part = resized(job, told | {"LSB_RESIZE_HOSTS": "hB 1"})
    assert part.returncode == 5, part.stderr
    assert "the slots are free" in part.stderr
    job.until("host hB: 1 slot returned")
    job.until(": 3 members")
    first = resized(job, told | {"LSB_RESIZE_HOSTS": "hA 2"})
    assert first.returncode == 1, first.stderr
    assert "host hA: this job cannot return it" in first.stderr
    assert resized(job, told | {"LSB_RESIZE_HOSTS": "hA 1"}).returncode == 5
    job.until(": 2 members")
    assert resized(job, told | {"LSB_RESIZE_HOSTS": "hB 1"}).returncode == 5  # the rest of it
    job.until("host hB was returned")
    job.until_trained()


def test_slots_that_are_not_left_in_time_stay(job: Job):
    """LSF hears that, and does not take them: the job has its four members again. Members that are
    stopped finish no step."""
    job.until("generation 1: 4 members")
    job.resize(4)  # the size is said: what comes alone makes the job no larger
    found = subprocess.run(
        ["pgrep", "-f", f"^chaos_member {job.folder}/"], capture_output=True, text=True, timeout=10
    )
    members = [int(pid) for pid in found.stdout.split()]
    assert len(members) == 4
    told = {"LSB_RESIZE_EVENT": "shrink", "LSB_RESIZE_HOSTS": "hB 1", "LSB_RESIZE_NOTIFY_FAIL": "9"}
    command = [str(BIN / "regroup"), "join", "--grace", "0", "--resized"]
    for pid in members:
        os.kill(pid, signal.SIGSTOP)
    try:
        late = subprocess.run(
            command, env=job.environment | told, capture_output=True, text=True, timeout=60
        )
    finally:
        for pid in members:
            os.kill(pid, signal.SIGCONT)
    assert late.returncode == 9, late.stderr
    assert "host hB: its members did not leave 1 slot in time" in late.stderr
    job.until_generations(": 4 members", 2)
    job.until_trained()


def test_a_host_that_a_user_lends_is_used_beyond_the_size_that_was_said(tmp_path: Path):
    job = Job(tmp_path, STAND_IN_GROWTH="hC 2")
    try:
        job.until("generation 1: 4 members")
        job.resize(2)
        job.until("LSF: host hB returned")
        own = {"LSB_JOBID": "8", "LSB_MCPU_HOSTS": "hX 2", "LSB_DJOB_NUMPROC": "2"}
        lend = ["unshare", "--uts", "sh", "-c", 'hostname hX; exec "$@"', "sh", "regroup", "join"]
        guest = subprocess.Popen(
            lend, env=job.environment | own, cwd=tmp_path, stdin=subprocess.DEVNULL
        )
        try:
            job.until_generations(": 4 members", 2)
            guest.send_signal(signal.SIGTERM)
            assert guest.wait(60) == 0
        finally:
            guest.kill()
        job.until_generations(": 2 members", 2)
        job.until_trained()
    finally:
        job.end()


def test_a_host_stays_that_lsf_does_not_take_back(tmp_path: Path):
    job = Job(tmp_path)
    try:
        why = "in the job: bresize: ended with status 255: Job <7>: Job is not resizable"
        job.until("generation 1: 4 members")
        job.resize(3)
        job.until(f"1 slot of host hB stays {why}")
        job.resize(4)
        job.until_generations(": 4 members", 2)
        job.resize(2)
        job.until(f"host hB stays {why}")
        job.resize(4)
        job.until_generations(": 4 members", 3)
        job.until_trained()
    finally:
        job.end()
