"""MPI_Init waits for all ranks of MPI_COMM_WORLD: a job in which it can never complete ends, in
either order of events. Open MPI's mpirun (4.1.4, 5.0.11) hangs if the rank without MPI ends first,
hydra always."""

import pytest
from mpi_peers import MPICH, OPENMPI4

WAIT = "while ! [ -e {0} ]; do sleep 0.01; done; "
FIRST = "echo $$ >{0}.new; mv {0}.new {0}"
AFTER_IT = WAIT + "while kill -0 $(cat {0}) 2>/dev/null; do sleep 0.01; done; "


@pytest.mark.parametrize("order", ["ends first", "ends later"])
def test_a_rank_without_mpi_ends_the_job(runner, mpi, program, tmp_path, order):
    flag = tmp_path / "flag"
    without, within = (FIRST, AFTER_IT) if order == "ends first" else (WAIT, FIRST + "; ")
    programs = [
        ["-np", "1", "sh", "-c", without.format(flag)],
        ["-np", "1", "sh", "-c", within.format(flag) + f"exec {program} hello"],
    ]
    words = [*mpi.options, "--oversubscribe", *programs[0], ":", *programs[1]]
    done = runner.regroup(*words, env=mpi.env)
    assert (done.status, done.out) == (1, "")
    assert "exited with code 0 before it called MPI_Init, but rank 1 waits for it" in done.err


def test_ranks_that_have_called_init_and_programs_without_mpi_end_as_they_like(
    runner, mpi, program
):
    script = f'{program} hello; [ "$RANK" = 0 ] || sleep 0.1'
    done = runner.regroup(
        *mpi.options, "--oversubscribe", "-np", "2", "sh", "-c", script, env=mpi.env
    )
    assert (done.status, done.err) == (0, "")
    done = runner.regroup(*mpi.options, "--oversubscribe", "-np", "2", "sh", "-c", "exit 0")
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize("first", [0, 1])
def test_two_mpis_do_not_meet(runner, build, first):
    """Whichever comes first; under either launcher both wait for ever, or each is alone."""
    programs = [["-np", "1", build(one), "hello"] for one in (OPENMPI4, MPICH)]
    words = [*programs[first], ":", *programs[1 - first]]
    done = runner.regroup("--oversubscribe", *words)
    assert (done.status, done.out) == (1, "")
    assert "MPI_Init cannot complete: the MPI of rank " in done.err
    assert "PMI-1 (MPICH, Intel MPI)" in done.err and "PMIx (Open MPI)" in done.err


def test_programs_of_two_mpis_may_follow_one_another(runner, build):
    both = f"{build(OPENMPI4)} hello && {build(MPICH)} hello"
    done = runner.regroup("--oversubscribe", "-np", "2", "sh", "-c", both)
    assert done.status == 0, done.err
    assert len(done.lines) == 4
