"""Notices: a file, a command, a signal; what they do to a job on this host, and to one of several
hosts."""

import contextlib
import json
import os
import re
import signal
import time

import pytest
from conftest import elastic, until, write_whole
from test_elastic import STEPS, assert_finished, members, pid_of, status

FAST = ["--notice-every", "0.05"]


@pytest.mark.parametrize("count", ["2", "1:2"])
def test_a_notice_ends_a_job_of_this_host(regroup, tmp_path, count):
    notice = tmp_path / "notice"
    member = "trap 'echo told; exit 0' TERM; echo up; while sleep 0.05; do :; done"
    words = [
        "--notice-file",
        str(notice),
        *FAST,
        "--notice-status",
        "75",
        "--oversubscribe",
        "-np",
        count,
    ]
    job = regroup.start(*words, "sh", "-c", member)
    until(lambda: job.out.count("up") == 2, "members")
    write_whole(notice, "rubbish")
    job.wait_err(r"--notice-file \S+: malformed notice 'rubbish'")
    assert job.process.poll() is None
    write_whole(notice, "kill within=10\n")
    assert job.wait() == 75, job.err
    assert f"--notice-file {notice}: kill within 10 s: the job ends" in job.err
    assert job.out.count("told") == 2
    job.assert_nothing_left()


def azure(kind: str, within: float, **fields) -> str:
    """An event of Azure's for this host, in so many seconds."""
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + within))
    event = {"EventType": kind, "EventStatus": "Scheduled", "NotBefore": at, **fields}
    return json.dumps({"DocumentIncarnation": 1, "Events": [event]})


@pytest.mark.parametrize("count", ["1", "1:1"])
def test_a_freeze_of_seconds_ends_no_job(regroup, tmp_path, count):
    notice, gate = tmp_path / "notice", tmp_path / "gate"
    member = f"echo up; until [ -e {gate} ]; do sleep 0.05; done"
    job = regroup.start("--notice-file", str(notice), *FAST, "-np", count, "sh", "-c", member)
    job.wait_out("up")
    write_whole(notice, azure("Freeze", 600, DurationInSeconds=9))
    job.wait_err(r"Freeze of this host in \d+ s, for 9 s: the job continues")
    write_whole(
        notice, azure("Freeze", 0, DurationInSeconds=9, EventStatus="Started", NotBefore="")
    )
    time.sleep(0.2)  # nothing is to happen
    gate.touch()
    assert job.wait() == 0, job.err
    assert "the job ends" not in job.err


def test_a_host_that_stands_still_for_a_moment_is_not_lost(regroup, tmp_path):
    """Its agent has said so, and may then be silent for longer than five seconds."""
    notice, gate = tmp_path / "notice", tmp_path / "gate"
    member = f"echo up $PMIX_RANK $PPID; until [ -e {gate} ]; do sleep 0.05; done"
    words = ["--launcher", "fork", "-H", "a:1,b:1", "--notice-file", str(notice), *FAST, "-np", "2"]
    job = regroup.start(*words, "sh", "-c", member)
    agent = int(until(lambda: re.search(r"^up 1 (\d+)$", job.out, re.MULTILINE), "rank 1")[1])
    write_whole(notice, "pause within=0 for=20 hosts=b\n")
    job.wait_err(
        r"host b: --notice-file \S+: a pause of this host in 0 s, for 20 s: the job continues"
    )
    os.kill(agent, signal.SIGSTOP)
    time.sleep(7)
    os.kill(agent, signal.SIGCONT)
    gate.touch()
    assert job.wait() == 0, job.err
    assert "no message from its agent" not in job.err


