"""Jobs in recorded environments of LSF, Flux and Kubernetes; agents come by stand-ins of their commands."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import DEADLINE_S

BIN = Path(__file__).resolve().parents[2] / "build/bin"
STAND_IN = Path(__file__).with_name("stand_in.py")
SAY = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"]
R = (
    '{"version": 1, "execution": {"R_lite": [{"rank": "19-20", "children": {"core": "0-1"}}], '
    '"starttime": 0.0, "expiration": 0.0, "nodelist": ["fluke[82-83]"]}}'
)
JOBS = {  # the environment of a job of four slots on two hosts, and what reaches the second
    "lsf": (
        {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "hA 2 hB 2", "LSB_DJOB_NUMPROC": "4"},
        r"^blaunch hB /bin/sh",
    ),
    "flux": ({"FLUX_URI": "local:///run/flux", "STAND_IN_R": R}, r"^flux exec --quiet --rank 20 /bin/sh"),
    "kubernetes": (
        {
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "JOB_COMPLETION_INDEX": "0",
            "REGROUP_PODS": "2",
            "PET_NPROC_PER_NODE": "2",
            "STAND_IN_PODS": "train-0-x7k2p train-1-9zq4d",
        },
        r"^kubectl exec --stdin pod/train-1-9zq4d -- /bin/sh",
    ),
}


class Job:
    def __init__(self, folder: Path, name: str):
        for command in ("blaunch", "flux", "kubectl"):
            shutil.copy(STAND_IN, folder / command)
        self.log, self.host = folder / "log", {"kubernetes": "train-0", "lsf": "hA"}.get(name)
        variables, self.reached = JOBS[name]
        kept = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG")}
        self.environment = {
            **kept,
            **variables,
            "PATH": f"{folder}:{BIN}:/usr/bin:/bin",
            "STAND_IN_LOG": str(self.log),
            "XDG_RUNTIME_DIR": str(folder),
            "REGROUP_GPU_CLAIMS": str(folder),  # GPUs of files are no other test's
        }

    def command(self, *words: str) -> list[str]:
        """On a host of that name."""
        own = ["unshare", "--uts", "sh", "-c", f'hostname {self.host}; exec "$@"', "sh"] if self.host else []
        return [*own, str(BIN / "regroup"), *words]

    def run(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )


@pytest.fixture(params=JOBS)
def job(request, tmp_path: Path) -> Job:
    tmp_path.chmod(0o700)
    return Job(tmp_path, request.param)


def test_agents_come_by_the_allocators_command(job: Job):
    done = job.run(*SAY)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank (\d) of 4", done.stdout)) == ["0", "1", "2", "3"], done.stderr
    assert re.search(job.reached, job.log.read_text(), re.M), job.log.read_text()


def test_an_elastic_job_has_agents_on_both(job: Job):
    done = job.run("-np", "2:4", *SAY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rank") == 4, done.stderr


def test_gpus_and_unequal_slots_are_those_that_were_granted(tmp_path: Path):
    """Of eight GPUs that a file describes on both hosts."""
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "flux")
    job.host = "fluke82"
    entries = (
        '{"rank": "19", "children": {"core": "0-1", "gpu": "4-5"}}, '
        '{"rank": "20", "children": {"core": "0", "gpu": "7"}}'
    )
    job.environment["STAND_IN_R"] = re.sub(r'"R_lite": \[.*?\], ', f'"R_lite": [{entries}], ', R)
    machine = str(Path(__file__).parents[1] / "machines/h100x8.topo")
    say = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK has GPU $CUDA_VISIBLE_DEVICES"]
    done = job.run("--topology", machine, "--placement", "best", *say)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"rank (\d) has GPU (\d)", done.stdout))
    assert {found["0"], found["1"]} == {"4", "5"}, (done.stdout, done.stderr)
    assert found["2"] == "7", (done.stdout, done.stderr)
    elastic = job.run("--topology", machine, "--placement", "best", "-np", "3:3", *say)
    assert elastic.returncode == 0, elastic.stderr
    found = re.findall(r"has GPU (\S+)", elastic.stdout)
    assert sorted(found) == ["4", "5", "7"], (elastic.stdout, elastic.stderr)


def test_gpus_of_a_single_host_are_those_that_were_granted(tmp_path: Path):
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "flux")
    job.host = "fluke82"
    entries = '{"rank": "19", "children": {"core": "0-1", "gpu": "4-5"}}'
    granted = re.sub(r'"R_lite": \[.*?\], ', f'"R_lite": [{entries}], ', R)
    job.environment["STAND_IN_R"] = granted.replace("fluke[82-83]", "fluke82")
    machine = str(Path(__file__).parents[1] / "machines/h100x8.topo")
    say = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK has GPU $CUDA_VISIBLE_DEVICES"]
    done = job.run("--topology", machine, "--placement", "best", *say)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"has GPU (\S+)", done.stdout)) == ["4", "5"], (done.stdout, done.stderr)


def test_cores_are_those_that_were_granted(tmp_path: Path):
    """Each of the hosts is this machine with one of its cores."""
    cores = sorted(os.sched_getaffinity(0))
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "lsf")
    affinity = tmp_path / "affinity"
    affinity.write_text(f"hA {cores[-1]}\nhB {cores[0]}\n")
    job.environment |= {"LSB_MCPU_HOSTS": "hA 1 hB 1", "LSB_DJOB_NUMPROC": "2"}
    job.environment["LSB_AFFINITY_HOSTFILE"] = str(affinity)
    say = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK on $(taskset -cp $$ | sed 's/.*: //')"]
    done = job.run("--bind-to", "core", *say)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"rank (\d) on (\S+)", done.stdout))
    assert found == {"0": str(cores[-1]), "1": str(cores[0])}, (done.stdout, done.stderr)


def test_what_the_command_says_is_passed_on(tmp_path: Path):
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "lsf")
    job.environment["LSB_MCPU_HOSTS"] = "hA 2 hB 2"
    shutil.copy(STAND_IN, tmp_path / "blaunch")
    text = (tmp_path / "blaunch").read_text().replace("[::2]", "[:1]")
    (tmp_path / "blaunch").write_text(text)
    done = job.run(*SAY)
    assert done.returncode != 0
    assert "blaunch: hB: it is no host of this job" in done.stderr, done.stderr
