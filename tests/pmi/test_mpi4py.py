"""mpi4py's own tests of point-to-point and collectives, with each MPI."""

import os
import re
import sys

import pytest
from mpi_peers import MPICH, OPENMPI4, OPENMPI5

RANKS = 4
MODULES = ["test_p2p_obj", "test_cco_obj"]
if os.environ.get("REGROUP_TEST_FULL"):
    MODULES += ["test_p2p_buf", "test_cco_buf", "test_comm", "test_dynproc", "test_spawn"]
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def library_of(mpi, folder) -> dict[str, str]:
    """What makes mpi4py's wheel load this MPI."""
    if mpi is OPENMPI4:
        return {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": f"{LIBRARIES}/libmpi.so.40"}
    if mpi is MPICH:  # by the name that it has everywhere but in Debian
        (folder / "libmpi.so.12").symlink_to(f"{LIBRARIES}/libmpich.so.12")
        return {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(folder)}
    return {"MPI4PY_MPIABI": "openmpi"}


@pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5, MPICH], ids=str)
def test_its_own_tests(runner, mpi, mpi4py_tests, tmp_path):
    # MPICH spins where there are more ranks than cores: minutes, under its own launcher too.
    ranks, modules = (2, MODULES[:1]) if mpi is MPICH else (RANKS, MODULES)
    script = str(mpi4py_tests / "main.py")
    command = ["--oversubscribe", "-n", str(ranks), sys.executable, script, "-f", *modules]
    done = runner.regroup(*command, env={**mpi.env, **library_of(mpi, tmp_path)}, deadline_s=240)
    assert done.status == 0, done.err[-2000:]
    assert len(re.findall(r"^OK", done.err, re.MULTILINE)) == ranks, done.err[-2000:]
    counts = [int(n) for n in re.findall(r"^Ran (\d+) tests", done.err, re.MULTILINE)]
    assert min(counts) >= 90, counts
