"""Jobs in recorded environments of LSF, PBS, Flux and Kubernetes; agents come by stand-ins of
commands."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import DEADLINE_S, PATIENT

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import waiting  # noqa: E402

BIN = ROOT / "build/bin"
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
    "pbs": (
        {"PBS_JOBID": "9[2].server", "PBS_NODEFILE": "nodes", "PBS_CONF_FILE": "pbs.conf"},
        r"^ssh .* hB \S+/bin/pbs_attach -j '9\[2\].server' /bin/sh\npbs_attach -j 9\[2\].server "
        r"/bin/sh",
    ),
    "flux": (
        {"FLUX_URI": "local:///run/flux", "STAND_IN_R": R},
        r"^flux exec --quiet --rank 20 /bin/sh",
    ),
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
        (folder / "bin").mkdir(exist_ok=True)
        for command in ("blaunch", "flux", "kubectl", "ssh", "bin/pbs_attach"):
            shutil.copy(STAND_IN, folder / command)
        (folder / "nodes").write_text("hA\nhA\nhB\nhB\n")
        (folder / "pbs.conf").write_text(f"PBS_SERVER=server\nPBS_EXEC={folder}\n")
        self.folder = folder
        self.status: int | None = None
        self.log, self.host = (
            folder / "log",
            {"kubernetes": "train-0", "lsf": "hA", "pbs": "hA"}.get(name),
        )
        variables, self.reached = JOBS[name]
        files = {
            k: str(folder / v)
            for k, v in variables.items()
            if k in ("PBS_NODEFILE", "PBS_CONF_FILE")
        }
        kept = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG")}
        self.environment = {
            **kept,
            **PATIENT,
            **variables,
            **files,
            "PATH": f"{folder}:{BIN}:/usr/bin:/bin",
            "STAND_IN_LOG": str(self.log),
            "XDG_RUNTIME_DIR": str(folder),
            "REGROUP_GPU_CLAIMS": str(folder),  # GPUs of files are no other test's
        }

    def command(self, *words: str) -> list[str]:
        """On a host of that name."""
        own = (
            ["unshare", "--uts", "sh", "-c", f'hostname {self.host}; exec "$@"', "sh"]
            if self.host
            else []
        )
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

    @contextlib.contextmanager
    def start(self, *words: str) -> Iterator[Callable[[str], None]]:
        """Until the end of the block, which sets `status`; what it gives waits until the job says
        that."""
        output = self.folder / f"output-{words[0].strip('-')}"
        with output.open("w") as out:
            process = subprocess.Popen(
                self.command(*words),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

        def until_said(text: str) -> None:
            waiting.until(
                lambda: text in output.read_text() or process.poll() is not None, text, DEADLINE_S
            )
            assert text in output.read_text(), output.read_text()

        self.signal = process.send_signal
        self.wait = process.wait
        try:
            yield until_said
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                self.status = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(params=JOBS)
def job(request, tmp_path: Path) -> Job:
    tmp_path.chmod(0o700)
    return Job(tmp_path, request.param)


def test_agents_come_by_the_allocators_command(job: Job):
    done = job.run(*SAY)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank (\d) of 4", done.stdout)) == ["0", "1", "2", "3"], done.stderr
    assert re.search(job.reached, job.log.read_text(), re.M), job.log.read_text()


@pytest.mark.parametrize(
    ("name", "own"),
    [  # on the first host, and on the second
        ("lsf", {"LS_JOBPID": ("4710", "4711")}),
        ("pbs", {"PBS_NODENUM": ("0", "none")}),
        ("flux", {"FLUX_URI": ("local:///run/flux-19", "local:///run/flux-20")}),
    ],
)
def test_ranks_on_all_hosts_see_the_variables_of_the_job(
    tmp_path: Path, name: str, own: dict[str, tuple[str, str]]
):
    """Also where a command that starts agents sets some that are of its task alone."""
    tmp_path.chmod(0o700)
    job = Job(tmp_path, name)
    shared = {"LSB_QUEUE": "short", "PBS_QUEUE": "workq", "FLUX_ENCLOSING_ID": "f5"}
    job.environment |= shared | {variable: values[0] for variable, values in own.items()}
    said = " ".join(f"${{{variable}-none}}" for variable in [*own, *shared, "LSF_PM_TASKID"])
    done = job.run("sh", "-c", f'echo "rank $OMPI_COMM_WORLD_RANK: {said}"')
    assert done.returncode == 0, done.stderr
    ranks = dict(re.findall(r"^rank (\d+): (.*)$", done.stdout, re.M))
    rest = " ".join(shared.values())
    first, second = (
        " ".join([*(values[at] for values in own.values()), rest, "none"]) for at in (0, 1)
    )
    assert ranks == {"0": first, "1": first, "2": second, "3": second}, done.stdout


def served_pod(folder: Path) -> Job:
    """The second pod of an Indexed Job, which runs the same command as the first."""
    folder.chmod(0o700)
    job = Job(folder, "kubernetes")
    job.host = "train-1"
    job.environment |= {
        "JOB_COMPLETION_INDEX": "1",
        "HOSTNAME": "train-1",
        "STAND_IN_PHASES": str(folder / "phases"),
        "REGROUP_TIME_LIMIT_FACTOR": "0.1",
    }
    (folder / "phases").write_text("Pending\n")
    return job


@pytest.mark.parametrize(("end", "status"), [("Succeeded", 0), ("Failed", 1)])
@pytest.mark.parametrize("verb", [["-np", "4", "touch", "ran"], ["join"]])
def test_other_pods_of_an_indexed_job_end_with_the_first(
    tmp_path: Path, end: str, status: int, verb: list[str]
):
    job = served_pod(tmp_path)
    with job.start(*verb) as said:
        said("host train-0 launches the job; this host serves it until it ends")
        job.signal(signal.SIGCHLD)  # of an orphan
        (tmp_path / "phases").write_text(f"Failed\n{end}\n")
        assert job.wait(DEADLINE_S) == status
    assert "exec" not in job.log.read_text()
    assert not (tmp_path / "ran").exists()


def test_agents_hear_that_their_pod_ends(tmp_path: Path):
    """Kubernetes tells the pod's first process alone."""
    job = served_pod(tmp_path)
    agent = tmp_path / "regroup-agent"
    shutil.copy("/bin/sleep", agent)
    others = {**job.environment, "HOSTNAME": "train-2"}
    with (
        subprocess.Popen([agent, "600"], env=job.environment) as ours,
        subprocess.Popen([agent, "600"], env=others) as foreign,
    ):
        with job.start("-np", "4", "true") as said:
            said("host train-0 launches the job")
        assert ours.wait(DEADLINE_S) == -signal.SIGTERM
        assert job.status == 128 + signal.SIGTERM
        assert foreign.poll() is None
        foreign.kill()


