"""Checkpoints of a job whose tables are on several hosts: one of all hosts, whatever is killed
meanwhile; loaded by other numbers of hosts and servers."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from hosts import ROOT, Host, Hosts, until
from test_ps_hosts import MEMBER, counts_are_exact, end_of, served
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


def stopped(host: Host) -> int:
    """A writer of a host that is stopped while it works; 0: none was met."""
    for pid in host.pids() if "regroup-persist" in host.names() else []:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "regroup-persist\n":
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
    verified(hosts, directory)
    end.touch()
    counts_are_exact(job)
