"""The torch.distributed backend "regroup": registers it, and finds or builds its binary.

torch imports this module by the entry point `torch.backends` when it is imported itself, in every
process, so it does nothing but register a name. What is native is loaded when the first process
group is made. docs/design/torch_backend.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.distributed as dist

NAME = "regroup"
_SOURCES = Path(__file__).parent / "_torch"
_BUILD_LIMIT_S = 300
_loaded = False


def register() -> None:
    """Makes `init_process_group("regroup")` possible. Does nothing where torch was built without
    torch.distributed, or where the name is taken. Never raises: an exception here would break
    `import torch`."""
    try:
        import torch.distributed as dist

        if dist.is_available() and NAME not in dist.Backend.backend_list:
            dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except Exception as error:  # noqa: BLE001
        print(f"regroup: no torch.distributed backend: {error}", file=sys.stderr)


def _create(options: dist._DistributedBackendOptions, _: object) -> dist.Backend:
    """What torch calls in each rank of a new process group. Blocks until all ranks have come.

    Raises:
        DistBackendError: ranks did not come in time (the message names them), or no backend serves
            them.
        RuntimeError: the binary for this torch is missing and could not be built.
    """
    import torch
    import torch.distributed as dist

    from regroup import _native

    _load()
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    seconds = options.timeout.total_seconds()
    torch.ops.regroup.attach(group.boxed(), _native.collective_v1(), seconds)
    return group._get_backend(torch.device("cpu"))


def _load() -> None:
    """Loads the binary for this version of torch, once per process."""
    global _loaded
    if _loaded:
        return
    import torch

    torch.ops.load_library(str(find_binary()))
    _loaded = True


def find_binary() -> Path:
    """The backend for the torch that is imported: that of the package, one that was built before
    for this user, or one that is built now."""
    import torch

    minor = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    packaged = _SOURCES / f"torch-{minor}.so"
    if packaged.exists():
        return packaged
    built = _cache() / f"torch-{minor}-{_fingerprint(torch.__version__)}.so"
    if not built.exists():
        _build(built)
    return built


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regroup"


def _fingerprint(version: str) -> str:
    """Of what the binary is made from."""
    digest = hashlib.sha256(version.encode())
    for name in ("backend.cc", "collective_v1.h"):
        digest.update((_SOURCES / name).read_bytes())
    return digest.hexdigest()[:12]


def _build(target: Path) -> None:
    """Compiles the backend. Other processes of this user that need it wait for the first."""
    import torch

    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise RuntimeError(
            f"regroup: the package has no backend for torch {torch.__version__}, and there is no "
            "C++ compiler to build one: install g++ 12 or newer, or set CXX"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    root = Path(torch.__file__).parent
    with open(target.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        print(
            f"regroup: building the backend for torch {torch.__version__} (about 20 s, once)",
            file=sys.stderr,
        )
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            out = Path(folder) / target.name
            command = [
                *(*compiler.split(), "-std=c++20", "-O2", "-fPIC", "-shared"),
                *("-fvisibility=hidden", f"-I{_SOURCES}", f"-I{root / 'include'}"),
                *(f"-I{root / 'include/torch/csrc/api/include'}", str(_SOURCES / "backend.cc")),
                *(f"-L{root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-o", str(out)),
            ]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_BUILD_LIMIT_S,
                check=False,
            )
            if done.returncode != 0:
                raise RuntimeError(
                    f"regroup: building the backend for torch {torch.__version__} failed: "
                    f"{' '.join(command)}: {done.stderr.strip()[-2000:]}"
                )
            out.rename(target)
