"""Commands of an allocator, run for what they print."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

DEADLINE_S = 60.0


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
