"""Agents on other hosts by a real ssh, and their links: what comes up, what fails how soon, what
leaks."""

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts import ROOT, Host, Hosts, until
from training import processes

BIN = Path(
    os.environ.get("REGROUP_BIN_DIR")
    or Path(shutil.which("regroup") or ROOT / "build/bin/x").parent
)
HEAD, AGENT = BIN.parent / "tests/bin/spawn_controller", BIN.parent / "tests/bin/spawn_agent"


class Controller:
    """spawn_controller on a host, and the lines it has written."""

    def __init__(
        self, hosts: Hosts, names: list[str], ssh: list[str] | None = None, **changes: object
    ):
        # More than an idle machine needs, so that a busy one says the same; the tests of the limit
        # set it.
        command = [
            HEAD,
            changes.get("limit_s", 20),
            changes.get("program", AGENT),
            changes.get("wdir", ROOT),
            *(ssh or hosts.ssh),
        ]
        self.process = hosts[0].popen(
            [*command, "--", *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self.fresh: queue.Queue = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.fresh.put(line.rstrip("\n"))
        self.fresh.put(None)

    def wait(self, pattern: str, deadline_s: float = 60) -> re.Match:
        """The first line that matches, of those that came and that come."""
        end = time.monotonic() + deadline_s
        seen = 0
        while True:
            for line in self.lines[seen:]:
                if match := re.fullmatch(pattern, line):
                    return match
            seen = len(self.lines)
            try:
                line = self.fresh.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"{pattern!r}: not within {deadline_s:g} s; {self.lines}")
            assert line is not None, f"{pattern!r} did not come: {self.lines}"
            self.lines.append(line)

    def say(self, text: str) -> None:
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()


@pytest.fixture
def controller(hosts: Hosts) -> Iterator[Callable[..., Controller]]:
    heads: list[Controller] = []

    def start(
        names: list[str], ssh: list[str] | None = None, on: Hosts = hosts, **changes: object
    ) -> Controller:
        heads.append(Controller(on, names, ssh, **changes))
        return heads[-1]

    yield start
    for each in heads:
        each.close()


def failure(controller: Controller, host: str, limit_s: float = 10) -> str:
    """The one line of a host that failed, which came in time (the limit, or twice that on a busy
    machine) and after nothing else of it."""
    match = controller.wait(rf"ended {host} (\S+) (.*)")
    assert float(match[1]) < 2 * limit_s + 0.5
    assert [line for line in controller.lines if re.match(rf"(up|line|ended) {host}\b", line)] == [
        match[0]
    ]
    return match[2]


def test_agents_come_up_and_link_back_over_the_wire(hosts: Hosts, controller):
    before = [host.sent() for host in hosts]
    job = controller(["node2", "node3", "node1"])
    for node, name in enumerate(["node2", "node3", "node1"], start=1):
        job.wait(f"up {name}")
        job.wait(f"link {node} {name}")
    sent = [host.sent() for host in hosts]
    assert all(s > b for s, b in zip(sent, before, strict=True))
    job.say("ping")
    for node in (1, 2, 3):
        job.wait(f"echo {node}")
    assert hosts[1].sent() > sent[1] and hosts[2].sent() > sent[2]
    job.process.stdin.close()
    for name in ("node1", "node2", "node3"):
        job.wait(rf"ended {name} \S+ ok")
    assert job.process.wait(60) == 0


def test_the_secret_is_in_no_argument_and_no_environment(hosts: Hosts, controller):
    job = controller(["node2", "node3"])
    job.wait("link 1 node2")
    job.wait("link 2 node3")
    keys = [job.wait(rf"line {name} key (\w+)")[1] for name in ("node2", "node3")]
    assert keys[0] == keys[1]
    secret = secret_of(hosts[1])
    found = []
    for host in hosts:
        for pid in host.pids():
            for file in ("cmdline", "environ"):
                try:
                    data = Path(f"/proc/{pid}/{file}").read_bytes()
                except OSError:  # one of the job before, which has ended just now
                    continue
                found.append(
                    any(form in data for form in (secret, secret.hex().encode(), secret[:16]))
                )
    assert len(found) > 10 and not any(found)


def secret_of(host: Host) -> bytes:
    """As it lies in the memory of the agent on a host, behind its mark."""
    for pid in host.pids():
        try:
            if Path(f"/proc/{pid}/comm").read_text() != "spawn_agent\n":
                continue
            maps = Path(f"/proc/{pid}/smaps").read_text()
        except OSError:
            continue
        page = re.findall(r"^(\w+)-\w+ rw(?:(?!^\w+-)[\s\S])*?^VmFlags:.* dd", maps, re.MULTILINE)
        with open(f"/proc/{pid}/mem", "rb") as memory:
            for begin in page:
                memory.seek(int(begin, 16))
                if memory.read(8) == b"regroup1":
                    return memory.read(32)
    raise AssertionError(f"no page of a secret on {host.name}")


def test_a_host_that_is_not_there_is_named(hosts: Hosts, controller):
    job = controller(["node9", "node2"])
    assert re.search(r"unavailable: node9: ssh failed: .*node9", failure(job, "node9"))
    job.wait("link 2 node2")  # the others come up all the same


@pytest.mark.no_wire("no agent is let in")
def test_a_refused_key_is_named(hosts: Hosts, controller):
    config = (hosts.folder / "ssh_config").read_text()
    other = hosts.folder / "other"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True, timeout=60
    )
    refused = hosts.folder / "refused_config"
    refused.write_text(config.replace(f"{hosts.folder}/user", str(other)))
    said = failure(controller(["node2"], ["ssh", "-F", str(refused)]), "node2")
    assert re.search(r"node2: ssh failed: .*Permission denied \(publickey", said)


