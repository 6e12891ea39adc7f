"""What members use: in `regroup status`, in a CSV log, as Prometheus text."""

import csv
import json

from conftest import until


def test_usage_is_told_and_logged(regroup, member, tmp_path):
    log = tmp_path / "usage.csv"
    job = regroup.start(
        *("--oversubscribe", "-np", "1:2", "--start", "2", "--usage-log", str(log), member, "1000000", "5")
    )
    job.wait_out("^step 5 ")

    def used():
        told = json.loads(regroup.control("status", "--json").stdout)["members"]
        return told if told and all(m.get("memory_bytes", 0) > 0 for m in told) else None

    told = until(used, "usage of both members")
    assert [m["id"] for m in told] == [0, 1]
    assert all(m["pid"] > 0 and m["cpu_seconds"] >= 0 for m in told)
    table = regroup.control("status").stdout
    assert "memory" in table and "MiB" in table
    text = regroup.control("status", "--prometheus").stdout
    assert 'member="1",rank="1"' in text
    assert "# TYPE regroup_member_memory_bytes gauge" in text
    rows = list(csv.DictReader(log.open()))
    assert {row["member"] for row in rows} == {"0", "1"}
    assert all(int(row["memory_bytes"]) > 0 for row in rows)
    job.process.terminate()
    assert job.wait() == 1


def test_a_log_that_cannot_be_written_is_refused(regroup, tmp_path):
    job = regroup.start("-np", "1", "--usage-log", str(tmp_path / "none/usage.csv"), "true")
    assert job.wait() != 0
    assert "none/usage.csv" in job.err
