"""Exit statuses of `regroup -np N` are those of mpirun 5 and, with --compat=mpich, of hydra, which
run beside it."""

import os
import re
import subprocess

import pytest
from conftest import DEADLINE_S, KILLS_AT_ONCE, rival, stdin_for

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


def status_under(launcher: str, arguments: list[str], env: dict[str, str]) -> int:
    done = subprocess.run(
        [*rival(launcher), *arguments], **stdin_for(launcher),
        env=env | KILLS_AT_ONCE, capture_output=True, timeout=DEADLINE_S,
    )  # fmt: skip
    print(
        f"{launcher} {arguments} ends with {done.returncode}:",
        done.stdout.decode(),
        done.stderr.decode(),
    )
    return done.returncode


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_mpirun(regroup, name):
    command, status = PROGRAMS[name]
    assert regroup.run("--oversubscribe", "-np", "2", *command).wait() == status
    for mpirun in ("openmpi-4", "openmpi-5"):
        assert status_under(mpirun, ["-np", "2", *command], regroup.env) == status, mpirun


PE_AND_PACKAGE = ["--map-by", "core:PE=2", "--bind-to", "package", "true"]
REFUSED = {  # what is asked for; what regroup and mpirun 5 make of it; what regroup says
    "not-in-path": (["no-such-program"], 66, "program no-such-program was not found in PATH="),
    "no-such-file": (
        ["./none"],
        183,
        "program ./none cannot be started: No such file or directory",
    ),
    "not-executable": (["/etc/passwd"], 183, "/etc/passwd cannot be started: Permission denied"),
    "folder": (["--wdir", "/no/such", "pwd"], 181, "--wdir /no/such: No such file or directory"),
    "folder-is-a-file": (["--wdir", "/bin/true", "pwd"], 181, "--wdir /bin/true: Not a directory"),
    "timeout": (["--timeout", "1", "sleep", "60"], 241, "--timeout 1"),
    "pe-and-package": (PE_AND_PACKAGE, 213, "PE=2 binds each member to its cores"),
    "beyond-map": (
        ["--map-by", "core", "--bind-to", "package", "true"],
        77,
        "a core lies within a package",
    ),
    "too-many-cores": (["--map-by", "package:PE=1000", "true"], 213, "no package has 1000 cores"),
    "no-rank-file": (
        ["--rankfile", "/no/such", "true"],
        68,
        "open(/no/such): No such file or directory",
    ),
    "rank-file": (
        ["--rankfile", "/etc/passwd", "true"],
        68,
        "/etc/passwd, line 1: expected rank N=HOST slot=CPUS",
    ),
    "no-host-file": (
        ["--hostfile", "/no/such", "true"],
        250,
        "open(/no/such): No such file or directory",
    ),
    "two-host-files": (["--hostfile", "/no", "--hostfile", "/such", "true"], 250, "/no"),
    "two-values": (
        ["--mca", "btl", "self", "--mca", "btl", "tcp", "true"],
        251,
        "as self and as tcp",
    ),
    "dist": (["--map-by", "dist", "true"], 213, "--map-by dist: "),
    "no-number": (["true", ":", "true"], 251, "program true: -np is missing or 0"),
    "number-0": (["true", ":", "-np", "0", "true"], 251, "program true: -np is missing or 0"),
    "seq-of-none": (["--map-by", "seq", "true"], 213, "got 1 member and 0 hosts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_by_mpirun_5(regroup, name):
    """Open MPI 4 has other numbers."""
    arguments, status, message = REFUSED[name]
    job = regroup.run("-np", "1", *arguments)
    assert job.wait() == status
    assert message in job.err
    assert status_under("openmpi-5", ["-np", "1", *arguments], regroup.env) == status


def said_under(launcher: str, arguments: list[str], env: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [*rival(launcher), *arguments], **stdin_for(launcher),
        env=env, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize("theirs", ["openmpi-4", "openmpi-5", "hydra"])
@pytest.mark.parametrize(
    "words", [[], ["-np", "0"], ["-host", "localhost:3"], ["-np", "0", "-host", "localhost:3"]]
)
def test_members_where_no_number_is_given(regroup, theirs, words):
    ours = "regroup-mpich" if theirs == "hydra" else "regroup"
    assert said_under(ours, [*words, "echo", "up"], regroup.env) == said_under(
        theirs, [*words, "echo", "up"], regroup.env
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-np", "1", "-n", "2", "echo", "up"], ["up"] * 2),
        (["-np", "1", "-wdir", "/", "-wdir", "/tmp", "pwd"], ["/tmp"]),
    ],
)
def test_of_two_values_the_last_counts_as_under_mpirun_4(regroup, words, said):
    """Open MPI 5 takes the first, so it is told; hydra refuses."""
    job = regroup.run("--oversubscribe", *words)
    assert (job.wait(), job.out.split()) == (0, said)
    assert ": given twice; " in job.err and len(job.err.splitlines()) == 1
    assert said_under("openmpi-4", words, regroup.env) == said
    assert said_under("openmpi-5", words, regroup.env) != said
    refused = regroup.run("--compat=mpich", *words)
    assert refused.wait() == status_under("hydra", words, regroup.env) == 255
    assert "given twice" in refused.err


def test_the_same_value_twice_is_not_worth_a_line(regroup):
    words = ["-np", "1", "-np", "1", "--map-by", "core", "--map-by", "core", "--map-by", ":PE=1"]
    job = regroup.run(*words, "--mca", "btl", "self", "--mca", "btl", "self", "true")
    assert (job.wait(), job.err) == (0, "")


HYDRA_REFUSES = {
    "not-in-path": (["-n", "1", "no-such-program"], "was not found in PATH="),
    "not-executable": (["-n", "1", "/etc/passwd"], "Permission denied"),
    "folder": (["-n", "1", "-wdir", "/no/such", "pwd"], "/no/such: No such file or directory"),
    "option": (["-n", "1", "-bogus", "pwd"], "unknown option -bogus"),
    "value": (["-n", "1", "-bind-to", "bogus", "pwd"], "'bogus' is not a valid binding"),
    "host-file": (["-f", "/no/such", "-n", "1", "pwd"], "/no/such"),
    "no-program": ([], "no program was given"),
}


@pytest.mark.parametrize("name", HYDRA_REFUSES)
def test_refused_as_by_hydra(regroup, name):
    arguments, message = HYDRA_REFUSES[name]
    job = regroup.run("--compat=mpich", *arguments)
    assert job.wait() == 255
    assert message in job.err
    assert status_under("hydra", arguments, regroup.env) == 255


def test_timeout_as_of_hydra(regroup):
    env = {"MPIEXEC_TIMEOUT": "1"}
    assert regroup.run("--compat=mpich", "-n", "1", "sleep", "60", env=env).wait() == 255
    assert status_under("hydra", ["-n", "1", "sleep", "60"], {**regroup.env, **env}) == 255


def test_a_program_that_the_system_refuses(regroup, tmp_path):
    """It looks like a program until it is to be run."""
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    for dialect, launcher, status in (("openmpi", "openmpi-5", 213), ("mpich", "hydra", 255)):
        job = regroup.run(f"--compat={dialect}", "-n", "1", str(program))
        assert job.wait() == status
        assert f"{program}" in job.err
        assert status_under(launcher, ["-n", "1", str(program)], regroup.env) == status


def test_names_rank_pid_and_signal(regroup):
    job = regroup.run("--oversubscribe", "-np", "2", *PROGRAMS["killed"][0])
    assert "rank 1 (pid " in job.err
    assert "was killed by signal 9 (SIGKILL)" in job.err
    assert "rank 0" not in job.err  # it was ended, that is no news


def test_names_the_command_that_failed(regroup):
    job = regroup.run("-np", "1", "python3", "/nonexistent/train.py")
    assert job.wait() == 2
    told = (
        r"regroup: rank 0 \(pid \d+\) exited with code 2; it ran python3 /nonexistent/train.py\n$"
    )
    assert re.search(told, job.err), job.err
    job = regroup.run("-np", "1", "sh", "-c", "exit 3 # it's", "", "a=b/c:1")
    assert job.err.endswith("it ran sh -c 'exit 3 # it'\\''s' '' a=b/c:1\n")
    long = "x" * 300
    job = regroup.run("-np", "1", "sh", "-c", f"exit 3\n{long}")
    assert job.err.endswith("it ran sh -c 'exit 3 ...\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-np", "0:1", "true"], "option -np '0:1': expected MIN:MAX, two whole numbers >= 1"),
        (["-np", "-1", "true"], "option -np -1: expected a whole number >= 1"),
        (["-np", "3:2", "true"], "expected MIN <= MAX"),
        (
            ["-np", "2:4", "--oversubscribe", "--initial-size", "5", "true"],
            "--initial-size 5: expected a number in the range 2:4",
        ),
        (
            ["-np", "1:2", "--shards", "0", "true"],
            "option --shards 0: expected a whole number >= 1",
        ),
        (
            ["-np", "1:2", "--shards", "-1", "true"],
            "option --shards -1: expected a whole number >= 1",
        ),
        (
            ["-np", "1:2", "--shards", "four", "true"],
            "option --shards four: expected a whole number",
        ),
        (["-np", "1000", "true"], "1000 members requested, "),
        (
            ["--overubscribe", "true"],
            "unknown option --overubscribe; did you mean --oversubscribe?",
        ),
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
    wanted = (
        f"{slots + 1} members requested, {slots} slots (cores) available; --oversubscribe allows "
        f"more"
    )
    assert wanted in job.err
    for mpirun in ("openmpi-4", "openmpi-5"):
        words = [
            *(word for word in rival(mpirun) if word != "--oversubscribe"),
            "-np",
            str(slots + 1),
            "true",
        ]
        theirs = subprocess.run(words, env=regroup.env, capture_output=True, timeout=DEADLINE_S)
        assert theirs.returncode == 1, mpirun
    assert regroup.run("-np", str(slots + 1), "--oversubscribe", "true").wait() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-np", "2", "-H", "localhost:1", "--map-by", "ppr:1:core"],
            "2 members requested, 1 slot available",
        ),
        (
            ["-np", "2", "-H", "localhost:4", "-N", "1"],
            "2 members with 1 on each host need 2 hosts",
        ),
        (["-np", "3", "-H", "localhost:2", "--npersocket", "3"], "3 members requested, 2 slots"),
    ],
)
def test_more_members_than_objects_hold(regroup, words, message):
    job = regroup.run(*words, "true")
    assert (job.wait(), message in job.err) == (213, True), job.err
    mpirun = [word for word in rival("openmpi-5") if word != "--oversubscribe"]
    theirs = subprocess.run(
        [*mpirun, *words, "true"], env=regroup.env, capture_output=True, timeout=DEADLINE_S
    )
    assert theirs.returncode == 213


@pytest.mark.parametrize("launcher", ["openmpi-4", "openmpi-5"])
def test_wdir(regroup, tmp_path, launcher):
    words = [
        "-np",
        "1",
        "-wdir",
        str(tmp_path),
        "sh",
        "-c",
        "pwd; printenv PWD OMPI_MCA_initial_wdir",
    ]
    assert regroup.run(*words).out.split() == [str(tmp_path)] * 3
    assert said_under(launcher, words, regroup.env) == [str(tmp_path)] * 3


def test_help_and_version(regroup):
    assert "--oversubscribe" in regroup.run("--help").out
    assert regroup.run("-V").out.startswith("regroup ")
