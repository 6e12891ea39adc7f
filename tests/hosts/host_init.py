"""Process 1 of a test host, or of the switch between them: dresses its namespaces and reaps.

usage: host_init.py, with one line of JSON on standard input: {name, files, shared, sshd}. It
answers "ready" when everything stands, and ends, and with it every process of the host, when its
input does.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
MS_BIND, MS_MOVE, MS_REC = 0x1000, 0x2000, 0x4000


def mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        error = ctypes.get_errno()
        sys.exit(
            f"mount({source} on {target}, {kind}): {os.strerror(error)} (CAP_SYS_ADMIN is needed)"
        )


def bind(source: str, target: str, flags: int = MS_BIND | MS_REC) -> None:
    mount(source, target, flags=flags)


def own_tmp(shared: list[str]) -> None:
    """An empty /tmp, but for the shared folders in it, which stand for a common file system."""
    stage = "/run/tmp"
    os.mkdir(stage)
    mount("tmpfs", stage, "tmpfs", options="mode=1777")
    for folder in shared:
        if folder.startswith("/tmp/"):
            place = stage + folder.removeprefix("/tmp")
            os.makedirs(place)
            bind(folder, place)
    bind(stage, "/tmp", MS_MOVE)


def own_sys() -> None:
    """/sys of this network namespace, with the control groups of the machine."""
    stage = "/run/cgroup"
    os.mkdir(stage)
    bind("/sys/fs/cgroup", stage)
    mount("sysfs", "/sys", "sysfs")
    bind(stage, "/sys/fs/cgroup", MS_MOVE)
    os.rmdir(stage)


def quiet_network() -> None:
    """No bytes but those that somebody sends: no IPv6 and so no router solicitations."""
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")


def dress(order: dict) -> None:
    socket.sethostname(order["name"])
    mount("proc", "/proc", "proc")
    mount("tmpfs", "/run", "tmpfs", options="mode=755")
    for folder in ("/run/lock", "/run/sshd", "/run/user"):
        os.mkdir(folder)
    mount("tmpfs", "/dev/shm", "tmpfs", options="mode=1777")
    for source, target in order["files"].items():
        bind(source, target, MS_BIND)
    own_sys()
    own_tmp(order["shared"])
    quiet_network()


def serve() -> None:
    """Reaps orphans until the input ends."""
    wake, signal_end = os.pipe()
    os.set_blocking(signal_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(signal_end)
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        ready = select.select([0, wake], [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready and not os.read(0, 4096):
            return


def main() -> None:
    order = json.loads(sys.stdin.readline())
    dress(order)
    if order["sshd"]:
        subprocess.run(order["sshd"], check=True, stdin=subprocess.DEVNULL)
    print("ready", flush=True)
    serve()


if __name__ == "__main__":
    main()
