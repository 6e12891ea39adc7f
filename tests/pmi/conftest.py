"""What the tests of MPI share: the test program built with each MPI, a place to run it, mpi4py's
tests."""

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mpi_peers import MPIS, ROOT, Mpi, Runner


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
