"""A job with Regroup's parameter server: any of its servers is killed, and no push is lost or
counted twice; what is wrong is refused."""

import contextlib
import os
import re
import signal
from pathlib import Path

from conftest import BIN, ONCE, told_of, until

MEMBER = BIN.parent / "tests/bin/ps_member"
SERVERS = 3
SERVED = ["--role", f"ps={SERVERS}", "--role", "worker=3", "--ps-memory", "192M"]


def server_of(regroup, number: int, *killed: int) -> dict | None:
    """Server `number`, unless it does not run or is one of the processes `killed`."""
    servers = {one["server"]: one for one in told_of(regroup).get("servers", [])}
    server = servers.get(number, {})
    return server if server.get("pid", 0) > 0 and server["pid"] not in killed else None


def check_counts(job) -> None:
    """All workers have seen the same, exact counts."""
    lines = [line for line in job.out.splitlines() if line.startswith("pushed")]
    assert len(lines) == 3 and len({line.split(", ", 1)[1] for line in lines}) == 1, job.out
    all_pushes, counted = map(int, re.search(r"all (\d+), counted (\d+)", lines[0]).groups())
    assert counted == 8 * all_pushes > 0


def test_the_guides_first_program(regroup, tmp_path):
    """As it stands in docs/guide/parameter_server.md."""
    page = (BIN.parents[1] / "docs/guide/parameter_server.md").read_text()
    (tmp_path / "count.py").write_text(
        re.search(r"write `count.py`:\n```python\n(.*?)```", page, re.S)[1]
    )
    line = re.search(r"(?m)^regroup (.* count\.py)$", page)[1]
    job = regroup.start("--oversubscribe", *line.split(), cwd=tmp_path)
    assert job.wait() == 0, job.err
    seen = [int(number) for number in re.findall(r"that this worker sees: (\d+)", job.out)]
    assert len(seen) == 2 and max(seen) == 200 and min(seen) >= 100


def test_no_push_is_lost_or_counted_twice_however_often_servers_are_killed(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start(*SERVED, str(MEMBER), str(end))
    until(lambda: told_of(regroup).get("clients") == 3, "all workers")
    killed = []
    for number in (0, 1, 2, 1):
        pid = until(lambda: server_of(regroup, number), "a server")["pid"]  # noqa: B023
        os.kill(pid, signal.SIGKILL)
        killed.append((number, pid))
        successor = until(lambda: server_of(regroup, number, pid), "a successor")  # noqa: B023
        before = successor["updates"]
        until(
            lambda: (server_of(regroup, number) or {}).get("updates", 0) > before,  # noqa: B023
            "pushes that the successor applies",
        )
    told = until(lambda: told_of(regroup), "the status")
    assert told["restarts"] >= 4 and told["clients"] == 3 and told["view"] == 1
    assert sum(one["ranges"] for one in told["servers"]) == told["ranges"] == 16
    # The numbers of the table's ranges: each at one server, and none has more than its part.
    assert {one["ranges"] for one in told["servers"]} == {5, 6}
    assert all(re.fullmatch(r"[\d,-]+", one["tables"]["counts"]) for one in told["servers"])
    shown = re.compile(
        r"parameter server: view 1, 3 servers in 0.2 GiB, 16 ranges, .* 3 clients so far.*\n"
        r"server .*ranges\n +0 +\d+ +\d+ MiB +\d+ +\d+ counts\[[\d,-]+\]\n"
    )
    until(lambda: shown.search(regroup.control("status").stdout), "the lines of regroup status")
    metric = re.compile(
        r"^regroup_ps_server_ranges\{job=\"[^\"]+\",server=\"2\"\} \d+$", re.MULTILINE
    )
    until(lambda: metric.search(regroup.control("status", "--prometheus").stdout), "the metric")
    last = [one["pid"] for one in until(lambda: told_of(regroup), "the status")["servers"]]
    end.touch()
    assert job.wait() == 0, job.out + job.err
    check_counts(job)
    for number, pid in killed:
        assert (
            f"server {number} of the parameter server (pid {pid}) was killed by signal 9 "
            "(SIGKILL): starting the next one on the same tables" in job.err
        )
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in last), "the servers' end")


def test_workers_flush_though_every_process_of_the_job_gets_sigterm(regroup, tmp_path):
    """As under scancel. Servers outlive the workers, and one that dies in the grace is replaced."""
    end = tmp_path / "end"
    job = regroup.start("--term-grace", "60", *SERVED, str(MEMBER), str(end))
    until(lambda: told_of(regroup).get("clients") == 3, "all workers")
    pids = {n: until(lambda: server_of(regroup, n), "a server")["pid"] for n in range(SERVERS)}  # noqa: B023
    for pid in job.living():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until(lambda: job.out.count("told to end") >= 3, "SIGTERM at the workers")

    def pushed() -> bool:
        """Every server has applied pushes since `before`."""
        now = {one["server"]: one for one in told_of(regroup).get("servers", [])}
        return len(now) == SERVERS and all(
            now[number]["updates"] > one["updates"] for number, one in before.items()
        )

    told = until(lambda: told_of(regroup).get("servers"), "the status")
    before = {one["server"]: one for one in told}
    until(pushed, "pushes after SIGTERM")
    assert {one["server"]: one["pid"] for one in told} == pids
    os.kill(pids[1], signal.SIGKILL)
    until(lambda: server_of(regroup, 1, pids[1]), "a successor within the grace")
    before = {one["server"]: one for one in until(lambda: told_of(regroup), "it")["servers"]}
    until(pushed, "pushes that the successor applies")
    end.touch()
    job.wait()
    check_counts(job)
    job.assert_nothing_left()


