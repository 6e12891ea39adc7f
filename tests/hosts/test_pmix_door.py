"""The port of libpmix on the loopback of each host of a job, and another user there: libpmix
believes what a client says of its user, so regroup-pmi asks the kernel first."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import ROOT, Host, Hosts, until
from training import BIN, left_on, processes

NOBODY = "65534"
ANOTHER_USER = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
MEMBER = ["sh", "-c", "echo up; exec sleep 600"]
WHERE = ["-H", "node1:1,node2:1", "-np", "2"]
FIELD = re.compile(rb"PMIX_(NAMESPACE|RANK|SERVER_URI41)=(.*)", re.S)
STRANGER = "/tmp/pmix_stranger"


@pytest.fixture
def job(hosts: Hosts) -> Iterator[subprocess.Popen]:
    command = [BIN / "regroup", "--ssh-command", " ".join(hosts.ssh), *WHERE, *MEMBER]
    with hosts[0].popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        yield process
        process.kill()
    until(lambda: not left_on(hosts), "an end of all processes")


@pytest.fixture(scope="module", autouse=True)
def stranger(hosts: Hosts) -> None:
    """Where another user finds it."""
    flags = ["pkg-config", "--cflags", "--libs", "pmix"]
    libpmix = subprocess.run(
        flags, check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    built = hosts.folder / "pmix_stranger"
    source = ROOT / "tests/pmi/pmix_stranger.c"
    subprocess.run(
        ["cc", "-O1", "-rdynamic", "-o", built, source, *libpmix], check=True, timeout=60
    )
    for host in (hosts[0], hosts[1]):
        assert host.run(["install", "-m", "755", built, STRANGER]).returncode == 0


def told(host: Host) -> tuple[str, str, str]:
    """What a member there is told, all of which another user may guess: name, rank, address of the
    server."""
    (member,) = until(lambda: processes(host, "sleep"), "a member")
    fields = Path(f"/proc/{member}/environ").read_bytes().split(b"\0")
    found = {m[1]: m[2].decode() for m in map(FIELD.fullmatch, fields) if m}
    return found[b"NAMESPACE"], found[b"RANK"], found[b"SERVER_URI41"]


def attempt(host: Host, user: list[str], what: str, says: str = "0") -> str:
    done = host.run([*user, STRANGER, *told(host), says, what])
    assert done.stdout.startswith("init "), done
    return done.stdout


def listeners(host: Host) -> dict[str, list[str]]:
    """By the name of the process, the addresses; without sshd."""
    found: dict[str, list[str]] = {}
    for line in host.network("ss", "-Hltnp").splitlines():
        name = re.search(r'\(\("([^"]+)"', line)[1]
        if name != "sshd":
            found.setdefault(name, []).append(line.split()[3].rsplit(":", 1)[0])
    return found


def test_it_listens_on_the_loopback_and_nothing_else_does(hosts: Hosts, job: subprocess.Popen):
    """But the launcher, for agents."""
    assert listeners(hosts[1]) == {"regroup-pmi": ["127.0.0.1"]}
    of_launcher = listeners(hosts[0])
    assert of_launcher.pop("regroup-pmi") == ["127.0.0.1"]
    assert [len(addresses) for addresses in of_launcher.values()] == [1]


def test_another_user_gets_nowhere_whatever_it_says(hosts: Hosts, job: subprocess.Popen):
    for host in (hosts[0], hosts[1]):
        assert told(host)[1] == str(host.index)
        helper = processes(host, "regroup-pmi")
        for what in ("get", "abort", "tool"):
            for says in ("0", NOBODY):
                assert "SUCCESS" not in attempt(host, ANOTHER_USER, what, says), what
        assert processes(host, "regroup-pmi") == helper
    assert job.poll() is None


def test_this_user_gets_in(hosts: Hosts, job: subprocess.Popen):
    """So the refusals are not for another reason; and that is what it could do."""
    assert "get 0 " in attempt(hosts[1], [], "get")
    assert "abort 0 " in attempt(hosts[1], [], "abort")
    assert job.wait(60) != 0
