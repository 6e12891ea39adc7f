"""What a restarted coordinator still knows, how often it is restarted, and a join that cannot be
watched."""

import os
import re
import resource
import signal
from pathlib import Path

from conftest import until
from test_elastic import QUICK, STEPS, assert_finished, members, pid_of, status


def wait_for_members(regroup, count: int, without: int | None = None) -> list[int]:
    def there():
        found = members(regroup)
        return found if len(found) == count and without not in found else None

    return until(there, f"{count} members")


def wait_until_it_trains_in(regroup, generation: int) -> None:
    """A step that was begun in that generation is committed, so all members and agents have it."""

    def trains() -> bool:
        now = status(regroup)
        return now.get("generation") == generation and now["step"] > now["resume_step"] + 1

    until(trains, f"a step of generation {generation}")


def test_target_and_sentences_survive_the_coordinator(regroup, member):
    job = regroup.start(*QUICK, "--initial-size", "2", member, "1000000", "5")
    job.wait_out("^step 5 ")
    assert regroup.control("resize", "3").returncode == 0
    wait_for_members(regroup, 3)
    wait_until_it_trains_in(regroup, 2)
    before = status(regroup)
    os.kill(job.coordinator, signal.SIGKILL)
    job.wait_err("incarnation 2 of the coordinator continues with generation 2")
    after = until(
        lambda: (s := status(regroup)).get("incarnation") == 2 and s, "the second incarnation"
    )
    assert after["target"] == before["target"] == 3
    assert after["history"][: len(before["history"])] == before["history"]
    sentences = [event["why"] for event in before["history"]]
    assert sentences[0] == "the first 2 members are ready"
    assert sentences[-1] == "member 2 is warm: 2 -> 3 members"
    assert after["seconds"] > before["seconds"]
    os.kill(pid_of(job, 1), signal.SIGKILL)
    assert 3 in wait_for_members(regroup, 3, without=1)
    job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left()


def test_resize_that_was_answered_is_carried_out_by_the_successor(regroup, member):
    job = regroup.start(*QUICK, "--initial-size", "1", member, "1000000", "5")
    job.wait_out("^step 5 ")
    coordinator = job.coordinator
    assert regroup.control("resize", "3").returncode == 0
    os.kill(coordinator, signal.SIGKILL)
    wait_for_members(regroup, 3)
    assert status(regroup)["target"] == 3
    job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left()


def test_a_size_that_was_said_does_not_grow_with_the_hosts_under_the_successor(
    regroup, member, tmp_path
):
    """A host that was suspended comes back: with the size that nobody has said, the job would have
    it all."""
    notice = tmp_path / "notice"
    words = [
        "--launcher",
        "fork",
        "-H",
        "a:2,b:2",
        "--notice-file",
        str(notice),
        "--notice-every",
        "0.05",
    ]
    job = regroup.start(*words, "-np", "1:4", member, "1000000", "5")
    job.wait_err("generation 1: 4 members")
    assert regroup.control("resize", "3").returncode == 0
    wait_for_members(regroup, 3)
    wait_until_it_trains_in(regroup, 2)
    os.kill(job.coordinator, signal.SIGKILL)
    job.wait_err("incarnation 2 of the coordinator continues")
    assert status(regroup)["target"] == 3
    notice.write_text("suspend within=20 hosts=b\n")
    wait_for_members(regroup, 2)
    notice.unlink()
    job.wait_err("host b may be used again")
    wait_for_members(regroup, 3)
    assert status(regroup)["target"] == 3
    job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left()


def test_quiet_says_nothing_of_a_coordinator_that_was_replaced(regroup, member):
    job = regroup.start(*QUICK, "-q", "--initial-size", "1", member, "1000000", "5")
    job.wait_out("^step 5 ")
    os.kill(job.coordinator, signal.SIGKILL)
    until(lambda: regroup.control("status").returncode == 0, "an answer of the next coordinator")
    job.process.terminate()
    assert job.wait() == 1
    assert job.err == ""


def test_coordinator_that_dies_too_often_ends_the_job(regroup, member):
    job = regroup.start(*QUICK, "--initial-size", "2", member, "1000000", "5")
    job.wait_out("^step 5 ")
    killed = set(job.launcher_children()) - {job.coordinator}  # and what is not to be
    for _ in range(17):
        coordinator = until(
            lambda: next((pid for pid in job.launcher_children() if pid not in killed), None),
            "the next coordinator",
        )
        killed.add(coordinator)
        os.kill(coordinator, signal.SIGKILL)
    assert job.wait() == 1
    assert job.err.count("was killed by signal 9 (SIGKILL): restarting it") == 16
    died = f"the coordinator (pid {coordinator}) was killed by signal 9 (SIGKILL)"
    assert f"regroup: {died} for the 17th time within 60 s: the job ends" in job.err
    job.assert_nothing_left()


def descriptors_at_rest(pid: int) -> set[int]:
    """Of a process that has opened and closed nothing meanwhile, as it slept; else none."""

    def turns() -> list[str]:
        tasks = sorted(Path(f"/proc/{pid}/task").iterdir())
        return [
            re.sub("(?s).*State:.(.).*?switches", r"\1", (t / "status").read_text()) for t in tasks
        ]

    before = turns()
    found = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return found if turns() == before and all(one[0] == "S" for one in before) else set()


def test_joined_process_that_cannot_be_watched_is_refused(regroup, member, tmp_path):
    """It is a child of the one that was started, and the agent has no descriptor left for it."""
    go = tmp_path / "go"
    script = (
        f'if [ "$RANK" = 0 ]; then exec {member} {STEPS} 5; fi; echo up >&2;'
        f" while [ ! -e {go} ]; do sleep 0.02; done; {member} {STEPS} 5; exit $?"
    )
    job = regroup.start(*QUICK, "--initial-size", "2", "--replace", "never", "sh", "-c", script)
    job.wait_err("^up$")
    ready = ["warm", "starting"]
    until(
        lambda: [m["state"] for m in status(regroup).get("members", [])] == ready,
        "member 0 is warm",
    )
    agent = job.agent
    taken = until(lambda: descriptors_at_rest(agent), "the agent rests")
    free = min(set(range(len(taken) + 1)) - taken)  # what the connection gets, and nothing after it
    limits = resource.prlimit(agent, resource.RLIMIT_NOFILE)
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (free + 1, limits[1]))
    go.touch()
    job.wait_err(r"pidfd_open\(process \d+ of member 1\): Too many open files")
    resource.prlimit(agent, resource.RLIMIT_NOFILE, limits)
    assert_finished(job)
    assert "generation 1: 1 member " in job.err
