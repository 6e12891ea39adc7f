"""Checkpoints of a job whose tables are on several hosts: one of all hosts, whatever is killed
meanwhile; loaded by other numbers of hosts and servers."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from hosts import ROOT, Host, Hosts, until
from test_ps_hosts import MEMBER, PYTHON, counts_are_exact, end_of, served
from test_run import REGROUP, nothing_is_left, run, start  # noqa: F401

TABLES = ROOT / "build/tests/bin/ps_tables"


def on(count: int, servers: str, directory: Path | str, workers: int = 1) -> list[str]:
    """Options of a job with a part of the tables on each of the first `count` hosts."""
    names = ",".join(f"node{number}:1" for number in range(1, count + 1))
    words = ["-H", names, "--ps-hosts", str(count), "--ps-memory", "256M"]
    words += ["--role", f"ps={servers}", "--role", f"worker={workers}"]
    return [*words, "--checkpoint", str(directory)]


def steps(directory: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in directory.glob("step-*"))


def control(hosts: Hosts, *words: object) -> subprocess.CompletedProcess:
    return hosts[0].run([REGROUP, *map(str, words)])


def verified(hosts: Hosts, directory: Path) -> None:
    done = control(hosts, "checkpoint", "verify", directory)
    assert done.returncode == 0, done.stdout + done.stderr


def saved(hosts: Hosts, step: int) -> None:
    done = control(hosts, "checkpoint", "save")
    assert f"checkpoint of step {step}: in " in done.stdout, done.stdout + done.stderr


def listed(hosts: Hosts, directory: Path) -> list[dict]:
    """By step, the newest one first."""
    done = control(hosts, "checkpoint", "ls", "--json", directory)
    return sorted(json.loads(done.stdout), key=lambda row: -row["step"])


def digest(text: str) -> str:
    return re.search(r"digest (\w+)", text)[1]


def trained(hosts: Hosts, words: list[str], *arguments: object) -> str:
    out, _ = end_of(start(hosts, *words, str(TABLES), *map(str, arguments)))
    return digest(out)


def test_other_numbers_of_hosts_and_servers_go_on_with_the_same_bits(hosts: Hosts):
    directory, alone = hosts.folder / "bits", hosts.folder / "alone"
    first = trained(hosts, on(3, "3", directory), 0, 8)
    assert trained(hosts, on(1, "1", alone), 0, 8) == first
    done = control(hosts, "checkpoint", "diff", directory, alone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert trained(hosts, on(2, "3", directory), 8, 8) == first
    assert steps(directory) == [1], "nothing has changed"
    second = trained(hosts, on(3, "3:6", alone), 8, 16)
    assert steps(alone) == [1, 2]
    verified(hosts, alone)
    assert trained(hosts, on(1, "2", alone), 16, 16) == second


def test_hosts_that_do_not_share_the_directory_are_named(hosts: Hosts):
    done = run(hosts, *on(2, "2", "/run/tables"), "true")
    said = (
        "host node2: --checkpoint /run/tables: expected a directory that all hosts with a store "
        "share, got another one here: /run/tables: not the directory that job "
    )
    assert done.status != 0 and said in done.err, done.err


def comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


def stopped(host: Host) -> int:
    """A writer of a host that is stopped while it works; 0: none was met."""
    for pid in host.pids() if "regroup-persist" in host.names() else []:
        with contextlib.suppress(OSError):
            if comm(pid) == "regroup-persist":
                os.kill(pid, signal.SIGSTOP)
                state = until(
                    lambda: re.search(r"State:\s([TtZX])", Path(f"/proc/{pid}/status").read_text()),  # noqa: B023
                    "a stop",
                )[1]
                if state in "Tt":
                    return pid
    return 0


def save_with_stopped_writer(hosts: Hosts, host: Host) -> tuple[subprocess.Popen, int]:
    """A save that cannot end, and the writer of a host."""

    def caught():
        asking = hosts[0].popen(
            [REGROUP, "checkpoint", "save"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while asking.poll() is None:
            if pid := stopped(host):
                return asking, pid
        asking.communicate()
        return None

    return until(caught, "a writer that is stopped")


def test_kills_during_saves_cost_no_push_and_leave_the_last_one_whole(hosts: Hosts):
    end, directory = hosts.folder / "saves-end", hosts.folder / "saves"
    job = start(hosts, *on(3, "3", directory, workers=3), str(MEMBER), str(end))

    def server(host: Host, *killed: int) -> int:
        for one in served(hosts[0]).get("servers", []):
            if one["host"] == host.name and one["pid"] not in (0, *killed) and one["updates"] > 0:
                return one["pid"]
        return 0

    for host in hosts:
        until(lambda: server(host), "pushes to this store")  # noqa: B023
    saved(hosts, 1)
    assert served(hosts[0])["checkpoint"] == 1
    asking, writer = save_with_stopped_writer(hosts, hosts[2])
    last = steps(directory)[-1]
    # A server that is killed meanwhile costs no checkpoint; a writer that is, this one.
    pid = server(hosts[1])
    assert hosts[1].run(["kill", "-9", str(pid)]).returncode == 0
    os.kill(writer, signal.SIGCONT)
    out, err = asking.communicate(timeout=120)
    assert asking.returncode == 0, out + err
    until(lambda: server(hosts[1], pid), "a successor")
    asking, writer = save_with_stopped_writer(hosts, hosts[2])
    before = steps(directory)
    assert before[-1] > last
    os.kill(writer, signal.SIGKILL)
    out, err = asking.communicate(timeout=120)
    assert asking.returncode != 0, out
    assert "host node3: regroup-persist: killed by signal 9" in err, err
    assert steps(directory) == before
    assert not list(directory.glob(".stage-*")), "the parts of the others"
    verified(hosts, directory)
    end.touch()
    counts_are_exact(job)


def test_changes_alone_are_saved_and_the_loss_of_a_store_leaves_the_last_one(hosts: Hosts):
    """Step 0 pushes to the dense table, the others to few rows."""
    directory, on_to = hosts.folder / "lost", [hosts.folder / f"to-{end}" for end in (3, 4, 5)]
    phases = [str(word) for end, file in zip((2, 3, 4), on_to, strict=True) for word in (end, file)]
    job = start(hosts, *on(3, "3", directory), str(TABLES), "0", *phases)
    job.stdout.readline()
    saved(hosts, 1)
    on_to[0].touch()
    job.stdout.readline()
    saved(hosts, 2)
    assert [row.get("base") for row in listed(hosts, directory)] == [1, None]
    asking, writer = save_with_stopped_writer(hosts, hosts[1])
    failed = steps(directory)[-1] + 1
    os.kill(writer, signal.SIGKILL)
    assert asking.wait(120) != 0
    on_to[1].touch()
    last = digest(job.stdout.readline())
    saved(hosts, failed + 1)
    asking, writer = save_with_stopped_writer(hosts, hosts[2])
    before = steps(directory)
    agents = [pid for pid in hosts[2].pids() if comm(pid) == "regroup-agent"]
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    assert agents and asking.wait(120) != 0
    _, err = job.communicate(timeout=180)
    assert job.returncode != 0 and "whose tables there are lost" in err, err
    with contextlib.suppress(ProcessLookupError):
        os.kill(writer, signal.SIGCONT)  # if it outlives its agent, it may commit nothing
    assert steps(directory) == before
    verified(hosts, directory)
    assert trained(hosts, on(2, "2", directory), 4, 4) == last


# Pushes one to the table that the newest note names, in mode ssp.
TURNS = """
import os, pathlib, sys, time
import numpy as np
import regroup.ps as ps
folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["RANK"])
client = ps.join(mode="ssp", staleness=2, deadline=120)
tables = [client.table(f"t{i}", dim=1, rows=1, optimizer=ps.Sum()) for i in range(8)]
if (folder / "end").exists():
    if rank == 0:
        print([int(table.pull([0])[0, 0]) for table in tables])
    sys.exit()
