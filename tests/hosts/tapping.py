"""A job whose secret a test has: one of its agents writes it down (secret_tap.py)."""

import shlex
import sys
import time
from pathlib import Path

from hosts import Hosts
from training import BIN

TAP = Path(__file__).with_name("secret_tap.py")


def tap(hosts: Hosts, name: str) -> tuple[Path, Path]:
    """A folder for --prefix, and the file that will have the secret which the agent of that host is
    given."""
    folder = hosts.folder / f"tap-{time.monotonic_ns()}"
    (folder / "bin").mkdir(parents=True)
    tapped = folder / "secret"
    wrapper = folder / "bin/regroup"
    words = " ".join(
        shlex.quote(str(word)) for word in (sys.executable, TAP, tapped, BIN / "regroup")
    )
    real = shlex.quote(str(BIN / "regroup"))
    wrapper.write_text(
        f'#!/bin/sh\n[ "$(hostname)" = {name} ] && exec {words} "$@"\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    return folder, tapped
