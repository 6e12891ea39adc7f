"""A job whose parameter server has a store on each of several hosts: where workers find them, how
servers of other hosts are replaced, and how the job ends. A worker here connects to each store by
itself."""

import os
import re
import signal
import sys

import pytest
from hosts import Host, Hosts, until
from test_ps_hosts import PYTHON, served
from test_run import REGROUP, nothing_is_left, run, start  # noqa: F401

WHERE = ["-H", "node1:1,node2:1,node3:1", "--role", "worker=3", "--ps-memory", "128M"]

# Pushes ones to each store until a file exists, then adds up what each store has counted.
# With a second argument SIGTERM does not end rank 0, which pushes once more when a file says so.
WORKER = """
import os, pathlib, signal, sys, time
import numpy as np
import regroup.ps as ps
folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
told = False
def on_term(*_):
    global told
    told = True
if rank == 0 and len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, on_term)
def note(name, text):
    (folder / f"{name}.part").write_text(text)
    (folder / f"{name}.part").rename(folder / name)
def wait_for(*names):
    deadline = time.monotonic() + 120
    while not all((folder / name).exists() for name in names):
        assert time.monotonic() < deadline, names
        time.sleep(0.02)
places = os.environ["REGROUP_PS"]
clients = []
for place in places.split(";"):
    os.environ["REGROUP_PS"] = place
    clients.append(ps.join(deadline=120))
tables = [client.table("counts", dim=1, optimizer=ps.Sum()) for client in clients]
note(f"places-{rank}", places)
pushes, ones = 0, np.ones((4, 1), np.float32)
def push():
    for table in tables:
        table.push(4 * (pushes % 8) + np.arange(4), ones)
    for client in clients:
        client.flush()
while not (folder / "end").exists() and not told:
    push()
    pushes += 1
if told:
    wait_for("flush")
    push()
    note("flushed", "")
else:
    note(f"pushes-{rank}", str(pushes))
if rank == 0 and not told:
    wait_for("pushes-1", "pushes-2")
    print([int(table.pull(np.arange(32)).sum()) for table in tables])
"""


def servers(host: Host) -> list[tuple[str, int]]:
    """Host and number of each server that runs."""
    return [(one["host"], one["server"]) for one in served(host).get("servers", []) if one["pid"]]


def pid_of(host: Host, of: str, *killed: int) -> int:
    """Of the first server on a host; 0 while none runs but those that were killed."""
    found = [one["pid"] for one in served(host).get("servers", []) if one["host"] == of]
    return next((pid for pid in found if pid not in (0, *killed)), 0)


def replaced(hosts: Hosts, index: int) -> None:
    """Kills a server of a host; returns once the next one runs."""
    name = hosts[index].name
    pid = until(lambda: pid_of(hosts[0], name), "a server")
    assert hosts[index].run(["kill", "-9", str(pid)]).returncode == 0
    until(lambda: pid_of(hosts[0], name, pid), "a successor")


def begun(hosts: Hosts, name: str, *options: str, flushes: bool = False):
    """A job whose workers are at all stores, and by rank what they were told of these."""
    folder = hosts.folder / name
    folder.mkdir()
    program = [sys.executable, "-c", WORKER, str(folder), *(["flushes"] if flushes else [])]
    job = start(hosts, *WHERE, *options, *program, env=PYTHON)
    notes = [folder / f"places-{rank}" for rank in range(3)]
    until(lambda: job.poll() is not None or all(note.exists() for note in notes), "the workers")
    assert job.poll() is None, job.communicate()
    return job, folder, [note.read_text().split(";") for note in notes]


