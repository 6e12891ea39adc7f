"""MPI programs as members of roles: one MPI_COMM_WORLD, which loses a member only as a whole."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from mpi_peers import BIN, MPICH, OPENMPI5

ROLES = ["--role", "chief=1", "--role", "worker=2"]


def places(lines: list[str]) -> list[str]:
    return [
        line.split(" universe")[0] + " " + line.split()[-2] + line.split()[-1] for line in lines
    ]


WORLD = [
    "rank 0 of 3 app 0 sum3",
    "rank 1 of 3 app 1 sum3",
    "rank 2 of 3 app 1 sum3",
]


def test_roles_share_a_world(runner, mpi, program):
    done = runner.regroup(*ROLES, program, env=mpi.env)
    assert done.status == 0, done.err
    assert places(done.lines) == WORLD
    assert done.err == ""


def test_so_do_those_of_a_job_file(runner, mpi, program, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(f"""
jobName: sum
taskRoles:
- {{name: chief, command: {program}}}
- {{name: worker, taskNumber: 2, command: [{program}]}}
""")
    done = runner.regroup("--job", str(file), env=mpi.env)
    assert done.status == 0, done.err
    assert places(done.lines) == WORLD


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("kill", "was killed by signal 9 (SIGKILL)"),
        ("exit0", "exited with code 0 before it called MPI_Finalize"),
        ("abort", "called MPI_Abort with status 5"),
    ],
)
def test_a_death_inside_mpi_starts_the_whole_job_again(runner, mpi, program, how, said):
    done = runner.regroup("--term-grace", "1", *ROLES, program, "retry", how, env=mpi.env)
    assert done.status == 0, done.err
    assert places(done.lines) == WORLD
    again = "no process can replace it in MPI_COMM_WORLD: restarting the whole job (restart 1 of 3)"
    assert "rank 1 (worker 0) (pid " in done.err and said in done.err and again in done.err


def test_who_dies_before_mpi_is_replaced_in_the_same_world(runner, mpi, program):
    script = f"""
        if [ $RANK = 1 ] && [ $REGROUP_RESTART_COUNT = 0 ]; then exit 3; fi
        echo restarts $RANK $REGROUP_RESTART_COUNT
        echo "programs $OMPI_NUM_APP_CTX: $OMPI_APP_CTX_NUM_PROCS from $OMPI_FIRST_RANKS"
        exec {program}"""
    done = runner.regroup(*ROLES, "sh", "-c", script, env=mpi.env)
    assert done.status == 0, done.err
    assert places([line for line in done.lines if line.startswith("rank")]) == WORLD
    assert [line for line in done.lines if line.startswith("restarts")] == [
        "restarts 0 0",
        "restarts 1 1",
        "restarts 2 0",
    ]
    programs = [line for line in done.lines if line.startswith("programs")]
    assert len(programs) == 3 and len(set(programs)) == 1
    assert "exited with code 3: restarting it (restart 1 of 3)" in done.err


@pytest.mark.parametrize("order", ["ends first", "ends later"])
def test_a_member_without_mpi_ends_the_job(runner, mpi, program, tmp_path, order):
    """As under mpirun: the member of the other role would wait for it in MPI_Init for ever."""
    flag = tmp_path / "flag"
    wait = f"while ! [ -e {flag} ]; do sleep 0.01; done"
    gone = f"while kill -0 $(cat {flag}) 2>/dev/null; do sleep 0.01; done"
    first = f"echo $$ >{flag}.new; mv {flag}.new {flag}"
    helper, within = (first, f"{wait}; {gone}") if order == "ends first" else (wait, first)
    script = f'[ "$RANK" = 1 ] && {{ {helper}; exit 0; }}; {within}; exec {program} hello'
    roles = ["--role", "chief=1", "--role", "worker=1"]
    done = runner.regroup(*roles, "sh", "-c", script, env=mpi.env)
    assert (done.status, done.out) == (1, "")
    assert "exited with code 0 before it called MPI_Init, but rank 0 waits for it" in done.err


def test_the_user_is_told_of_members_that_others_wait_for_in_mpi_init(runner, build, tmp_path):
    """Servers without MPI, which live as long as the job. They end here once the line is there."""

    def told(mpi) -> list[str]:
        err = tmp_path / mpi.name
        wait = f"while ! grep -q 'waits in MPI_Init' {err}; do sleep 0.05; done; exit 0"
        script = f'[ "$RANK" = 2 ] && exec {build(mpi)} hello; {wait}'
        roles = ["--oversubscribe", "--role", "server=2", "--role", "worker=1"]
        words = ["sh", "-c", f'exec "$0" "$@" 2>{err}', BIN / "regroup", *roles, "sh", "-c", script]
        done = runner.run(words, env=mpi.env)
        assert (done.status, done.out) == (1, "")
        return [line for line in err.read_text().splitlines() if "waits in MPI_Init" in line]

    with ThreadPoolExecutor() as pool:
        for lines in pool.map(told, (OPENMPI5, MPICH)):
            assert lines == [
                "regroup: rank 2 waits in MPI_Init for rank 0 and 1 more: "
                "all members of a job, of whatever role, call MPI_Init, or none does"
            ]


def test_a_member_that_fails_for_good_before_mpi_ends_the_job(runner, mpi, program, tmp_path):
    script = tmp_path / "script"
    script.write_text(f"""#!/bin/sh
if [ "$RANK" = 1 ]; then exit 3; fi
exec {program} hello
""")
    script.chmod(0o755)
    file = tmp_path / "job.yaml"
    file.write_text(f"""
jobName: j
retryCount: 0
taskRoles: [{{name: worker, taskNumber: 3, minFailedTaskCount: 2, command: {script}}}]
""")
    done = runner.regroup("--job", str(file), env=mpi.env)
    assert (done.status, done.out) == (1, "")
    assert "exited with code 3: continuing without it" in done.err
    assert "exited with code 3 before it called MPI_Init, but rank " in done.err


@pytest.mark.parametrize(("how", "status"), [("kill", 137), ("exit0", 1), ("abort", 5)])
def test_the_last_death_inside_mpi_ends_the_job(runner, mpi, program, how, status):
    done = runner.regroup("--max-restarts", "0", *ROLES, program, "end", how, env=mpi.env)
    assert done.status == status, done.err
    assert "rank 1 (worker 0)" in done.err and "ending the job" in done.err


def test_nobody_goes_on_without_a_member_that_died_inside_mpi(runner, build, tmp_path):
    program = build(OPENMPI5)
    file = tmp_path / "job.yaml"
    file.write_text(f"""
jobName: j
retryCount: 0
taskRoles: [{{name: worker, taskNumber: 3, minFailedTaskCount: -1, command: {program} end kill}}]
""")
    done = runner.regroup("--job", str(file), env=OPENMPI5.env)
    assert done.status == 137, done.err


def test_without_a_helper_members_start_all_the_same(runner):
    env = {"REGROUP_LIBPMIX": "libno-such-pmix.so"}
    done = runner.regroup(*ROLES, "sh", "-c", "echo $RANK", env=env)
    assert (done.status, done.lines) == (0, ["0", "1", "2"])
    assert "no PMIx server" in done.err
