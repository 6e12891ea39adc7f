"""The story of an elastic job on a real Slurm: it starts on one node, a second job lends it
another, somebody with a higher priority takes that one back, and the first job ends as if nothing
had happened.

Each node stands for one core of this machine: members on n1 run on core 0, all others on core 1.
"""

import gzip
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import sklearn
from slurm import ROOT, Slurm, until

sys.path.insert(0, str(ROOT / "tests/chaos"))
from audit import check_epochs  # noqa: E402

SHARDS = 4
EPOCHS = 8
PACE = "10000cpu"  # of a shard: microseconds of processor time
ON_ITS_CORE = "case $SLURMD_NODENAME in n1) core=0;; *) core=1;; esac; exec taskset -c $core"
WINDOW_S = 1.5  # in which steps are counted for the bench
# Another step of the second job, which says when Slurm's signal has come; the job gives it the time
# to.
WITNESS = (
    "srun --overlap -n1 sh -c 'trap \"date +%s.%N > {0}; exit 0\" TERM; echo up; sleep 600 & wait' "
    "&"
)
WITNESSED = "for _ in $(seq 500); do test -s {0} && break; sleep 0.01; done"


def digits_csv(folder: Path) -> Path:
    packed = Path(sklearn.__file__).parent / "datasets/data/digits.csv.gz"
    path = folder / "digits.csv"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def undisturbed(bin_folder: Path, folder: Path, epochs: int) -> str:
    """What one process alone ends with."""
    alone = folder / "alone"
    alone.mkdir()
    job = [bin_folder / "regroup", "--shards", str(SHARDS), "--seed", "7", "-np", "1:1"]
    member = [bin_folder / "chaos_member", digits_csv(folder), alone, str(epochs), "0"]
    subprocess.run([*job, *member], check=True, timeout=300, capture_output=True)
    (weights,) = alone.glob("weights.*")
    return weights.read_text()


def check_trained(trail: Path, weights: str, epochs: int) -> None:
    """Every sample was used in one step of each epoch, and who finished has these weights."""
    found = [
        path.read_text() for path in trail.glob("weights.[0-9]*") if not path.name.endswith(".part")
    ]
    assert found
    assert set(found) == {weights}
    shards: dict[tuple[int, int], tuple[int, ...]] = {}
    for path in trail.glob("computed.[0-9]*"):
        for line in path.read_text().split("\n")[:-1]:
            step, leaf, *samples = map(int, line.split())
            assert shards.setdefault((step, leaf), tuple(samples)) == tuple(samples)
    check_epochs(((step, i) for (step, _), samples in shards.items() for i in samples), epochs)


@dataclass
class Figures:
    alone: float  # steps a second on one core
    both: float  # on two
    # from Slurm's signal on n2 until the job that lent it has nothing left to wait for
    given_back_s: float
    step_s: float  # a step then
    preemptor_s: float  # from its submission until it runs


@dataclass
class Run:
    alone: float  # steps a second, as in Figures; 0 where they were not counted
    both: float
    free_at_s: float  # when the second job had ended, since the epoch
    preemptor_s: float


class Story:
    def __init__(
        self,
        slurm: Slurm,
        folder: Path,
        bin_folder: Path,
        epochs: int = EPOCHS,
        pace: str = PACE,
    ):
        self.slurm, self.folder, self.bin = slurm, folder, bin_folder
        self.epochs, self.pace = epochs, pace
        self.trail = folder / "trail"
        self.trail.mkdir()
        folder.chmod(0o700)
        self.setting = f"export PATH={bin_folder}:$PATH XDG_RUNTIME_DIR={folder}\n"

    def status(self) -> dict:
        done = subprocess.run(
            [self.bin / "regroup", "status", "--json"],
            env={**self.slurm.environment, "XDG_RUNTIME_DIR": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=30,
        )
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def rate(self) -> float:
        """Steps a second, over WINDOW_S."""
        self.step()  # whoever asks once is told of a new step at the next question
        time.sleep(0.1)
        began, first = time.monotonic(), self.step()
        time.sleep(WINDOW_S)
        last = self.step()
        return (last - first) / (time.monotonic() - began)

    def step(self) -> int:
        return until(lambda: self.status().get("step", 0), "a step")

    def measure(self) -> Figures:
        """The figures of a run; errors as of run()."""
        noticed = self.folder / "noticed"
        run = self.run(WITNESS.format(noticed), WITNESSED.format(noticed))
        given_back_s = run.free_at_s - float(noticed.read_text())
        step_s = 1 / run.both if run.both else float("inf")
        return Figures(run.alone, run.both, given_back_s, step_s, run.preemptor_s)

    def run(self, witness: str = "", witnessed: str = "") -> Run:
        """Runs the three jobs; the rates are counted only if there is a witness, a shell command of
        the second job before its members start. It prints "up", and `witnessed` waits for it at the
        end. AssertionError says what went otherwise than it should."""
        slurm = self.slurm
        weights = undisturbed(self.bin, self.folder, self.epochs)
        member = f"chaos_member {self.folder}/digits.csv {self.trail} {self.epochs} {self.pace}"
        train = f"regroup --shards {SHARDS} --seed 7 -np 1:2 sh -c '{ON_ITS_CORE} {member}'"
        script = f"{self.setting}exec {train}"
        first = slurm.submit("-N1", "-n1", "-p", "high", "-w", "n1", script=script)
        slurm.until_said(first, "generation 1: 1 member")
        until(lambda: self.status().get("step", 0) > 3, "the first steps")
        alone = self.rate() if witness else 0.0
        lend = (
            f"{self.setting}{witness}\nregroup join; status=$?\ndate "
            f"+free:%s.%N\n{witnessed}\nexit $status"
        )
        second = slurm.submit("-N1", "-n1", "-w", "n2", script=lend)
        slurm.until_said(first, "generation 2: 2 members")
        both = 0.0
        if witness:
            both = self.rate()
            slurm.until_said(second, "up\n")
        preemptor_s = preempt(slurm)
        slurm.until_said(first, "host n2 was returned")
        (self.folder / "hurry").touch()  # a pace of processor time is kept
        assert slurm.wait(second) == "COMPLETED", slurm.out(second)
        free = re.search(r"^free:([\d.]+)$", slurm.out(second), re.M)
        assert free, slurm.out(second)
        assert "the hosts are free" in slurm.out(second)
        assert slurm.wait(first, 120) == "COMPLETED", slurm.out(first)
        text = slurm.out(first)
        assert "was lost" not in text, text
        assert re.search(r"host n2 must be returned within \d+ s \(SIGTERM\)", text), text
        check_trained(self.trail, weights, self.epochs)
        assert len(list(self.trail.glob("left.*"))) == 1, (
            "who was on n2 was let go at the end of a step"
        )
        return Run(alone, both, float(free[1]), preemptor_s)


def preempt(slurm: Slurm) -> float:
    """A job of a higher priority takes n2: seconds until it runs."""
    began = time.time()
    third = slurm.submit("-N1", "-n8", "-p", "high", "-w", "n2", script="date +%s.%N")
    assert slurm.wait(third) == "COMPLETED", slurm.out(third)
    return float(slurm.out(third)) - began


def preempt_a_plain_job(slurm: Slurm) -> float:
    """The same where n2 has a job that ends as soon as it is asked to."""
    plain = slurm.submit(
        "-N1",
        "-n1",
        "--no-requeue",
        "-w",
        "n2",
        script="exec srun sh -c 'trap \"exit 0\" TERM; echo up; sleep 600 & wait'",
    )
    slurm.until_said(plain, "up")
    took = preempt(slurm)
    slurm.wait(plain)
    return took
