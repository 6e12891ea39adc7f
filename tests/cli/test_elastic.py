"""Elastic jobs of real members: kills of every process of the job, joins, leaves, bad members and
clients."""

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, until

STEPS = "150"
QUICK = ["--oversubscribe", "-np", "1:4"]


def status(regroup) -> dict:
    done = regroup.control("status", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def members(regroup) -> list[int]:
    return [m["id"] for m in status(regroup).get("members", []) if m["state"] == "active"]


def pid_of(job, member_id: int) -> int:
    """Of the process that was started as that member."""

    def find():
        for pid in job.living():
            try:
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"REGROUP_MEMBER={member_id}".encode() in words:
                return pid
        return None

    return until(find, f"process of member {member_id}")


def assert_finished(job, at_least: int = 1, unsaid: int = 0) -> None:
    """What the test waits for must have been seen before: the rest of the training is hurried
    through. `unsaid`: steps of which no line need be there: rank 0 says them, and may be killed
    when it has committed one."""
    job.hurry()
    assert job.wait() == 0, job.err
    weights = [line.split()[1] for line in job.out.splitlines() if line.startswith("finished")]
    assert len(weights) >= at_least
    # Each step adds the sum over V = 4 leaves of 1.0; nothing is lost and nothing counted twice.
    assert set(weights) == {f"{4 * int(STEPS)}.0"}
    steps = [int(line.split()[1]) for line in job.out.splitlines() if line.startswith("step")]
    assert set(steps) <= (whole := set(range(1, int(STEPS) + 1)))
    assert len(whole - set(steps)) <= unsaid, whole - set(steps)
    job.assert_nothing_left()


@pytest.fixture
def trio(regroup, member):
    """A job of three members that has committed a few steps."""
    job = regroup.start(*QUICK, "--initial-size", "3", "--replace", "never", member, STEPS, "60")
    job.wait_out("^step 5 ")
    return job


def test_undisturbed(regroup, member):
    job = regroup.run(*QUICK, "--initial-size", "3", member, STEPS, "0")
    assert_finished(job, 3)
    assert "generation 1: 3 members" in job.err
    assert not os.listdir(Path(regroup.runtime) / "regroup")


def test_quiet(regroup, member):
    job = regroup.run(*QUICK, "-q", "--initial-size", "2", member, STEPS, "0")
    assert_finished(job, 2)
    assert job.err == ""


def test_kill_member_command(regroup, trio):
    done = regroup.control("kill-member", "1")
    assert done.returncode == 0, done.stderr
    trio.wait_err(
        r"generation 2: 2 members \(member 1 was lost \(killed by regroup kill-member\): 3 -> 2 "
        r"members\)"
    )
    assert_finished(trio, 2)


def test_member_killed_from_outside_is_replaced(regroup, member):
    job = regroup.start(*QUICK, "--initial-size", "2", member, STEPS, "60")
    job.wait_out("^step 5 ")
    os.kill(pid_of(job, 0), signal.SIGKILL)
    job.wait_err(r"killed by signal 9 \(SIGKILL\)")
    job.wait_err("1 -> 2 members")
    assert_finished(job, 2, unsaid=1)


def test_resize_and_notice(regroup, trio):
    assert regroup.control("resize", "4").returncode == 0
    until(lambda: len(members(regroup)) == 4, "four members")
    assert regroup.control("notice", "0").returncode == 0
    until(lambda: 0 not in members(regroup), "member 0 has left")
    trio.wait_out("^left$")
    assert_finished(trio, 3)


def test_coordinator_killed(regroup, trio):
    for incarnation in (2, 3):
        os.kill(trio.coordinator, signal.SIGKILL)
        trio.wait_err(f"incarnation {incarnation} of the coordinator continues with generation 1")
    until(lambda: status(regroup).get("incarnation") == 3, "status of the third incarnation")
    assert len(members(regroup)) == 3
    assert_finished(trio, 3)


def test_coordinator_is_restarted_while_messages_are_stalled(regroup, member):
    read, write = os.pipe()
    os.set_blocking(write, False)
    job = regroup.start(*QUICK, "--initial-size", "2", member, "100000", "5", stderr=write)
    job.wait_out("^step 5 ")
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    for incarnation in (2, 3):
        os.kill(job.coordinator, signal.SIGKILL)
        until(
            lambda wanted=incarnation: status(regroup).get("incarnation") == wanted,
            f"incarnation {incarnation}",
        )
    job.process.terminate()
    assert job.wait() == 1
    os.close(read)
    os.close(write)


def test_coordinator_killed_while_a_member_dies(regroup, trio):
    victim = pid_of(trio, 2)
    coordinator = trio.coordinator
    os.kill(coordinator, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    os.kill(coordinator, signal.SIGKILL)
    trio.wait_err("generation 2: 2 members")
    assert_finished(trio, 2)


def test_agent_killed(regroup, trio):
    os.kill(trio.agent, signal.SIGKILL)
    assert trio.wait() == 1
    assert "the job is lost" in trio.err
    trio.assert_nothing_left()


def test_guardian_killed(regroup, member):
    job = regroup.start(
        *QUICK, "--orphan-timeout", "0.5", "--initial-size", "2", member, "100000", "5"
    )
    job.wait_out("^step 5 ")
    job.process.kill()
    job.wait()
    job.wait_err("the launcher has ended: the job ends in 0.5 s")
    job.assert_nothing_left(9)  # before the usual ten seconds are over
    assert not os.listdir(Path(regroup.runtime) / "regroup")


def test_orphaned_job_may_finish(regroup, member):
    job = regroup.start(*QUICK, "--orphan-timeout", "50", "--initial-size", "2", member, STEPS, "2")
    job.wait_out("^step 5 ")
    job.process.kill()
    job.wait()
    job.wait_out("^finished 600.0")
    job.assert_nothing_left()


def test_terminated(regroup, member):
    job = regroup.start(*QUICK, "--initial-size", "2", member, "100000", "5")
    job.wait_out("^step 5 ")
    job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left(9)  # likewise


@pytest.mark.parametrize("who", ["wrapper", "joined"])
def test_member_behind_a_shell(regroup, member, who):
    """The process that joins is a child of the one that was started; either may be killed."""
    script = f"setsid {member} {STEPS} 60; exit $?"
    job = regroup.start(*QUICK, "--initial-size", "2", "--replace", "never", "sh", "-c", script)
    job.wait_out("^step 5 ")
    processes = [p for p, words in job.living().items() if words.startswith("sh -c setsid")]
    wrapper = next(p for p in processes if p != job.process.pid and is_member(p, 1))
    child = int(Path(f"/proc/{wrapper}/task/{wrapper}/children").read_text().split()[0])
    os.kill(wrapper if who == "wrapper" else child, signal.SIGKILL)
    job.wait_err("generation 2: 1 member ")
    until(lambda: not Path(f"/proc/{child}").exists(), "the joined process is gone")
    assert_finished(job)


def is_member(pid: int, member_id: int) -> bool:
    return f"REGROUP_MEMBER={member_id}".encode() in Path(
        f"/proc/{pid}/environ"
    ).read_bytes().split(b"\0")


def agent_socket(regroup) -> str:
    return str(next((Path(regroup.runtime) / "regroup").glob("*/agent")))


def test_bad_clients_harm_nobody(regroup, trio):
    for payload in (
        b"",
        b"\x00",
        b"garbage" * 1000,
        struct.pack("<I", 0),
        struct.pack("<I", 16) + b"\xff" * 16,
        struct.pack("<I", 0xFFFFFFFF),
        struct.pack("<I", 1 << 20) + b"x",
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(agent_socket(regroup))
            if payload:
                client.sendall(payload)
    with socket.socket(socket.AF_UNIX) as idle:
        idle.connect(agent_socket(regroup))
        assert len(members(regroup)) == 3
        assert_finished(trio, 3)


def test_bad_control_clients_harm_nobody(regroup, trio):
    control = agent_socket(regroup).replace("/agent", "/control")
    for payload in (b"garbage" * 1000, struct.pack("<I", 24) + b"\xff" * 24):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(control)
            client.sendall(payload)
    assert len(members(regroup)) == 3
    assert_finished(trio, 3)


DIFFERENT = 'exec "$0" "$1" "$2" "print of $RANK"'


def test_another_fingerprint_is_refused(regroup, member):
    job = regroup.start(
        *QUICK,
        "--initial-size",
        "2",
        "--min-members-timeout",
        "5",
        "sh",
        "-c",
        DIFFERENT,
        member,
        STEPS,
        "1",
    )
    job.wait_err(
        "is refused: its numeric fingerprint is 'print of [01]', the job's is 'print of [01]'"
    )
    job.close()


def test_another_build_is_refused(regroup, member, tmp_path):
    """The same program with one byte more in its file: another compiler or other flags change
    more."""
    other = tmp_path / "other_build"
    shutil.copy(member, other)
    with other.open("ab") as file:
        file.write(b"x")
    script = 'if [ "$RANK" = 1 ]; then shift; fi; exec "$1" "$0" 5'
    options = ["--initial-size", "2", "--replace", "never", "--ready-timeout", "20"]
    job = regroup.start(*QUICK, *options, "sh", "-c", script, STEPS, member, other)
    told = job.wait_err(
        "member [01] is refused: its numeric fingerprint is '(.*)', the job's is '(.*)': (.*)"
    )
    its, the_jobs = (dict(word.split("=") for word in told[i].split()) for i in (1, 2))
    assert its.pop("build") != the_jobs.pop("build")
    assert its == the_jobs and its["libc"] == os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert told[3].startswith("they differ in build")
    assert_finished(job)


def test_another_fingerprint_is_admitted_without_bits(regroup, member):
    job = regroup.run(
        *QUICK,
        "--reproducible=off",
        "--initial-size",
        "2",
        "sh",
        "-c",
        DIFFERENT,
        member,
        STEPS,
        "0",
    )
    assert "is admitted (--reproducible=off)" in job.err
    assert_finished(job, 2)


def test_member_that_never_joins_is_given_up(regroup, member):
    script = f'if [ "$RANK" = 1 ]; then exec sleep 1000; fi; exec {member} {STEPS} 1'
    options = ["--initial-size", "2", "--replace", "never", "--ready-timeout", "1"]
    job = regroup.run(*QUICK, *options, "sh", "-c", script)
    assert "member 1 was not ready within 1 s" in job.err
    assert_finished(job)


def test_job_fails_with_reason_and_status(regroup, member):
    job = regroup.run("--oversubscribe", "-np", "2:4", "--initial-size", "2", "sh", "-c", "exit 9")
    assert job.wait() == 9
    assert "the job failed: " in job.err
    assert "exit status 9" in job.err


def test_control_without_a_job(regroup):
    done = regroup.control("status")
    assert done.returncode == 1
    assert done.stderr.startswith("regroup: no job of this user is running")


def test_control_says_what_is_wrong(regroup, trio):
    job = status(regroup)["job"]
    for words, told in {
        ("status", "no-such-job"): f"no job no-such-job of this user; running: {job}",
        ("resize", "5"): "this job can have 1 to 4 members",
        ("notice", "17"): "notice 17: no such member",
        ("kill-member", "17"): "kill-member 17: no such member",
        ("kill-member", "worker:0"): "has no roles; expected a number of `regroup status`",
    }.items():
        done = regroup.control(*words)
        assert done.returncode == 1
        assert told in done.stderr
    done = regroup.control("status", job)
    assert done.returncode == 0
    assert f"job {job}: steady, generation 1 with 3 members" in done.stdout
    assert_finished(trio, 3)


def test_status_follow_ends_with_the_job(regroup, trio):
    words = [str(BIN / "regroup"), "status", "--follow"]
    with subprocess.Popen(words, env=regroup.env, stdout=subprocess.PIPE, text=True) as follow:
        assert any("generation 1 " in line for line in iter(follow.stdout.readline, ""))
        trio.hurry()
        assert follow.wait(60) == 0
    assert_finished(trio, 3)
