"""Signals to `regroup`, and keys at its terminal, do what they do to mpirun, which runs beside it
where it is installed; with --compat=mpich, what they do to hydra."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import DEADLINE_S, KILLS_AT_ONCE, LAUNCHERS, rival, state, stdin_for, until

OPEN_MPI = ("regroup", "openmpi-4", "openmpi-5")
LONGER = {"regroup": ["--term-grace", "3"]}  # until SIGKILL: ranks have noted what they got by then
MPICH = ("regroup-mpich", "hydra")

# Notes each signal that it gets, without handlers: one that interrupts the write of another raises.
MEMBER = """
import os, signal, sys
names = "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"
rank = next(os.environ[n] for n in names if n in os.environ)
log = open(sys.argv[1] + "/" + rank, "a", buffering=1)
kept = signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGCHLD
numbers = {number for number in signal.Signals if number < 32 and number not in kept}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
log.write(f"{os.getpid()}\\n")
while True:
    log.write(signal.Signals(signal.sigwait(numbers)).name + "\\n")
"""


class Run:
    """Two ranks of MEMBER under a launcher, in a session of their own."""

    def __init__(self, launcher: str, folder: Path, env: dict[str, str], *options: str):
        self.folder = folder / launcher
        self.folder.mkdir()
        command = [
            *rival(launcher),
            *options,
            "-np",
            "2",
            sys.executable,
            "-c",
            MEMBER,
            str(self.folder),
        ]
        with open(self.folder / "err", "wb") as err:
            self.process = subprocess.Popen(
                command,
                env=env,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
            )
        until(
            lambda: len(self.words()) == 2,
            f"both ranks are up: {(self.folder / 'err').read_text()}",
        )
        self.pids = [int(words[0]) for words in self.words()]

    def words(self) -> list[list[str]]:
        """Of each rank: its process id, and what it got."""
        found = [path.read_text().split() for path in sorted(self.folder.glob("[01]"))]
        return [words for words in found if words]

    def got(self) -> list[set[str]]:
        return [set(words[1:]) for words in self.words()]

    def send(self, name: str) -> None:
        self.process.send_signal(getattr(signal, name))

    def wait_taken(self, name: str) -> None:
        """Until the launcher's handler has run: an equal signal before that would be none."""
        status, bit = Path(f"/proc/{self.process.pid}/status"), getattr(signal, name) - 1
        until(
            lambda: not int(re.search(r"ShdPnd:\s+(\w+)", status.read_text())[1], 16) >> bit & 1,
            f"{name} is taken",
        )

    def wait_got(self, name: str) -> None:
        until(
            lambda: all(name in got for got in self.got()),
            f"{name} reaches both ranks, not {self.got()}",
        )

    def wait_states(self, wanted: str) -> None:
        until(
            lambda: {state(pid) for pid in self.pids} == {wanted},
            f"both ranks are in state {wanted}",
        )

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def assert_ends_by_term(self) -> None:
        assert self.wait() == 1
        assert self.got() == [{"SIGCONT", "SIGTERM"}] * 2

    def close(self) -> None:
        """Some launchers leave their ranks."""
        for pid in (self.process.pid, *self.pids):
            if state_or_none(pid) not in (None, "Z"):
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)


def state_or_none(pid: int) -> str | None:
    try:
        return state(pid)
    except OSError:
        return None


@pytest.fixture
def run(regroup, tmp_path):
    runs: list[Run] = []

    def start(launcher: str, *options: str) -> Run:
        runs.append(Run(launcher, tmp_path, regroup.env, *options))
        return runs[-1]

    yield start
    for one in runs:
        one.close()


@pytest.mark.parametrize("launcher", OPEN_MPI)
def test_forwarded(run, launcher):
    job = run(launcher)
    sent = ["SIGUSR1", "SIGUSR2", "SIGABRT", "SIGALRM", "SIGCONT"]
    for name in sent:
        job.send(name)
        job.wait_got(name)
    assert job.got() == [set(sent)] * 2
    assert job.process.poll() is None


