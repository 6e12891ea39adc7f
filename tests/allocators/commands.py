"""Commands of an allocator, run for what they print."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

DEADLINE_S = 180.0
# Launchers go on without a host whose agent needs more than 5 s to start, and on busy cores one
# does.
PATIENT = {"REGROUP_TIME_LIMIT_FACTOR": "4"}


def run(
    words: tuple[str, ...],
    environment: Mapping[str, str],
    folder: Path,
    check: bool = True,
    timeout: float = DEADLINE_S,
) -> subprocess.CompletedProcess:
    """RuntimeError with its words, unless it ends with 0 or `check` is false."""
    done = subprocess.run(
        words,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()} {done.stdout.strip()}")
    return done
