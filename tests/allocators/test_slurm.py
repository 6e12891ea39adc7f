"""Jobs on a real Slurm of four nodes: rigid and elastic, a second job that joins and is
preempted."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from slurm import ROOT, Slurm, until
from story import Story, check_trained, digits_csv
from story import undisturbed as weights_alone

BIN = ROOT / "build/bin"
SAY = "sh -c 'echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $SLURMD_NODENAME'"
SHARDS, EPOCHS = 4, 16  # more than a slow Slurm takes; then members hurry


def said(slurm: Slurm, *options: str, script: str) -> str:
    """What such a job printed; it must have ended well."""
    job = slurm.submit(*options, script=f"export PATH={BIN}:$PATH\n{script}")
    assert slurm.wait(job) == "COMPLETED", slurm.out(job)
    return slurm.out(job)


def test_an_allocation_is_used_without_a_word(slurm: Slurm):
    text = said(slurm, "-N2", "--ntasks-per-node=2", script=f"regroup {SAY}\nsqueue -h -s")
    ranks = sorted(re.findall(r"rank (\d) of 4 on (n\d)", text))
    assert ranks == [("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2")], text
    assert re.search(r"^ *\d+\.\d+ ", text, re.M) is None, f"a step is left: {text}"


def test_ranks_on_all_hosts_see_the_variables_of_the_job(slurm: Slurm):
    """An MPI library may believe them over its process manager. Those of a host and of a rank are
    its own."""
    seen = (
        "$SLURM_JOB_ID $SLURM_NNODES $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE "
        "$SLURM_STEP_ID $SLURM_CPU_BIND"
    )
    text = said(
        slurm,
        "-N3",
        "--ntasks-per-node=1",
        script=f"regroup sh -c 'echo at $SLURMD_NODENAME $SLURM_NODEID $SLURM_PROCID: {seen}'",
    )
    ranks = dict(re.findall(r"^at (n\d \d \d): (.*)$", text, re.M))
    assert set(ranks) == {"n1 0 0", "n2 1 1", "n3 2 2"}, text
    assert len(set(ranks.values())) == 1, text
    assert " 3 n[1-3] 1(x3)" in ranks["n1 0 0"], text


def test_what_a_job_exports_does_not_bend_the_steps_of_agents(slurm: Slurm):
    bent = {
        "SLURM_CPU_BIND": "map_cpu:77",
        "SLURM_MEM_PER_CPU": "999999999",
        "SLURM_TRES_PER_TASK": "gres/none:9",
        "SLURM_NTASKS_PER_NODE": "5",
        "SLURM_DISTRIBUTION": "none-such",
        "SRUN_CPUS_PER_TASK": "1000",
        "SLURM_EXACT": "1",
    }
    exports = "; ".join(f"export {name}={value}" for name, value in bent.items())
    text = said(slurm, "-N2", "--ntasks-per-node=1", script=f"{exports}; regroup {SAY}")
    assert sorted(re.findall(r"rank (\d) of 2 on (n\d)", text)) == [("0", "n1"), ("1", "n2")]


def test_the_scripts_of_the_guide_are_accepted_and_the_first_runs(slurm: Slurm):
    text = (ROOT / "docs/guide/slurm.md").read_text()
    scripts = dict(
        re.findall(r'^```bash title="([^"]+)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    )
    assert set(scripts) == {"rigid.sbatch", "elastic.sbatch", "lend.sbatch", "limit.sbatch"}
    for name, script in scripts.items():
        (slurm.folder / name).write_text(script)
        slurm.command("sbatch", "--test-only", name)
    (slurm.folder / "train.py").write_text("import os; print('rank', os.environ['RANK'])\n")
    command = re.search(r"^regroup python .*$", scripts["rigid.sbatch"], re.MULTILINE)[0]
    options = re.findall(r"--(?:nodes|ntasks-per-node)=\d+", scripts["rigid.sbatch"])
    printed = said(slurm, *options, f"--chdir={slurm.folder}", script=command)
    assert sorted(re.findall(r"rank (\d)", printed)) == ["0", "1", "2", "3"], printed


def test_unequal_slots_are_filled_as_granted(slurm: Slurm):
    text = said(
        slurm, "-N3", "-n5", "--ntasks-per-node=2", script=f"regroup {SAY}; regroup allocation"
    )
    ranks = sorted(re.findall(r"rank (\d) of 5 on (n\d)", text))
    assert ranks == [("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2"), ("4", "n3")], text
    assert "3 hosts, 5 slots" in text
    assert "from SLURM_NTASKS=5" in text


def test_hosts_are_chosen_among_those_granted(slurm: Slurm):
    text = said(
        slurm, "-N2", "-n2", script=f"regroup -H n2 {SAY}\nregroup -H n4 true || echo refused $?"
    )
    assert "rank 0 of 1 on n2" in text
    assert re.search(r"host n4: not granted by Slurm job \d+", text), text
    assert "refused 1" in text


def test_more_members_than_granted_are_refused(slurm: Slurm):
    text = said(slurm, "-N2", "-n2", script="regroup -np 3 true || echo refused $?")
    assert "3 members requested, 2 slots available; --oversubscribe allows more" in text
    assert "refused 1" in text


def test_a_rank_that_fails_ends_the_job_with_its_status(slurm: Slurm):
    text = said(
        slurm,
        "-N2",
        "-n2",
        script="regroup sh -c 'exit $((OMPI_COMM_WORLD_RANK * 7))'; echo status $?",
    )
    assert "status 7" in text


def test_an_mpi_program_is_one_world_over_the_nodes(slurm: Slurm, tmp_path: Path):
    program = tmp_path / "mpi_program"
    compile_it = [
        "/usr/bin/mpicc.openmpi",
        "-O1",
        "-o",
        str(program),
        str(ROOT / "tests/pmi/mpi_program.c"),
    ]
    subprocess.run(compile_it, check=True, timeout=60, capture_output=True)
    # Nodes of one machine share /dev/shm, where Open MPI's segments are called by host and rank
    # there.
    text = said(
        slurm,
        "-N2",
        "-n4",
        "--ntasks-per-node=2",
        script="export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo\n"
        f"regroup {program} hello",
    )
    ranks = sorted(line for line in text.splitlines() if line.startswith("rank"))
    assert ranks == [f"rank {rank} of 4 app 0 universe 4 sum 4" for rank in range(4)], text


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return digits_csv(tmp_path)


def undisturbed(folder: Path) -> str:
    return weights_alone(BIN, folder, EPOCHS)


def trained(trail: Path, weights: str) -> None:
    check_trained(trail, weights, EPOCHS)


def training(trail: Path, digits: Path, pace_us: int) -> str:
    return (
        f"export PATH={BIN}:$PATH XDG_RUNTIME_DIR={trail.parent}\n"
        f"exec regroup --shards {SHARDS} --seed 7 -np 1:4 chaos_member {digits} {trail} {EPOCHS} "
        f"{pace_us}"
    )


def test_ranks_of_a_step_on_one_node_are_one_world_and_on_two_are_refused(slurm: Slurm):
    member = ROOT / "build/tests/bin/elastic_member"
    # the second in the batch script itself
    here = f"srun --mpi=none -N1 -n2 {member} 3 1; {member} 2 1"
    there = f"srun --mpi=none -N2 -n4 {member} 3 1; echo status $?"
    text = said(slurm, "-N2", "--ntasks-per-node=2", script=f"{here}\n{there}")
    assert "step 3 size 2" in text and "step 2 size 1" in text, text
    assert re.search(r"rank \d of 4 of srun \(SLURM_PROCID=\d, SLURM_STEP_NUM_TASKS=4", text), text
    assert "status 3" in text


def test_an_elastic_job_trains_on_all_nodes(slurm: Slurm, tmp_path: Path, digits: Path):
    trail = tmp_path / "trail"
    trail.mkdir()
    os.chmod(tmp_path, 0o700)
    job = slurm.submit("-N2", "-n4", "--ntasks-per-node=2", script=training(trail, digits, 1000))
    assert slurm.wait(job) == "COMPLETED", slurm.out(job)
    assert "generation 1: 4 members" in slurm.out(job)
    trained(trail, undisturbed(tmp_path))


def test_a_second_job_joins_and_is_preempted_without_a_lost_step(slurm: Slurm, tmp_path: Path):
    """The grace is what Slurm says of the partition: 10 s, less what it takes to hand over. The
    figures are for the bench: here the machine may be busy, and a pace of time is enough. Until the
    hurry that takes more than two minutes, so that a slow Slurm does not come after the end."""
    Story(slurm, tmp_path, BIN, epochs=2 * EPOCHS, pace="60000").run()


def test_a_preempted_job_is_requeued_and_goes_on_from_its_checkpoint(
    slurm: Slurm, tmp_path: Path, digits: Path
):
    trail, kept = tmp_path / "trail", tmp_path / "checkpoints"
    trail.mkdir()
    os.chmod(tmp_path, 0o700)
    weights = undisturbed(tmp_path)
    script = training(trail, digits, 150_000).replace(
        "-np 1:4", f"--checkpoint {kept} --checkpoint-interval 5 -np 1:4"
    )
    first = slurm.submit("-N1", "-n2", "-w", "n3", "--requeue", script=script)
    slurm.until_said(first, "checkpoint of step 5")
    third = slurm.submit("-N1", "-n8", "-p", "high", "-w", "n3", script="echo here")
    assert slurm.wait(third) == "COMPLETED", slurm.out(third)
    attempts = json.loads((kept / "ATTEMPTS").read_text())
    assert (attempts["preempted"], attempts["failed"], attempts["killed"]) == (1, 0, 0), slurm.out(
        first
    )
    # it would wait for two minutes
    command = ("scontrol", "update", f"JobId={first}", "StartTime=now")
    until(lambda: slurm.state(first) == "PENDING", "the requeued job")
    slurm.command(*command, check=False)
    slurm.until_said(first, "the job resumes after step")
    (tmp_path / "hurry").touch()
    assert slurm.wait(first) == "COMPLETED", slurm.out(first)
    trained(trail, weights)
    assert json.loads((kept / "ATTEMPTS").read_text())["attempts"] == 2


def test_a_job_that_joined_ends_with_the_job(slurm: Slurm, tmp_path: Path, digits: Path):
    trail = tmp_path / "trail"
    trail.mkdir()
    os.chmod(tmp_path, 0o700)
    first = slurm.submit("-N1", "-n2", "-w", "n1", script=training(trail, digits, 150_000))
    slurm.until_said(first, "generation 1: 2 members")
    join = f"export PATH={BIN}:$PATH XDG_RUNTIME_DIR={tmp_path}\nexec regroup join"
    second = slurm.submit("-N1", "-n2", "-w", "n2", script=join)
    slurm.until_said(first, ": 4 members")
    (tmp_path / "hurry").touch()
    assert slurm.wait(first) == "COMPLETED", slurm.out(first)
    assert slurm.wait(second) == "COMPLETED", slurm.out(second)
    assert "the job is over" in slurm.out(second)
    until(lambda: not slurm.command("squeue", "-h").stdout.strip(), "an empty queue")
    trained(trail, undisturbed(tmp_path))


def test_hosts_that_are_suspended_leave_and_come_again(slurm: Slurm, tmp_path: Path, digits: Path):
    """Slurm stops members by the same signal: who cannot leave any more is given up, and no step is
    lost."""
    trail = tmp_path / "trail"
    trail.mkdir()
    os.chmod(tmp_path, 0o700)
    weights = undisturbed(tmp_path)
    first = slurm.submit("-N1", "-n2", "-w", "n1", script=training(trail, digits, 150_000))
    slurm.until_said(first, "generation 1: 2 members")
    join = f"export PATH={BIN}:$PATH XDG_RUNTIME_DIR={tmp_path}\nexec regroup join"
    second = slurm.submit("-N1", "-n2", "-w", "n2", script=join)
    slurm.until_said(first, ": 4 members")
    slurm.command("scontrol", "suspend", str(second))
    slurm.until_said(first, "host n2 must be returned within 2 s (SIGTSTP)")
    gone = r"host n2: .* did not leave in time|host n2 was returned"
    until(lambda: re.search(gone, slurm.out(first)), "the end of n2's members")
    slurm.command("scontrol", "resume", str(second))
    slurm.until_said(second, "SIGCONT: offering the hosts again")
    until(lambda: slurm.out(first).count(": 4 members") == 2, "four members again")
    (tmp_path / "hurry").touch()
    assert slurm.wait(first) == "COMPLETED", slurm.out(first)
    assert slurm.wait(second) == "COMPLETED", slurm.out(second)
    trained(trail, weights)
