"""What a restarted coordinator still knows."""

import os
import signal

from conftest import until
from test_elastic import QUICK, members, pid_of, status


def wait_for_members(regroup, count: int, without: int | None = None) -> list[int]:
    def there():
        found = members(regroup)
        return found if len(found) == count and without not in found else None

    return until(there, f"{count} members")


def test_target_and_sentences_survive_the_coordinator(regroup, member):
    job = regroup.start(*QUICK, "--start", "2", member, "1000000", "5")
    job.wait_out("^step 5 ")
    assert regroup.control("resize", "3").returncode == 0
    wait_for_members(regroup, 3)
    before = status(regroup)
    os.kill(job.coordinator, signal.SIGKILL)
    job.wait_err("incarnation 2 of the coordinator goes on with generation 2")
    after = until(lambda: (s := status(regroup)).get("incarnation") == 2 and s, "the second incarnation")
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
    job.assert_nothing_left(2)


def test_resize_that_was_answered_is_carried_out_by_the_successor(regroup, member):
    job = regroup.start(*QUICK, "--start", "1", member, "1000000", "5")
    job.wait_out("^step 5 ")
    coordinator = job.coordinator
    assert regroup.control("resize", "3").returncode == 0
    os.kill(coordinator, signal.SIGKILL)
    wait_for_members(regroup, 3)
    assert status(regroup)["target"] == 3
    job.process.terminate()
    assert job.wait() == 1
    job.assert_nothing_left(2)
