"""Ranks know which parts of the machine they share, as under their own mpirun."""

import os

import pytest
from mpi_peers import OPENMPI4, OPENMPI5

SLOTS = len(os.sched_getaffinity(0))


@pytest.mark.skipif(SLOTS < 2, reason="two ranks are bound to two cores")
@pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5], ids=str)
@pytest.mark.parametrize("binding", ["core", "socket", "none"])
def test_split_by_parts_of_the_machine(runner, mpi, program, binding):
    options = ["--bind-to", binding, "-np", "2", program, "share"]
    theirs = runner.run(
        [word for word in mpi.launcher if word != "--oversubscribe"] + options, env=mpi.env
    )
    assert theirs.status == 0 and len(theirs.lines) == 2, theirs.err
    ours = runner.regroup(*options, env=mpi.env)
    assert (ours.status, ours.lines) == (0, theirs.lines), ours.err
    if binding == "socket":
        assert "thread 2" in ours.out


@pytest.mark.skipif(SLOTS < 2, reason="two ranks are bound to two cores")
@pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5], ids=str)
def test_bound_members_of_roles_know_it_too(runner, mpi, program):
    words = ["--bind-to", "core", "--role", "worker=2", program, "share"]
    done = runner.regroup(*words, env=mpi.env)
    assert (done.status, len(done.lines)) == (0, 2), done.err
    assert all(" socket 2 " in line and " core 1 " in line for line in done.lines), done.out
