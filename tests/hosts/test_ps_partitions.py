"""Workers of a job whose parameter servers are on three hosts, each with a part of every table.
Servers of all hosts and a worker are killed, and no push is lost or counted twice."""

import re
import subprocess
import sys

from hosts import Host, Hosts, until
from test_ps_hosts import MEMBER, PYTHON, counts_are_exact, end_of, served
from test_run import REGROUP, nothing_is_left, start  # noqa: F401

WHERE = ["-H", "node1:1,node2:1,node3:1", "--ps-hosts", "3", "--ps-memory", "128M"]
SERVED = [*WHERE, "--role", "ps=3", "--role", "worker=3"]


def server_on(hosts: Hosts, host: Host, *killed: int) -> dict | None:
    """What the status has of the server of a host."""
    for one in served(hosts[0]).get("servers", []):
        if one["host"] == host.name and one["pid"] > 0 and one["pid"] not in killed:
            return one
    return None


def test_counts_are_exact_whatever_servers_of_all_hosts_are_killed(hosts: Hosts):
    end = hosts.folder / "end"
    job = start(hosts, *SERVED, str(MEMBER), str(end))
    for host in hosts:

        def updates(*killed: int, host: Host = host) -> int:
            return (server_on(hosts, host, *killed) or {}).get("updates", 0)

        until(lambda: updates() > 0, "pushes to this store")  # noqa: B023
        pid = server_on(hosts, host)["pid"]
        assert host.run(["kill", "-9", str(pid)]).returncode == 0
        before = until(lambda: updates(pid), "a successor")  # noqa: B023
        until(lambda: updates(pid) > before, "pushes that it applies")  # noqa: B023
    end.touch()
    counts_are_exact(job)


# In mode ssp each life of a worker pushes ones to 16 rows of its own, which
# lie in all stores, and notes in a file how many turns it has ended. Rank 0 prints what is counted
# of each life.
LIVES = """
import os, pathlib, sys, time
import numpy as np
import regroup.ps as ps
folder = pathlib.Path(sys.argv[1])
rank, life = int(os.environ["RANK"]), int(os.environ["REGROUP_RESTART_COUNT"])
own_store = [place.startswith("/") for place in os.environ["REGROUP_PS"].split(";")]
assert own_store == [store == rank for store in range(3)], own_store
client = ps.join(mode="ssp", staleness=2, deadline=120)
counts = client.table("counts", dim=1, optimizer=ps.Sum())
own, turns = 3 * life + rank, 0
ids, ones = 16 * own + np.arange(16), np.ones((16, 1), np.float32)
(folder / f"{own}.pid").write_text(str(os.getpid()))
for turn in client:
    note = folder / f"{own}.part"
    note.write_text(str(turns))
    note.rename(folder / f"{own}.ended")
    if (folder / "end").exists():
        break
    counts.push(ids, ones)
    assert (counts.pull(ids) == turns + 1).all()
    turns += 1
(folder / f"{rank}.through").touch()
deadline = time.monotonic() + 120
if rank == 0:
    while len(list(folder.glob("*.through"))) < 3 and time.monotonic() < deadline:
        client.advance()  # others may wait for its clock before they see the end
        time.sleep(0.02)
    for note in sorted(folder.glob("*.ended")):
        life = int(note.name.split(".")[0])
        rows = counts.pull(16 * life + np.arange(16))[:, 0]
        print(life, note.read_text(), int(rows.min()), int(rows.max()))
"""