def test_stores_of_three_hosts_serve_workers_of_all(hosts: Hosts):
    job, folder, places = begun(hosts, "stores", "--role", "ps=3:6", "--ps-hosts", "3")
    for own, found in enumerate(places):
        for store, place in enumerate(found):
            wanted = r"/.*" if store == own else rf"tcp,node{store + 1},10\.77\.[0-9.]+,\d+,\w+"
            assert re.fullmatch(wanted, place), (own, store, place)
    assert servers(hosts[0]) == [("node1", 0), ("node2", 0), ("node3", 0)]
    replaced(hosts, 1)
    refused = hosts[0].run([REGROUP, "resize", "ps=2"])
    assert "resize ps=2: expected 3 to 6 servers (--role ps=3:6)" in refused.stderr
    resized = hosts[0].run([REGROUP, "resize", "ps=5"])
    assert "parameter server: 5 servers on 3 hosts" in resized.stdout + resized.stderr
    five = [("node1", 0), ("node1", 1), ("node2", 0), ("node2", 1), ("node3", 0)]
    until(lambda: servers(hosts[0]) == five, "five servers")
    shown = hosts[0].run([REGROUP, "status"]).stdout
    assert "5 servers on 3 hosts" in shown, shown
    assert re.search(r"(?m)^node2 +1 +\d+ +\d+ MiB ", shown), shown
    metrics = hosts[0].run([REGROUP, "status", "--prometheus"]).stdout
    assert re.search(r'regroup_ps_server_updates_total\{.*server="0",host="node3"\} \d+', metrics)
    replaced(hosts, 2)
    (folder / "end").touch()
    out, err = job.communicate(timeout=180)
    assert job.returncode == 0, out + err
    pushed = sum(int((folder / f"pushes-{rank}").read_text()) for rank in range(3))
    assert out == f"{[4 * pushed] * 3}\n"
    assert re.search(r"host node2: .*parameter server \(pid \d+\) was killed by signal 9", err), err


def test_servers_of_other_hosts_outlive_their_members(hosts: Hosts):
    two = ["--role", "ps=2", "--ps-hosts", "2", "--term-grace", "120"]
    job, folder, places = begun(hosts, "term", *two, flushes=True)
    assert [len(found) for found in places] == [2, 2, 2]
    assert [place.startswith("/") for place in places[2]] == [False, False]
    os.kill(Host.inner(job), signal.SIGTERM)
    gone = ["sh", "-c", "! grep -qa place[s]- /proc/[0-9]*/cmdline 2>&-"]
    until(lambda: hosts[1].run(gone).returncode == 0, "the end of the worker on node2")
    replaced(hosts, 1)
    (folder / "flush").touch()
    job.communicate(timeout=180)
    assert (folder / "flushed").exists()


@pytest.mark.parametrize(
    "ends", [["-KILL", "-x", "regroup-agent"], ["-TERM", "-x", "regroup"]], ids=["lost", "told"]
)
def test_a_lost_store_ends_the_job_and_is_named(hosts: Hosts, ends: list[str]):
    job, _, _ = begun(hosts, f"lost{ends[0]}", "--role", "ps=2", "--ps-hosts", "2")
    assert hosts[1].run(["pkill", *ends]).returncode == 0
    _, err = job.communicate(timeout=180)
    assert job.returncode == 1, err
    assert re.search(r"host node2: .*: ending the job, whose tables there are lost", err), err


# A host with a store and no member. Servers that fail must do so time after time.
@pytest.mark.parametrize(
    "ends, why",
    [
        (["-INT", "-x", "regroup"], "(its agent has exited, and with it its store|.* lost.*)"),
        (["-ALRM", "-x", "regroup-ps"], r".*was killed by signal 14 .*, 5 times in a row"),
    ],
    ids=["agent", "servers"],
)
def test_a_lost_store_is_named_though_no_member_runs_there(hosts: Hosts, ends: list[str], why: str):
    note = hosts.folder / f"begun{ends[0]}"
    options = ["--quiet", "--role", "ps=3", "--role", "worker=1", "--ps-memory", "128M"]
    program = ["sh", "-c", 'touch "$0" && exec sleep 600', str(note)]
    job = start(hosts, *WHERE[:2], *options, "--ps-hosts", "3", *program)
    until(note.exists, "the worker")
    until(lambda: hosts[2].run(["pkill", *ends]) and job.poll() is not None, "its end", 180)
    _, err = job.communicate(timeout=180)
    assert job.returncode == 1, err
    lost = f"host node3: {why}: ending the job, whose tables there are lost"
    assert re.search(lost, err), err


def test_what_cannot_be_is_refused(hosts: Hosts):
    served = ["--role", "worker=1", "--ps-memory", "128M"]
    for words, said in (
        (["--role", "ps=4", *served, "--ps-hosts", "4"], "--ps-hosts 4: the job has 3 hosts"),
        (
            ["--role", "ps=2", *served, "--ps-hosts", "3"],
            "--ps-hosts 3: expected a server for each host, --role ps=3 or more, got 2",
        ),
        (
            ["--role", "ps=2", "--role", "worker=1", "--ps-hosts", "2"],
            "--ps-hosts: expected --ps-memory BYTES and a role ps",
        ),
        (["--role", "ps=2", *served, "--ps-hosts", "0"], "--ps-hosts 0"),
    ):
        done = run(hosts, "-H", "node1:1,node2:1,node3:1", *words, "true")
        assert done.status != 0 and said in done.err, (words, done.err)