def test_the_first_pod_waits_for_the_others(tmp_path: Path):
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "kubernetes")
    pods = tmp_path / "pods"
    pods.write_text("train-0-x7k2p")
    job.environment |= {
        "STAND_IN_PODS": f"@{pods}",
        "REGROUP_TIME_LIMIT_FACTOR": "0.1",
    }
    with job.start(*SAY) as said:
        said("waiting for pods: 1 of 1 do not run yet")
        pods.write_text("train-0-x7k2p train-1-9zq4d")
        said("rank 3 of 4")
        assert job.wait(DEADLINE_S) == 0


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
    # A member that has ended returns its GPU to the next: each waits until all three have one.
    started = tmp_path / "started"
    started.mkdir()
    wait = f": > {started}/$$; until test $(ls {started} | wc -l) = 3; do sleep 0.05; done"
    together = ["sh", "-c", f"{say[-1]}; {wait}"]
    elastic = job.run("--topology", machine, "--placement", "best", "-np", "3:3", *together)
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
    assert sorted(re.findall(r"has GPU (\S+)", done.stdout)) == ["4", "5"], (
        done.stdout,
        done.stderr,
    )


def test_gpus_of_a_host_that_joins_are_those_that_were_granted_to_its_job(tmp_path: Path):
    """A job of PBS lends a job of Flux a host with GPU 6."""
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "flux")
    job.host = "fluke82"
    entries = '{"rank": "19", "children": {"core": "0", "gpu": "4"}}'
    granted = re.sub(r'"R_lite": \[.*?\], ', f'"R_lite": [{entries}], ', R)
    job.environment["STAND_IN_R"] = granted.replace("fluke[82-83]", "fluke82")
    job.environment["STAND_IN_HOSTS"] = "hX"
    machine = str(Path(__file__).parents[1] / "machines/h100x8.topo")
    say = [
        "sh",
        "-c",
        f"echo has GPU $CUDA_VISIBLE_DEVICES; exec {ROOT}/build/tests/bin/elastic_member 1000000 5",
    ]
    words = ["--topology", machine, "--placement", "best", "-np", "1:2", *say]
    guest = Job(tmp_path, "pbs")
    (tmp_path / "nodes").write_text("hX\n")
    (tmp_path / "gpus").write_text("hX-gpu6\n")
    guest.host, guest.environment["PBS_GPUFILE"] = "hX", str(tmp_path / "gpus")
    with job.start(*words) as first:
        first("has GPU 4")
        with guest.start("join") as second:
            second("PBS job 9[2].server grants 1 host with 1 slot")
            first("has GPU 6")
            # theirs
            assert re.search(r"^pbs_attach -j 9\[2\].server /bin/sh", job.log.read_text(), re.M)