@pytest.mark.no_wire("ssh turns back")
def test_an_unknown_host_key_asks_nobody(hosts: Hosts, controller):
    unknown = hosts.folder / "unknown_config"
    unknown.write_text(
        (hosts.folder / "ssh_config").read_text().replace("known_hosts", "no_known_hosts")
    )
    said = failure(controller(["node2"], ["ssh", "-F", str(unknown)]), "node2")
    assert said == "unavailable: node2: ssh failed: Host key verification failed."


@pytest.mark.no_wire("no agent comes up")
def test_a_missing_program_or_folder_is_named(hosts: Hosts, controller):
    said = failure(controller(["node2"], program="/no/such/agent"), "node2")
    assert said == "not found: node2: program /no/such/agent does not exist"
    said = failure(controller(["node2"], wdir="/no/such/folder"), "node2")
    assert said == "not found: node2: cannot change to folder /no/such/folder"


@pytest.mark.no_wire("the only other host is not reached")
def test_a_host_without_a_link_is_given_up_in_time(own_hosts: Hosts, controller):
    own_hosts[1].link(up=False)
    assert "node2: ssh" in failure(controller(["node2"], on=own_hosts, limit_s=5), "node2", 5)


@pytest.mark.no_wire("the only other host does not answer")
def test_a_hung_host_is_given_up_in_time(own_hosts: Hosts, controller):
    own_hosts[1].stop()
    assert "node2: ssh" in failure(controller(["node2"], on=own_hosts, limit_s=5), "node2", 5)
    own_hosts[1].resume()


def test_links_notice_a_host_that_lost_its_power(own_hosts: Hosts, controller):
    job = controller(["node2"], on=own_hosts)
    job.wait("link 1 node2")
    began = time.monotonic()
    own_hosts[1].kill()
    job.say("ping")  # bytes on their way that nobody acknowledges
    job.wait(r"lost 1 peer lost: .*", 30)  # after 5 s, by its own limit; TCP waits for minutes
    assert time.monotonic() - began > 3


def test_agents_end_when_the_launcher_is_killed(own_hosts: Hosts, controller):
    job = controller(["node2"], on=own_hosts)
    job.wait("link 1 node2")
    os.kill(own_hosts[0].inner(job.process), signal.SIGKILL)

    until(lambda: not processes(own_hosts[1], "spawn_agent"), "the end of the agent")
