"""The job's secret is in no argument, environment variable, log or file of any process of an elastic job:
launcher, agents, guards, coordinator, members, ssh and sshd; nor in arenas and what else they have open."""

import base64
import contextlib
import os
import shlex
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hosts import Hosts, until
from leftovers import files
from training import BIN, Training, kill, processes

TAP = Path(__file__).with_name("secret_tap.py")
MOST = 256 << 20


def forms(secret: bytes) -> list[bytes]:
    text = [secret.hex(), secret.hex().upper(), base64.b64encode(secret).decode().rstrip("=")]
    return [secret, secret[:16], secret[16:], *(form.encode() for form in text)]


def of_process(pid: int) -> Iterator[tuple[str, bytes]]:
    """Arguments, environment, and what it has open that can be read again: files, deleted ones, memfds."""
    for name in ("cmdline", "environ"):
        yield name, Path(f"/proc/{pid}/{name}").read_bytes()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if stat.S_ISREG(fd.stat().st_mode) and fd.stat().st_size <= MOST:
                yield f"{fd.name} ({os.readlink(fd)})", fd.read_bytes()


def places(hosts: Hosts) -> Iterator[tuple[str, bytes]]:
    """All that is searched, with its name."""
    for host in hosts:
        for pid in host.pids():
            with contextlib.suppress(OSError):
                comm = Path(f"/proc/{pid}/comm").read_text().strip()
                yield from ((f"{host.name}: {comm} {pid}: {what}", text) for what, text in of_process(pid))
        for path in files(host):
            with contextlib.suppress(OSError):
                full = Path(f"/proc/{host.pid}/root{path}")
                if stat.S_ISREG(full.stat().st_mode):
                    yield f"{host.name}: {path}", full.read_bytes()
    for path in Path(hosts.folder).rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()


def found(hosts: Hosts, needles: list[bytes]) -> set[str]:
    return {name for name, text in places(hosts) if any(needle in text for needle in needles)}


def test_the_secret_is_nowhere(hosts: Hosts):
    folder = hosts.folder / f"tap-{time.monotonic_ns()}"
    (folder / "bin").mkdir(parents=True)
    tapped = folder / "secret"
    wrapper = folder / "bin/regroup"
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, TAP, tapped, BIN / "regroup"))
    real = shlex.quote(str(BIN / "regroup"))
    wrapper.write_text(f'#!/bin/sh\n[ "$(hostname)" = node2 ] && exec {words} "$@"\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    learn = ("--learner-steps", "8", "--learner-state", "1")
    options = ("--prefix", str(folder), "-v", *learn)
    job = Training(hosts, "node1:2,node2:2,node3:2", "2:6", options, epochs=6, pace_us=20_000)
    try:
        job.reach(5)
        needles = forms(until(lambda: tapped.exists() and tapped.read_bytes(), "the secret was tapped"))
        assert len(needles[0]) == 32
        assert found(hosts, needles) == {str(tapped)}, "the search finds what is there, and nothing else"
        kill(processes(hosts[2], "regroup-agent")[-1:])
        job.until_said("6 -> 4 members", 20)
        job.until_said("-> 6 members", 30)
        kill(processes(hosts[0], "regroup-coord"))
        job.until_said("incarnation 2", 20)
        assert found(hosts, needles) == {str(tapped)}
        assert job.wait() == 0, job.text()
        assert found(hosts, needles) == {str(tapped)}
    finally:
        job.close()
