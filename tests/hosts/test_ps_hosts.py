"""A job of several hosts with Regroup's parameter server: workers of all hosts push to the servers
of one. Servers and workers are killed, hosts are lost, and no push is lost or counted twice."""

import json
import os
import re
import sys

import pytest
from hosts import ROOT, Host, Hosts, until
from test_run import REGROUP, nothing_is_left, start  # noqa: F401

MEMBER = ROOT / "build/tests/bin/ps_member"
SERVED = ["--role", "ps=2", "--role", "worker=3", "--ps-memory", "128M"]
WHERE = ["-H", "node1:1,node2:1,node3:1"]
PYTHON = {**os.environ, "PYTHONPATH": str(ROOT / "build/python")}


def served(host: Host) -> dict:
    """What `regroup status` has of the parameter server; {} while there is none."""
    shown = host.run([REGROUP, "status", "--json"])
    return json.loads(shown.stdout).get("parameter_server", {}) if shown.returncode == 0 else {}


def server_of(host: Host, number: int, *killed: int) -> dict | None:
    for one in served(host).get("servers", []):
        if one["server"] == number and one["pid"] > 0 and one["pid"] not in killed:
            return one
    return None


def end_of(job) -> tuple[str, str]:
    out, err = job.communicate(timeout=180)
    assert job.returncode == 0, out + err
    return out, err


def counts_are_exact(job, workers: int = 3) -> str:
    """Of workers of ps_member.cc, once the job has ended. Returns its standard error."""
    out, err = end_of(job)
    lines = [line for line in out.splitlines() if line.startswith("pushed")]
    assert len(lines) == workers and len({line.split(", ", 1)[1] for line in lines}) == 1, out
    pushed = [int(re.match(r"pushed (\d+)", line)[1]) for line in lines]
    all_pushes, counted = map(int, re.search(r"all (\d+), counted (\d+)", lines[0]).groups())
    assert counted == 8 * all_pushes == 8 * sum(pushed) and min(pushed) > 0, out
    return err


def test_counts_of_all_hosts_are_exact_whatever_servers_are_killed(hosts: Hosts):
    end = hosts.folder / "end"
    job = start(hosts, *WHERE, *SERVED, str(MEMBER), str(end))
    until(lambda: served(hosts[0]).get("clients") == 3, "all workers")
    for number in (0, 1, 0):
        pid = until(lambda: server_of(hosts[0], number), "a server")["pid"]  # noqa: B023
        assert hosts[0].run(["kill", "-9", str(pid)]).returncode == 0
        successor = until(lambda: server_of(hosts[0], number, pid), "a successor")  # noqa: B023
        before = successor["updates"]
        until(
            lambda: (server_of(hosts[0], number) or {}).get("updates", 0) > before,  # noqa: B023
            "pushes that the successor applies",
        )
    assert served(hosts[0])["restarts"] >= 3
    end.touch()
    counts_are_exact(job)


# Pushes one to a row of its own life, and notes in a file how many pushes were acknowledged.
# Rank 0 waits for the others' ends and compares.
LIVES = """
import os, pathlib, sys, time
import numpy as np
import regroup.ps as ps
folder = pathlib.Path(sys.argv[1])
rank, life = int(os.environ["RANK"]), int(os.environ["REGROUP_RESTART_COUNT"])
client = ps.join(deadline=120)
counts = client.table("counts", dim=1, optimizer=ps.Sum())
if rank > 0:
    row, acknowledged = 100 * rank + life, 0
    (folder / f"{row}.pid").write_text(str(os.getpid()))
    while not (folder / "end").exists():
        counts.push([row], np.ones((1, 1), np.float32))
        client.flush()
        acknowledged += 1
        note = folder / f"{row}.part"
        note.write_text(str(acknowledged))
        note.rename(folder / f"{row}.acknowledged")
    (folder / f"{rank}.through").touch()
else:
    deadline = time.monotonic() + 120
    while len(list(folder.glob("*.through"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    for note in folder.glob("*.acknowledged"):
        row = int(note.name.split(".")[0])
        print(row, note.read_text(), int(counts.pull([row])[0, 0]))
"""