# of a second job with two hosts: its environment, its first host, what reaches the second one
GUESTS = {
    "lsf": (
        {"LSB_JOBID": "8", "LSB_MCPU_HOSTS": "hX 1 hY 1", "LSB_DJOB_NUMPROC": "2"},
        "hX",
        "blaunch hY /bin/sh",
    ),
    "flux": (
        {"STAND_IN_R": R.replace("19-20", "3-4").replace("0-1", "0").replace("82-83", "90-91")},
        "fluke90",
        "flux exec --quiet --rank 4 /bin/sh",
    ),
    "kubernetes": (
        {"STAND_IN_PODS": "lend-0-aaaaa lend-1-bbbbb", "PET_NPROC_PER_NODE": "1"},
        "lend-0",
        "kubectl exec --stdin pod/lend-1-bbbbb -- /bin/sh",
    ),
}
SINGLE = {  # the first job then has its first host only
    "lsf": {"LSB_MCPU_HOSTS": "hA 2", "LSB_DJOB_NUMPROC": "2"},
    "flux": {"STAND_IN_R": R.replace("19-20", "19").replace("[82-83]", "82")},
    "kubernetes": {"REGROUP_PODS": "1", "STAND_IN_PODS": "train-0-x7k2p"},
}
TRAIN = [f"{ROOT}/build/tests/bin/elastic_member", "1000000", "5"]


def two_jobs(folder: Path, name: str) -> tuple[Job, Job, str]:
    """A job on one host, one that is to join it with two, and what reaches the second of these."""
    folder.chmod(0o700)
    first, guest = Job(folder, name), Job(folder, name)
    variables, guest.host, reached = GUESTS[name]
    first.host = first.host or "fluke82"
    first.environment |= SINGLE[name]
    guest.environment |= variables
    return first, guest, reached


@pytest.mark.parametrize("name", GUESTS)
def test_a_job_that_joins_starts_its_agents_itself(tmp_path: Path, name: str):
    """The commands of these allocators start nothing in another job than their own: stand-ins
    refuse hosts of others."""
    job, guest, reached = two_jobs(tmp_path, name)
    with job.start("-np", "1:4", *TRAIN) as first:
        first(": 2 members")
        with guest.start("join") as second:
            second("grants 2 hosts with 2 slots")
            first(": 4 members")
            assert reached in job.log.read_text().splitlines()
        assert guest.status == 0
        assert (
            (tmp_path / "output-join").read_text().endswith("regroup: join: the hosts are free\n")
        )
        first("was returned")
    assert "was lost" not in (tmp_path / "output-np").read_text()


