"""What members use: in `regroup status`, in a CSV log, as Prometheus text."""

import csv
import json
import subprocess
from pathlib import Path

from conftest import BIN, DEADLINE_S, until


def test_usage_is_told_and_logged(regroup, member, tmp_path):
    log = tmp_path / "usage.csv"
    job = regroup.start(
        *(
            "--oversubscribe",
            "-np",
            "1:2",
            "--initial-size",
            "2",
            "--usage-log",
            str(log),
            member,
            "1000000",
            "5",
        )
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


def test_a_job_of_a_fixed_number_can_be_asked(regroup):
    job = regroup.start("--oversubscribe", "-np", "3", "sh", "-c", "echo up; sleep 1000")
    job.wait_out("(?s)up.*up.*up")

    def used():
        told = json.loads(regroup.control("status", "--json").stdout or "{}").get("members", [])
        return told if len(told) == 3 else None

    members = until(used, "usage of three members")
    assert [m["rank"] for m in members] == [0, 1, 2]
    assert all(m["memory_bytes"] > 0 and m["pid"] > 0 and m["cpu_seconds"] >= 0 for m in members)
    table = regroup.control("status")
    assert table.returncode == 0 and "running with 3 members, a fixed number" in table.stdout
    name = table.stdout.split()[1].rstrip(":")
    lines = [line.split() for line in table.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] in "012"] == ["0", "1", "2"]
    text = regroup.control("status", "--prometheus", name).stdout
    assert f'regroup_member_memory_bytes{{job="{name}",member="2",rank="2"}}' in text
    assert f'regroup_members{{job="{name}"}} 3' in text
    for words in (("resize", "2", name), ("notice", "1", name), ("kill-member", "1", name)):
        refused = regroup.control(*words)
        assert refused.returncode == 1
        assert (
            f"job {name} has a fixed number of members (-np N), which supports only"
            in refused.stderr
        )
    job.process.terminate()
    assert job.wait() != 0
    gone = regroup.control("status", name)
    assert gone.returncode == 1 and f"no job {name} of this user; none is running" in gone.stderr
    assert [path.name for path in Path(regroup.runtime, "regroup").iterdir() if path.is_dir()] == []


def test_following_a_job_of_a_fixed_number_ends_with_it(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start("-np", "1", "sh", "-c", f"while [ ! -e {end} ]; do sleep 0.1; done")
    job.the("regroup-agent")
    until(lambda: regroup.control("status").returncode == 0, "a job that can be asked")
    words = [str(BIN / "regroup"), "status", "--follow"]
    with subprocess.Popen(words, env=regroup.env, stdout=subprocess.PIPE, text=True) as follow:
        assert any("members 0  running" in line for line in iter(follow.stdout.readline, ""))
        end.touch()
        assert follow.wait(DEADLINE_S) == 0
    assert job.wait() == 0


def test_a_log_that_cannot_be_written_is_refused(regroup, tmp_path):
    job = regroup.start("-np", "1", "--usage-log", str(tmp_path / "none/usage.csv"), "true")
    assert job.wait() != 0
    assert "none/usage.csv" in job.err
