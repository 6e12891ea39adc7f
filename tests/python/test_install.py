"""`pip install .`: a wheel with the package and the command, in a virtual environment of its own."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The bin folder of an environment with nothing but the wheel. Half a minute if ccache knows it all."""
    folder = tmp_path_factory.mktemp("install")

    def run(*command):
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stdout

    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder / "dist")]
    # As deep as other build folders, so that the compiler cache finds their objects.
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


def test_the_installed_command_runs_installed_members(installed):
    program = (
        "import array, regroup\n"
        "weight = array.array('d', [0])\n"
        "session = regroup.Session(regroup.TrackedState(weight=weight), elements=1)\n"
        "assert session.size == 2\n"
        "session.finish()\n"
    )
    command = [installed / "regroup", "--oversubscribe", "-np", "2:2", installed / "python", "-c", program]
    output_of(*command)


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
