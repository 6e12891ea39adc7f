"""A job whose state is large for its hosts: they are heard while its memory is reserved, and a
member that is lost is replaced by one that copies all of it. 96 MiB; 2.5 GiB with
REGROUP_TEST_FULL."""

import os

import pytest
from hosts import Hosts
from training import Start, kill, processes, weights_alone

FULL = bool(os.environ.get("REGROUP_TEST_FULL"))
STATE = (2560 if FULL else 96) << 20  # more than what members copy while the others wait
DEADLINE_S = 900 if FULL else 120


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), 1, STATE)


def test_no_host_is_lost_and_a_lost_member_is_replaced(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = start("node1:1,node2:1", "1:2", epochs=1, pace_us=200_000, ballast=STATE)
    job.until_said("generation 1: 2 members", 60)
    job.reach(3)
    kill(processes(hosts[1], "chaos_member"))
    job.until_lost(2, 1)
    job.until_said("-> 2 members", DEADLINE_S)
    job.hurry()
    assert job.wait(DEADLINE_S) == 0, job.text()
    assert "its host was lost" not in job.text() and "not heard" not in job.text(), job.text()
    job.expect_weights(undisturbed)