@pytest.mark.parametrize("launcher", OPEN_MPI)
def test_stop_and_continue(run, launcher):
    job = run(launcher)
    job.send("SIGTSTP")
    job.wait_states("T")
    job.send("SIGCONT")
    job.wait_got("SIGCONT")
    job.wait_states("S")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("launcher", OPEN_MPI)
def test_end(run, launcher, name):
    job = run(launcher, *LONGER.get(launcher, []))
    job.send(name)
    job.assert_ends_by_term()
    until(lambda: {state_or_none(pid) for pid in job.pids} <= {None, "Z"}, "the ranks are killed")


def test_end_of_stopped_ranks(run):
    job = run("regroup", *LONGER["regroup"])
    for pid in job.pids:
        os.kill(pid, signal.SIGSTOP)
    job.wait_states("T")
    job.send("SIGTERM")
    job.assert_ends_by_term()


A_WISH_S = 1.1  # signals within a second are one wish


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_second_signal_ends_at_once(run, name):
    job = run("regroup", "--term-grace", "1000")
    job.send(name)
    job.wait_got("SIGTERM")
    time.sleep(A_WISH_S)
    job.send(name)
    assert job.wait() == 1


@pytest.mark.parametrize(
    "names", ["SIGTERM SIGTERM", "SIGINT SIGINT", "SIGHUP SIGTERM SIGTERM"], ids=lambda names: names
)
def test_signals_within_a_moment_are_one(run, names):
    """A scheduler that signals a process group and its leader ends no rank at once."""
    job = run("regroup", "--term-grace", "1000")
    for name in names.split():
        job.send(name)
        job.wait_taken(name)  # ranks on busy cores may need more than the moment to note theirs
    job.wait_got("SIGTERM")
    time.sleep(0.3)  # nothing is to happen
    assert job.process.poll() is None
    job.wait_states("S")
    time.sleep(A_WISH_S)
    job.send("SIGTERM")
    assert job.wait() == 1


@pytest.mark.parametrize("launcher", ["regroup", "openmpi-5"])
def test_list_replaces_the_usual_ones(run, launcher):
    job = run(launcher, *LONGER.get(launcher, []), "--forward-signals", "SIGURG,SIGSYS")
    job.send("SIGURG")
    job.wait_got("SIGURG")
    job.send("SIGSYS")
    job.wait_got("SIGSYS")
    job.send("SIGCONT")
    job.send("SIGTERM")
    assert job.wait() == 1
    assert job.got() == [{"SIGURG", "SIGSYS", "SIGCONT", "SIGTERM"}] * 2  # CONT goes with TERM


def test_none_are_forwarded(run):
    """mpirun dies of them and leaves its ranks; we go on."""
    job = run("regroup", *LONGER["regroup"], "--forward-signals", "none")
    for name in ("SIGUSR1", "SIGUSR2", "SIGABRT", "SIGALRM"):
        job.send(name)
    job.send("SIGTSTP")
    until(lambda: state(job.process.pid) == "T", "the launcher stops")
    job.wait_states("S")  # not T, and perhaps R for a moment
    job.send("SIGCONT")
    until(lambda: state(job.process.pid) == "S", "the launcher goes on")
    job.send("SIGTERM")
    job.assert_ends_by_term()


def test_signals_that_end_a_job_can_be_forwarded(run):
    job = run("regroup", "--forward-signals", "TERM,HUP,QUIT")
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGTERM"):
        job.send(name)
        job.wait_got(name)
    assert job.process.poll() is None
    job.send("SIGINT")
    assert job.wait() == 1


HYDRA_LOSES_IT = (0, 11)  # a status of its own, at times: a race in it, or a fault


def test_forwarded_under_the_name_of_hydra(run):
    """As hydra does, which is not asked itself: on busy cores it loses a signal at times, or the
    status."""
    job = run("regroup-mpich")
    sent = ["SIGUSR1", "SIGALRM", "SIGQUIT", "SIGTERM", "SIGINT"]
    for name in sent:
        job.send(name)
        job.wait_got(name)
    assert job.got() == [set(sent)] * 2
    assert job.process.poll() is None
    time.sleep(A_WISH_S)
    job.send("SIGINT")
    assert job.wait() == 255


