"""What the tests of the torch.distributed backend share. `./dev test` puts the build's package and
command first in the paths."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def built_backend():
    """The backend's binary is built once for all tests and kept beside the build."""
    os.environ["XDG_CACHE_HOME"] = str(ROOT / "build/torch-backend")
    program = "import torch, regroup._torch_backend as b; print(b.find_binary())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def no_binary(tmp_path, monkeypatch):
    """Call it for a host where the backend has no binary and cannot be built."""

    def hide() -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("CXX", "false")

    return hide


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory):
    """Runs a program of this folder as `size` ranks under regroup and returns its output; it must
    end with `status`, unless that is None."""

    def run(
        size: int, program: str, *words: str, status: int | None = 0, timeout: float = 240
    ) -> str:
        script = Path(__file__).parent / program
        done = subprocess.run(
            ["regroup", "--oversubscribe", "-np", str(size), sys.executable, str(script), *words],
            cwd=tmp_path_factory.mktemp("ranks"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert status is None or done.returncode == status, done.stdout
        return done.stdout

    return run
