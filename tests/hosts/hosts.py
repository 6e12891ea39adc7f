"""Test hosts: N hosts on this machine, each with its own namespaces, host name, folders of jobs and
sshd.

    with Hosts(3) as hosts:
        hosts[0].run([*hosts.ssh, "node2", "hostname"])

A host has its own net, UTS, IPC, mount and PID namespaces, so that two hosts share nothing but the
files that lie outside of /tmp, /run and /dev/shm, the repository, and the folders named `shared`.
veth pairs join them at a bridge in a network namespace that leads nowhere else. All live in one
outer PID namespace whose process 1 ends when this process does, however it does: then the kernel
ends every process, and interfaces, mounts and names go with the last. Needs root; missing_rights()
says what is missing.
"""

import contextlib
import functools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from waiting import until  # noqa: E402

INIT = Path(__file__).with_name("host_init.py")
DEADLINE_S = 60.0
TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "iptables": "iptables",
    "ebtables": "iptables",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
NAMESPACES = ("net", "uts", "ipc", "mount", "pid")
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21}


@functools.cache
def missing_rights() -> str | None:
    """What this process may not do that test hosts need, as a sentence; None if nothing is
    missing."""
    for tool, package in TOOLS.items():
        if not shutil.which(tool):
            return f"test hosts need {tool}: install the package {package}"
    if os.geteuid() != 0:
        return f"test hosts need root: this is user {os.geteuid()}"
    effective = next(
        int(line.split()[1], 16)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    )
    lacking = [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]
    if lacking:
        return f"test hosts need the capabilities {', '.join(lacking)}: this process has lost them"
    if _unshare_refused(*NAMESPACES):
        for kind in NAMESPACES:
            if why := _unshare_refused(kind):
                return f"test hosts need {kind} namespaces, which are forbidden here: {why}"
    return None


