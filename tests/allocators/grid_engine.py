"""Grid Engine 8.1.9 on this machine: Debian's sge_qmaster and sge_execd, with one queue of eight
slots.

Its folders are the packages' (/var/lib/gridengine); what is there of an earlier run is used again.
A machine has one Grid Engine, so who wants it waits until no other has it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from commands import DEADLINE_S, PATIENT, run
from slurm import until

ROOT = Path("/var/lib/gridengine")
LIB = Path("/usr/lib/gridengine")
TOOLS = ("qconf", "qsub", "qstat", "qdel", "qrsh", "qhost")

NOTIFY = "00:01:00"  # from the notice to the end: what is slow has all that time
TURN_S = 900  # that another file of tests may have it

PE = """\
pe_name            rg
slots              64
user_lists         NONE
xuser_lists        NONE
start_proc_args    /bin/true
stop_proc_args     /bin/true
allocation_rule    $round_robin
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


def missing() -> str | None:
    for tool in TOOLS:
        if not shutil.which(tool):
            return (
                f"Grid Engine needs {tool}: install gridengine-master, -exec and -client (./dev "
                f"does)"
            )
    if os.geteuid() != 0:
        return f"Grid Engine needs root to be started: this is user {os.geteuid()}"
    return None


def pids_of(daemon: str) -> list[int]:
    found = subprocess.run(["pgrep", "-x", daemon], capture_output=True, text=True, timeout=10)
    return [int(pid) for pid in found.stdout.split()]


