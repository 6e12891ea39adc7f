"""Elastic jobs over a wire that loses packets or is slow: they end with the weights of an
undisturbed run."""

import re
import time
from pathlib import Path

from hosts import Hosts
from training import EPOCHS, Start, Training, kill, processes, weights_alone

# Whichever is noticed first.
WHY = (
    "neither its agent nor its members are|no message from its agent for|the connection to its "
    "agent is lost"
)


def lost_hosts(job: Training) -> set[str]:
    """Hosts that the launcher has done without for a while, each of which it has named with the
    reason."""
    named = set(re.findall(rf"host (node\d): (?:{WHY})", job.text()))
    assert named or "its host was lost" not in job.text(), job.text()
    return named


def test_a_host_that_loses_a_third_of_its_packets_changes_no_bit(start_own: Start, tmp_path: Path):
    """It may be done without, once or several times. Some 15 steps meet the loss, each of which
    waits for many a retransmission."""
    epochs = 1
    undisturbed = weights_alone(tmp_path, epochs)
    job = start_own(pace_us=300_000, epochs=epochs)
    job.reach(12)
    job.hosts[2].lose(0.3)
    job.hurry()
    job.expect_weights(undisturbed)
    assert job.hosts[2].lost() > 10
    assert lost_hosts(job) <= {"node3"}


def test_a_host_that_loses_nearly_all_packets_is_dropped_and_comes_back(
    start_own: Start, undisturbed: str
):
    job = start_own(pace_us=300_000)
    job.reach(5)
    job.hosts[2].lose(0.97)
    job.until_said("6 -> 4 members", 60)
    assert lost_hosts(job) == {"node3"}
    job.hosts[2].lose(0)
    job.until_said("-> 6 members", 90)
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_slow_link_is_waited_for(start_own: Start, own_trio: Hosts, tmp_path: Path):
    """Also by newcomers, who get their state over it."""
    ballast = 1_000_000
    alone = weights_alone(tmp_path, EPOCHS, ballast)
    own_trio[1].slow("4mbit")
    job = start_own(pace_us=300_000, ballast=ballast)
    job.reach(5)
    before, began = own_trio[1].received(), time.monotonic()
    kill(processes(own_trio[1], "chaos_member"))
    job.until_said("-> 6 members", 90)
    job.hurry()
    job.expect_weights(alone)
    taken, carried = time.monotonic() - began, own_trio[1].received() - before
    assert carried > ballast
    assert taken > 8 * carried / 5_000_000
    assert not lost_hosts(job)
