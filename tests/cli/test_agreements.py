"""SIGKILL within finish() and within region(): what was committed stays, what was not is agreed on
again.

Gates hold members where a test wants them (elastic_member.cc); one that waits for the votes of
others sleeps on a futex, and is frozen there when they are to commit without it. It sleeps in the
vote itself only where nothing comes before: finish() compares the states first, unless bits may
differ.
"""

import os
import platform
import re
import signal
from pathlib import Path

import pytest
from conftest import state, until
from test_elastic import QUICK, STEPS, assert_finished, members, pid_of

REGION_STEP = "3"
VOTES_AT_ONCE = (*QUICK, "--initial-size", "3", "--replace", "never", "--reproducible=off")
FUTEX = {"x86_64": "202", "aarch64": "98"}[platform.machine()]


def sleeps_on_a_futex(pid: int) -> bool:
    """As who waits for others does."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == FUTEX


class Gated:
    """A job whose members stop at the gates PLACE.ID."""

    def __init__(self, regroup, member: str, folder: Path, gates: list[str], options: list[str]):
        self.folder = folder
        for gate in gates:
            (folder / gate).touch()
        words = [member, STEPS, "0", "", "sum", REGION_STEP, "64", f"gates={folder}"]
        self.job = regroup.start(*options, *words)

    def reached(self, place: str, *ids: int) -> None:
        for member_id in ids:
            self.job.wait_out(f"^{place} {member_id}$")

    def voted(self, place: str, *ids: int) -> None:
        """They are through the gate and wait for the others."""
        self.reached(place, *ids)
        for pid in (pid_of(self.job, member_id) for member_id in ids):
            until(lambda: sleeps_on_a_futex(pid), f"process {pid} sleeps")  # noqa: B023

    def freeze(self, member_id: int) -> None:
        pid = pid_of(self.job, member_id)
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T", f"process {pid} is stopped")

    def thaw(self, member_id: int) -> None:
        os.kill(pid_of(self.job, member_id), signal.SIGCONT)

    def kill(self, *ids: int) -> None:
        for pid in [pid_of(self.job, member_id) for member_id in ids]:
            os.kill(pid, signal.SIGKILL)

    def open(self, *gates: str) -> None:
        for gate in gates:
            (self.folder / gate).unlink()

    def wait_lines(self, pattern: str, count: int) -> None:
        until(lambda: len(self.lines(pattern)) == count, f"{count} times {pattern}: {self.job.out}")

    def lines(self, pattern: str) -> list[str]:
        return re.findall(f"^{pattern}$", self.job.out, re.MULTILINE)


@pytest.fixture
def gated(regroup, member, tmp_path):
    def start(*gates: str, options=(*QUICK, "--initial-size", "3", "--replace", "never")) -> Gated:
        return Gated(regroup, member, tmp_path, list(gates), list(options))

    return start


def assert_finish_of(run: Gated, count: int) -> None:
    assert_finished(run.job, count)
    assert len(run.lines("finished .*")) == count


def test_killed_while_it_waits_in_finish(gated):
    run = gated("finish.0")
    run.voted("finish", 1, 2)
    run.kill(1)
    run.job.wait_err("generation 2: 2 members")
    assert not run.lines("finished .*")
    run.open("finish.0")
    assert_finish_of(run, 2)


def test_killed_in_a_finish_that_the_others_committed(gated):
    run = gated("finish.0", options=VOTES_AT_ONCE)
    run.voted("finish", 1, 2)
    run.freeze(1)
    run.open("finish.0")
    run.wait_lines("finished .*", 2)
    run.kill(1)
    assert_finish_of(run, 2)


def test_finish_stays_committed_when_all_who_committed_it_are_killed(gated):
    """The job has the status of those killed, who had work of their own left; the survivor its
    weights."""
    run = gated("finish.0", "end.0", "end.2", options=VOTES_AT_ONCE)
    run.voted("finish", 1, 2)
    run.freeze(1)
    run.open("finish.0")
    run.reached("end", 0, 2)
    run.kill(0, 2)
    run.thaw(1)
    assert run.job.wait() == 128 + signal.SIGKILL
    assert run.lines("finished .*") == [f"finished {4 * int(STEPS)}.0"] * 3
    assert "a member ended with status 137 after finish()" in run.job.err
    run.job.assert_nothing_left()


def test_all_killed_before_finish_is_committed(gated):
    run = gated("finish.0")
    run.voted("finish", 1, 2)
    run.freeze(1)  # or they could finish while they are killed one by one
    run.freeze(2)
    run.kill(0, 1, 2)
    assert run.job.wait() == 128 + signal.SIGKILL
    assert not run.lines("finished .*")
    assert "regroup: the job failed: " in run.job.err
    run.job.assert_nothing_left()


def test_killed_in_finish_and_replaced(gated, regroup):
    """The newcomer has nothing left to do: it leaves, unless it is left alone with the state. Then
    it, too, finishes with the weights."""
    run = gated("finish.0", options=("--oversubscribe", "-np", "2:4", "--initial-size", "2"))
    run.voted("finish", 1)
    run.kill(1)
    until(lambda: 2 in members(regroup), "the successor is in the World")
    run.open("finish.0")
    assert_finished(run.job, 1)


def test_killed_in_finish_below_the_minimum(gated):
    options = (
        "--oversubscribe",
        "-np",
        "2:4",
        "--initial-size",
        "2",
        "--replace",
        "never",
        "--min-members-timeout",
        "1",
    )
    run = gated("finish.0", options=options)
    run.voted("finish", 1)
    run.kill(1)
    run.job.wait_err("1 of at least 2 members: holding the state")
    run.open("finish.0")
    assert run.job.wait() == 1
    assert "1 of at least 2 members for 1 s (--min-members-timeout)" in run.job.err
    assert not run.lines("finished .*")
    run.job.assert_nothing_left()


def test_killed_in_the_body_of_a_region(gated):
    run = gated("body.1")
    run.reached("body", 1)
    run.voted("body", 0, 2)
    run.kill(1)
    assert_finish_of(run, 2)
    assert run.lines("region .*") == ["region 2.0 runs 2"] * 2


def test_killed_while_it_votes_on_a_region(gated):
    run = gated("body.0")
    run.voted("body", 1, 2)
    run.kill(1)
    run.job.wait_err("generation 2: 2 members")
    assert not run.lines("region .*")
    run.open("body.0")
    assert_finish_of(run, 2)
    assert run.lines("region .*") == ["region 2.0 runs 2"] * 2


def test_killed_in_a_region_that_the_others_committed(gated):
    run = gated("body.0")
    run.voted("body", 1, 2)
    run.freeze(1)
    run.open("body.0")
    run.wait_lines("region .*", 2)
    run.kill(1)
    assert_finish_of(run, 2)
    assert run.lines("region .*") == ["region 3.0 runs 1"] * 2


def test_region_stays_committed_when_all_who_committed_it_are_killed(gated):
    run = gated("body.0")
    run.voted("body", 1, 2)
    run.freeze(1)
    run.open("body.0")
    run.wait_lines("region .*", 2)
    run.kill(0, 2)
    run.thaw(1)
    assert_finish_of(run, 1)
    assert run.lines("region .*") == ["region 3.0 runs 1"] * 3
