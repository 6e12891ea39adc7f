"""The torch.distributed backend "regroup": makes process groups, and finds or builds the binary.

regroup_torch registers it. docs/design/torch_backend.md.
"""

from __future__ import annotations

import atexit
import collections
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import regroup_torch
import torch
import torch.distributed as dist

from regroup import _native, _torch_group

_SOURCES = Path(__file__).parent / "_torch"
BUILD_LIMIT_S = 1800  # it takes 20 s where nothing else runs
# How often this process has formed a group of each name. A store may outlive a process group, and
# torch gives the next group the same name, so that keys need this count. It is equal in all ranks.
_formed: collections.Counter[str] = collections.Counter()


def create(options: Any) -> Any:
    """Makes the backend of a new process group. torch calls this in each rank of the group, with
    its _DistributedBackendOptions. Blocks until all ranks have called it.

    Where the binary for this torch is missing and cannot be built, a group in Python takes its
    place, and the first rank of the job on each host says so.

    Raises:
        DistBackendError: ranks did not call in time (the message names them), or no backend can
            connect them.
    """
    seconds = options.timeout.total_seconds()
    prefix = f"regroup/{options.group_id}/{_formed[options.group_id]}"
    _formed[options.group_id] += 1
    host = os.environ.get("REGROUP_TORCH_HOST", "")
    if (why := _load()) is not None:
        _tell_once(why)
        return _torch_group.ProcessGroup(options, prefix, host)
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    if not torch.cuda.is_available():  # DDP then asks for the memory of its buckets
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    torch.ops.regroup.attach(
        group.boxed(), _native.collective_v1(), seconds, prefix, host, regroup_torch.replaces_gloo()
    )
    return group._get_backend(torch.device("cpu"))


@functools.cache
def _load() -> str | None:
    """Loads the binary for this version of torch, once per process. Returns why there is none."""
    try:
        try:
            torch.ops.load_library(str(find_binary()))
        except OSError:  # that of the package is for another patch version, or C++ library
            if find_binary() != _packaged():
                raise
            torch.ops.load_library(str(_built()))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"{error}"
    atexit.register(_begin_python_end, os.getpid())
    return None


def _begin_python_end(process: int) -> None:
    """Ends the threads of the binary that take the GIL. A child by fork has none of them."""
    if os.getpid() == process:
        torch.ops.regroup.begin_python_end()


@functools.cache
def _tell_once(why: str) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(
            f"{why}\nregroup: the process groups of this job are in Python: slower, for CPU "
            "tensors only (no cuda beside them)",
            file=sys.stderr,
            flush=True,
        )


def find_binary() -> Path:
    """Finds the binary for the imported torch: in the package, or one that was built before for
    this user; otherwise builds it."""
    packaged = _packaged()
    return packaged if packaged.exists() else _built()


def binary_state() -> tuple[Literal["there", "to build", "missing"], Path]:
    """Says what find_binary() would do, and where the binary is or will be. "missing": it would
    raise, since no compiler is here."""
    if (packaged := _packaged()).exists():
        return "there", packaged
    path = _cached()
    if path.exists():
        return "there", path
    return ("missing" if _compiler() is None else "to build"), path


def _minor() -> str:
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _packaged() -> Path:
    """Where the package has the binary, if it has one."""
    return _SOURCES / f"torch-{_minor()}.so"


def _cached() -> Path:
    return _cache() / f"torch-{_minor()}-{_fingerprint(torch.__version__)}.so"


def _built() -> Path:
    """Returns the binary of this user; builds it if it is missing."""
    path = _cached()
    if not path.exists():
        _build(path)
    return path


def _compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regroup"


def _fingerprint(version: str) -> str:
    """A digest of everything that the binary is built from."""
    digest = hashlib.sha256(version.encode())
    for name in ("backend.cc", "collective_v1.h"):
        digest.update((_SOURCES / name).read_bytes())
    return digest.hexdigest()[:12]


def _build(target: Path) -> None:
    """Compiles the backend. Other processes of this user that need it wait for the first, and fail
    with it."""
    compiler = _compiler()
    if compiler is None:
        raise RuntimeError(
            f"regroup: the package has no backend for torch {torch.__version__}, and there is no "
            "C++ compiler to build one: install g++ 12 or newer, or set CXX"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    asked = time.time()
    with open(target.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        failure = target.with_suffix(".failed")
        if (why := _failed(failure, compiler, asked)) is not None:
            raise RuntimeError(why)
        print(
            f"regroup: building the backend for torch {torch.__version__} (about 20 s, once)",
            file=sys.stderr,
        )
        try:
            _compile(compiler, target)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            found = _attempt(compiler) | {"ended": time.time(), "why": f"{error}"}
            failure.write_text(json.dumps(found), encoding="utf-8")
            raise
        failure.unlink(missing_ok=True)


def _attempt(compiler: str) -> dict[str, str]:
    """What a build that has failed is known by."""
    job = os.environ.get("REGROUP_JOB", "")
    return {"host": platform.node(), "compiler": compiler, "job": job}


def _failed(failure: Path, compiler: str, asked: float) -> str | None:
    """Returns why a build failed on this host, in this job or since this process asked for one.
    Later jobs try again: somebody may have mended the compiler."""
    try:
        found = json.loads(failure.read_text(encoding="utf-8"))
        attempt = _attempt(compiler)
        if any(found[key] != attempt[key] for key in ("host", "compiler")):
            return None
        same_job = attempt["job"] != "" and found["job"] == attempt["job"]
        return f"{found['why']}" if same_job or found["ended"] >= asked else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _compile(compiler: str, target: Path) -> None:
    root = Path(torch.__file__).parent
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
            timeout=BUILD_LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"regroup: building the backend for torch {torch.__version__} failed: "
                f"{' '.join(command)}: {done.stderr.strip()[-2000:]}"
            )
        out.rename(target)
