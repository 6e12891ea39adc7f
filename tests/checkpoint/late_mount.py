"""Mounts for tests: late_fs.py, whose server can be stopped, which hangs who asks; a read-only
disk."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).with_name("late_fs.py")
DEADLINE_S = 20.0
needs_fuse = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="mounts: root and /dev/fuse"
)
needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="mounts: root")


@contextlib.contextmanager
def mounted(folder: Path, place: Path, late_s: float) -> Iterator[subprocess.Popen]:
    """`place` shows what is in `folder`, while the server, which this yields, runs."""
    process = subprocess.Popen([sys.executable, SERVER, folder, place, str(late_s)])
    end = time.monotonic() + DEADLINE_S
    try:
        while not os.path.ismount(place):
            assert time.monotonic() < end and process.poll() is None, (
                "the file system was not mounted"
            )
            time.sleep(0.01)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        subprocess.run(["umount", "--lazy", place], check=False, timeout=DEADLINE_S)
        # or it serves on: mount namespaces made meanwhile (tests/hosts) hold the mount
        process.terminate()
        process.wait(DEADLINE_S)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder can be read, and nothing in it changed."""
    for words in (["--bind", folder, folder], ["-o", "remount,bind,ro", folder]):
        subprocess.run(["mount", *words], check=True, timeout=DEADLINE_S)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True, timeout=DEADLINE_S)