def test_a_killed_worker_leaves_its_turns_and_holds_up_nobody(hosts: Hosts):
    folder = hosts.folder / "lives"
    folder.mkdir()
    job = start(hosts, *SERVED, sys.executable, "-c", LIVES, str(folder), env=PYTHON)

    def ended(own: int) -> int:
        note = folder / f"{own}.ended"
        return int(note.read_text()) if note.exists() else 0

    until(lambda: ended(1) >= 10, "turns")
    assert hosts[1].run(["kill", "-9", (folder / "1.pid").read_text()]).returncode == 0
    seen = ended(0)
    until(lambda: ended(0) > seen + 10, "turns of another worker")
    until(lambda: ended(4) >= 10, "turns of the next life")
    (folder / "end").touch()
    out, _ = end_of(job)
    lives = {life: rest for life, *rest in (map(int, line.split()) for line in out.splitlines())}
    assert sorted(lives) == [0, 1, 2, 4], out
    for life, (turns, least, most) in lives.items():
        # The turn in which the killed one was may be in some ranges, or in all.
        assert turns <= least <= most <= turns + (1 if life == 1 else 0), out


# Mode sync. Workers note the steps that they have begun, and wait in step 40 for the end of kills.
# Each prints a digest of the tables once all steps are complete.
STEPS = """
import hashlib, os, pathlib, sys, time
import numpy as np
import regroup.ps as ps
folder = pathlib.Path(sys.argv[1])
(folder / f"{os.environ['RANK']}.pid").write_text(str(os.getpid()))
client = ps.join(mode="sync", leaves=6, deadline=120)
print("begins at", client.clock, file=sys.stderr)
users = client.table("users", 3, init=ps.Uniform(-1, 1), optimizer=ps.RowAdagrad(lr=0.1))
top = client.dense("top", (4, 7), optimizer=ps.Adam(lr=0.01))
deadline = time.monotonic() + 120
for step in client.steps(50):
    (folder / f"step{step.number}").touch()
    while step.number >= 40 and not (folder / "end").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for leaf in step:
        random = np.random.default_rng([step.number, leaf])
        ids = random.integers(0, 50, 12)
        users.push(ids, users.pull(ids) * np.float32(0.3) + random.random((12, 3), np.float32))
        top.push(top.pull() + random.random((4, 7), np.float32))
print(hashlib.sha256(users.pull(np.arange(50)).tobytes() + top.pull().tobytes()).hexdigest())
"""


def test_weights_of_mode_sync_are_those_of_one_host_whatever_is_killed(hosts: Hosts):
    """Servers and workers are killed while the tables are saved, then the whole job; another one,
    on two hosts, goes on from the newest checkpoint."""
    saved = ["--checkpoint", str(hosts.folder / "saved")]
    folder = hosts.folder / "steps"
    folder.mkdir()
    program = [sys.executable, "-c", STEPS, str(folder)]
    job = start(hosts, *SERVED, *saved, *program, env=PYTHON)
    for step, host in enumerate(hosts):
        until((folder / f"step{10 * step + 5}").exists, "a step")
        pid = until(lambda: server_on(hosts, host), "a server")["pid"]  # noqa: B023
        worker = folder / f"{step}.pid"
        until(lambda: worker.exists() and worker.read_text(), "the worker")  # noqa: B023
        asking = hosts[0].popen(
            [REGROUP, "checkpoint", "save"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for one in (str(pid), worker.read_text()):
            assert host.run(["kill", "-9", one]).returncode == 0
        out, _ = asking.communicate(timeout=120)
        assert asking.returncode == 0, out
    job.kill()
    job.communicate(timeout=120)
    (folder / "end").touch()
    two = ["-H", "node1:1,node2:1", "--ps-hosts", "2", "--ps-memory", "128M"]
    out, err = end_of(
        start(hosts, *two, "--role", "ps=3", "--role", "worker=2", *saved, *program, env=PYTHON)
    )
    begins = int(re.search(r"begins at (\d+)", err)[1])
    assert 5 <= begins <= 41 and len(set(out.split())) == 1, out + err
    one = ["-H", "node1:1", "--ps-memory", "128M", "--role", "ps=1", "--role", "worker=1"]
    alone, _ = end_of(start(hosts, *one, *program, env=PYTHON))
    assert set(alone.split()) == set(out.split())