def test_members_have_the_usual_time_when_an_event_has_begun(regroup, tmp_path):
    """Nobody says how much is left, and killing them at once would leave them less."""
    notice, gate = tmp_path / "notice", tmp_path / "gate"
    told = f"until [ -e {gate} ]; do sleep 0.05; done; echo told; exit 0"
    member = f"trap '{told}' TERM; echo up; while sleep 0.05; do :; done"
    job = regroup.start("--notice-file", str(notice), *FAST, "-np", "1", "sh", "-c", member)
    job.wait_out("up")
    write_whole(notice, azure("Terminate", 300, Resources=[os.uname().nodename.upper()]))
    job.wait_err(r"kill within (300|29\d) s: the job ends")
    write_whole(notice, azure("Terminate", 0, EventStatus="Started", NotBefore=""))
    job.wait_err(r"kill within 30 s: the job has less time")
    gate.touch()
    assert job.wait() == 1, job.err
    assert job.out.count("told") == 1


def test_members_that_do_not_leave_in_time_are_killed(regroup, tmp_path):
    member = "trap '' TERM; echo up; while sleep 0.05; do :; done"
    command = f"test -e {tmp_path}/go && echo kill within=1.5 || true"
    words = ["--notice-command", command, *FAST, "--term-grace", "100"]
    job = regroup.start(*words, "-np", "1", "sh", "-c", member)
    job.wait_out("up")
    (tmp_path / "go").touch()
    began = time.monotonic()
    assert job.wait() == 1
    assert time.monotonic() - began < 30, job.err
    job.assert_nothing_left()


@pytest.mark.parametrize(
    ("sent", "expected"), [(signal.SIGTERM, 99), (signal.SIGINT, 1), (signal.SIGHUP, 1)], ids=str
)
def test_the_status_by_which_an_allocator_starts_a_job_again(regroup, sent, expected):
    job = regroup.start("--notice-status", "99", "-np", "1", "sh", "-c", "echo up; exec sleep 60")
    job.wait_out("up")
    job.process.send_signal(sent)
    assert job.wait() == expected, job.err


def test_a_signal_that_is_said_to_be_a_notice(regroup):
    """As of `bsub -wa URG -wt MINUTES`: members get SIGTERM, and the time that there is."""
    member = "trap 'sleep 5.5; echo told; exit 0' TERM; echo up; while sleep 0.05; do :; done"
    words = [
        "--notice-signal",
        "URG,USR1",
        "--notice-grace",
        "20",
        "--notice-status",
        "99",
        "-np",
        "1",
    ]
    job = regroup.start(*words, "sh", "-c", member)
    job.wait_out("up")
    job.process.send_signal(signal.SIGURG)
    assert job.wait() == 99, job.err
    assert job.out.count("told") == 1


@pytest.fixture
def two_hosts(regroup, member, tmp_path):
    """A job of four members on two hosts, both of them this one, that are watched for a notice."""
    words = [
        "--launcher",
        "fork",
        "-H",
        "a:2,b:2",
        "--notice-file",
        str(tmp_path / "notice"),
        *FAST,
    ]
    words += ["--notice-status", "75"]
    job = regroup.start(*words, "--shards", "4", "-np", "1:4", member, STEPS, "100")
    job.wait_err("generation 1: 4 members")
    job.wait_out("^step 5 ")
    return job


def test_a_notice_takes_one_host_back(regroup, tmp_path, two_hosts):
    write_whole(tmp_path / "notice", "shrink within=20 hosts=b\n")
    two_hosts.wait_err(r"host b must be returned within 20 s \(shrink of --notice-file \S+\)")
    two_hosts.wait_err("host b was returned")
    until(lambda: len(members(regroup)) == 2, "two members")
    assert_finished(two_hosts, 2)
    assert "was lost" not in two_hosts.err, two_hosts.err


