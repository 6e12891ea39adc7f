"""A hang of MPICH 4.0 and 4.1 over UCX, known from any other: in MPI_Finalize a rank closes its
connections, for which each peer must answer, while the peers are in the barrier behind that, where
they read PMI only (github.com/pmodels/mpich/pull/6596, in 4.2, takes that barrier out). No setting
of UCX helps: the stacks, and what it was tried with, are told in docs/guide/hosts.md. All ranks
have done their work by then."""

import contextlib
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from hosts import Host, Hosts

QUESTION_BYTES = 25  # uct_tcp's header and an empty put, by which it asks whether all has arrived
SEEN_S = 4.0  # a job of some ranks takes one second
STUCK_S, LOOKS = 2.0, 3
READ = "0"  # the number of read() on x86-64


def _in_barrier(pid: int) -> bool:
    """It reads from its PMI connection."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        fds = [int(field[7:]) for field in fields if field.startswith(b"PMI_FD=")]
        call = Path(f"/proc/{pid}/syscall").read_text().split()
        return call[0] == READ and int(call[1], 16) in fds
    return False


def _unanswered(host: Host) -> set[int]:
    """Ranks that are in the barrier and have such a question before them."""
    found = set()
    for line in host.network("ss", "-tnpH", "state", "established").splitlines():
        owner = re.search(r"pid=(\d+)", line)
        if owner and int(line.split()[0]) == QUESTION_BYTES and _in_barrier(int(owner[1])):
            found.add(int(owner[1]))
    return found


def stuck_in_finalize(hosts: Hosts) -> set[int]:
    return {pid for host in hosts for pid in _unanswered(host)}


def run(
    hosts: Hosts, command: Sequence[str | Path], timeout: float
) -> tuple[subprocess.CompletedProcess, bool]:
    """What became of a command on the first host, and whether it was killed here, as its status
    then says, because MPICH hangs: whether that is forgiven is the caller's to say."""
    end = time.monotonic() + timeout
    pipe = subprocess.PIPE
    with hosts[0].popen(
        command, text=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    ) as process:
        wait = SEEN_S
        seen: list[set[int]] = []  # what was stuck at each look; on a busy core it goes on
        while True:
            try:
                out, err = process.communicate(timeout=wait)
                return subprocess.CompletedProcess(
                    process.args, process.returncode, out, err
                ), False
            except subprocess.TimeoutExpired:
                seen.append(stuck_in_finalize(hosts))
                wait = STUCK_S
            stuck = len(seen) >= LOOKS and set.intersection(*seen[-LOOKS:])
            if not stuck and time.monotonic() < end:
                continue
            process.kill()
            out, err = process.communicate()
            assert stuck, f"{command} hangs, and not as MPICH does: {out} {err}"
            return subprocess.CompletedProcess(process.args, process.returncode, out, err), True
