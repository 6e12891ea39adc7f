"""Jobs on a real Grid Engine 8.1.9: its host file, agents by qrsh -inherit, its notice before the
end."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from grid_engine import GridEngine, missing
from slurm import until
from story import check_trained, digits_csv, undisturbed
from test_scripts import python, ranks, scripts

BIN = Path(__file__).resolve().parents[2] / "build/bin"
EPOCHS = 16  # more than a slow Grid Engine takes; then members hurry
SAY = "sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridEngine]:
    if why := missing():
        pytest.fail(why, pytrace=False)
    with GridEngine(tmp_path_factory.mktemp("gridengine")) as running:
        yield running


def run(engine: GridEngine, *options: str, script: str) -> str:
    return engine.wait(engine.submit(*options, script=f"export PATH={BIN}:$PATH\n{script}"))


def test_a_parallel_environment_is_used_without_a_word(engine: GridEngine):
    text = run(
        engine,
        "-pe",
        "rg",
        "3",
        script=f"regroup {SAY}; regroup allocation; regroup -np 4 true; echo $?",
    )
    assert sorted(re.findall(r"rank (\d) of 3", text)) == ["0", "1", "2"], text
    assert re.search(r"Grid Engine job \d+: 1 host, 3 slots", text), text
    assert "from PE_HOSTFILE=" in text
    assert "4 members requested, 3 slots available; --oversubscribe allows more" in text


def test_the_script_of_the_documentation_runs(engine: GridEngine, tmp_path: Path):
    """Its parallel environment is called otherwise here, and has eight slots."""
    programs = python(tmp_path)
    (script,) = scripts("Grid Engine")
    (asked,) = re.findall(r"^#\$ -pe mpi 32 -cwd$", script, re.M)
    script = script.replace(asked, f"#$ -pe rg 4 -cwd\nexport PATH={programs}:{BIN}:$PATH")
    assert ranks(text := engine.wait(engine.submit(script=script)), 4), text


def test_agents_come_by_qrsh(engine: GridEngine):
    # localhost is an alias of this host for Grid Engine, and another host for us.
    two = "sed 's/ 4 / 2 /; p; s/^[^ ]*/localhost/' $PE_HOSTFILE > hosts"
    two += "; export PE_HOSTFILE=$PWD/hosts NHOSTS=2"
    text = run(engine, "-pe", "rg", "4", script=f"{two}; regroup --verbose {SAY}; echo status $?")
    assert sorted(re.findall(r"rank (\d) of 4", text)) == ["0", "1", "2", "3"], text
    assert "status 0" in text


def test_ranks_see_the_variables_of_the_job_and_not_those_of_qrshs_task(engine: GridEngine):
    """With SGE_DEBUG_LEVEL qrsh would write on the standard output of an agent."""
    two = "sed 's/ 4 / 2 /; p; s/^[^ ]*/localhost/' $PE_HOSTFILE > hosts"
    two += "; export PE_HOSTFILE=$PWD/hosts NHOSTS=2 SGE_DEBUG_LEVEL='2 0 0 0 0 0 0 0'"
    seen = "$PE_HOSTFILE $NHOSTS $JOB_ID $JOB_NAME ${QRSH_PORT-none} $SGE_DEBUG_LEVEL"
    script = f"{two}; regroup sh -c 'echo rank $OMPI_COMM_WORLD_RANK: {seen}'; echo name $JOB_NAME"
    text = run(engine, "-pe", "rg", "4", script=script)
    ranks = dict(re.findall(r"^rank (\d): (.*)$", text, re.M))
    assert sorted(ranks) == ["0", "1", "2", "3"], text
    name = re.search(r"^name (.*)$", text, re.M)[1]
    assert len(set(ranks.values())) == 1, text
    assert ranks["3"].endswith(f" {name} none 2 0 0 0 0 0 0 0"), text


@pytest.mark.parametrize("members", ["2", "1:2"])
def test_the_notice_before_the_end_ends_the_job_well(engine: GridEngine, members: str):
    script = (
        f"export PATH={BIN}:$PATH; trap '' USR2\n"
        f"regroup -np {members} sh -c "
        "'trap \"echo told; exit 0\" TERM; echo up; while sleep 0.1; do :; done'\n"
        "echo status $?"
    )
    job = engine.submit("-pe", "rg", "2", "-notify", script=script)
    engine.until_said(job, r"^up$", 2)
    engine.command("qdel", str(job))
    text = engine.wait(job)
    assert text.count("told") == 2, text
    assert "status 1" in text, text


def test_a_job_is_queued_again_by_its_exit_status(engine: GridEngine):
    """99 is Grid Engine's "again"; the second time the job ends well."""
    script = (
        f"export PATH={BIN}:$PATH; trap '' USR2; echo restarted $RESTARTED\n"
        "regroup --notice-status 99 -np 1 sh -c "
        '\'trap "exit 0" TERM; echo ready; test $RESTARTED = 1 && exit 0; while sleep 0.1; do :; '
        "done'\n"
        "exit $?"
    )
    job = engine.submit("-pe", "rg", "1", "-notify", "-r", "y", script=script)
    engine.until_said(job, r"^ready$", 1)
    members = engine.command(
        "pgrep", "-f", "regroup --notice-status 99 -np 1", check=False
    ).stdout.split()
    engine.command("kill", "-USR2", *members, check=False)
    text = engine.wait(job)
    assert "restarted 0" in text, text
    assert "restarted 1" in text, text


def started_by(job: int) -> list[str]:
    """Words of the agents in whose environment Grid Engine has put that job."""
    out = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
            ours = f"\0JOB_ID={job}\0" in "\0" + (process / "environ").read_text()
        except OSError:
            continue
        if ours and "--node-agent" in words:
            out.append(" ".join(words))
    return out


def test_a_second_job_joins_and_loses_no_step_when_it_is_deleted(
    engine: GridEngine, tmp_path: Path
):
    """Its host is this one by its other name, another one for us; its agent comes by its own
    qrsh."""
    tmp_path.chmod(0o700)
    trail = tmp_path / "trail"
    trail.mkdir()
    digits = digits_csv(tmp_path)
    weights = undisturbed(BIN, tmp_path, EPOCHS)
    setting = f"export PATH={BIN}:$PATH XDG_RUNTIME_DIR={tmp_path}\n"
    train = (
        f"exec regroup --shards 4 --seed 7 -np 1:4 chaos_member {digits} {trail} {EPOCHS} 200000"
    )
    first = engine.submit("-pe", "rg", "2", script=setting + train)
    engine.until_said(first, r"generation 1: 2 members", 1)
    other = "sed 's/^[^ ]*/localhost/' $PE_HOSTFILE > hosts; export PE_HOSTFILE=$PWD/hosts\n"
    second = engine.submit(
        "-pe",
        "rg",
        "2",
        "-notify",
        script=f"{setting}trap '' USR2\n{other}regroup join; echo status $?",
    )
    engine.until_said(first, r": 4 members", 1)
    until(lambda: started_by(second), "an agent of the second job")
    engine.command("qdel", str(second))
    engine.until_said(first, r"host localhost was returned", 1)
    assert "the hosts are free" in engine.wait(second)
    (tmp_path / "hurry").touch()
    text = engine.wait(first, 180)
    assert "was lost" not in text, text
    check_trained(trail, weights, EPOCHS)
