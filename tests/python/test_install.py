"""`pip install .`: a wheel with the package and the command, in a virtual environment of its
own."""

import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import h5py
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The bin folder of an environment with nothing but the wheel. It is compiled as the preset dev
    is, as deep below the tree, so that the compiler cache has its objects; with --full as it is
    shipped."""
    folder = tmp_path_factory.mktemp("install")

    def run(*command):
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
        )
        assert done.returncode == 0, done.stdout

    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder / "dist")]
    if "REGROUP_TEST_FULL" not in os.environ:
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        (dev,) = (preset["cacheVariables"] for preset in presets if preset["name"] == "dev")
        flags = dev["CMAKE_CXX_FLAGS_RELWITHDEBINFO"]
        build.append(f"-Ccmake.define.CMAKE_CXX_FLAGS_RELEASE={flags}")
        # its name is part of what the cache looks for
        build.append("-Ccmake.define.CMAKE_CXX_COMPILER=c++")
        # Python's folders may have UCX, too.
        built = (ROOT / "build/CMakeCache.txt").read_text()
        ucx = re.search(r"(?m)^UCX_INCLUDE:\w+=(.*)$", built)[1]
        build.append(f"-Ccmake.define.UCX_INCLUDE={ucx}")
    run(*build, f"-Cbuild-dir={ROOT / 'build-wheel-test'}", ".")
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python"), "install"]
    (wheel,) = (folder / "dist").iterdir()
    run(*pip, "--no-index", "--no-deps", str(wheel))
    return folder / "venv/bin"


def output_of(*command, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.check_output(command, env=clean | environment, text=True, timeout=120)


def test_the_wheel_brings_the_command_and_the_package(installed):
    version = output_of(installed / "regroup", "--version")
    code = "import regroup; print(regroup.__version__, regroup.__file__)"
    package_version, file = output_of(installed / "python", "-c", code).split()
    assert file.startswith(str(installed.parent))
    assert package_version in version
    folder = os.path.dirname(file)
    assert {"py.typed", "_native.pyi", "torch.py"} <= set(os.listdir(folder))


def test_the_command_brings_what_it_needs(installed):
    libraries = output_of("ldd", installed / "regroup")
    assert "yaml" not in libraries  # not in every system, and not in the wheel
    told = output_of(installed / "regroup", "-np", "2", "--oversubscribe", "env")
    assert told.count("PMI_RANK=") == 2  # regroup-pmi serves


def test_the_wheel_brings_what_keeps_checkpoints(installed, tmp_path):
    np.savez(tmp_path / "a.npz", w=np.arange(5, dtype=np.float32))
    words = ["import", tmp_path / "a.npz", tmp_path / "c", "--from", "npz"]
    output_of(installed / "regroup", "checkpoint", *words)
    assert "1 tensors" in output_of(installed / "regroup", "checkpoint", "ls", tmp_path / "c")
    newest = json.loads(output_of(installed / "regroup-persist", "newest", tmp_path / "c"))
    assert newest["path"].startswith(str(tmp_path / "c"))


def test_what_keeps_checkpoints_needs_no_library_of_the_systems_but_its_c_library(
    installed, tmp_path
):
    """HDF5 and liburing are within; their licences are in the wheel."""
    for program in ("regroup-persist", "regroup-checkpoint"):
        dynamic = output_of("readelf", "--dynamic", "--wide", installed / program)
        needed = set(re.findall(r"\(NEEDED\)\s+Shared library: \[(.*?)\.so", dynamic))
        assert needed <= {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}, program
        assert "not found" not in output_of("ldd", installed / program)
    folder = installed.parent
    (about,) = folder.glob("lib/python*/site-packages/regroup-*.dist-info")
    shipped = {path.name for path in about.rglob("*.txt")}
    assert {path.name for path in (ROOT / "licenses").iterdir()} <= shipped
    # What they are there for: a checkpoint of HDF5 files, by io_uring, that is whole.
    code = (
        "import sys\nfrom regroup.checkpoint import Piece, Snapshot\n"
        "snapshot = Snapshot([Piece('w', 'float32', (1 << 20,))])\n"
        "snapshot.memory(0)[:] = bytes(range(256)) * (1 << 14)\n"
        "print(snapshot.write(sys.argv[1], 7))"
    )
    place = output_of(installed / "python", "-c", code, str(tmp_path / "c")).strip()
    assert place == str(tmp_path / "c/step-00000007")
    assert "good" in output_of(installed / "regroup", "checkpoint", "verify", place)
    with h5py.File(pathlib.Path(place) / "model.h5") as view:
        assert view["w"][:64].tobytes() == bytes(range(256))


def test_the_installed_command_runs_installed_members(installed):
    program = (
        "import array, regroup\n"
        "weight = array.array('d', [0])\n"
        "session = regroup.Session(regroup.TrackedState(weight=weight), elements=1)\n"
        "assert session.size == 2\n"
        "session.finish()\n"
    )
    command = [
        installed / "regroup",
        "--oversubscribe",
        "-np",
        "2:2",
        installed / "python",
        "-c",
        program,
    ]
    output_of(*command)


def test_the_wheel_brings_the_backend_of_the_torch_beside_which_it_was_built(installed, tmp_path):
    program = (
        "import torch, torch.distributed as dist, regroup._torch_backend as backend\n"
        "dist.init_process_group('regroup')\n"
        "x = torch.ones(3)\n"
        "dist.all_reduce(x)\n"
        "print(x.tolist(), backend.find_binary().parent)\n"
        "dist.destroy_process_group()\n"
    )
    ranks = [installed / "regroup", "--oversubscribe", "-np", "2"]
    told = output_of(
        *(*ranks, installed / "python", "-c", program),
        PYTHONPATH=sysconfig.get_path("platlib"),  # has torch
        XDG_CACHE_HOME=str(tmp_path),
        CXX="false",
    )
    (package,) = installed.parent.glob("lib/python*/site-packages/regroup")
    assert told.splitlines() == [f"[2.0, 2.0, 2.0] {package / '_torch'}"] * 2
    assert not list(tmp_path.iterdir())  # nothing was built


@pytest.mark.skipif(
    "REGROUP_TEST_FULL" not in os.environ, reason="fetches what builds the wheel: --full only"
)
def test_pip_install_as_the_readme_has_it(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    pip = tmp_path / "venv/bin/pip"
    done = subprocess.run(
        [pip, "install", "."],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout
    command, python = tmp_path / "venv/bin/regroup", tmp_path / "venv/bin/python"
    code = "import regroup; print(regroup.Session(regroup.TrackedState(), elements=1).size)"
    assert output_of(command, "--oversubscribe", "-np", "2", python, "-c", "print(1)") == "1\n1\n"
    assert output_of(python, "-c", code) == "1\n"
