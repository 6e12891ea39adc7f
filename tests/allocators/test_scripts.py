"""The scripts of docs/guide/allocators.md, slurm.md and kubernetes.md, as they stand there: on the
real Slurm, by stand-ins elsewhere; that of Grid Engine is in test_grid_engine.py, where one runs.
`python train.py` says which rank it is."""

import re
import subprocess
from pathlib import Path

from commands import DEADLINE_S
from slurm import ROOT, Slurm
from test_stand_ins import Job

BIN = ROOT / "build/bin"
PAGE = (ROOT / "docs/guide/allocators.md").read_text()
SAYS = "#!/bin/sh\necho rank $RANK of $WORLD_SIZE runs $1\n"


def blocks(title: str) -> list[str]:
    """What is fenced in the section of that title."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section, title
    return re.findall(r"^```\w*\n(.*?)^```$", section[1], re.M | re.S)


def scripts(title: str) -> list[str]:
    found = [block for block in blocks(title) if block.startswith("#!/bin/bash\n")]
    assert found
    assert all(len(script.splitlines()) <= 10 for script in found)
    return found


def python(folder: Path, text: str = SAYS) -> Path:
    """A folder for PATH in which `python` is that."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python").write_text(text)
    (programs / "python").chmod(0o755)
    return programs


def ranks(text: str, count: int) -> bool:
    found = re.findall(rf"rank (\d+) of {count} runs train.py", text)
    return sorted(map(int, found)) == list(range(count))


def submit(slurm: Slurm, folder: Path, script: str, *options: str) -> int:
    """With our programs first, as a user's login files have it."""
    own = folder / "own.sh"
    path = f"{folder}/programs:{BIN}:$PATH"
    own.write_text(f"export PATH={path} XDG_RUNTIME_DIR={folder}\n")
    first, rest = script.split("\n", 1)
    directives = [line for line in rest.splitlines() if line.startswith("#SBATCH")]
    commands = [line for line in rest.splitlines() if not line.startswith("#SBATCH")]
    return slurm.submit(*options, script="\n".join([*directives, f". {own}", *commands]))


def test_slurms_elastic_job_takes_the_nodes_of_the_job_that_joins(slurm: Slurm, tmp_path: Path):
    """As they stand there but for sizes: this machine has two cores."""
    tmp_path.chmod(0o700)
    python(
        tmp_path,
        f"#!/bin/sh\nexec {ROOT}/build/tests/bin/elastic_member 1000000 5 > {tmp_path}/steps\n",
    )
    page = (ROOT / "docs/guide/slurm.md").read_text()
    elastic, lends = (
        re.search(rf'^```bash title="{name}.sbatch"\n(.*?)^```$', page, re.M | re.S)[1]
        for name in ("elastic", "lend")
    )
    first = submit(slurm, tmp_path, elastic, f"--chdir={tmp_path}")
    slurm.until_said(first, "generation 1: 4 members")
    second = submit(
        slurm, tmp_path, lends, "--nodes=1", "--ntasks-per-node=1", "--partition=low", "-w", "n3"
    )
    slurm.until_said(first, ": 5 members")
    slurm.command("scancel", str(first))
    assert slurm.wait(second) == "COMPLETED", slurm.out(second)
    assert "the job is over" in slurm.out(second)


def run(job: Job, script: str, **variables: str) -> str:
    """In the environment of such a job."""
    own = (
        ["unshare", "--uts", "sh", "-c", f'hostname {job.host}; exec "$@"', "sh"]
        if job.host
        else []
    )
    environment = job.environment | variables
    environment["PATH"] = f"{python(job.folder)}:{environment['PATH']}"
    done = subprocess.run(
        [*own, "bash", "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lsfs_script_runs(tmp_path: Path):
    tmp_path.chmod(0o700)
    job = Job(tmp_path, "lsf")
    first, resizable = scripts("LSF")
    assert ranks(text := run(job, first), 4), text
    assert re.search(r'^#BSUB -n 8,32 -ar -rnc "\S+/regroup join --resized"$', resizable, re.M)


def test_pbss_script_runs(tmp_path: Path):
    tmp_path.chmod(0o700)
    (script,) = scripts("PBS")
    text = run(Job(tmp_path, "pbs"), script, PBS_O_WORKDIR=str(tmp_path))
    assert ranks(text, 4), text


def test_fluxs_command_runs(tmp_path: Path):
    tmp_path.chmod(0o700)
    (command,) = blocks("Flux")
    text = run(Job(tmp_path, "flux"), command)
    assert ranks(text, 4), text


def test_pods_of_an_indexed_job_run(tmp_path: Path):
    tmp_path.chmod(0o700)
    page = (ROOT / "docs/guide/kubernetes.md").read_text()
    (manifest,) = re.findall(r'^```yaml title="job.yaml"\n(.*?)^```$', page, re.M | re.S)
    said = dict(re.findall(r'- name: (REGROUP_\w+)\n +value: "?([\w.]+)"?$', manifest, re.M))
    assert set(said) == {"REGROUP_PODS", "REGROUP_SUBDOMAIN"}
    job = Job(tmp_path, "kubernetes")
    pods = [f"train-{i}-x7k2p" for i in range(int(said["REGROUP_PODS"]))]
    text = run(job, "regroup python train.py", **said, STAND_IN_PODS=" ".join(pods))
    assert ranks(text, 2 * len(pods)), text
