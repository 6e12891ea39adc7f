"""A host that stands still for seconds, less than the limit of silence, breaks no link of data."""

import os
import signal
import time

import pytest
from hosts import Hosts
from training import Start, processes


# By default a worker asks after its peers every 20 s; a TCP connection every few.
@pytest.mark.parametrize("seconds", [None, "100ms"])
def test_a_freeze_of_seconds_breaks_no_connection_of_ucx(
    hosts: Hosts, start: Start, undisturbed: str, seconds: str | None
):
    before = ["env", f"UCX_KEEPALIVE_INTERVAL={seconds}"] if seconds else []
    job = start("node1:1,node2:1", "2:2", pace_us=50_000, before=before)
    job.reach(5)
    frozen = processes(hosts[1], "chaos_member")
    assert frozen
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3.5)  # the length of the freeze is what is tested
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    job.hurry()
    job.expect_weights(undisturbed)
    assert "generation 2" not in job.text(), job.text()
