"""Four Slurm nodes on this machine: slurmctld and a slurmd for each of n1 to n4, of Debian's
slurm-wlm.

    with Slurm(tmp_path) as slurm:
        job = slurm.submit("-N2", "--ntasks-per-node=2", script="regroup -np 4 hostname")
        slurm.wait(job)

All of it lies in a private folder and on private ports, and is gone with the `with`.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import waiting  # noqa: E402
from commands import DEADLINE_S, PATIENT, run  # noqa: E402

NODES = 4
TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")

CONF = """\
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/ctl.pid
SlurmdLogFile={folder}/%n.log
SlurmctldLogFile={folder}/ctl.log
SchedulerParameters=batch_sched_delay=0,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
JobRequeue=1
MailProg=/bin/true
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=8 \\
    SocketsPerBoard=2 CoresPerSocket=4
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=10
PartitionName=high Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S):
    """Asks mostly a daemon."""
    return waiting.until(condition, what, deadline_s, pause_s=0.05)


def missing() -> str | None:
    """What this machine lacks, as a sentence."""
    for tool in TOOLS:
        if not shutil.which(tool):
            return (
                f"a Slurm of four nodes needs {tool}: install the packages slurm-wlm and munge "
                f"(./dev does)"
            )
    if os.geteuid() != 0:
        return f"a Slurm of four nodes needs root: this is user {os.geteuid()}"
    return None


def free_ports(count: int) -> int:
    """The first of so many neighbours that nobody listens at now, and that no other process that
    asks at the same time is given."""
    for first in range(20100 + os.getpid() % 2000 * count, 60000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError("no free ports")


class Slurm:
    def __init__(self, folder: Path):
        self.folder = folder
        self.daemons: list[subprocess.Popen] = []
        first = free_ports(NODES + 1)
        conf = CONF.format(
            host=socket.gethostname(),
            port=first,
            folder=folder,
            nodes=NODES,
            first=first + 1,
            last=first + NODES,
        )
        (folder / "slurm.conf").write_text(conf)
        self.environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SLURMD_"))
        }
        self.environment |= {"SLURM_CONF": str(folder / "slurm.conf"), **PATIENT}

    def __enter__(self) -> "Slurm":
        try:
            (self.folder / "state").mkdir()
            self._daemon("ctl", "slurmctld", "-D", "-i")
            for i in range(1, NODES + 1):
                (self.folder / f"spool.n{i}").mkdir()
                self._daemon(f"n{i}", "slurmd", "-D", "-N", f"n{i}")
            until(lambda: self._states() == ["idle"] * NODES, "four idle nodes")
        except BaseException as error:
            self.__exit__()
            logs = "\n".join(self._tail(path) for path in sorted(self.folder.glob("*.log")))
            raise RuntimeError(f"Slurm did not start: {error}\n{logs}") from error
        return self

    def _daemon(self, name: str, *command: str) -> None:
        log = (self.folder / f"{name}.out").open("w")
        self.daemons.append(
            subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )

    @staticmethod
    def _tail(path: Path) -> str:
        return f"{path.name}: " + "\n".join(path.read_text(errors="replace").splitlines()[-15:])

    def _states(self) -> list[str]:
        done = self.command("sinfo", "-N", "-h", "-p", "low", "-o", "%T", check=False)
        return done.stdout.split()

    def command(self, *words: str, check: bool = True, timeout: float = DEADLINE_S):
        return run(words, self.environment, self.folder, check, timeout)

    def submit(self, *options: str, script: str) -> int:
        """A batch job whose output is in out(job)."""
        path = self.folder / f"script-{time.monotonic_ns()}"
        path.write_text(f"#!/bin/bash\n{script}\n")
        output = f"--output={self.folder}/job-%j.out"
        done = self.command(
            "sbatch", "--parsable", "--open-mode=append", output, *options, str(path)
        )
        return int(done.stdout)

    def out(self, job: int) -> str:
        path = self.folder / f"job-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def show(self, job: int) -> dict[str, str]:
        done = self.command("scontrol", "show", "job", "-o", str(job), check=False)
        return dict(re.findall(r"(\w+)=(\S*)", done.stdout))

    def state(self, job: int) -> str:
        return self.show(job).get("JobState", "")

    def until_running(self, job: int, deadline_s: float = DEADLINE_S) -> None:
        until(lambda: self.state(job) == "RUNNING", f"job {job} to run", deadline_s)

    def until_said(self, job: int, text: str, deadline_s: float = DEADLINE_S) -> None:
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        try:
            until(
                lambda: text in self.out(job) or self.state(job) in over,
                f"job {job}: '{text}'",
                deadline_s,
            )
        except TimeoutError as error:
            queue = self.command("squeue", check=False).stdout
            raise TimeoutError(f"{error}\n{self.out(job)}\n{queue}") from None
        assert text in self.out(job), f"job {job} is {self.state(job)}:\n{self.out(job)}"

    def wait(self, job: int, deadline_s: float = DEADLINE_S) -> str:
        """Its last state."""
        running = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED")
        until(lambda: self.state(job) not in running, f"the end of job {job}", deadline_s)
        return self.state(job)

    def end_jobs(self) -> None:
        self.command("scancel", "--user=root", check=False, timeout=10)
        until(
            lambda: not self.command("squeue", "-h", check=False).stdout.strip(),
            "an empty queue",
        )

    def __exit__(self, *_) -> None:
        with contextlib.suppress(Exception):
            self.end_jobs()
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
