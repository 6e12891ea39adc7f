"""mpi4py's own tests of point-to-point, collectives, communicators and spawning, with each MPI."""

import os
import re
import sys

import pytest
from mpi_peers import MPICH, OPENMPI4, OPENMPI5

MODULES = [
    "test_p2p_obj",
    "test_cco_obj",
    "test_p2p_buf",
    "test_cco_buf",
    "test_comm",
    "test_dynproc",
]
# MPICH spins where there are more ranks than cores, under its own launcher too: its longer modules
# take minutes then. Those of buffers are long everywhere, and regroup's part in them is that of the
# others. Of the spawns those of each rank alone, one program at a time, and those of all ranks, as
# many, are the extremes.
FULL = bool(os.environ.get("REGROUP_TEST_FULL"))
CROWDED = [*MODULES[:1], *MODULES[2:3], "test_comm"] if FULL else ["test_comm"]
SHORT = MODULES if FULL else [name for name in MODULES if not name.endswith("_buf")]
LEFT_OUT = (
    []
    if FULL
    else ["-x", "*SelfMany.*", "-x", "*SpawnSingleWorld.*", "-x", "*SpawnMultipleWorld.*"]
)
CASES = {
    "openmpi4": (OPENMPI4, 4, [*SHORT, "test_spawn"]),
    "openmpi5": (OPENMPI5, 4, [*SHORT, "test_spawn"]),
    "mpich": (MPICH, 2, SHORT),
    "mpich-crowded": (MPICH, 4, CROWDED),
}
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def library_of(mpi, folder) -> dict[str, str]:
    """What makes mpi4py's wheel load this MPI."""
    if mpi is OPENMPI4:
        return {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": f"{LIBRARIES}/libmpi.so.40"}
    if mpi is MPICH:  # by the name that it has everywhere but in Debian
        (folder / "libmpi.so.12").symlink_to(f"{LIBRARIES}/libmpich.so.12")
        return {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(folder)}
    return {"MPI4PY_MPIABI": "openmpi"}


@pytest.mark.parametrize("case", CASES)
def test_its_own_tests(runner, case, mpi4py_tests, tmp_path):
    mpi, ranks, modules = CASES[case]
    script = str(mpi4py_tests / "main.py")
    command = [
        "--oversubscribe",
        "-n",
        str(ranks),
        sys.executable,
        script,
        "-f",
        *LEFT_OUT,
        *modules,
    ]
    done = runner.regroup(*command, env={**mpi.env, **library_of(mpi, tmp_path)}, deadline_s=600)
    assert done.status == 0, done.err[-2000:]
    assert len(re.findall(r"^OK", done.err, re.MULTILINE)) == ranks, done.err[-2000:]
    counts = [int(n) for n in re.findall(r"^Ran (\d+) tests", done.err, re.MULTILINE)]
    assert min(counts) >= 90 + 30 * (len(modules) - 1), counts