def test_a_second_notice_ends_nobody(regroup, member, tmp_path):
    """Whoever says it: it can only leave less time. The step during which both are heard goes on
    until they were."""
    second, gates = tmp_path / "second", tmp_path / "gates"
    gates.mkdir()
    words = [
        "--launcher",
        "fork",
        "-H",
        "a:2,b:2",
        "--notice-file",
        str(tmp_path / "notice"),
        *FAST,
    ]
    words += ["--notice-command", f"cat {second} 2>/dev/null || true"]
    training = [member, "12", "20", "", "sum", "0", "64", f"gates={gates}"]
    job = regroup.start(*words, "--shards", "4", "-np", "1:4", *training)
    job.wait_err("generation 1: 4 members")
    job.wait_out("^step 1 ")
    for each in range(4):
        (gates / f"leaf.{each}").touch()
    write_whole(tmp_path / "notice", "shrink within=60 hosts=b\n")
    job.wait_err(r"host b must be returned within 60 s")
    write_whole(second, "kill within=30 hosts=b\n")
    job.wait_err(r"host b must be returned sooner, within 30 s")
    for each in range(4):
        (gates / f"leaf.{each}").unlink()
    job.wait_err("host b was returned")
    assert job.wait() == 0, job.err
    assert "was lost" not in job.err, job.err
    assert job.out.count("left") == 2


def test_a_host_that_was_suspended_comes_back_when_the_file_says_so_no_more(
    regroup, member, tmp_path
):
    """Its members leave as on any notice; its agent stays, and hears of the end."""
    notice = tmp_path / "notice"
    words = ["--launcher", "fork", "-H", "a:2,b:2", "--notice-file", str(notice), *FAST]
    two_hosts = regroup.start(
        *words, "--shards", "4", "-np", "1:4", "--initial-size", "4", member, STEPS, "100"
    )
    two_hosts.wait_err("generation 1: 4 members")
    write_whole(notice, "suspend within=20 hosts=b\n")
    two_hosts.wait_err(r"host b must be returned within 20 s \(suspend of --notice-file \S+\)")
    until(lambda: len(members(regroup)) == 2, "two members")
    notice.unlink()
    two_hosts.wait_err(r"host b may be used again \(--notice-file \S+\)")
    until(lambda: len(members(regroup)) == 4, "four members")
    write_whole(notice, "suspend within=20 hosts=b\n")
    until(lambda: len(members(regroup)) == 2, "two members again")
    write_whole(notice, "shrink within=20 hosts=b\n")
    two_hosts.wait_err("host b was returned")
    assert_finished(two_hosts, 2)
    assert "was lost" not in two_hosts.err, two_hosts.err


def test_a_suspended_host_that_was_given_up_gets_no_members_while_it_is_suspended(
    regroup, member, tmp_path
):
    """Members there stand still, so it is given up at its deadline, and tried again. Whoever says
    that it is suspended takes its time to say so once more."""
    notice = tmp_path / "notice"
    words = ["--launcher", "fork", "-H", "a:2,b:2", "--notice-every", "0.05"]
    words += ["--notice-command", f"sleep 0.3; cat {notice} 2>/dev/null || true"]
    job = regroup.start(
        *words, "--shards", "4", "-np", "1:4", "--initial-size", "4", member, STEPS, "100"
    )
    job.wait_err("generation 1: 4 members")
    for pid in [pid_of(job, 2), pid_of(job, 3)]:
        os.kill(pid, signal.SIGSTOP)  # their agent kills them when it is given up
    write_whole(notice, "suspend within=0 hosts=b\n")
    job.wait_err("host b: 2 of its members did not leave in time")
    came = r"host b has come, with (\d+) slots"

    def times() -> list[str]:
        return re.findall(
            came, "\n".join(said["why"] for said in status(regroup).get("history", []))
        )

    assert until(times, "host b once more") == ["0"]
    until(lambda: len(members(regroup)) == 2, "two members")
    notice.unlink()
    job.wait_err(r"host b may be used again \(--notice-command ")
    until(lambda: len(members(regroup)) == 4, "four members")
    assert_finished(job, 4)


def test_a_later_notice_that_leaves_less_time_is_heeded(regroup, tmp_path):
    """Of a job of this host whose member does not end."""
    member = "trap '' TERM; echo up; while sleep 0.05; do :; done"
    words = ["--notice-file", str(tmp_path / "notice"), *FAST, "--term-grace", "1", "-np", "1"]
    job = regroup.start(*words, "sh", "-c", member)
    job.wait_out("up")
    write_whole(tmp_path / "notice", "kill within=300\n")
    job.wait_err("kill within 300 s: the job ends")
    began = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 1
    assert time.monotonic() - began < 30, job.err
    job.assert_nothing_left()