FATAL = {"SIGUSR1": (138, 10), "SIGALRM": (142, 14), "SIGTERM": (1, 15), "SIGINT": (1, 2)}


@pytest.mark.parametrize("name", FATAL)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_status_where_ranks_die_of_it(regroup, tmp_path, launcher, name):
    script = f"echo up >> {tmp_path}/up; exec sleep 60"
    job = subprocess.Popen(
        [*rival(launcher), "-np", "2", "sh", "-c", script],
        env=regroup.env | KILLS_AT_ONCE, start_new_session=True, **stdin_for(launcher),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        up = tmp_path / "up"
        until(lambda: up.exists() and len(up.read_text().split()) == 2, "both ranks are up")
        job.send_signal(getattr(signal, name))
        status = job.wait(DEADLINE_S)
        assert status == FATAL[name][launcher in MPICH] or (
            launcher == "hydra" and status in HYDRA_LOSES_IT
        )
    finally:
        job.kill()
        job.wait(DEADLINE_S)


@pytest.fixture
def shell(terminal):
    """An interactive shell at a terminal; its prompt is the last exit status, as <0>."""
    terminal.env = {**terminal.env, "PS1": "<$?>"}
    process = terminal.run("bash", "--norc", "--noprofile", "-i")
    yield terminal
    process.kill()
    process.wait(DEADLINE_S)


def wait_sees(shell, pattern: bytes) -> re.Match:
    def found() -> re.Match | None:
        shell.sees(b"")
        return re.search(pattern, shell.text)

    return until(found, lambda: f"{pattern!r} at the terminal, which shows {shell.text!r}")


# It waits for a child in the background: one in the foreground would be vforked, and when both are
# stopped before that child runs its program, its parent is never seen in state T but in D.
STUBBORN = "trap 'echo got-TERM-$$' TERM; echo up-$$; while :; do sleep 1000 & wait; done"
WILLING = STUBBORN.replace("' TERM", "; exit' TERM")


def type_job(shell, *options: str, script: str = WILLING) -> int:
    """The process id of a member, once it runs. What is typed is seen too, but has no digits there.
    Who is slow to answer a signal is not killed meanwhile."""
    command = [*LAUNCHERS["regroup"], "--term-grace", "1000", *options]
    command += ["sh", "-c", f'"{script.replace("$", chr(92) + "$")}"']
    shell.type(" ".join(command).encode() + b"\n")
    return int(wait_sees(shell, rb"up-(\d+)")[1])


def end_job(shell, key: bytes) -> None:
    shell.type(key)
    wait_sees(shell, rb"got-TERM-\d")
    wait_sees(shell, b"<1>")


@pytest.mark.parametrize("job", ["-np 2", "-np 1:2 --initial-size 2", "--role a=1"])
def test_interrupt_key(shell, job):
    type_job(shell, *job.split())
    end_job(shell, b"\x03")


def test_interrupt_key_twice(shell):
    type_job(shell, "-np", "2", script=STUBBORN)
    shell.type(b"\x03")
    wait_sees(shell, rb"got-TERM-\d")
    shell.type(b"\x03")
    wait_sees(shell, b"<1>")


def test_quit_key(shell):
    type_job(shell, "-np", "2")
    end_job(shell, b"\x1c")


@pytest.mark.parametrize("job", ["-np 1", "-np 1:2 --initial-size 1", "--role a=1"])
def test_suspend_key(shell, job):
    """The shell gets the terminal back, the members stand still; `fg` sets both going again."""
    pid = type_job(shell, *job.split())
    shell.type(b"\x1a")
    wait_sees(shell, b"Stopped")
    wait_sees(shell, b"<147>")  # 128 + SIGSTOP
    until(lambda: state(pid) == "T", "the member is stopped")
    shell.type(b"fg\n")
    until(lambda: state(pid) == "S", "the member goes on")
    end_job(shell, b"\x03")
