"""Programs that join under launchers of N ranks: one World of N, with the weights of an elastic
job, whoever started the ranks; and what becomes of it when not all of them join or go on."""

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn
from conftest import BIN, KILLS_AT_ONCE, rival, stdin_for

DIGITS = str(BIN / "digits")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
ALL = ["regroup", "openmpi-4", "openmpi-5", "hydra", "torchrun"]


def ranks(launcher: str, count: int, *command: str) -> list[str]:
    if launcher == "torchrun":
        return [*TORCHRUN, "--nproc-per-node", str(count), *command]
    return [*rival(launcher), "-np", str(count), *command]


def run(
    launcher: str, regroup, count: int, *command: str, **env: str
) -> subprocess.CompletedProcess:
    return subprocess.run(
        ranks(launcher, count, *command),
        env={**regroup.env, **KILLS_AT_ONCE, **env},
        capture_output=True,
        text=True,
        timeout=120,
        **stdin_for(launcher),
    )


@pytest.fixture(scope="module")
def digits_csv(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("digits") / "digits.csv"
    packed = Path(sklearn.__file__).parent / "datasets/data/digits.csv.gz"
    with gzip.open(packed) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    return str(path)


def test_weights_are_those_of_an_elastic_job(regroup, digits_csv, tmp_path):
    elastic = regroup.run(
        "--oversubscribe", "-np", "2:2", DIGITS, digits_csv, str(tmp_path / "elastic")
    )
    assert elastic.wait() == 0, elastic.err
    fixed = regroup.run("--oversubscribe", "-np", "2", DIGITS, digits_csv, str(tmp_path / "fixed"))
    assert fixed.wait() == 0, fixed.err
    assert (tmp_path / "fixed").read_bytes() == (tmp_path / "elastic").read_bytes()


@pytest.mark.parametrize("launcher", ALL)
def test_ranks_are_one_world(launcher, regroup, member):
    done = run(launcher, regroup, 3, member, "4", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 4 size 3") == 1  # rank 0 says it
    assert done.stdout.count("finished") == 3


def test_ranks_of_horovodrun_are_one_world(regroup, member):
    """By its variables; it is not installed here."""
    rank = f"HOROVOD_RANK=$r HOROVOD_SIZE=2 HOROVOD_LOCAL_SIZE=2 {member} 4 1"
    done = subprocess.run(
        ["sh", "-c", f"for r in 0 1; do {rank} & done; wait"],
        env=regroup.env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.count("step 4 size 2") == 1 and done.stdout.count("finished") == 2, (
        done.stderr
    )


def test_ranks_whose_number_nobody_says_are_refused(regroup, member):
    """prterun tells its processes their rank, and not how many there are."""
    prterun = [str(Path(rival("openmpi-5")[0]).with_name("prterun")), *rival("openmpi-5")[1:]]
    done = subprocess.run(
        [*prterun, "-n", "2", member, "100000", "1"],
        env=regroup.env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "PMIX_RANK=1 marks this process as one of several ranks" in done.stderr, done.stderr


@pytest.mark.parametrize("launcher", ["regroup", "openmpi-5"])
def test_one_rank_is_a_world_of_one(launcher, regroup, member):
    done = run(launcher, regroup, 1, member, "2", "1")
    assert done.returncode == 0 and "step 2 size 1" in done.stdout, done.stderr


@pytest.mark.parametrize("launcher", ["openmpi-4", "hydra"])
def test_two_jobs_at_once_are_two_worlds(launcher, regroup, member):
    started = [
        subprocess.Popen(
            ranks(launcher, 2, member, "8", "5"),
            env=regroup.env,
            stdout=subprocess.PIPE,
            text=True,
            **stdin_for(launcher),
        )
        for _ in range(2)
    ]
    for job in started:
        assert job.communicate(timeout=60)[0].count("finished") == 2 and job.returncode == 0


# rank, whatever the launcher calls it
RANK = "r=${OMPI_COMM_WORLD_RANK:-${RANK:-$PMI_RANK}}; "


# importing torch is slow
@pytest.mark.parametrize("launcher", [name for name in ALL if name != "torchrun"])
def test_a_rank_that_dies_ends_all(launcher, regroup, member):
    """The others hear of it in their next call, whether their launcher ends them or not."""
    script = RANK + f"[ $r = 1 ] && exec {member} 100000 1 '' sum 3; exec {member} 100000 1"
    done = run(launcher, regroup, 3, "sh", "-c", script)
    assert done.returncode != 0
    assert "finished" not in done.stdout
    print(done.stderr)


@pytest.mark.parametrize("launcher", ["regroup", "openmpi-4"])
def test_ranks_that_differ_are_refused_by_name(launcher, regroup, member):
    script = RANK + f"exec {member} 4 1 '' model$r"
    done = run(launcher, regroup, 2, "sh", "-c", script)
    assert done.returncode != 0
    assert re.search("(?:rank|member) [01] is refused: its model is 'model[01]", done.stderr), (
        done.stderr
    )
    assert "finished" not in done.stdout


def test_a_rank_that_comes_when_the_world_has_failed_is_told(regroup, member, tmp_path):
    """hydra lets the other ranks go on when one ends with a status of its own."""
    ends = f"{member} 4 1 '' model$r; s=$?; : > {tmp_path}/$r; exit $s"
    waits = (
        f"until [ -e {tmp_path}/0 ] && [ -e {tmp_path}/1 ]; do sleep 0.02; done; exec {member} 4 1"
    )
    done = run("hydra", regroup, 3, "sh", "-c", f"{RANK} [ $r != 2 ] || {{ {waits}; }}; {ends}")
    assert done.returncode != 0
    assert "ranks 0, 1 have ended, and 1 of 3 ranks waits in join() for them" in done.stderr, (
        done.stderr
    )


def test_jobs_inside_a_rank_are_their_own(regroup, member):
    """hydra within a rank of regroup, elastic or not; and regroup within one of mpirun."""
    hydra = " ".join(ranks("hydra", 2, member, "3", "1"))
    for outer in (["-np", "1"], ["-np", "1:1"]):
        job = regroup.run("--oversubscribe", *outer, "sh", "-c", hydra)
        assert job.wait() == 0 and job.out.count("finished") == 2, job.err
        assert "step 3 size 2" in job.out
    ours = " ".join(ranks("regroup", 2, member, "3", "1"))
    done = run("openmpi-4", regroup, 2, "sh", "-c", ours)
    assert done.stdout.count("finished") == 4 and done.stdout.count("step 3 size 2") == 2, (
        done.stderr
    )


def test_programs_of_one_launch_are_one_world(regroup, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(
            NESTED + f"print('{name} of', session.size)\nsession.finish()"
        )
    words = [[sys.executable, str(tmp_path / f"{name}.py")] for name in ("a", "b")]
    job = regroup.run("--oversubscribe", "-np", "1", *words[0], ":", "-np", "1", *words[1])
    assert job.wait() == 0, job.err
    assert sorted(job.out.splitlines()) == ["a of 2", "b of 2"]


def test_ranks_that_torchrun_starts_again_are_a_world_again(regroup, member):
    first = "[ $TORCHELASTIC_RESTART_COUNT = 0 ]"
    script = (
        f"if {first}; then [ $RANK != 1 ] || exec {member} 100000 1 '' sum 3; exec {member} 100000 "
        f"1; fi; "
    )
    words = ["--max-restarts", "1", "sh", "-c", f"{script} exec {member} 4 1"]
    done = run("torchrun", regroup, 2, *words)
    assert done.returncode == 0, done.stderr
    assert "step 4 size 2" in done.stdout and done.stdout.count("finished") == 2


def test_ranks_on_several_hosts_are_refused_with_the_variables(regroup, member):
    env = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    done = subprocess.run(
        [member, "2", "1"], env={**regroup.env, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert "rank 1 of 4 of mpirun (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4" in done.stderr
    assert "regroup -np 4" in done.stderr


def test_leftovers_of_an_allocation_make_no_world(regroup, member):
    """A shell of salloc: SLURM_NTASKS without a step."""
    env = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_PROCID": "0"}
    done = subprocess.run(
        [member, "2", "1"], env={**regroup.env, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "step 2 size 1" in done.stdout, done.stderr


def test_members_of_a_role_are_its_world(regroup, member, tmp_path):
    script = ["sh", "-c", f"exec {member} 3 1 > {tmp_path}/$REGROUP_ROLE.$REGROUP_ROLE_RANK"]
    job = regroup.run("--role", "chief=1", *script, ":", "--role", "worker=2", *script)
    assert job.wait() == 0, job.err
    said = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "step 3 size 1" in said["chief.0"] and "step 3 size 2" in said["worker.0"]
    assert said["worker.1"].startswith("finished")


def test_seed_and_shards_are_those_of_the_command_line(regroup, digits_csv, tmp_path):
    def weights(name: str, *words: str) -> bytes:
        job = regroup.run(
            "--oversubscribe", "--shards", "3", "--seed", "9", *words, DIGITS, digits_csv, name
        )
        assert job.wait() == 0, job.err
        assert "ignored" not in job.err
        return Path(name).read_bytes()

    alone = weights(str(tmp_path / "elastic"), "-np", "1:1")
    assert weights(str(tmp_path / "fixed"), "-np", "2") == alone


def start_kept(regroup, member, directory: Path, *words: str):
    keep = ["--checkpoint", str(directory), "--checkpoint-interval", "5"]
    return regroup.start("--oversubscribe", "-np", "2", *keep, *words, member, "60", "100")


def test_a_lost_job_goes_on_from_its_checkpoint(regroup, member, tmp_path):
    job = start_kept(regroup, member, tmp_path)
    job.wait_err(r"checkpoint of step \d+: in")
    os.kill(job.the("elastic_member"), signal.SIGKILL)
    assert job.wait() == 137, job.err
    assert "rank 0" in job.err
    again = start_kept(regroup, member, tmp_path)
    again.wait_err("the job resumes after step")
    again.hurry()
    assert again.wait() == 0, again.err
    assert again.out.count("finished 120.0") == 2


def test_a_notice_saves_what_there_is(regroup, member, tmp_path):
    job = start_kept(regroup, member, tmp_path, "--checkpoint-interval", "1000")
    job.wait_out("step 10 size 2")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() != 0
    assert re.search(r"checkpoint of step \d+: in", job.err), job.err
    again = start_kept(regroup, member, tmp_path)
    again.wait_err("the job resumes after step")
    again.hurry()
    assert again.wait() == 0, again.err


@pytest.mark.parametrize(
    "script", ["[ $RANK = 1 ] && exit 0", "[ $RANK = 1 ] && sleep 0.5 && exit 0"]
)
def test_a_rank_that_ends_without_joining_is_named(regroup, member, script, tmp_path):
    words = ["--oversubscribe", "-np", "3", "--checkpoint", str(tmp_path)]
    job = regroup.run(*words, "sh", "-c", f"{script}; exec {member} 5 1")
    assert job.wait() == 1
    assert re.search(
        r"rank 1 \(pid \d+\) exited with code 0 without calling join\(\), for which \d of 3",
        job.err,
    )


@pytest.mark.parametrize("last", ["exit", "wait"])
def test_a_rank_that_ends_is_named_to_ranks_that_serve_themselves(regroup, member, last, tmp_path):
    """Before the others come, and while they wait."""
    ended, waits = tmp_path / "ended", tmp_path / "waits"
    until = "until [ -e {} ]; do sleep 0.02; done"
    if last == "exit":  # the arena of the World is mapped once rank 0 has joined
        joined = "grep -qs regroup-arena /proc/$(cat {0})/maps"
        one = f"until [ -e {waits} ] && {joined.format(waits)}; do sleep 0.02; done; exit 0"
        zero = f"echo $$ > {waits}.new; mv {waits}.new {waits}; exec {member} 5 1"
    else:  # the launcher has told of it
        one = f": > {ended}; exit 0"
        zero = f"{until.format(ended)}; {until.format('$REGROUP_RANK_EXITS')}; exec {member} 5 1"
    job = regroup.run(
        "--oversubscribe", "-np", "2", "sh", "-c", f"[ $RANK = 0 ] || {{ {one}; }}; {zero}"
    )
    assert job.wait() == 3, job.err
    told = (
        r"rank 1 \(process \d+\) ended with status 0 without calling join\(\), while 1 of 2 ranks "
        r"wait"
    )
    assert re.search(told, job.err), job.err


def test_ranks_that_do_not_join_in_time_are_named(regroup, member):
    words = ["--oversubscribe", "-np", "3", "--ready-timeout", "1"]
    job = regroup.run(*words, "sh", "-c", f"[ $RANK != 1 ] && exec sleep 60; exec {member} 5 1")
    assert job.wait() == 1
    assert "1 of 3 ranks have called join(), and within 1 s ranks 0, 2 did not" in job.err


def test_what_a_rank_starts_after_it_has_joined_is_alone(regroup, member, tmp_path):
    """With the rank's variables, which it inherits; whoever serves the World."""
    inner = f"import subprocess; print(subprocess.check_output(['{member}', '2', '1'], text=True))"
    for words in ([], ["--checkpoint", str(tmp_path)]):
        job = regroup.run(
            "--oversubscribe",
            "-np",
            "2",
            *words,
            sys.executable,
            "-c",
            NESTED + inner + "\nsession.finish()",
        )
        assert job.wait() == 0, job.err
        assert job.out.count("step 2 size 1") == 2


NESTED = """
import numpy, regroup
weights = numpy.zeros(8, numpy.float32)
session = regroup.Session(regroup.TrackedState(weights=weights), elements=8)
assert session.size == 2
"""


AGAIN = """
import numpy, regroup
def join():
    return regroup.Session(regroup.TrackedState(weights=numpy.zeros(8, numpy.float32)), elements=8)
first = join()
try:
    join()
except regroup.Refused as refused:
    print(f"refused: {refused}\\n", end="")  # one write: mpirun mixes two
first.finish()
second = join()
print(f"second of {second.size}\\n", end="")
second.finish()
"""


def test_a_rank_is_in_one_world_at_a_time(regroup):
    """After finish() it may join again, and meets the others' second join()."""
    done = run("openmpi-4", regroup, 2, sys.executable, "-c", AGAIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused: join: this process is already in a World") == 2
    assert done.stdout.count("second of 2") == 2


def test_a_job_with_checkpoints_forms_one_world(regroup, tmp_path):
    words = ["--oversubscribe", "-np", "2", "--checkpoint", str(tmp_path)]
    job = regroup.run(*words, sys.executable, "-c", AGAIN)
    assert job.wait() == 1
    assert re.search(
        "rank [01] has already finished its session. A job on several hosts", job.err
    ), job.err


@pytest.mark.parametrize("launcher", ["regroup", "hydra"])
def test_ranks_can_be_kept_apart(launcher, regroup, member):
    done = run(launcher, regroup, 2, member, "2", "1", REGROUP_WORLD="alone")
    assert done.returncode == 0 and done.stdout.count("step 2 size 1") == 2, done.stderr


def test_ranks_that_are_kept_apart_say_that_they_make_no_checkpoint(regroup, member, tmp_path):
    words = [
        "-x",
        "REGROUP_WORLD=alone",
        "--checkpoint",
        str(tmp_path),
        "--checkpoint-interval",
        "1",
    ]
    job = regroup.run("--oversubscribe", "-np", "2", *words, member, "2", "1")
    assert job.wait() == 0, job.err
    assert job.err.count("regroup: REGROUP_WORLD=alone: --checkpoint is ignored") == 1, job.err
