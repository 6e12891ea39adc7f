"""What the Python tests share. `./dev test` puts the build's package and command first in the
paths."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """The programs that tests start compute with one thread each: on busy cores, several threads of
    PyTorch wait for each other after each operation."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def four_shards(monkeypatch):
    """A world of one computes four shards per step, without a launcher."""
    monkeypatch.delenv("REGROUP_AGENT", raising=False)
    monkeypatch.setenv("REGROUP_SHARDS", "4")
    monkeypatch.setenv("REGROUP_SEED", "7")


@pytest.fixture
def run_python():
    """Runs a Python program in a process of its own and returns its output; it must end with status
    0."""

    def run(*arguments: str, timeout: float = 240, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture(scope="session")
def fake_gpu() -> dict[str, str]:
    """The environment in which CPU tensors are those of a GPU, over tests/fakes/cuda."""
    build = pathlib.Path(shutil.which("regroup")).parents[1]
    nvcc = re.search(r"^REGROUP_NVCC:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    if nvcc is None or nvcc.group(1).upper().endswith(("OFF", "NOTFOUND")):
        pytest.skip("built without nvcc, so no member can use plane cuda")
    library = build / "tests/fakes/cuda"
    assert (library / "libcuda.so.1").exists(), f"{library}/libcuda.so.1 is not built"
    return {
        "REGROUP_FAKE_DEVICE": "1",
        "LD_LIBRARY_PATH": str(library),
    }
