"""Worlds that MPI_Comm_spawn starts: how they are named, who dies with them, and what is left of
them."""

import os
import shlex
import subprocess

import pytest
from mpi_peers import OPENMPI4, OPENMPI5, ROOT

PAIR = pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5], ids=str)


@PAIR
@pytest.mark.parametrize(("how", "status"), [("kill", 137), ("abort", 5), ("exit7", 7)])
def test_a_world_that_has_disconnected_dies_alone(runner, mpi, program, how, status):
    """As Open MPI 5 has it, where one that has not does so too; under Open MPI 4 the parent always
    dies."""
    words = ["-np", "1", program, "child", f"part-{how}"]
    done = runner.regroup("--oversubscribe", *words, env=mpi.env)
    assert done.status == status, done.err
    assert done.lines == ["child", "parent goes on"]
    assert "rank 0 of spawn 1" in done.err and "disconnected processes continue" in done.err
    theirs = runner.run([*OPENMPI5.launcher, *words], env=OPENMPI5.env) if mpi == OPENMPI5 else done
    assert (theirs.status, [line.strip() for line in theirs.lines]) == (status, done.lines), (
        theirs.err
    )


@PAIR
def test_one_that_has_not_takes_its_parent_along(runner, mpi, program):
    done = runner.regroup("--oversubscribe", "-np", "1", program, "child", "kill", env=mpi.env)
    assert done.lines == ["child"], done.err
    assert "ending the other ranks" in done.err
    # Not 14: that is the parent's MPI_Abort when it hears of the death.
    assert done.status == 137 and "rank 0 of spawn 1" in done.err, done.err


@PAIR
def test_more_than_there_are_slots_is_refused(runner, mpi, program):
    words = ["-np", "1", program, "child", "many"]
    done = runner.regroup(*words, env=mpi.env)
    assert (done.status, done.lines) == (0, ["refused"]), done.err
    slots = len(os.sched_getaffinity(0))
    assert (
        f"MPI_Comm_spawn: 1000 more processes, with 1 of {slots} slots in use: --oversubscribe "
        f"allows more" in (done.err)
    )
    if mpi == OPENMPI4:  # its mpirun refuses as well, and then does not end
        return
    theirs = runner.run([w for w in mpi.launcher if w != "--oversubscribe"] + words, env=mpi.env)
    assert [line.strip() for line in theirs.lines] == done.lines, theirs.err


SLOTS = len(os.sched_getaffinity(0))


@pytest.mark.skipif(SLOTS != 2, reason="as mpirun does it with two cores")
@PAIR
@pytest.mark.parametrize(
    ("options", "children"),
    [([], 1), (["--bind-to", "core"], 1), (["--oversubscribe", "--bind-to", "core"], 2)],
)
def test_spawned_ranks_are_bound_as_under_mpirun(runner, mpi, program, options, children):
    """To cores of their own, if there are some for all of them."""
    words = ["-np", "1", *options, program, "seats", str(children)]
    done = runner.regroup(*words, env=mpi.env)
    assert (done.status, len(done.lines)) == (0, 1 + children), done.err
    theirs = runner.run([w for w in mpi.launcher if w != "--oversubscribe"] + words, env=mpi.env)
    assert sorted(line.strip() for line in theirs.lines) == done.lines, theirs.err
    assert (done.lines[0].split()[-1] != "0-1") == (children == 1)  # children come first


def test_slots_of_minus_h_count(runner, build):
    words = ["-np", "1", build(OPENMPI4), "child", "part-well"]
    assert runner.regroup("-H", "localhost:2", *words).lines == ["child", "parent goes on"]
    assert runner.regroup("-H", "localhost:1", *words).lines == ["refused"]


def test_tags_have_the_number_of_the_world(runner, build, tmp_path):
    words = ["--tag-output", "-np", "1", build(OPENMPI4), "child", "part-well"]
    done = runner.regroup("--oversubscribe", "--output-filename", str(tmp_path / "out"), *words)
    assert done.lines == ["[1,0]<stdout>:parent goes on", "[2,0]<stdout>:child"], done.err
    assert (tmp_path / "out/2/rank.0/stdout").read_text() == "[2,0]<stdout>:child\n"
    theirs = runner.run([*OPENMPI4.launcher, *words])
    assert theirs.lines == done.lines, theirs.err


def test_nothing_is_kept_of_worlds_that_have_ended(runner, tmp_path):
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "pmix"], capture_output=True, text=True
    )
    if flags.returncode != 0:
        pytest.skip("no headers of libpmix")
    program = tmp_path / "spawn_many"
    source = ROOT / "tests/pmi/spawn_many.c"
    subprocess.run(
        ["cc", "-o", program, source, *shlex.split(flags.stdout)], check=True, timeout=60
    )
    env = {"REGROUP_LIBPMIX": "libpmix.so.2"}
    done = runner.regroup("--oversubscribe", "-np", "1", program, "150", env=env)
    assert done.status == 0, done.err
    assert float(done.out.split()[0]) < 12, done.out  # 40 were they kept
