"""How an MPI program ends decides the exit status as under its own launcher, which runs beside
regroup."""

import pytest
from mpi_peers import MPICH

# How rank 1 of two ends -> the statuses of Open MPI's launchers, of MPICH's, and what regroup says.
ENDS = {
    "well": ({0}, {0}, ""),
    "abort": ({5}, {5}, "rank 1 called MPI_Abort with status 5: ending the other ranks"),
    "exit0": ({1}, {0}, "exited with code 0 before it called MPI_Finalize: ending the other ranks"),
    "exit7": ({7}, {7}, "exited with code 7 before it called MPI_Finalize: ending the other ranks"),
    "kill": ({137}, {9}, "was killed by signal 9 (SIGKILL): ending the other ranks"),
    "segv": ({139}, {11}, "was killed by signal 11 (SIGSEGV): ending the other ranks"),
    "term": ({143}, {15}, "was killed by signal 15 (SIGTERM): ending the other ranks"),
    "code4": ({4}, {4}, ""),
    # Ranks return 3 and 4 after MPI_Finalize: Open MPI takes that of the first to end.
    "codes": ({3, 4}, {7}, ""),
}


@pytest.mark.parametrize("how", ENDS)
def test_as_its_own_launcher(runner, mpi, program, how):
    openmpi, mpich, sentence = ENDS[how]
    statuses = mpich if mpi is MPICH else openmpi
    done = runner.regroup(
        *mpi.options, "--oversubscribe", "-np", "2", program, "end", how, env=mpi.env
    )
    assert done.status in statuses, done.err
    if how == "abort" and mpi.name == "openmpi4":  # it tells itself, and then exits with the status
        sentence = "MPI_ABORT was invoked on rank 1"
    assert sentence in done.err
    own = runner.run([*mpi.launcher, "-np", "2", program, "end", how], mpi.env)
    if mpi is MPICH and how in ("exit0", "exit7"):  # hydra: that of the rank it killed was first
        statuses = statuses | {1, 9}
    assert own.status in statuses, own.err