def _unshare_refused(*kinds: str) -> str:
    """Why; "" if it is not."""
    command = ["unshare", *(f"--{kind}" for kind in kinds), "--fork", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    return "" if done.returncode == 0 else done.stderr.strip() or str(done.returncode)


@functools.cache
def _key_pair(name: str) -> tuple[bytes, bytes]:
    """A private key of ssh and its public one; all hosts of that name in this process have the
    same."""
    with tempfile.TemporaryDirectory(prefix="regroup-key-") as folder:
        path = Path(folder) / name
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path]
        subprocess.run(make, check=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
        return path.read_bytes(), path.with_suffix(".pub").read_bytes()


def _status(pid: int, field: str) -> list[str]:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.split()[1:]
    return []


class Space:
    """The namespaces around one host_init.py."""

    def __init__(self, prefix: Sequence[str], order: dict):
        unshare = ["unshare", *(f"--{kind}" for kind in NAMESPACES), "--fork", "--kill-child"]
        self.name = order["name"]
        self.process = subprocess.Popen(
            [*prefix, *unshare, sys.executable, "-S", str(INIT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        self.commands: list[subprocess.Popen] = []

    def wait_ready(self) -> None:
        readable = select.select([self.process.stdout], [], [], DEADLINE_S)[0]
        if not readable or self.process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"test host {self.name} did not start: see the messages above")
        self.pid = self._first_process()

    def _first_process(self) -> int:
        """The first descendant that is process 1 of its namespace, by its number out here."""
        pid = self.process.pid
        while pid == self.process.pid or _status(pid, "NSpid")[-1] != "1":
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return pid

    def enter(self, *, network_only: bool = False) -> list[str]:
        """The words to put before a command that is to run here."""
        kinds = ["--net"] if network_only else [f"--{kind}" for kind in NAMESPACES]
        return ["nsenter", f"--target={self.pid}", *kinds, "--"]

    def names(self) -> list[str]:
        """Command names of the processes here, the first one aside. Far cheaper than to ask for
        their numbers out here."""
        found = []
        with contextlib.suppress(OSError), os.scandir(f"/proc/{self.pid}/root/proc") as entries:
            for entry in entries:
                if entry.name.isdigit() and entry.name != "1":
                    with contextlib.suppress(OSError):
                        found.append(Path(entry.path, "comm").read_text().rstrip("\n"))
        return found

    def network(self, *command: str) -> str:
        """Runs a command with the interfaces of this space and the process numbers of the
        outside."""
        done = subprocess.run(
            [*self.enter(network_only=True), *command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} on {self.name}: {done.stderr.strip()}")
        return done.stdout

    def commands_of_network(self, *commands: str) -> None:
        """Several of them, one after the other."""
        self.network("sh", "-ec", "\n".join(commands))

    def counters(self, interface: str) -> tuple[int, int]:
        """Bytes that the interface has received and sent."""
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            if line.strip().startswith(interface + ":"):
                fields = line.split(":")[1].split()
                return int(fields[0]), int(fields[8])
        raise KeyError(f"{self.name} has no interface {interface}")

    def begin_to_close(self) -> None:
        """Ends every process in it; close() waits for that."""
        self.process.stdin.close()

    def close(self) -> None:
        self.begin_to_close()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait(DEADLINE_S)
        self.process.stdout.close()


class Host(Space):
    """One test host. `address` is its only one beside 127.0.0.1, until plug_second(); the others
    know it by `name`."""

    def __init__(self, hosts: "Hosts", index: int, order: dict):
        self.hosts, self.index = hosts, index
        self.address, self.port = f"10.77.0.{index + 1}", f"port{index + 1}"
        self.dead = False
        super().__init__(hosts.switch.enter(), order)

    def plug(self) -> None:
        counted = f"-p IPv4 --ip-dst {self.address} --ip-proto tcp --ip-sport ! 22 --ip-dport ! 22"
        self.hosts.switch.commands_of_network(
            f"ip link add {self.port} type veth peer name eth0 netns {self.pid}",
            f"ip link set {self.port} master bridge up",
            f"ebtables -A FORWARD -o {self.port} {counted}",
        )
        self.commands_of_network(
            "ip link set lo up", f"ip addr add {self.address}/24 dev eth0", "ip link set eth0 up"
        )

    def plug_second(self) -> str:
        """Joins a second network, which the hosts that have done so share, by eth1; its address
        there."""
        switch, port = self.hosts.switch, f"second{self.index + 1}"
        with contextlib.suppress(RuntimeError):  # there is one since another host has joined
            switch.network(
                "ip", *["link", "add", "second", "type", "bridge", "mcast_snooping", "0"]
            )
        switch.network("ip", *["link", "set", "second", "up"])
        switch.network("ip", *f"link add {port} type veth peer name eth1 netns {self.pid}".split())
        switch.network("ip", *f"link set {port} master second up".split())
        address = f"10.78.0.{self.index + 1}"
        for command in (f"addr add {address}/24 dev eth1", "link set eth1 up"):
            self.network("ip", *command.split())
        return address

    def popen(self, command: Sequence[str | Path], **popen) -> subprocess.Popen:
        """Starts a command in the root folder of the host. The process that is returned stands for
        it: it has the same end and status, and when it is killed so is the command. inner() is for
        other signals."""
        held = ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]
        process = subprocess.Popen([*self.enter(), *held], **popen)
        self.commands.append(process)
        return process

    @staticmethod
    def inner(process: subprocess.Popen) -> int:
        """The number out here of the command itself."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return int(until(children.read_text, "the command has started").split()[0])

    def run(self, command: Sequence[str | Path], timeout: float = DEADLINE_S, **popen):
        popen = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | popen
        with self.popen(command, text=True, **popen) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def sent(self) -> int:
        """Bytes that this host has put on its wire."""
        return self.hosts.switch.counters(self.port)[0]

    def received(self) -> int:
        """Bytes that the wire has brought to this host."""
        return self.hosts.switch.counters(self.port)[1]

    def names(self) -> list[str]:
        return [] if self.dead else super().names()

    def pids(self) -> list[int]:
        """Processes of this host and their numbers out here, its first one aside."""
        if not self.names():
            return []
        mine = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(path / "ns/pid") == mine and int(path.name) != self.pid:
                    found.append(int(path.name))
        return found

    def link(self, up: bool) -> None:
        """Pulls the plug at the switch, or puts it back: this host sees no carrier, the others
        nothing."""
        self.hosts.switch.network("ip", "link", "set", self.port, "up" if up else "down")

    def lose(self, share: float) -> None:
        """From now on this share of the packets to and from this host is lost; 0 ends that."""
        for other in self.hosts:
            who = "" if other is self else f"-s {self.address} "
            chain = f"loss{self.index}"
            with contextlib.suppress(RuntimeError):
                other.network("iptables", "-N", chain)
                other.network("iptables", "-A", "INPUT", "-i", "eth0", "-j", chain)
            other.network("iptables", "-F", chain)
            if share > 0:
                rule = f"-A {chain} {who}-m statistic --mode random --probability {share} -j DROP"
                other.network("iptables", *rule.split())

    def lost(self) -> int:
        """Packets to this host that lose() has taken since it was last called."""
        return int(
            self.network("iptables", "-vxnL", f"loss{self.index}").splitlines()[2].split()[0]
        )

    def slow(self, rate: str | None) -> None:
        """Bounds the link both ways, as in "10mbit"; None ends that."""
        for space, interface in ((self.hosts.switch, self.port), (self, "eth0")):
            with contextlib.suppress(RuntimeError):
                space.network("tc", "qdisc", "del", "dev", interface, "root")
            if rate:
                how = f"tc qdisc add dev {interface} root tbf rate {rate} burst 64kb latency 200ms"
                space.network(*how.split())

    def stop(self) -> None:
        """Stops every process but the first (which only reaps), as if the host hung."""
        until(lambda: not self._stop_once(), f"{self.name} stands still")

    def _stop_once(self) -> list[int]:
        moving = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                state = _status(pid, "State")[0]
                if state in "TZX":
                    continue
                # Who waits in vfork() for a child that stands still stops when that goes on: it
                # does nothing.
                waits = (
                    state == "D" and int(_status(pid, "ShdPnd")[0], 16) >> (signal.SIGSTOP - 1) & 1
                )
                os.kill(pid, signal.SIGSTOP)
                if not waits:
                    moving.append(pid)
        return moving

    def resume(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        for process in self.commands:  # nsenter stops itself when its child is stopped
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """The host loses its power: nothing of it is heard any more, no end of a connection
        either."""
        self.link(up=False)
        self.dead = True
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)


class Hosts:
    """`count` hosts named node1, node2, ...; `shared`: folders in /tmp that all of them see,
    besides the repository; `shell`: root's login shell there."""

    def __init__(self, count: int, shared: Sequence[Path] = (), shell: str = "/bin/bash"):
        if missing := missing_rights():
            raise PermissionError(missing)
        self.ssh_options: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="regroup-hosts-"))
        self.hosts: list[Host] = []
        self.switch: Space | None = None
        try:
            self._start(count, [str(ROOT), str(self.folder), *map(str, shared)], shell)
        except BaseException:
            self.close()
            raise

    def _start(self, count: int, shared: list[str], shell: str) -> None:
        names = [f"node{i + 1}" for i in range(count)]
        self._write_files(names, shell)
        # Outside of all: it is there even when this process and the switch are not.
        remover = ["sh", "-c", '"$@"; rm -rf "$0"', str(self.folder)]
        self.switch = Space(
            remover, {"name": "switch", "files": {}, "shared": shared, "sshd": None}
        )
        self.switch.wait_ready()
        self.switch.commands_of_network(
            "ip link add bridge type bridge mcast_snooping 0", "ip link set bridge up"
        )
        for i, name in enumerate(names):
            self.hosts.append(Host(self, i, self._order(name, shared)))
        for host in self.hosts:
            host.wait_ready()
            host.plug()
        addresses = " ".join(host.address for host in self.hosts)
        tried = "(exec 3<>/dev/tcp/$address/22) 2>/dev/null"
        script = f"for address in {addresses}; do until {tried}; do sleep 0.02; done; done"
        if self.hosts[0].run(["bash", "-c", script]).returncode != 0:
            raise RuntimeError("nobody reaches the sshd of a test host")

    def _order(self, name: str, shared: list[str]) -> dict:
        files = {str(self.folder / file): f"/etc/{file}" for file in ("hosts", "passwd")}
        sshd = [
            shutil.which("sshd"),
            "-f",
            str(self.folder / "sshd_config"),
            "-h",
            str(self.folder / name),
        ]
        return {"name": name, "files": files, "shared": shared, "sshd": sshd}

    def _write_files(self, names: list[str], shell: str) -> None:
        for key in [*names, "user"]:
            private, public = _key_pair(key)
            (self.folder / key).touch(0o600)
            (self.folder / key).write_bytes(private)
            (self.folder / f"{key}.pub").write_bytes(public)
        addresses = [f"10.77.0.{i + 1}" for i in range(len(names))]
        lines = [f"{address} {name}\n" for address, name in zip(addresses, names, strict=True)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        passwd = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
        # A home without files that shells read: what they start there may be killed with a host,
        # and leave its locks in the home of the user who tests.
        (home := self.folder / "home").mkdir()
        roots = [str(home), shell]
        (self.folder / "passwd").write_text(
            "".join(
                ":".join([*p[:5], *(roots if p[0] == "root" else p[5:])]) + "\n" for p in passwd
            )
        )
        known = [
            f"{name},{address} {' '.join((self.folder / f'{name}.pub').read_text().split()[:2])}\n"
            for name, address in zip(names, addresses, strict=True)
        ]
        (self.folder / "known_hosts").write_text("".join(known))
        # The usual key exchange, with sntrup761, takes 80 ms of processor time each, this one 10.
        (self.folder / "ssh_config").write_text(
            "KexAlgorithms curve25519-sha256\n"
            f"IdentityFile {self.folder}/user\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {self.folder}/known_hosts\nGlobalKnownHostsFile none\nUser root\n"
        )
        (self.folder / "sshd_config").write_text(
            f"AuthorizedKeysFile {self.folder}/user.pub\nStrictModes no\nUsePAM no\nPrintMotd no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nPidFile /run/sshd.pid\n"
            "KbdInteractiveAuthentication no\n"
            "MaxStartups 200\nMaxSessions 100\nUseDNS no\nPermitUserEnvironment no\n"
        )

    def give_up_dead_hosts_soon(self) -> None:
        """Hosts without power or link cost each try of ssh eight seconds, rather than all the time
        in which an agent may come up on busy cores. A host that lives answers at once."""
        self.ssh_options = ["-o", "ConnectTimeout=8"]

    @property
    def ssh(self) -> list[str]:
        """The ssh command that reaches every host from every host."""
        return ["ssh", "-F", str(self.folder / "ssh_config"), *self.ssh_options]

    def heard(self) -> list[int]:
        """Bytes over TCP that the wire has brought to each host, those of ssh aside: what jobs say
        to it. The switch counts them, before lose() takes its share, and keeps the last count of a
        host that is dead."""
        rules = self.switch.network("ebtables", "-L", "FORWARD", "--Lc")
        return [int(count) for count in re.findall(r"-o port\d+ .* bcnt = (\d+)", rules)]

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Ends all hosts."""
        for host in self.hosts:
            host.begin_to_close()
        for space in [*self.hosts, self.switch]:
            if space:
                space.close()
        for host in self.hosts:
            for command in host.commands:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(DEADLINE_S)
        self.hosts, self.switch = [], None  # which took the folder along
        shutil.rmtree(self.folder, ignore_errors=True)


if (
    __name__ == "__main__"
):  # hosts.py COUNT COMMAND...: runs it on node1, with the ssh command in $REGROUP_SSH
    with Hosts(int(sys.argv[1])) as all_hosts:
        environment = {**os.environ, "REGROUP_SSH": " ".join(all_hosts.ssh)}
        sys.exit(all_hosts[0].popen(sys.argv[2:] or ["bash"], env=environment).wait())
