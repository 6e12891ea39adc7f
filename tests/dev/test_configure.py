"""A feature never vanishes in silence: CMake names the package that is missing, unless it is off by
name."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADERS = [f"-D{name}_INCLUDE=/usr/include" for name in ("FMT", "FLATBUFFERS", "HWLOC")]
NO_UCX = [*HEADERS, "-DCMAKE_IGNORE_PATH=/usr/include"]


def configure(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess:
    words = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options]
    env = os.environ | environment
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=env)


@pytest.mark.parametrize(
    ("folders", "options", "environment", "said"),
    [
        (
            "base;proto;shmem;collective",
            NO_UCX,
            {},
            "Debian: libucx-dev) or switch the feature off by name: -DREGROUP_UCX=OFF",
        ),
        (
            "base;proto;shmem;checkpoint;checkpoint/hdf5",
            [],
            {"PKG_CONFIG_LIBDIR": "/"},
            "REGROUP_CHECKPOINTS: HDF5's hdf5.pc",
        ),
        (
            "base;proto;shmem;python",
            ["-DPython_EXECUTABLE=/usr/bin/python3"],
            {},
            "/usr/bin/python3 has no nanobind",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path, folders, options, environment, said):
    done = configure(tmp_path, f"-DREGROUP_ONLY={folders}", *options, **environment)
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split()), done.stderr


@pytest.mark.parametrize(
    ("folders", "options", "environment"),
    [
        ("base;proto;shmem;collective", [*NO_UCX, "-DREGROUP_UCX=OFF"], {}),
        (
            "base;proto;shmem;checkpoint;checkpoint/hdf5",
            ["-DREGROUP_CHECKPOINTS=OFF"],
            {"PKG_CONFIG_LIBDIR": "/"},
        ),
        (
            "base;proto;shmem;python",
            ["-DREGROUP_PYTHON=OFF", "-DPython_EXECUTABLE=/usr/bin/python3"],
            {},
        ),
    ],
)
def test_what_is_off_by_name_is_not_missed(tmp_path, folders, options, environment):
    done = configure(tmp_path, f"-DREGROUP_ONLY={folders}", *options, **environment)
    assert done.returncode == 0, done.stderr
    assert "not found. Install it" not in done.stderr and "has no nanobind" not in done.stderr, (
        done.stderr
    )


def test_a_group_of_no_sources_is_refused(tmp_path):
    done = configure(tmp_path, "-DREGROUP_UNITY=0")
    assert "REGROUP_UNITY=0: expected a whole number" in done.stderr


def test_all_presets_compile_tests_in_the_same_groups(tmp_path):
    """Or names that clash in a larger group are found only where a sanitizer is built."""
    groups = {}
    for unity in ("6", "24"):
        folder = tmp_path / unity
        done = configure(
            folder,
            "-DREGROUP_ONLY=base;proto;shmem;membership;tests/membership",
            "-DREGROUP_TESTS=ON",
            f"-DREGROUP_UNITY={unity}",
        )
        assert done.returncode == 0, done.stderr
        sources = (folder / "tests/membership").glob("*_test_*.cc")
        groups[unity] = {path.name: path.read_text() for path in sources}
    assert len(groups["6"]) > 1
    assert groups["6"] == groups["24"]
