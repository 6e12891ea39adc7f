"""Test hosts are what they claim: apart, joined by wires that count, break and mend, and gone
afterwards."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import talk
from hosts import CAPABILITIES, ROOT, Host, Hosts, missing_rights, until

pytestmark = pytest.mark.no_wire("hosts themselves, without a job")
SETPRIV = shutil.which("setpriv")
# Sends PIECES datagrams of SIZE bytes to HOST, slowly enough for the kernel, and then that this was
# all, so often that it comes through.
SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[2])):
    s.sendto(bytes(int(sys.argv[3])), (sys.argv[1], 5000))
    if i % 50 == 49: time.sleep(0.001)
for _ in range(100): s.sendto(b"end", (sys.argv[1], 5000))
"""
# Its buffer takes them all (SO_RCVBUFFORCE: beyond what the kernel gives to users), as it may be
# late.
RECEIVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)
s.bind(("0.0.0.0", 5000))
print("bound", flush=True)
count = 0
s.settimeout(30)
while s.recv(65536) != b"end": count += 1
print(count)
"""
# Sends 1 MB to whoever connects, after the other's first byte.
SERVER = """
import socket
s = socket.create_server(("", 5001))
print("bound", flush=True)
c, _ = s.accept()
c.recv(1)
c.sendall(bytes(1000000))
c.recv(1)
"""
CLIENT = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], 5001), 10)
begin = time.monotonic()
c.send(b"x")
left = 1000000
while left: left -= len(c.recv(left))
print(time.monotonic() - begin)
"""
KNOCK = """
import socket, sys
try: socket.create_connection((sys.argv[1], 5001), 0.5)
except TimeoutError: print("no answer")
"""


def python(host: Host, code: str, *args: object, **popen) -> subprocess.Popen:
    popen = {"stdout": subprocess.PIPE, "text": True} | popen
    return host.popen([sys.executable, "-S", "-c", code, *map(str, args)], **popen)


def bound(host: Host, code: str) -> subprocess.Popen:
    process = python(host, code)
    assert process.stdout.readline() == "bound\n"
    return process


def arrived(sender: Host, receiver: Host, pieces: int = 1000) -> int:
    process = bound(receiver, RECEIVER)
    assert python(sender, SENDER, receiver.name, pieces, 100).wait(60) == 0
    return int(process.communicate(timeout=60)[0])


def megabyte(sender: Host, receiver: Host) -> float:
    """Seconds that 1 MB takes."""
    with bound(sender, SERVER) as server:
        seconds = float(python(receiver, CLIENT, sender.name).communicate(timeout=60)[0])
        server.wait(60)
    return seconds


def reaches(sender: Host, receiver: Host, within_s: int = 10) -> bool:
    command = ["timeout", str(within_s), "bash", "-c", f"exec 3<>/dev/tcp/{receiver.name}/22"]
    return sender.run(command).returncode == 0


def test_hosts_reach_each_other_by_name_and_ssh(hosts: Hosts):
    for one in hosts:
        for other in hosts:
            done = one.run([*hosts.ssh, "-o", "BatchMode=yes", other.name, "hostname"])
            assert (done.returncode, done.stdout, done.stderr) == (0, f"{other.name}\n", "")


def test_who_comes_by_ssh_is_not_at_the_home_of_the_user(hosts: Hosts):
    """Where files that shells read may start what leaves a lock there when its host is killed."""
    assert hosts[0].run([*hosts.ssh, "node2", "cd && pwd"]).stdout == f"{hosts.folder}/home\n"


@pytest.mark.parametrize("folder", ["/dev/shm", "/run", "/tmp"])
def test_folders_of_jobs_are_not_shared(hosts: Hosts, folder: str):
    mine = f"mine-{os.urandom(8).hex()}"
    hosts[0].run(["touch", f"{folder}/{mine}"])
    assert hosts[0].run(["ls", folder]).stdout.split().count(mine) == 1
    assert mine not in hosts[1].run(["ls", folder]).stdout.split()
    assert not Path(folder, mine).exists()


def test_the_repository_is_shared(hosts: Hosts):
    for host in hosts:
        assert host.run(["cat", ROOT / "tests/hosts/hosts.py"]).stdout.startswith('"""Test hosts')


def test_processes_and_queues_are_apart(hosts: Hosts):
    assert hosts[0].run(["ipcmk", "-Q"]).returncode == 0
    queues = [len(host.run(["ipcs", "-q"]).stdout.splitlines()) for host in hosts]
    assert queues[0] == queues[1] + 1 == queues[2] + 1
    sleeper = hosts[0].popen(["sleep", "1000"])
    until(lambda: "sleep 1000" in hosts[0].run(["ps", "ax"]).stdout, "the process on its host")
    assert "sleep 1000" not in hosts[1].run(["ps", "ax"]).stdout
    assert Path(f"/proc/{hosts[0].inner(sleeper)}/comm").read_text() == "sleep\n"
    sleeper.kill()
    sleeper.wait()
    until(lambda: "sleep 1000" not in hosts[0].run(["ps", "ax"]).stdout, "its end")