pushed = 0
deadline = time.monotonic() + 150
for turn in client:
    assert time.monotonic() < deadline
    time.sleep(0.01)
    if rank == 0 and (folder / f"push-{pushed}").exists():
        for i in (folder / f"push-{pushed}").read_text().split():
            tables[int(i)].push([0], np.ones((1, 1), np.float32))
        client.flush()
        (folder / f"pushed-{pushed}").touch()
        pushed += 1
"""


def test_changes_of_another_host_alone_are_saved_by_a_period_and_at_the_end(hosts: Hosts):
    folder, directory = hosts.folder / "turns", hosts.folder / "turns-saved"
    folder.mkdir()
    words = [*on(2, "2", directory, workers=2), "--checkpoint-interval", "1s"]
    program = [sys.executable, "-c", TURNS, str(folder)]
    job = start(hosts, *words, *program, env=PYTHON)

    def push(number: int, text: str) -> None:
        (folder / "note").write_text(text)
        (folder / "note").rename(folder / f"push-{number}")
        until((folder / f"pushed-{number}").exists, "a push")

    push(0, "0 1 2 3 4 5 6 7")
    there = {one["host"]: one["tables"] for one in served(hosts[0])["servers"]}
    far = next(i for i in range(8) if f"t{i}" in there["node2"])
    assert there["node1"].keys().isdisjoint({f"t{far}"})
    until(lambda: steps(directory), "a checkpoint")
    before = control(hosts, "checkpoint", "save")
    last = int(re.search(r"checkpoint of step (\d+): in", before.stdout)[1])
    push(1, str(far))
    until(lambda: steps(directory)[-1] > last, "a checkpoint after a change on node2")
    push(2, str(far))
    os.kill(Host.inner(job), signal.SIGINT)
    _, err = job.communicate(timeout=180)
    assert job.returncode != 0 and "not saved" not in err, err
    (folder / "end").touch()
    out, _ = end_of(start(hosts, *on(1, "1", directory, workers=2), *program, env=PYTHON))
    assert out.strip() == str([3 if i == far else 1 for i in range(8)]), out
