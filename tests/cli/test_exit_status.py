"""Exit statuses of `regroup -np N` are those of mpirun, which runs beside it where it is installed."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import DEADLINE_S, ROOT

MPIRUNS = [str(p) for p in (Path("/usr/bin/mpirun"), ROOT / ".venv/bin/mpirun") if p.exists()]
ON_RANK_1 = 'r=${OMPI_COMM_WORLD_RANK:-$RANK}; if [ "$r" = 1 ]; then %s; fi; '
PROGRAMS = {
    "success": (["true"], 0),
    "code": (["sh", "-c", ON_RANK_1 % "exit 7"], 7),
    "code-of-one-ends-the-others": (["sh", "-c", ON_RANK_1 % "exit 3" + "exec sleep 60"], 3),
    "code-above-255": (["sh", "-c", ON_RANK_1 % "exit 300"], 44),
    "killed": (["sh", "-c", ON_RANK_1 % "kill -9 $$" + "exec sleep 60"], 137),
    "segv": (["sh", "-c", ON_RANK_1 % "kill -SEGV $$" + "exec sleep 60"], 139),
    "term": (["sh", "-c", ON_RANK_1 % "kill -TERM $$" + "exec sleep 60"], 143),
}


def mpirun_status(mpirun: str, command: list[str], env: dict[str, str]) -> int:
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [mpirun, *root, "--oversubscribe", "-np", "2", *command],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S,
    )  # fmt: skip
    return done.returncode


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_mpirun(regroup, name):
    command, status = PROGRAMS[name]
    assert regroup.run("--oversubscribe", "-np", "2", *command).wait() == status
    for mpirun in MPIRUNS:
        assert mpirun_status(mpirun, command, regroup.env) == status, mpirun


def test_no_such_program(regroup):
    for program, status, message in (
        ("no-such-program", 66, f"was not found in PATH={regroup.env['PATH']}"),
        ("./no-such-program", 183, "cannot be started: No such file or directory"),
        ("/etc/passwd", 183, "cannot be started: Permission denied"),
    ):
        job = regroup.run("-np", "1", program)
        assert job.wait() == status
        assert f"program {program} {message}" in job.err
        for mpirun in MPIRUNS:
            if ".venv" in mpirun:  # Open MPI 4 has other numbers
                assert mpirun_status(mpirun, [program], regroup.env) == status


def test_timeout(regroup):
    job = regroup.run("-np", "1", "--timeout", "0.3", "sleep", "60")
    assert job.wait() == 241
    assert "--timeout 0.3" in job.err


def test_names_rank_pid_and_signal(regroup):
    job = regroup.run("--oversubscribe", "-np", "2", *PROGRAMS["killed"][0])
    assert "rank 1 (pid " in job.err
    assert "was killed by signal 9 (SIGKILL)" in job.err
    assert "rank 0" not in job.err  # it was ended, that is no news


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-np", "0", "true"], "option -np 0: it must be positive"),
        (["-np", "-1", "true"], "option -np -1: it must be positive"),
        (["-np", "3:2", "true"], "MIN must not be greater than MAX"),
        (
            ["-np", "2:4", "--oversubscribe", "--start", "5", "true"],
            "--start 5: it must lie in the range 2:4",
        ),
        (["-np", "1:2", "--shards", "0", "true"], "option --shards 0: it must be positive"),
        (["-np", "1000", "true"], "1000 members asked for, "),
        (["--overubscribe", "true"], "unknown option --overubscribe; did you mean --oversubscribe?"),
        (["-np", "1"], "no program was given"),
    ],
)
def test_bad_input(regroup, args, message):
    job = regroup.run(*args)
    assert job.wait() == 1
    assert message in job.err


def test_more_members_than_slots(regroup):
    slots = len(os.sched_getaffinity(0))
    job = regroup.run("-np", str(slots + 1), "true")
    assert job.wait() == 1
    wanted = f"{slots + 1} members asked for, {slots} slots (cores) there; --oversubscribe allows more"
    assert wanted in job.err
    assert regroup.run("-np", str(slots + 1), "--oversubscribe", "true").wait() == 0


def test_wdir(regroup, tmp_path):
    job = regroup.run("-np", "1", "-wdir", str(tmp_path), "pwd")
    assert job.out == f"{tmp_path}\n"
    job = regroup.run("-np", "1", "--wdir", "/no/such/folder", "pwd")
    assert job.wait() == 181
    assert "--wdir /no/such/folder: No such file or directory" in job.err


def test_help_and_version(regroup):
    assert "--oversubscribe" in regroup.run("--help").out
    assert regroup.run("-V").out.startswith("regroup ")