def test_a_notice_that_comes_too_late_costs_no_step(regroup, tmp_path, two_hosts):
    write_whole(tmp_path / "notice", "kill within=0 hosts=b\n")
    two_hosts.wait_err("host b")
    until(lambda: len(members(regroup)) == 2, "two members")
    assert_finished(two_hosts, 2)


def test_a_notice_for_all_hosts_is_the_end_of_the_job(tmp_path, two_hosts):
    write_whole(tmp_path / "notice", "kill within=20\n")
    two_hosts.wait_err("no host is left: the job ends")
    assert two_hosts.wait() == 75, two_hosts.err
    assert two_hosts.err.count("must be returned within 20 s") == 2
    two_hosts.assert_nothing_left()


def test_a_stopped_job_goes_on_where_it_was(regroup, two_hosts):
    """Slurm suspends so: SIGTSTP, two seconds later SIGSTOP to all processes; SIGCONT to all."""
    two_hosts.process.send_signal(signal.SIGTSTP)
    time.sleep(1)
    stopped = list(two_hosts.living())
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(7)  # longer than silence of an agent may last
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    before = status(regroup)["generation"]
    steps = two_hosts.out.count("step ")
    until(
        lambda: two_hosts.out.count("step ") > steps + 20, "further steps"
    )  # whoever is given up is by then
    assert_finished(two_hosts, 4)
    assert before == 1
    assert "was lost" not in two_hosts.err, two_hosts.err


KEPT = ["--shards", "4", "--notice-status", "99", "--min-members-timeout", "1"]


def attempt_of(regroup) -> list[int]:
    found = status(regroup)
    return [
        found[name] for name in ("attempt", "preempted_before", "failed_before", "killed_before")
    ]


def test_attempts_are_counted_by_how_they_ended(regroup, member, tmp_path):
    """Ended on a notice, killed without a word, failed; and each goes on from the newest
    checkpoint."""
    words = elastic("1:2", *KEPT, "--max-restarts", "0", initial=2, checkpoint=tmp_path, interval=5)

    def start(*program: str):
        job = regroup.start(
            *words, "sh", "-c", 'echo attempt $REGROUP_ATTEMPT; exec "$@"', "sh", *program
        )
        until(
            lambda: status(regroup).get("step", 0) > 10 or job.process.poll() is not None,
            "ten steps",
        )
        return job

    first = start(member, STEPS, "40")
    first.wait_err(r"checkpoint of step [1-9]\d+: in")
    assert attempt_of(regroup) == [1, 0, 0, 0]
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 99, first.err
    second = start(member, STEPS, "40")
    assert attempt_of(regroup) == [2, 1, 0, 0]
    assert "attempt 2; before it, 1 ended on a notice" in regroup.control("status").stdout
    assert second.out.count("attempt 2") == 2
    second.wait_err("the job resumes after step")
    for pid in [second.process.pid, *second.living()]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    second.process.wait(60)
    second.assert_nothing_left()
    third = regroup.start(*words, "sh", "-c", "exit 3")
    assert third.wait() not in (0, 99), third.err
    fourth = start(member, STEPS, "40")
    assert attempt_of(regroup) == [4, 1, 1, 1]
    assert_finished_late(fourth)


def assert_finished_late(job) -> None:
    job.hurry()
    assert job.wait() == 0, job.err
    weights = [line.split()[1] for line in job.out.splitlines() if line.startswith("finished")]
    assert set(weights) == {f"{4 * int(STEPS)}.0"}


def kept(folder) -> tuple[int, int, int]:
    found = json.loads((folder / "ATTEMPTS").read_text())
    return found["preempted"], found["failed"], found["killed"]


