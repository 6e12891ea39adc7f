"""A job with a parameter server in mode sync: weights have the bits of an undisturbed run, whatever
is killed or stopped, also over checkpoints; the status shows the step and its leaves."""

import os
import re
import signal
from pathlib import Path

from conftest import BIN, stops, told_of, until

MEMBER = BIN.parent / "tests/bin/ps_sync_member"
STEPS = 120


def served(servers: int, workers: int, directory: Path | None = None) -> list[str]:
    words = ["--role", f"ps={servers}", "--role", f"worker={workers}", "--ps-memory", "192M"]
    return words if directory is None else [*words, "--checkpoint", str(directory)]


def results(job) -> set[str]:
    """What the workers printed that have ended."""
    return set(re.findall(r"step \d+, digest \w+", job.out))


def undisturbed(regroup, steps: int) -> set[str]:
    job = regroup.run(*served(1, 1), str(MEMBER), str(steps))
    assert job.process.returncode == 0, job.out + job.err
    assert len(results(job)) == 1
    return results(job)


def step_is(regroup, step: int) -> dict | None:
    told = told_of(regroup)
    return told if told.get("step", -1) >= step else None


def pid_of(told: dict, name: str) -> int | None:
    return next((one["pid"] for one in told["step_clients"] if one["name"] == name), None)


def test_weights_do_not_depend_on_what_is_killed_or_stopped(regroup, tmp_path):
    expected = undisturbed(regroup, STEPS)
    go_on = tmp_path / "go on"
    job = regroup.start(*served(2, 3), str(MEMBER), str(STEPS), str(STEPS - 20), str(go_on))
    told = until(lambda: step_is(regroup, 5), "step 5")
    os.kill(told["servers"][0]["pid"], signal.SIGKILL)
    step = told["step"]
    told = until(lambda: step_is(regroup, step + 5), "steps after a server's death")
    killed = until(lambda: pid_of(told_of(regroup), "worker 1"), "worker 1")
    os.kill(killed, signal.SIGKILL)
    stopped = until(lambda: pid_of(told_of(regroup), "worker 2"), "worker 2")
    assert stops(stopped)
    # The others finish what it has begun, and go on without it.
    told = until(lambda: step_is(regroup, STEPS - 20), "steps after a worker was stopped")
    assert told["leaves"] == 6
    os.kill(told["servers"][1]["pid"], signal.SIGKILL)
    os.kill(stopped, signal.SIGCONT)
    go_on.touch()
    assert job.wait() == 0, job.out + job.err
    assert results(job) == expected, job.out + job.err
    assert len(re.findall("digest", job.out)) == 3


def test_the_status_shows_the_step_and_who_computes_what(regroup, tmp_path):
    go_on = tmp_path / "go on"
    job = regroup.start(*served(1, 2), str(MEMBER), "8", "6", str(go_on))
    told = until(lambda: step_is(regroup, 6), "step 6")
    assert [told["step"], told["leaves"], told["leaves_there"]] == [6, 6, 0]
    until(lambda: len(told_of(regroup)["step_clients"]) == 2, "both workers")
    text = regroup.control("status").stdout
    shown = re.compile(
        r"^mode sync: step 6 has 0 of 6 leaves; 2 clients; leaves taken over from slow ones: \d+\n"
        r"client +pid computes leaf\n(worker \d +\d+ -\n){2}",
        re.MULTILINE,
    )
    assert shown.search(text), text
    metrics = regroup.control("status", "--prometheus").stdout
    assert re.search(r"^regroup_ps_step\{.*\} 6$", metrics, re.MULTILINE), metrics
    go_on.touch()
    assert job.wait() == 0, job.out + job.err


def test_a_checkpoint_is_of_one_step_and_other_numbers_of_servers_go_on(regroup, tmp_path):
    expected = undisturbed(regroup, STEPS)
    directory, never = tmp_path / "saved", tmp_path / "never"
    job = regroup.start(*served(2, 2, directory), str(MEMBER), "1000000")
    for step in (5, 20):
        until(lambda step=step: step_is(regroup, step), f"step {step}")
        saved = regroup.control("checkpoint", "save")
        assert saved.returncode == 0, saved.stderr
    for pid in (job.agent, job.process.pid):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    # The tables of the checkpoint are those of its step, without a step of training.
    checked = regroup.start(*served(1, 1, directory), str(MEMBER), "1000000", "0", str(never))
    step = until(lambda: told_of(regroup).get("step"), "the step of the checkpoint")
    checked.process.send_signal(signal.SIGINT)
    assert checked.wait() != 0
    assert step >= 20
    resumed = regroup.run(*served(3, 2, directory), str(MEMBER), str(max(step, STEPS)))
    assert resumed.process.returncode == 0, resumed.err
    if step > STEPS:
        expected = undisturbed(regroup, step)
    assert results(resumed) == expected
    # The last checkpoint was written at the end of the job.
    again = regroup.run(*served(1, 1, directory), str(MEMBER), "1")
    assert results(again) == expected, again.out + again.err
