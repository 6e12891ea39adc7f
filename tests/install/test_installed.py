"""examples/cpp as a user's own project: built against the installed tree, two ways."""

import gzip
import os
import re
import subprocess
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
EXAMPLE = ROOT / "examples" / "cpp"


def run(*command: object, env: dict | None = None, timeout: float = 300) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def digits_csv(tmp_path_factory) -> Path:
    packed = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
    path = tmp_path_factory.mktemp("data") / "digits.csv"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def test_each_header_is_whole_by_itself(prefix, tmp_path):
    """Nothing but the interface is installed, and a program may begin with any of its headers."""
    headers = sorted(
        path.relative_to(prefix / "include") for path in (prefix / "include").rglob("*.h")
    )
    assert 0 < len(headers) <= 11 and {path.parent.name for path in headers} == {"regroup"}, headers
    for header in headers:
        source = tmp_path / "alone.cc"
        source.write_text(f'#include "{header}"\n#include "{header}"\nint main() {{}}\n')
        run(
            "mpicxx.openmpi" if header.name == "mpi.h" else "g++",
            "-std=c++20",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-DOMPI_SKIP_MPICXX",
            f"-I{prefix}/include",
            source,
        )


def trains(program: Path, prefix: Path, digits_csv: Path) -> None:
    """An elastic job of two members reaches the accuracy, and the launcher is the installed one
    too."""
    regroup = prefix / "bin" / "regroup"
    out = run(
        regroup,
        "--oversubscribe",
        "--initial-size",
        2,
        "-np",
        "1:3",
        program,
        digits_csv,
        timeout=120,
    )
    accuracy = re.search(r"accuracy on the training set ([0-9.]+) %", out)
    assert accuracy and float(accuracy[1]) > 98.0, out


def test_by_find_package(prefix, digits_csv, tmp_path):
    run(
        "cmake",
        "-S",
        EXAMPLE,
        "-B",
        tmp_path,
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release",
    )
    run("cmake", "--build", tmp_path)
    trains(tmp_path / "digits", prefix, digits_csv)


def test_by_pkg_config(prefix, digits_csv, tmp_path):
    folders = ":".join(str(path.parent) for path in prefix.rglob("regroup.pc"))
    env = {**os.environ, "PKG_CONFIG_PATH": folders}
    flags = run("pkg-config", "--cflags", "--libs", "--static", "regroup", env=env).split()
    program = tmp_path / "digits"
    run("g++", "-std=c++20", "-O2", EXAMPLE / "digits.cc", "-o", program, *flags)
    trains(program, prefix, digits_csv)