def test_a_signal_that_only_members_have_heard_yet_is_a_notice(regroup, member, tmp_path):
    """Slurm sends SIGTERM to all processes of a job: members may be gone before their agent has
    heard it."""
    words = elastic("1:2", *KEPT, "--replace", "never", initial=2, checkpoint=tmp_path, interval=5)
    job = regroup.start(*words, member, STEPS, "60")
    until(lambda: status(regroup).get("step", 0) > 5, "five steps")
    for pid in [pid_of(job, each) for each in members(regroup)]:
        os.kill(pid, signal.SIGTERM)
    assert job.wait() == 99, job.err
    assert "the job ends: all members left on notice" in job.err
    assert "was lost" not in job.err
    assert kept(tmp_path) == (1, 0, 0)


def test_a_second_signal_soon_after_the_first_is_the_same_notice(regroup, member):
    """The member finishes its step; who sends SIGTERM later once more ends it at once."""
    words = [
        "--oversubscribe",
        "--shards",
        "4",
        "-np",
        "1:2",
        "--initial-size",
        "2",
        "--replace",
        "never",
    ]
    job = regroup.start(*words, member, STEPS, "100")
    until(lambda: status(regroup).get("step", 0) > 1, "two steps")
    leaves = pid_of(job, members(regroup)[0])
    for _ in range(3):
        with contextlib.suppress(ProcessLookupError):
            os.kill(leaves, signal.SIGTERM)
        time.sleep(0.02)
    job.wait_err("generation 2: 1 member")
    assert "was lost" not in job.err, job.err
    job.wait_out("^left$")


@pytest.mark.parametrize(
    "where", [["--oversubscribe"], ["--launcher", "fork", "-H", "a:1,b:1"]], ids=["one", "two"]
)
def test_the_last_member_waits_for_nobody_when_the_job_ends(regroup, member, where):
    """Who has the state stays until another has it, unless nobody can come."""
    words = [*where, "--shards", "4", "-np", "1:2", "--initial-size", "2", "--term-grace", "120"]
    job = regroup.start(*words, member, STEPS, "60")
    job.wait_out("^step 5 ")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 1, job.err
    assert "SIGKILL" not in job.err
    assert job.out.count("left") == 2


def test_a_job_that_is_killed_after_its_notice_was_preempted(regroup, tmp_path):
    """An allocator may kill it before it is over."""
    script = "trap '' TERM; echo up; while sleep 0.05; do :; done"
    words = elastic("1:2", *KEPT, "--term-grace", "60", initial=2, checkpoint=tmp_path, interval=5)
    job = regroup.start(*words, "sh", "-c", script)
    until(lambda: job.out.count("up") == 2, "members")
    job.process.send_signal(signal.SIGTERM)
    until(lambda: kept(tmp_path) == (1, 0, 0), "the notice in ATTEMPTS")
    assert job.process.poll() is None
    for pid in [job.process.pid, *job.living()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.process.wait(60)
    job.assert_nothing_left()
    again = regroup.start(*words, "--max-restarts", "0", "sh", "-c", "exit 3")
    assert again.wait() == 3, again.err
    assert kept(tmp_path) == (1, 1, 0)


def test_attempts_of_a_job_on_two_hosts_are_counted_beside_their_checkpoints(
    regroup, member, tmp_path
):
    words = [
        "--launcher",
        "fork",
        "-H",
        "a:1,b:1",
        "--shards",
        "4",
        "-np",
        "1:2",
        "--initial-size",
        "2",
    ]
    words += ["--checkpoint-interval", "5", "--notice-status", "99", "--checkpoint", str(tmp_path)]
    first = regroup.start(*words, member, STEPS, "40")
    first.wait_err(r"checkpoint of step [1-9]\d+: in")
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 99, first.err
    assert kept(tmp_path) == (1, 0, 0)
    second = regroup.start(*words, member, STEPS, "0")
    second.wait_err("the job resumes after step")
    assert_finished_late(second)
    assert kept(tmp_path) == (1, 0, 0)
    assert json.loads((tmp_path / "ATTEMPTS").read_text())["attempts"] == 2