def test_a_killed_worker_of_another_host_loses_no_acknowledged_push(hosts: Hosts):
    folder = hosts.folder / "lives"
    folder.mkdir()
    job = start(hosts, *WHERE, *SERVED, sys.executable, "-c", LIVES, str(folder), env=PYTHON)
    killed = []
    for life in (0, 1):
        for host, rank in ((hosts[1], 1), (hosts[2], 2)):
            note = folder / f"{100 * rank + life}.acknowledged"
            until(lambda: note.exists() and int(note.read_text()) >= 20, "pushes")  # noqa: B023
            pid = (folder / f"{100 * rank + life}.pid").read_text()
            assert host.run(["kill", "-9", pid]).returncode == 0
            killed.append(100 * rank + life)
    for rank in (1, 2):
        note = folder / f"{100 * rank + 2}.acknowledged"
        until(lambda: note.exists() and int(note.read_text()) >= 20, "pushes")  # noqa: B023
    (folder / "end").touch()
    out, err = end_of(job)
    rows = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert sorted(row for row, _, _ in rows) == [100, 101, 102, 200, 201, 202], out
    for row, acknowledged, counted in rows:
        # Of a killed worker one push is in doubt.
        most = acknowledged + 1 if row in killed else acknowledged
        assert acknowledged <= counted <= most, (row, acknowledged, counted)
    assert err.count("was killed by signal 9 (SIGKILL): restarting it") == 4, err


def test_clocks_bound_workers_of_all_hosts_and_the_status_names_theirs(hosts: Hosts):
    folder = hosts.folder / "clocks"
    folder.mkdir()
    program = (
        "import os, pathlib, sys, time\n"
        "import regroup.ps as ps\n"
        "end = pathlib.Path(sys.argv[1]) / 'end'\n"
        "client = ps.join(mode='ssp', staleness=2, deadline=120)\n"
        "counts = client.table('counts', dim=1, optimizer=ps.Sum())\n"
        "for turn in client:\n"
        "    counts.pull([1])\n"
        "    if turn == 5 and os.environ['RANK'] == '1':\n"
        "        deadline = time.monotonic() + 120\n"
        "        while not end.exists() and time.monotonic() < deadline: time.sleep(0.02)\n"
        "        break\n"
        "    if end.exists(): break\n"
    )
    job = start(hosts, *WHERE, *SERVED, sys.executable, "-c", program, str(folder), env=PYTHON)

    def clocks() -> dict[str, tuple]:
        return {
            one["name"]: (one["host"], one["clock"], one.get("waits_for"))
            for one in served(hosts[0]).get("clocks", [])
        }

    wanted = {
        "worker 0": ("node1", 8, "worker 1"),
        "worker 1": ("node2", 5, None),
        "worker 2": ("node3", 8, "worker 1"),
    }
    until(lambda: clocks() == wanted, "workers that wait for worker 1")
    shown = hosts[0].run([REGROUP, "status"]).stdout
    assert re.search(r"(?m)^worker 2 +node3 +\d+ +8 +\d+\.\d s worker 1$", shown), shown
    (folder / "end").touch()
    end_of(job)


def test_a_lost_host_of_workers_is_named(own_hosts: Hosts):
    end = own_hosts.folder / "end"
    where = ["-H", "node1:1,node2:1", "--role", "ps=1", "--role", "worker=2", "--ps-memory", "64M"]
    job = start(own_hosts, *where, str(MEMBER), str(end))
    until(lambda: served(own_hosts[0]).get("clients") == 2, "all workers")
    own_hosts[1].kill()
    _, err = job.communicate(timeout=180)
    assert job.returncode == 1
    assert "host node2" in err and "ending the job" in err


def test_tables_are_saved_and_loaded_with_workers_of_other_hosts(hosts: Hosts):
    program = (
        "import os\n"
        "import numpy as np\n"
        "import regroup.ps as ps\n"
        "client = ps.join(deadline=120)\n"
        "counts = client.table('counts', dim=1, optimizer=ps.Sum())\n"
        "print('found', int(counts.pull([1])[0, 0]))\n"
        "counts.push([1], np.ones((1, 1), np.float32))\n"
        "client.flush()\n"
    )
    job = ["-H", "node2:1", "--role", "ps=1", "--role", "worker=1", "--ps-memory", "64M"]
    saved = ["--checkpoint", str(hosts.folder / "saved"), sys.executable, "-c", program]
    found = [end_of(start(hosts, *job, *saved, env=PYTHON))[0] for _ in range(2)]
    assert found == ["found 0\n", "found 1\n"]


@pytest.mark.parametrize("how", ["environ", "cmdline"])
def test_the_token_is_in_the_workers_environment_only(hosts: Hosts, how: str):
    end = hosts.folder / f"end-{how}"
    job = start(hosts, *WHERE, *SERVED, str(MEMBER), str(end))
    until(lambda: served(hosts[0]).get("clients") == 3, "all workers")
    has = f"grep -qa 'tcp,nod[e]1,10.77' $f/{how} 2>&- && cat $f/comm"
    command = ["sh", "-c", f"for f in /proc/[0-9]*; do {has}; done"]
    found = {host.name: host.run(command).stdout.split() for host in hosts}
    wanted = ["ps_member"] if how == "environ" else []
    assert found == {"node1": [], "node2": wanted, "node3": wanted}
    end.touch()
    end_of(job)