def test_the_first_pod_of_a_job_that_joins_waits_for_the_others(tmp_path: Path):
    job, guest, _ = two_jobs(tmp_path, "kubernetes")
    pods = tmp_path / "pods"
    pods.write_text("lend-0-aaaaa")
    guest.environment |= {"STAND_IN_PODS": f"@{pods}", "REGROUP_TIME_LIMIT_FACTOR": "0.1"}
    with job.start("-np", "1:4", *TRAIN) as first:
        first(": 2 members")
        with guest.start("join") as second:
            second("waiting for pods: 1 of 1 do not run yet")
            pods.write_text("lend-0-aaaaa lend-1-bbbbb")
            second("grants 2 hosts with 2 slots")
            first(": 4 members")
        assert guest.status == 0


def test_a_job_that_joins_from_afar_starts_its_agents_itself(tmp_path: Path):
    """Through a command, which also takes them what they need to know. Where it is srun, the
    options that the guest's job exports are not for its step in the other job."""
    job, guest, reached = two_jobs(tmp_path, "lsf")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    guest.environment["XDG_RUNTIME_DIR"] = str(tmp_path / "elsewhere")
    seen = tmp_path / "seen"
    (tmp_path / "srun").write_text(f'#!/bin/sh\nenv > {seen}\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    guest.environment["SLURM_CPU_BIND"] = "map_cpu:77"
    relay = ["srun", "env", f"XDG_RUNTIME_DIR={tmp_path}", f"{BIN}/regroup", "join", "--relay"]
    with job.start("-np", "1:4", *TRAIN) as first:
        first(": 2 members")
        with guest.start("join", "--through", *relay) as second:
            second("grants 2 hosts with 2 slots")
            first(": 4 members")
            assert reached in job.log.read_text().splitlines()
        assert guest.status == 0
        first("was returned")
    assert "SLURM_CPU_BIND" not in seen.read_text()
    assert "LSB_JOBID=8" in seen.read_text()


def test_a_job_that_joined_ends_with_the_job(tmp_path: Path):
    """Agents that it has started are gone before it is told."""
    job, guest, _ = two_jobs(tmp_path, "lsf")
    with contextlib.ExitStack() as lent:
        with job.start("-np", "1:4", *TRAIN) as first:
            first(": 2 members")
            second = lent.enter_context(guest.start("join"))
            first(": 4 members")
        second("the job is over")
        assert not [pid for pid in agents() if str(tmp_path) in environment_of(pid)]


def test_an_allocator_that_goes_on_to_harsher_signals_ends_no_member_at_once(tmp_path: Path):
    """bkill: SIGINT, SIGTERM and SIGKILL, ten seconds apart. A step here takes two."""
    job, guest, _ = two_jobs(tmp_path, "lsf")
    with job.start("-np", "1:4", TRAIN[0], "8", "2000") as first:
        first(": 2 members")
        with guest.start("join", "--grace", "30") as second:
            first(": 4 members")
            guest.signal(signal.SIGINT)
            second("SIGINT: recalling the hosts")
            guest.signal(signal.SIGTERM)
            second("the hosts are free")
        assert guest.status == 0
    assert "was lost" not in (tmp_path / "output-np").read_text()


def agents() -> list[Path]:
    found = subprocess.run(
        ["pgrep", "-f", "--", "--node-agent"], capture_output=True, text=True, timeout=10
    )
    return [Path("/proc") / pid for pid in found.stdout.split()]


def environment_of(process: Path) -> str:
    try:
        return (process / "environ").read_text()
    except OSError:
        return ""


def test_what_the_command_of_a_job_that_joins_says_is_passed_on(tmp_path: Path):
    """One host does not come: the other one does."""
    job, guest, _ = two_jobs(tmp_path, "lsf")
    text = (tmp_path / "blaunch").read_text().replace('"LSB_MCPU_HOSTS", ""', '"LSB_NONE", ""')
    (tmp_path / "blaunch").write_text(text)
    with job.start("-np", "1:4", *TRAIN) as first:
        first(": 2 members")
        with guest.start("join") as second:
            first(
                "host hY: blaunch ended with status 64 before the agent started: blaunch: hY: it "
                "is no host"
            )
            second("blaunch: hY: it is no host of this job")
            first(": 3 members")


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
