"""A process between agent and controller, without the secret, replays, changes, adds or holds back
bytes at any state of the link: it ends, that host is lost and comes back, and the job has the same
weights."""

import sys
from pathlib import Path

import pytest
from attacks import EPOCHS, Plan, names_of_node2, play
from hosts import Hosts
from training import Training, weights_alone

ON_PATH = Path(__file__).with_name("on_path.py")
KINDS = ("replay", "flip", "record", "long", "foreign", "stall")
STATES = ("first", "hello", "later", "regroup")
# Each kind at each state, up at every other.
ATTACKS = tuple(
    (state, f"{kind}.{'up' if (i + k) % 2 else 'down'}")
    for i, state in enumerate(STATES)
    for k, kind in enumerate(KINDS)
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), EPOCHS)


def record_another_job(hosts: Hosts) -> None:
    plan = Plan(hosts, [("tape", "none.up")], [sys.executable, ON_PATH])
    job = Training(
        hosts, "node1:1,evil0:1", "2:2", ("--prefix", str(plan.folder)), epochs=1, pace_us=0
    )
    try:
        assert job.wait() == 0, job.text()
    finally:
        job.close()
    assert (hosts.folder / "tape").stat().st_size > 1000


def test_bytes_that_others_put_on_the_way_harm_nobody(hosts: Hosts, undisturbed: str):
    with names_of_node2(hosts, 12) as names:  # two lives each
        record_another_job(hosts)
        where = ",".join(["node1:2", "node3:2", *(f"{name}:1" for name in names)])
        plan = Plan(hosts, ATTACKS, [sys.executable, ON_PATH])
        answers = play(hosts, where, plan, undisturbed)
    assert answers == dict.fromkeys(plan.names, "closed")
