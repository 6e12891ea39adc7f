"""`regroup resize`, said to a job whose sockets lie in a folder."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from commands import run


def resize(
    regroup: Path, members: int, runtime: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess:
    """It must have been taken."""
    own = {**environment, "XDG_RUNTIME_DIR": str(runtime)}
    return run((str(regroup), "resize", str(members)), own, runtime)
