"""What a job left on test hosts beside processes: files of any kind in /tmp, /run and /dev/shm, and
sockets. Control groups are the machine's, where other jobs may run."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hosts import Host, Hosts

FOLDERS = ("tmp", "run", "dev/shm")
SSH_PORT = 22


def _below(folder: Path, skipped: set[int]) -> Iterator[Path]:
    """Everything but folders; not what is mounted from elsewhere, which hosts share."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
            elif entry.stat(follow_symlinks=False).st_dev not in skipped:
                yield from _below(Path(entry.path), skipped)


def files(host: Host) -> set[str]:
    """Files, links, sockets and pipes, by their paths on the host."""
    root = Path(f"/proc/{host.pid}/root")
    shared = {(root / str(host.hosts.folder).lstrip("/")).stat().st_dev}
    found = (path for folder in FOLDERS for path in _below(root / folder, shared))
    return {f"/{path.relative_to(root)}" for path in found}


def sockets(host: Host) -> set[str]:
    """Of processes: Unix sockets with a name, and TCP sockets of other ports than sshd's."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{host.pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            near, far = (int(words[i].rsplit(":", 1)[1], 16) for i in (1, 2))
            if words[9] != "0" and SSH_PORT not in (near, far):  # 0: the kernel ends it
                found.add(f"{table} port {near} to {far}, state {words[3]}")
    for line in Path(f"/proc/{host.pid}/net/unix").read_text().splitlines()[1:]:
        if len(words := line.split()) > 7 and "regroup" in words[7]:
            found.add(f"unix {words[7]}")
    return found


class Leftovers:
    """Compares with what was there when it was made."""

    def __init__(self, hosts: Hosts):
        self.hosts = hosts
        self.before = self._all()

    def _all(self) -> set[str]:
        found = set()
        for host in self.hosts:
            if not host.dead:
                found |= {f"{host.name}: {what}" for what in files(host) | sockets(host)}
        return found

    def new(self) -> list[str]:
        return sorted(self._all() - self.before)