class GridEngine:
    def __init__(self, folder: Path):
        self.folder = folder
        self.host = socket.gethostname()
        self.environment = {**os.environ, "SGE_ROOT": str(ROOT), "SGE_CELL": "default"}

    def __enter__(self) -> "GridEngine":
        ROOT.mkdir(parents=True, exist_ok=True)
        self.lock = (ROOT / "regroup-tests.lock").open("w")
        until(self._locks, "the end of another's Grid Engine", TURN_S)
        try:
            return self._begin()
        except BaseException:
            self.__exit__()
            raise

    def _locks(self) -> bool:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _begin(self) -> "GridEngine":
        aliases = ROOT / "default/common/host_aliases"
        aliases.parent.mkdir(parents=True, exist_ok=True)
        # 127.0.0.1 is called so first, which it refuses
        aliases.write_text(f"{self.host} localhost\n")
        self._start("sge_qmaster")
        until(lambda: self.command("qconf", "-ss", check=False).returncode in (0, 1), "sge_qmaster")
        self.command("qconf", "-as", self.host, check=False)
        self.command("qconf", "-ah", self.host, check=False)
        self._permit_root()
        self._start("sge_execd")
        self._configure()
        # What an earlier run left: its jobs, and that they failed.
        self.command("qdel", "-f", "-u", "root", check=False)
        self.command("qmod", "-cq", "all.q", check=False)
        until(lambda: self._free() >= 8, "a queue that is open")
        return self

    def _start(self, name: str) -> None:
        if pids_of(name):
            return
        self.command(str(LIB / name), timeout=60)

    def _permit_root(self) -> None:
        # Before sge_execd asks for it: one that has heard otherwise fails root's first job, and its
        # queue.
        self._change("-sconf", "-Mconf", "global", {"min_uid": "0", "min_gid": "0"})

    def _configure(self) -> None:
        # No pause of a quarter of a minute between looks at the queue.
        self._change("-ssconf", "-Msconf", "schedule", {"schedule_interval": "0:0:1"})
        if "rg" not in self.command("qconf", "-spl", check=False).stdout.split():
            self.command("qconf", "-Ap", str(self._file("pe", PE)))
        groups = self.command("qconf", "-shgrpl", check=False).stdout.split()
        if "@allhosts" not in groups:
            group = f"group_name @allhosts\nhostlist {self.host}\n"
            self.command("qconf", "-Ahgrp", str(self._file("group", group)))
        if "all.q" not in self.command("qconf", "-sql", check=False).stdout.split():
            self.command("qconf", "-Aq", str(self._file("queue", self._queue())))
        self.command("qconf", "-rattr", "queue", "notify", NOTIFY, "all.q")  # an earlier run's

    def _change(self, show: str, modify: str, name: str, own: dict[str, str]) -> None:
        text = self._with(self.command("qconf", show).stdout, own)
        self.command("qconf", modify, str(self._file(name, text)))

    @staticmethod
    def _with(template: str, own: dict[str, str]) -> str:
        lines = []
        for line in template.replace("\\\n", " ").splitlines():
            name = (line.split() or [""])[0]
            if line and not line.startswith("#"):
                lines.append(f"{name} {own[name]}" if name in own else line)
        return "\n".join(lines) + "\n"

    def _queue(self) -> str:
        own = {
            "qname": "all.q",
            "hostlist": "@allhosts",
            "pe_list": "rg",
            "slots": "8",
            "notify": NOTIFY,
            "shell": "/bin/bash",
            "shell_start_mode": "posix_compliant",
            "load_thresholds": "NONE",
        }
        return self._with(self.command("qconf", "-sq").stdout, own)

    def _file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _free(self) -> int:
        found = re.search(
            r"^all\.q +\S+ +\d+ +\d+ +(\d+)", self.command("qstat", "-g", "c").stdout, re.M
        )
        return int(found[1]) if found else 0

    def command(self, *words: str, check: bool = True, timeout: float = DEADLINE_S):
        return run(words, self.environment, self.folder, check, timeout)

    def submit(self, *options: str, script: str) -> int:
        path = self._file(f"script-{time.monotonic_ns()}", f"{script}\n")
        output = ["-terse", "-j", "y", "-o", str(self.folder), "-S", "/bin/bash", "-cwd"]
        patient = [word for name, value in PATIENT.items() for word in ("-v", f"{name}={value}")]
        done = self.command("qsub", *output, *patient, *options, str(path))
        return int(done.stdout.split(".")[0])

    def out(self, job: int) -> str:
        return "".join(p.read_text(errors="replace") for p in sorted(self.folder.glob(f"*.o{job}")))

    def until_said(self, job: int, line: str, times: int, deadline_s: float = 180) -> None:
        """It may be queued for long on a busy machine: what it printed, and why it waits, is in the
        error."""
        try:
            until(
                lambda: len(re.findall(line, self.out(job), re.M)) >= times,
                f"job {job}: {line}",
                deadline_s,
            )
        except TimeoutError as error:
            told = self.command("qstat", "-j", str(job), check=False)
            queues = self.command("qstat", "-f", check=False).stdout
            raise TimeoutError(
                f"{error}\n{self.out(job)}\n{told.stdout}{told.stderr}\n{queues}"
            ) from None

    def wait(self, job: int, deadline_s: float = DEADLINE_S) -> str:
        """What it printed."""
        gone = "do not exist"
        until(
            lambda: gone in self.command("qstat", "-j", str(job), check=False).stderr,
            f"the end of job {job}",
            deadline_s,
        )
        until(lambda: self.out(job), f"the output of job {job}")
        return self.out(job)

    def __exit__(self, *_) -> None:
        with self.lock:
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(Exception):
            self.command("qdel", "-f", "-u", "root", check=False)
        # The master tells the execution daemon, which does not hear it if both are to end at once.
        self.command("qconf", "-kej", "all", check=False)
        with contextlib.suppress(TimeoutError):
            until(lambda: not pids_of("sge_execd"), "the end of sge_execd", 10)
        # Asked to end (-km, SIGTERM), the master takes ten seconds. It keeps transactions of
        # Berkeley DB, which the next one recovers, and no job is left that matters.
        for daemon in ("sge_execd", "sge_qmaster"):
            for pid in pids_of(daemon):
                os.kill(pid, signal.SIGKILL)
        until(
            lambda: not pids_of("sge_execd") and not pids_of("sge_qmaster"),
            "the end of Grid Engine",
            60,
        )
