"""Members that come in without a pause of the others: warm spares, and learners."""

import json
import os
import signal

from conftest import until

STEPS = 400
ELASTIC = ["--oversubscribe", "-np", "1:4"]
LEARN = ["--learner-steps", "8", "--learner-state", "1"]


def members(regroup, state: str) -> list[dict]:
    done = regroup.control("status", "--json")
    listed = json.loads(done.stdout)["members"] if done.returncode == 0 else []
    return [m for m in listed if m["state"] == state]


def history(regroup) -> str:
    done = regroup.control("status", "--json")
    return (
        "\n".join(s["why"] for s in json.loads(done.stdout)["history"])
        if done.returncode == 0
        else ""
    )


def assert_finished(job) -> None:
    job.hurry()
    assert job.wait() == 0, job.err
    weights = {line.split()[1] for line in job.out.splitlines() if line.startswith("finished")}
    assert weights == {f"{4 * STEPS}.0"}
    job.assert_nothing_left()


def test_a_spare_takes_the_place_of_the_lost_at_once(regroup, member):
    job = regroup.start(*ELASTIC, "--initial-size", "2", "--spares", "1", member, str(STEPS), "10")
    # before, they are warm themselves
    until(lambda: len(members(regroup, "active")) == 2, "two members")
    until(lambda: members(regroup, "warm"), "a warm member")
    assert regroup.control("kill-member", "1").returncode == 0
    job.wait_err(
        r"generation 2: 2 members \(member 1 was lost .*member 2 is warm: 2 -> 2 members\)"
    )
    until(lambda: members(regroup, "warm"), "the next spare")
    assert_finished(job)


def test_spares_that_have_no_slot_are_said(regroup, member):
    slots = len(os.sched_getaffinity(0))
    job = regroup.run("-np", f"1:{slots}", "--spares", "3", member, "5", "0")
    assert job.wait() == 0
    assert f"--spares 3: {slots} slots have room for 0 in addition to {slots} members" in job.err


def test_spares_are_refused_where_nobody_is_replaced(regroup, member):
    job = regroup.run(*ELASTIC, "--replace", "never", "--spares", "1", member, "5", "0")
    assert job.wait() != 0
    assert "--spares 1: cannot be combined with --replace never" in job.err


def test_a_learner_runs_regions_alone_and_comes_in(regroup, member):
    arguments = [str(STEPS), "10", "f", "sum", "0", "64", "regions"]
    job = regroup.start(*ELASTIC, "--initial-size", "2", *LEARN, member, *arguments)
    job.wait_out("^step 20 ")
    assert regroup.control("resize", "3").returncode == 0
    until(lambda: len(members(regroup, "active")) == 3, "three members")
    assert "has caught up" in history(regroup)
    assert_finished(job)


def test_a_coordinator_killed_while_somebody_learns(regroup, member):
    job = regroup.start(*ELASTIC, "--initial-size", "2", *LEARN, member, str(STEPS), "10")
    job.wait_out("^step 20 ")
    assert regroup.control("resize", "3").returncode == 0
    until(lambda: "state transfer" in history(regroup), "a state transfer")
    os.kill(job.coordinator, signal.SIGKILL)
    until(lambda: len(members(regroup, "active")) == 3, "three members")
    assert_finished(job)
