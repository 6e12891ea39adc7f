"""Programs of three MPIs find their launcher's services under `regroup`."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from mpi_peers import BIN, MPICH, MPIS, OPENMPI4, OPENMPI5, Runner

SLOTS = len(os.sched_getaffinity(0))


def test_world(runner, mpi, program):
    done = runner.regroup("--oversubscribe", "-np", "4", program, env=mpi.env)
    assert done.status == 0, done.err
    universe = max(4, SLOTS)
    assert done.lines == [f"rank {r} of 4 app 0 universe {universe} sum 4" for r in range(4)]
    assert done.err == ""


def test_programs_of_a_job_know_their_number(runner, mpi, program):
    done = runner.regroup(
        "--oversubscribe", "-np", "1", program, ":", "-np", "2", program, env=mpi.env
    )
    assert done.status == 0, done.err
    assert [line.split(" universe")[0] for line in done.lines] == [
        "rank 0 of 3 app 0",
        "rank 1 of 3 app 1",
        "rank 2 of 3 app 1",
    ]


@pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5], ids=str)
def test_programs_are_told_what_runs(runner, mpi, program):
    """Open MPI's own launchers have "0 0" as first ranks; that of Open MPI 5 has the first
    program's arguments for all, and its library knows one program's numbers only."""
    programs = [program, "info", ":", "-np", "2", program, "info", "second"]
    done = runner.regroup("--oversubscribe", "-np", "1", *programs, env=mpi.env)
    assert done.status == 0, done.err
    numbers = ["ompi_np: 1 2", "ompi_first_rank: 0 1"]
    said = [
        f"{rank} {fact}"
        for rank, arguments in enumerate(["info", "info second", "info second"])
        for fact in (f"command: {program}", f"argv: {arguments}", "ompi_num_apps: 2", *numbers)
    ]
    if mpi is OPENMPI5:
        said = [fact for fact in said if fact[2:] not in numbers]
    assert set(said) <= set(done.lines), done.out


# Debian's MPICH (ch4:ucx) has neither, under its own launcher too; pmi1_test.cc speaks them with
# the server.
@pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5], ids=str)
def test_publish_lookup_accept_connect(runner, mpi, program):
    done = runner.regroup("--oversubscribe", "-np", "2", program, "meet", env=mpi.env)
    assert done.status == 0, done.err
    assert done.lines == ["rank 0 got 11", "rank 1 got 10"]


@pytest.mark.parametrize("mpi", [OPENMPI4, OPENMPI5], ids=str)
def test_spawn(runner, mpi, program):
    done = runner.regroup("--oversubscribe", "-np", "2", program, "spawn", env=mpi.env)
    assert done.status == 0, done.err
    assert done.lines == [
        "child 0 of 3 app 0 sum 5",
        "child 1 of 3 app 1 sum 5",
        "child 2 of 3 app 1 sum 5",
        "parent 0 of 2 app 0 sum 5",
        "parent 1 of 2 app 0 sum 5",
    ]


def test_shrink_after_a_kill(runner, build):
    done = runner.regroup(
        "--oversubscribe",
        "--with-ft",
        "ulfm",
        "-np",
        "3",
        build(OPENMPI5),
        "shrink",
        env=OPENMPI5.env,
    )
    assert "rank 1 (pid " in done.err and "the other ranks continue" in done.err
    assert done.lines == ["rank 0 sum 2", "rank 2 sum 2"], done.err
    assert done.status == 0


@pytest.mark.parametrize("mpi", [OPENMPI5, MPICH], ids=str)
def test_communicator_of_a_session(runner, mpi, program):
    done = runner.regroup("--oversubscribe", "-np", "3", program, "session", env=mpi.env)
    assert done.status == 0, done.err
    assert done.lines == ["sum 3"] * 3


def test_without_libpmix(runner, build):
    """One line says so; MPICH, and programs without MPI, do not need it."""
    env = {"REGROUP_LIBPMIX": "libno-such-pmix.so"}
    sentence = (
        "regroup: no PMIx server, so ranks of an Open MPI program do not find each other: "
        "libno-such-pmix.so"
    )
    for command, out in (
        (["sh", "-c", "echo $RANK"], ["0", "1"]),
        ([build(MPICH), "end", "well"], []),
    ):
        done = runner.regroup("--oversubscribe", "-np", "2", *command, env=env)
        assert (done.status, done.lines) == (0, out)
        assert done.err.count("\n") == 1 and done.err.startswith(sentence)
    assert runner.regroup("-q", "-np", "1", "true", env=env).err == ""


def test_without_regroup_pmi(runner, tmp_path, build):
    """The helper is not installed: said once, programs start."""
    lonely = tmp_path / "regroup"
    lonely.symlink_to(BIN / "regroup")
    copy = tmp_path / "bin" / "regroup"
    copy.parent.mkdir()
    copy.write_bytes((BIN / "regroup").read_bytes())
    copy.chmod(0o755)
    done = runner.run([copy, "-np", "1", "echo", "up"])
    assert (done.status, done.out) == (0, "up\n")
    assert "MPI programs get no PMI services: execve(" in done.err
    assert (
        runner.run([lonely, "-np", "1", build(OPENMPI4)]).err == ""
    )  # a link finds what lies beside its target


def test_helper_dies(runner):
    """The job goes on without it."""
    script = (
        "pmi=$(pgrep -P $PPID -x regroup-pmi); kill -9 $pmi; while [ -e /proc/$pmi ]; do :; done; "
        "echo done"
    )
    done = runner.regroup("-np", "1", "sh", "-c", script)
    assert (done.status, done.out) == (0, "done\n")
    assert (
        "regroup-pmi (pid " in done.err
        and "has ended: MPI programs get no PMI services" in done.err
    )


def test_nobody_waits_for_a_stopped_helper(build):
    """MPI_Init fails, the user is told why, and the job ends."""
    script = "[ $RANK = 0 ] && kill -STOP $(pgrep -P $PPID -x regroup-pmi); exec "
    soon = {"REGROUP_TIME_LIMIT_FACTOR": "0.15"}

    def run(mpi):
        runner = Runner()
        try:
            words = ["--oversubscribe", "-np", "2", "sh", "-c", script + build(mpi)]
            return runner.regroup(*words, env={**mpi.env, **soon})
        finally:
            runner.close()

    programs = [build(mpi) for mpi in MPIS]
    with ThreadPoolExecutor(len(programs)) as pool:
        for done in pool.map(run, MPIS):
            assert done.status != 0, done.out
            assert re.search(
                r"regroup-pmi \(pid \d+\) did not answer for 3 s and is killed: MPI", done.err
            )


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("[ $RANK = 1 ] && kill -9 $$; sleep 0.3", 0),
        ("[ $RANK = 1 ] && { sleep 0.3; kill -9 $$; }; true", 0),
        ("[ $RANK = 1 ] && exit 7; exec sleep 60", 7),
    ],
)
def test_with_ft_signals_never_decide_the_status_and_exit_codes_do(runner, script, status):
    done = runner.regroup("--oversubscribe", "--with-ft", "ulfm", "-np", "2", "sh", "-c", script)
    assert done.status == status, done.err