def test_orphans_are_reaped(hosts: Hosts):
    hosts[0].run(["sh", "-c", "sleep 0.05 &"])
    until(lambda: "sleep" not in hosts[0].run(["ps", "ax"]).stdout, "end of the orphan")


def test_bytes_are_counted_where_they_cross(hosts: Hosts):
    before = [(host.sent(), host.received()) for host in hosts]
    megabyte(hosts[0], hosts[1])
    sent = [host.sent() - b for host, (b, _) in zip(hosts, before, strict=True)]
    received = [host.received() - b for host, (_, b) in zip(hosts, before, strict=True)]
    assert 1_000_000 < sent[0] < 1_200_000 and 1_000_000 < received[1] < 1_200_000
    assert sent[2] < 10_000 and received[2] < 10_000


def test_what_jobs_say_is_counted_and_ssh_is_not(hosts: Hosts):
    before = hosts.heard()
    assert hosts[0].run([*hosts.ssh, "node2", "hostname"]).stdout == "node2\n"
    assert hosts.heard() == before
    megabyte(hosts[0], hosts[1])
    heard = [now - then for now, then in zip(hosts.heard(), before, strict=True)]
    assert 1_000_000 < heard[1] < 1_200_000 and 100 < heard[0] < 100_000 and heard[2] == 0


def test_what_is_lost_has_crossed_the_wire_and_what_meets_no_link_has_not(hosts: Hosts):
    def crossed() -> int:
        """Bytes of node2 to node1, in vain."""
        before = hosts.heard()
        assert python(hosts[1], KNOCK, hosts[0].name).communicate(timeout=60)[0] == "no answer\n"
        assert hosts.heard()[1:] == before[1:]
        return hosts.heard()[0] - before[0]

    hosts[0].lose(1)
    assert crossed() > 0
    hosts[0].lose(0)
    hosts[0].link(up=False)
    assert crossed() == 0
    hosts[0].link(up=True)
    until(lambda: reaches(hosts[1], hosts[0]), "the link is back")


def test_a_dead_host_keeps_its_last_count(own_hosts: Hosts):
    megabyte(own_hosts[1], own_hosts[0])
    heard = own_hosts.heard()
    assert heard[0] > 1_000_000
    own_hosts[0].kill()
    assert own_hosts.heard() == heard


def test_hosts_that_only_come_by_ssh_do_not_talk(hosts: Hosts):
    with pytest.raises(AssertionError, match="no two hosts have talked"), talk(hosts):
        assert hosts[0].run([*hosts.ssh, "node2", "hostname"]).stdout == "node2\n"
    with talk(hosts):
        megabyte(hosts[0], hosts[1])
        megabyte(hosts[1], hosts[0])


def test_a_link_that_is_down_carries_nothing(hosts: Hosts):
    assert reaches(hosts[0], hosts[1])
    hosts[1].link(up=False)
    assert hosts[1].run(["cat", "/sys/class/net/eth0/carrier"]).stdout == "0\n"
    before = hosts[1].received()
    assert not reaches(hosts[0], hosts[1], within_s=2)
    assert hosts[1].received() == before
    assert reaches(hosts[0], hosts[2])
    hosts[1].link(up=True)
    until(lambda: reaches(hosts[0], hosts[1]), "the link is back")


def test_packets_are_lost_both_ways(hosts: Hosts):
    assert arrived(hosts[0], hosts[1]) == 1000
    hosts[0].lose(0.3)
    assert 600 < arrived(hosts[0], hosts[1]) < 800
    assert 600 < arrived(hosts[1], hosts[0]) < 800
    assert arrived(hosts[1], hosts[2]) == 1000
    hosts[0].lose(0)
    assert arrived(hosts[0], hosts[1]) == arrived(hosts[1], hosts[0]) == 1000


def test_a_link_can_be_slow(hosts: Hosts):
    hosts[1].slow("2mbit")  # 4 s
    assert 3.2 < megabyte(hosts[0], hosts[1]) < 20
    assert 3.2 < megabyte(hosts[1], hosts[0]) < 20
    hosts[1].slow(None)
    assert megabyte(hosts[0], hosts[1]) < 3


