"""`regroup resize` on a real Slurm: hosts go back to it, and further ones are asked for."""

from pathlib import Path

import pytest
from resizing import resize
from slurm import ROOT, Slurm, until
from story import check_trained, digits_csv, undisturbed

BIN = ROOT / "build/bin"
SHARDS, EPOCHS = 4, 16
PACE_US = 250_000  # of a shard, until all has been seen that was to be


class Training:
    """An elastic job of one to four members, and what it is to end with."""

    def __init__(self, slurm: Slurm, folder: Path):
        self.slurm, self.folder, self.trail = slurm, folder, folder / "trail"
        self.trail.mkdir()
        folder.chmod(0o700)
        digits_csv(folder)
        self.weights = undisturbed(BIN, folder, EPOCHS)
        self.job = 0

    def submit(self, *options: str) -> int:
        member = f"chaos_member {self.folder}/digits.csv {self.trail} {EPOCHS} {PACE_US}"
        script = (
            f"export PATH={BIN}:$PATH XDG_RUNTIME_DIR={self.folder}\n"
            f"exec regroup --shards {SHARDS} --seed 7 -np 1:4 {member}"
        )
        self.job = self.slurm.submit(*options, script=script)
        return self.job

    def resize(self, members: int) -> str:
        return resize(BIN / "regroup", members, self.folder, self.slurm.environment).stdout

    def until_trained(self) -> None:
        (self.folder / "hurry").touch()
        assert self.slurm.wait(self.job) == "COMPLETED", self.slurm.out(self.job)
        assert "was lost" not in self.slurm.out(self.job)
        check_trained(self.trail, self.weights, EPOCHS)


@pytest.fixture
def training(slurm: Slurm, tmp_path: Path) -> Training:
    return Training(slurm, tmp_path)


def joiners(slurm: Slurm) -> list[int]:
    """Jobs that `regroup resize` has submitted, and that are not over."""
    done = slurm.command("squeue", "-h", "-n", "regroup-join", "-o", "%i")
    return [int(job) for job in done.stdout.split()]


def test_a_host_that_is_not_needed_any_more_is_given_to_another_job(
    slurm: Slurm, training: Training
):
    job = training.submit("-N2", "-n4", "--ntasks-per-node=2", "-w", "n1,n2")
    slurm.until_said(job, "generation 1: 4 members")
    training.resize(2)
    slurm.until_said(job, "host n2 is no longer needed")
    slurm.until_said(job, "Slurm: host n2 returned")
    shown = slurm.show(job)
    assert (shown["NodeList"], shown["NumNodes"]) == ("n1", "1"), shown
    other = slurm.submit("-N1", "-n8", "-w", "n2", script="hostname")
    assert slurm.wait(other) == "COMPLETED", slurm.out(other)
    assert slurm.state(job) == "RUNNING", slurm.out(job)
    assert not list(slurm.folder.glob("slurm_job_*_resize*")), "scontrol has written for a shell"
    training.until_trained()


def test_a_job_that_is_to_be_larger_gets_a_further_job_which_ends_when_it_is_smaller(
    slurm: Slurm, training: Training
):
    job = training.submit("-N1", "-n2", "-w", "n1")
    slurm.until_said(job, "generation 1: 2 members")
    assert "Slurm: requested 2 slots more" in training.resize(4)
    slurm.until_said(job, ": 4 members")
    (further,) = joiners(slurm)
    assert slurm.show(further)["Partition"] == "low"
    training.resize(2)
    assert slurm.wait(further) == "COMPLETED", slurm.show(further)
    slurm.until_said(job, "was returned")
    assert slurm.state(job) == "RUNNING", slurm.out(job)
    assert joiners(slurm) == []
    training.until_trained()


def test_a_further_job_that_waits_and_is_not_wanted_any_more_is_cancelled(
    slurm: Slurm, training: Training
):
    """And one that the user has cancelled is not believed to come."""
    blocker = slurm.submit("-N3", "-n24", "-w", "n[2-4]", script="sleep 600")
    slurm.until_running(blocker)
    job = training.submit("-N1", "-n2", "-w", "n1")
    slurm.until_said(job, "generation 1: 2 members")
    assert "Slurm: requested 2 slots more" in training.resize(4)
    (waits,) = joiners(slurm)
    assert slurm.state(waits) == "PENDING"
    assert "Slurm: 2 slots requested already" in training.resize(4)
    training.resize(2)
    slurm.until_said(job, "Slurm: cancelled the request for 2 slots")
    until(lambda: joiners(slurm) == [], "the end of the further job")
    assert slurm.state(waits) == "CANCELLED"
    assert "Slurm: requested 2 slots more" in training.resize(4)
    (waits,) = joiners(slurm)
    slurm.command("scancel", str(waits))
    until(lambda: joiners(slurm) == [], "the end of the second further job")
    assert "Slurm: requested 2 slots more" in training.resize(4)
    slurm.command("scancel", str(blocker))
    slurm.until_said(job, ": 4 members")
    training.until_trained()
    until(lambda: not slurm.command("squeue", "-h").stdout.strip(), "an empty queue")


def join_through_a_step(slurm: Slurm, training: Training, first: int) -> int:
    """A second job, on n2, that does not see the socket of the first. What it exports is not for
    the step in the first."""
    elsewhere = training.folder / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    step = f"srun --jobid={first} --overlap --mpi=none --nodes=1 --ntasks=1 --nodelist=n1"
    relay = f"env XDG_RUNTIME_DIR={training.folder} {BIN}/regroup join --relay"
    bent = "SLURM_MEM_PER_CPU=999999999 SLURM_TRES_PER_TASK=gres/none:9 SLURM_DISTRIBUTION=none"
    join = f"{BIN}/regroup join --through {step} {relay}"
    script = f"export {bent} XDG_RUNTIME_DIR={elsewhere}\nexec {join}"
    second = slurm.submit("-N1", "-n2", "-w", "n2", script=script)
    slurm.until_said(first, ": 4 members")
    return second


def test_a_job_joins_through_a_step_where_it_does_not_see_the_socket(
    slurm: Slurm, training: Training
):
    job = training.submit("-N1", "-n2", "-w", "n1")
    slurm.until_said(job, "generation 1: 2 members")
    second = join_through_a_step(slurm, training, job)
    training.until_trained()
    assert slurm.wait(second) == "COMPLETED", slurm.out(second)
    assert "the job is over" in slurm.out(second)
    until(lambda: not slurm.command("squeue", "-h").stdout.strip(), "an empty queue")


def test_a_job_that_joined_through_a_step_loses_no_step_when_it_is_cancelled(
    slurm: Slurm, training: Training
):
    """scancel ends all processes of the job at once, the srun of --through among them: members have
    KillWait, and leave at the end of their step, while another srun waits for that."""
    job = training.submit("-N1", "-n2", "-w", "n1")
    slurm.until_said(job, "generation 1: 2 members")
    second = join_through_a_step(slurm, training, job)
    slurm.command("scancel", str(second))
    slurm.until_said(job, "host n2 must be returned")
    slurm.until_said(second, "the hosts are free")
    slurm.until_said(job, "host n2 was returned")
    training.until_trained()
    slurm.wait(second)
