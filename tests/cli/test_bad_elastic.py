"""What an elastic job says to bad input of its members: each message names the object and the
cause."""

import contextlib
import os
import re
import signal
from pathlib import Path

from conftest import state, until
from test_elastic import QUICK, STEPS, assert_finished, members, pid_of, status

ODD = 'if [ "$RANK" = 1 ]; then exec "$0" "$1" "$2" "" {}; fi; exec "$0" "$1" "$2"'


def test_script_that_is_not_there(regroup):
    job = regroup.run(*QUICK, "--initial-size", "2", "python3", "/nonexistent/train.py")
    assert job.wait() == 2
    assert "/nonexistent/train.py" in job.err
    failed = r"regroup: the job failed: member \d+ \(pid \d+\): exited with status 2.*"
    assert re.search(
        failed + r"\(exit status 2\); it ran python3 /nonexistent/train.py\n$", job.err
    ), job.err
    job.assert_nothing_left()


def assert_one_finished(job, weights):
    """The first to join goes on alone; if the other ended before that, in a launch of its own."""
    assert job.wait() == 0, job.err
    finished = re.findall(r"^finished (.*)$", job.out, re.MULTILINE)
    assert len(finished) == 1 and finished[0] in weights, job.out
    job.assert_nothing_left()


def test_member_with_another_model_is_refused(regroup, member):
    options = ["--initial-size", "2", "--replace", "never", "--ready-timeout", "20"]
    job = regroup.run(*QUICK, *options, "sh", "-c", ODD.format("other"), member, STEPS, "1")
    models = r"is refused: its model is '(sum|other) .*', the job's is '(sum|other) .*'"
    assert re.search(models, job.err), job.err
    assert_one_finished(job, ["600.0"])


def test_member_with_other_data_is_refused(regroup, member):
    script = 'exec "$0" $((150 + RANK)) 1'
    job = regroup.run(
        *QUICK, "--initial-size", "2", "--replace", "never", "sh", "-c", script, member
    )
    refusal = r"is refused: its model is 'sum samples=\d+ batch=16 epochs=1'"
    assert re.search(refusal, job.err), job.err
    assert_one_finished(job, ["600.0", "604.0"])  # 150 or 151 steps of four leaves


def test_member_that_exits_0_before_finish_is_a_lost_member(regroup, member):
    script = ODD.format("sum 7")
    job = regroup.run(
        *QUICK, "--initial-size", "3", "--replace", "never", "sh", "-c", script, member, STEPS, "1"
    )
    assert "exited with status 0 before finish()" in job.err
    assert_finished(job, 2)


def test_too_little_memory_names_what_is_wanted_and_there(regroup, member):
    job = regroup.run(
        *QUICK, "--initial-size", "2", member, STEPS, "1", "", "sum", "0", str(10**11)
    )
    assert job.wait() == 3
    found = re.search(r"arena: (\d+) bytes requested, (\d+) available \((\S.*)\)", job.err)
    assert found, job.err
    assert int(found[1]) > 10**11 > int(found[2]) > 0
    job.assert_nothing_left()


def test_resize_during_a_regroup_is_answered_at_once(regroup, member):
    """The round stays open: it waits for an agent that is stopped once it has reported the
    death."""
    job = regroup.start(*QUICK, "--initial-size", "3", member, STEPS, "60")
    job.wait_out("^step 5 ")
    agent, coordinator = job.launcher_children()
    victim = pid_of(job, 1)
    os.kill(coordinator, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{victim}").exists(), "the agent has reaped the member")
    until(lambda: state(agent) == "S", "the agent waits for more to do: it has sent its report")
    os.kill(agent, signal.SIGSTOP)
    os.kill(coordinator, signal.SIGCONT)
    until(lambda: status(regroup)["stage"] == "regrouping", "the round is open")
    answers = [regroup.control("resize", n) for n in ("2", "4", "1", "3")]
    still_open = status(regroup)
    os.kill(agent, signal.SIGCONT)
    assert [a.returncode for a in answers] == [0, 0, 0, 0], [a.stderr for a in answers]
    # The World of three is that of before the death; the last one asked for stands.
    assert [a.stdout for a in answers] == [
        f"target {n}, 3 in the World now\n" for n in (2, 4, 1, 3)
    ]
    assert still_open["target"] == 3
    assert (still_open["generation"], still_open["round"]["waiting_for_nodes"]) == (1, [0])
    assert_finished(job)


def test_joiner_that_never_becomes_ready_is_given_up(regroup, member):
    script = 'if [ "$REGROUP_MEMBER" -ge 2 ]; then exec sleep 1000; fi; exec "$0" "$1" "$2"'
    options = ["--initial-size", "2", "--replace", "never", "--ready-timeout", "3"]
    job = regroup.start(*QUICK, *options, "sh", "-c", script, member, STEPS, "100")
    job.wait_out("^step 5 ")
    assert regroup.control("resize", "3").returncode == 0
    job.wait_err("member 2 was not ready within 3 s")
    assert members(regroup) == [0, 1]
    assert_finished(job, 2)
    assert "generation 2" not in job.err


def test_resize_outside_the_range_names_it(regroup, member):
    job = regroup.start(*QUICK, "--initial-size", "2", member, STEPS, "60")
    job.wait_out("^step 5 ")
    done = regroup.control("resize", "9")
    assert done.returncode != 0
    assert "9" in done.stderr and "1" in done.stderr and "4" in done.stderr
    assert_finished(job)


def test_member_whose_copy_of_the_state_is_damaged_never_votes(regroup, member):
    script = ODD.format("sum 0 64 bad-load")
    job = regroup.run(
        *QUICK, "--initial-size", "3", "--replace", "never", "sh", "-c", script, member, STEPS, "1"
    )
    assert "state: chunk 0 differs after loading from what the World provided" in job.err
    assert_finished(job, 2)


def test_nobody_waits_for_a_member_that_drops_its_session_and_lives_on(regroup, member):
    options = ["--initial-size", "3", "--replace", "never"]
    script = ["sh", "-c", ODD.format("sum 7 64 linger"), member, STEPS, "20"]
    job = regroup.start(*QUICK, *options, *script)
    job.wait_out("^step 5 ")
    lingering = pid_of(job, 1)
    job.wait_out("^step 20 size 2")
    assert "generation 2: 2 members (member 1 was lost: 3 -> 2 members)" in job.err
    with contextlib.suppress(ProcessLookupError):  # it has 5 s to end by itself
        os.kill(lingering, signal.SIGKILL)
    assert_finished(job, 2)


def test_member_that_drops_its_session_and_lives_on_is_killed(regroup, member):
    options = ["--initial-size", "3", "--replace", "never"]
    script = ["sh", "-c", ODD.format("sum 7 64 linger"), member, STEPS, "1"]
    job = regroup.run(*QUICK, *options, *script)
    assert_finished(job, 2)