def test_a_server_that_hangs_is_replaced_and_no_push_is_lost(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start("--hang-timeout", "2", *SERVED, str(MEMBER), str(end))
    until(lambda: told_of(regroup).get("clients") == 3, "all workers")
    hung = until(lambda: server_of(regroup, 1), "a server")["pid"]
    os.kill(hung, signal.SIGSTOP)
    still = re.compile(r"^server 1 has stood still for \d\.\d s in shard 1$", re.MULTILINE)
    until(lambda: still.search(regroup.control("status").stdout), "the standstill in the status")
    successor = until(lambda: server_of(regroup, 1, hung), "a successor")
    until(
        lambda: (server_of(regroup, 1) or successor)["updates"] > successor["updates"],
        "pushes that the successor applies",
    )
    status = until(lambda: regroup.control("status").stdout, "the status")
    assert "server 1 was replaced 1 time because it hung\n" in status
    assert [one["hangs"] for one in told_of(regroup)["servers"]] == [0, 1, 0]
    end.touch()
    assert job.wait() == 0, job.out + job.err
    check_counts(job)
    assert job.err.splitlines() == [
        f"regroup: server 1 of the parameter server (pid {hung}) has stood still for more than 2 s "
        "in shard 1 (--hang-timeout): killing it and starting the next one on the same tables"
    ]


def test_servers_join_and_leave_while_workers_push(regroup, tmp_path):
    """ps=MIN:MAX: ranges move to a server that joins, and from one that leaves."""
    end = tmp_path / "end"
    elastic = ["--role", "ps=1:3", "--role", "worker=3", "--ps-memory", "384M"]
    job = regroup.start(*elastic, str(MEMBER), str(end))

    def ranges() -> list[int]:
        return [one["ranges"] for one in told_of(regroup).get("servers", []) if one["pid"] > 0]

    def has_pushed() -> None:
        """Every server has applied pushes since now."""
        told = until(lambda: told_of(regroup).get("servers"), "the status")
        before = {one["server"]: one["updates"] for one in told}
        until(
            lambda: all(
                (server_of(regroup, number) or {"updates": 0})["updates"] > updates
                for number, updates in before.items()
            ),
            "pushes",
        )

    until(lambda: told_of(regroup).get("clients") == 3 and len(ranges()) == 1, "all workers")
    has_pushed()
    resized = regroup.control("resize", "ps=3")
    assert resized.stdout == "parameter server: 3 servers instead of 1\n", resized.stderr
    until(lambda: len(ranges()) == 3 and min(ranges()) >= 2, "two more servers")
    told = until(lambda: told_of(regroup), "the status")
    assert told["view"] == 3 and told["ranges"] == 32
    assert re.fullmatch(
        r"server \d has \d+ % of the load, server \d has \d+ %", told["moves"][0]["why"]
    )
    has_pushed()
    pid = until(lambda: server_of(regroup, 2), "server 2")["pid"]
    os.kill(pid, signal.SIGKILL)  # it keeps its ranges
    until(lambda: server_of(regroup, 2, pid), "a successor")
    has_pushed()
    leaving = [until(lambda: server_of(regroup, n), "a server")["pid"] for n in (1, 2)]  # noqa: B023
    assert regroup.control("resize", "ps=1").returncode == 0
    until(lambda: ranges() == [32], "one server")
    for number, pid in zip((1, 2), leaving, strict=True):
        line = f"server {number} of the parameter server (pid {pid}) has left\n"
        until(lambda: line in job.err, line)  # noqa: B023
    has_pushed()
    assert (
        "resize ps=4: expected 1 to 3 servers (--role ps=1:3)"
        in regroup.control("resize", "ps=4").stderr
    )
    assert regroup.control("resize", "ps=2").returncode == 0
    until(lambda: len(ranges()) == 2 and min(ranges()) >= 2, "a second server again")
    has_pushed()
    end.touch()
    assert job.wait() == 0, job.out + job.err
    check_counts(job)


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
        "--ps-memory 67108864: expected 67108864 to 137438953472 bytes for each of 2 servers "
        "(--role ps=2), got 33554432"
        in refused("--role", "ps=2", "--role", "worker=1", "--ps-memory", "64M")
    )
    assert "--role ps=126: expected 1 to 64 servers" in refused(
        "--role", "ps=126", "--role", "worker=1", "--ps-memory", "16G"
    )
    for text in ("4:2", "0:2", "1:", "a:2"):
        assert (
            f"option --role ps={text}: " + ("the range is empty" if text == "4:2" else "expected")
        ) in refused("--role", f"ps={text}", "--role", "worker=1", "--ps-memory", "1G")
    assert "--role ps=MIN:MAX: expected --ps-memory BYTES" in refused(
        "--role", "ps=1:2", "--role", "worker=1"
    )


def test_a_fixed_number_of_servers_cannot_be_resized(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start("--role", "ps=1", "--role", "worker=1", "--ps-memory", "64M", MEMBER, end)
    until(lambda: told_of(regroup).get("clients") == 1, "the worker")
    refused = regroup.control("resize", "ps=2")
    assert refused.returncode != 0
    assert "this job has a fixed number of servers (--role ps=1)" in refused.stderr
    end.touch()
    assert job.wait() == 0, job.out + job.err
    other = regroup.start("--role", "worker=1", "sleep", "60")
    until(lambda: regroup.control("status", "--json").returncode == 0, "the job")
    assert "has no parameter server" in regroup.control("resize", "ps=2").stderr
    other.process.terminate()
    other.wait()


def test_a_job_without_a_server_says_so(regroup, tmp_path):
    job = regroup.run(*ONCE, "--role", "worker=1", str(MEMBER), str(tmp_path / "end"))
    assert job.wait() != 0
    assert "this job has no parameter server; start it with --role ps=1 --ps-memory" in job.err