def test_a_stopped_host_stands_still_and_goes_on(hosts: Hosts):
    count = (
        "import itertools, time\nfor i in itertools.count(): print(i, flush=True); "
        "time.sleep(0.001)"
    )
    with tempfile.TemporaryFile() as file:
        counter = python(hosts[0], count, stdout=file, text=None)
        talk = hosts[0].popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        until(lambda: os.fstat(file.fileno()).st_size > 10, "the first numbers")
        hosts[0].stop()
        size = os.fstat(file.fileno()).st_size
        assert "SSH" not in banner(hosts[1], hosts[0])
        assert os.fstat(file.fileno()).st_size == size
        hosts[0].resume()
        until(lambda: os.fstat(file.fileno()).st_size > size, "the next number")
        counter.kill()
        counter.wait(60)
    assert talk.communicate(b"still here", timeout=60)[0] == b"still here"
    assert "SSH" in banner(hosts[1], hosts[0], within_s=20)


# SIGSTOP stops it when its child goes on only.
VFORK = """
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
  if (vfork() == 0) raise(SIGSTOP), _exit(0);
  puts("goes on");
  return 0;
}
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_host_stands_still_where_one_waits_for_a_child_that_does(hosts: Hosts):
    program = hosts.folder / "vfork"
    subprocess.run(
        ["gcc", "-x", "c", "-o", program, "-"], input=VFORK, text=True, check=True, timeout=60
    )
    waits = hosts[0].popen([str(program)], stdout=subprocess.PIPE, text=True)
    parent = hosts[0].inner(waits)
    child = int(
        until(Path(f"/proc/{parent}/task/{parent}/children").read_text, "vfork() has been called")
    )
    until(lambda: state_of(child) == "T", "the child has stopped itself")
    until(lambda: state_of(parent) == "D", "the parent waits for it")
    hosts[0].stop()
    hosts[0].resume()
    assert waits.communicate(timeout=60)[0] == "goes on\n"


def banner(sender: Host, receiver: Host, within_s: int = 1) -> str:
    """What an sshd says first, by then."""
    script = f"exec 3<>/dev/tcp/{receiver.name}/22; read -t {within_s} line <&3; echo $line"
    return sender.run(["bash", "-c", script]).stdout


def test_a_killed_host_falls_silent(own_hosts: Hosts):
    server = bound(own_hosts[0], SERVER)
    wait = (
        "import socket, sys\nc = socket.create_connection((sys.argv[1], 5001))\nprint('bound', "
        "flush=True)\n"
    )
    wait += "c.settimeout(1)\ntry: print(c.recv(1))\nexcept TimeoutError: print('silence')"
    client = python(own_hosts[1], wait, own_hosts[0].name)
    assert client.stdout.readline() == "bound\n"
    own_hosts[0].kill()
    assert client.communicate(timeout=60)[0] == "silence\n"
    assert server.wait(60) == -signal.SIGKILL
    assert own_hosts[1].run(["hostname"]).stdout == "node2\n"


def test_a_login_shell_can_be_chosen():
    with Hosts(1, shell="/bin/sh") as hosts:
        done = hosts[0].run([*hosts.ssh, "node1", "echo $0"])
        assert (done.stdout, done.stderr) == ("sh\n", "")


def test_nothing_is_left_after_a_crash():
    script = ROOT / "tests/hosts/hosts.py"
    command = [sys.executable, script, "2", "sh", "-c", "echo $REGROUP_SSH; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crashing:
        folder = Path(crashing.stdout.readline().split()[-1]).parent
        assert (folder / "user").exists()
        family = descendants(crashing.pid)
        assert len(family) >= 8
        crashing.send_signal(signal.SIGKILL)
        until(
            lambda: not [pid for pid in family if Path(f"/proc/{pid}/exe").exists()],
            "the end of all",
        )
    until(lambda: not folder.exists(), "the keys are removed")


def descendants(pid: int) -> list[int]:
    """Those of sshd come and go."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    found = []
    for child in map(int, children.split()):
        found += [child, *descendants(child)]
    return found


def ask_for_rights(*prefix: str, path: str | None = None) -> str:
    code = "import hosts; print(hosts.missing_rights())"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tests/hosts"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code],
        env=environment | ({"PATH": path} if path else {}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_missing_capability_is_named(capability: str):
    assert missing_rights() is None
    name = capability.removeprefix("CAP_").lower()
    assert ask_for_rights(SETPRIV, f"--bounding-set=-{name}").startswith(
        f"test hosts need the capabilities {capability}:"
    )


def test_a_missing_tool_is_named_with_its_package():
    assert (
        ask_for_rights(path="/nowhere") == "test hosts need unshare: install the package util-linux"
    )


def test_without_rights_the_tests_fail_and_say_why():
    command = [SETPRIV, "--bounding-set=-sys_admin", sys.executable, "-m", "pytest", "-q", "-p"]
    command += ["no:cacheprovider", f"{__file__}::test_the_repository_is_shared"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test hosts need the capabilities CAP_SYS_ADMIN" in done.stdout
    assert "skipped" not in done.stdout
