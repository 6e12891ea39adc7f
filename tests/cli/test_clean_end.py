"""However a job ends, no process of it is left; signals reach whom they should."""

import contextlib
import fcntl
import os
import signal
import time

import pytest
from conftest import state, until

# A member with a child in its own process group and one that has left it.
FAMILY = "sleep 1000 & setsid sleep 1000 & echo up $$; wait"


def start_family(regroup, *options):
    job = regroup.start("--oversubscribe", "-np", "2", *options, "sh", "-c", FAMILY)
    until(lambda: len(job.out.splitlines()) == 2, "both ranks are up")
    # Each rank, its two sleeps; the guardian, its reaper, the agent and regroup-pmi.
    until(lambda: len(job.living()) == 10, "the whole family")
    return job


def member_pids(job):
    return [int(line.split()[1]) for line in job.out.splitlines()]


def test_member_killed(regroup):
    job = start_family(regroup)
    os.kill(member_pids(job)[0], signal.SIGKILL)
    assert job.wait() == 137
    job.assert_nothing_left()


def test_agent_killed(regroup):
    job = start_family(regroup)
    agent = job.agent
    os.kill(agent, signal.SIGKILL)
    assert job.wait() == 1
    assert f"the agent (pid {agent}) was killed by signal 9 (SIGKILL): the job is lost" in job.err
    job.assert_nothing_left()


def test_guardian_killed(regroup):
    job = start_family(regroup)
    job.process.kill()
    job.wait()
    job.assert_nothing_left()


def test_orphans_of_a_successful_job(regroup):
    job = regroup.run("-np", "1", "sh", "-c", "setsid sleep 1000 & echo ok")
    assert job.wait() == 0
    assert job.out == "ok\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_the_job_as_mpirun(regroup, number):
    script = "trap 'echo got TERM; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    job = regroup.start("--oversubscribe", "-np", "2", "sh", "-c", script)
    until(lambda: job.out.count("up") == 2, "both ranks are up")
    job.process.send_signal(number)
    assert job.wait() == 1
    assert job.out.count("got TERM") == 2
    job.assert_nothing_left()


STUBBORN = "trap 'echo got TERM' TERM; echo up; while :; do sleep 0.05; done"


def test_stubborn_members_are_killed_after_the_grace(regroup):
    job = regroup.start("-np", "1", "--term-grace", "0.4", "sh", "-c", STUBBORN)
    job.wait_out("up")
    begin = time.monotonic()
    job.process.terminate()
    assert job.wait() == 1
    assert 0.4 <= time.monotonic() - begin < 20
    assert "got TERM" in job.out
    job.assert_nothing_left()


def test_second_signal_kills_at_once(regroup):
    job = regroup.start("-np", "1", "--term-grace", "1000", "sh", "-c", STUBBORN)
    job.wait_out("up")
    job.process.terminate()
    job.wait_out("got TERM")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 1
    job.assert_nothing_left()


@pytest.fixture
def stalled_pipe():
    """A pipe that is full and that nobody reads: its writing end."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)  # the most that the launcher makes of it
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    yield write
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("signals", [1, 2])
def test_reader_that_is_stalled(regroup, stalled_pipe, signals):
    job = regroup.start("-np", "1", "sh", "-c", "yes & echo up >&2; wait", stdout=stalled_pipe)
    job.wait_err("up")
    for _ in range(signals):
        job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left()


def test_reader_that_is_stalled_after_the_end(regroup, stalled_pipe):
    job = regroup.start(
        "-np", "1", "sh", "-c", "echo last words; echo up $$ >&2", stdout=stalled_pipe
    )
    pid = int(job.wait_err(r"up (\d+)").group(1))
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the member")
    job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left()


def test_timeout_with_a_reader_that_is_stalled(regroup, stalled_pipe):
    job = regroup.start("--timeout", "0.3", "-np", "1", "yes", stdout=stalled_pipe)
    assert job.wait() == 241
    job.assert_nothing_left()


def test_agent_that_is_stopped(regroup):
    job = start_family(regroup)
    agent = job.agent
    os.kill(agent, signal.SIGSTOP)
    job.process.terminate()
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 1
    assert f"the agent (pid {agent}) does not answer: killing it" in job.err
    job.assert_nothing_left()


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_user_signals_are_forwarded(regroup, name):
    script = f"trap 'echo got {name}; exit 0' {name}; echo up; while :; do sleep 0.05; done"
    job = regroup.start("--oversubscribe", "-np", "2", "sh", "-c", script)
    until(lambda: job.out.count("up") == 2, "both ranks are up")
    job.process.send_signal(getattr(signal, f"SIG{name}"))
    assert job.wait() == 0
    assert job.out.count(f"got {name}") == 2


def test_stop_and_continue(regroup):
    job = regroup.start("-np", "1", "sh", "-c", "echo up $$; exec sleep 1000")
    job.wait_out("up")
    pid = member_pids(job)[0]
    job.process.send_signal(signal.SIGTSTP)
    until(
        lambda: state(pid) == "T" and state(job.process.pid) == "T",
        "member and launcher are stopped",
    )
    job.process.send_signal(signal.SIGCONT)
    until(lambda: state(pid) == "S", "the member goes on")
    job.process.terminate()
    assert job.wait() == 1


def test_nohup_ignores_the_hangup(regroup):
    job = regroup.start(
        "-np", "1", "sh", "-c", "echo up; exec sleep 1000",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    job.wait_out("up")
    job.process.send_signal(signal.SIGHUP)
    job.process.send_signal(signal.SIGCONT)  # is handled after it
    job.process.terminate()
    assert job.wait() == 1
    assert job.process.returncode == 1
