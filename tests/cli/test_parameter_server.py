"""A job with Regroup's parameter server: its server is killed, and no push is lost or counted
twice; what is wrong is refused."""

import json
import os
import re
import signal
from pathlib import Path

from conftest import BIN, until

MEMBER = BIN.parent / "tests/bin/ps_member"
SERVED = ["--role", "ps=2", "--role", "worker=3", "--ps-memory", "128M"]


def server_of(regroup) -> dict:
    return json.loads(regroup.control("status", "--json").stdout or "{}").get(
        "parameter_server", {}
    )


def is_served(regroup, *killed: int) -> dict | None:
    """The server that runs now, unless it is the one `killed`."""
    server = server_of(regroup)
    return server if server.get("pid", 0) > 0 and server["pid"] not in killed else None


def test_no_push_is_lost_or_counted_twice_however_often_the_server_is_killed(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start(*SERVED, str(MEMBER), str(end))
    until(lambda: server_of(regroup).get("clients") == 3, "all workers")
    pids = []
    for _ in range(4):
        killed = until(lambda: is_served(regroup), "a server")["pid"]
        pids.append(killed)
        os.kill(killed, signal.SIGKILL)
        before = until(lambda: is_served(regroup, killed), "a successor")["updates"]  # noqa: B023
        until(
            lambda: server_of(regroup).get("updates", 0) > before,  # noqa: B023
            "pushes that the successor applies",
        )
    told = until(lambda: is_served(regroup), "a server")
    assert told["restarts"] >= 4 and told["shards"] == 2 and told["clients"] == 3
    shown = re.compile(r"parameter server: pid \d+, 2 shards in 0.1 GiB, .* 3 clients so far")
    until(lambda: shown.search(regroup.control("status").stdout), "the line of regroup status")
    metric = re.compile(r"^regroup_ps_updates_total\{job=\"[^\"]+\"\} \d+$", re.MULTILINE)
    until(lambda: metric.search(regroup.control("status", "--prometheus").stdout), "the metric")
    end.touch()
    assert job.wait() == 0, job.out + job.err
    lines = [line for line in job.out.splitlines() if line.startswith("pushed")]
    assert len(lines) == 3 and len({line.split(", ", 1)[1] for line in lines}) == 1, job.out
    all_pushes, counted = map(int, re.search(r"all (\d+), counted (\d+)", lines[0]).groups())
    assert counted == 8 * all_pushes > 0
    for pid in pids:
        assert (
            f"the parameter server (pid {pid}) was killed by signal 9 (SIGKILL): starting the "
            "next one on the same tables" in job.err
        )
    last = told["pid"]
    until(lambda: not Path(f"/proc/{last}").exists(), "the end of the last server")


def test_what_is_wrong_is_refused(regroup):
    def refused(*words: str) -> str:
        job = regroup.run(*words, "true")
        assert job.wait() != 0
        return job.err

    assert "expected a role ps, for example --role ps=1" in refused(
        "--role", "worker=1", "--ps-memory", "1G"
    )
    assert "expected a role besides ps" in refused("--role", "ps=1", "--ps-memory", "1G")
    assert (
        "--ps-memory 67108864: expected 67108864 to 137438953472 bytes for each of 2 threads "
        "(--role ps=2), got 33554432"
        in refused("--role", "ps=2", "--role", "worker=1", "--ps-memory", "64M")
    )
    assert "--role ps=126: expected 1 to 64 threads of the parameter server" in refused(
        "--role", "ps=126", "--role", "worker=1", "--ps-memory", "16G"
    )


def test_a_job_without_a_server_says_so(regroup, tmp_path):
    job = regroup.run("--role", "worker=1", str(MEMBER), str(tmp_path / "end"))
    assert job.wait() != 0
    assert "this job has no parameter server; start it with --role ps=1 --ps-memory" in job.err
