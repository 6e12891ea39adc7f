"""Who gets standard input, and how a terminal is treated."""

import hashlib
import os
import subprocess
import sys
import termios
import tty

import pytest
from conftest import BIN, DEADLINE_S, rival, until

PYTHON = [sys.executable, "-c"]
DIGEST = (
    "import os, sys, hashlib\n"
    "d = sys.stdin.buffer.read()\n"
    "print(os.environ['RANK'], len(d), hashlib.sha256(d).hexdigest()[:8])\n"
)


def expected(rank: int, data: bytes) -> str:
    return f"{rank} {len(data)} {hashlib.sha256(data).hexdigest()[:8]}"


@pytest.mark.parametrize(
    ("to", "readers"), [("all", {0, 1, 2}), ("none", set()), ("2", {2}), ("0", {0})]
)
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_input_goes_to_those_who_were_asked_for(regroup, tmp_path, to, readers, kind):
    data = os.urandom(3 << 20)
    (tmp_path / "in").write_bytes(data)
    source = subprocess.Popen(["cat", str(tmp_path / "in")], stdout=subprocess.PIPE)
    with open(tmp_path / "in", "rb") as file:
        stdin = file if kind == "file" else source.stdout
        job = regroup.run(
            "--oversubscribe", "-np", "3", "--stdin", to, *PYTHON, DIGEST, stdin=stdin
        )
    source.kill()
    source.wait()
    wanted = [expected(rank, data if rank in readers else b"") for rank in range(3)]
    assert sorted(job.out.splitlines()) == wanted


def test_a_rank_that_is_not_there_is_refused_as_by_mpirun_4(regroup):
    """Open MPI 5 swallows the input."""
    job = regroup.run("--oversubscribe", "--stdin", "2", "-np", "2", "cat")
    assert (job.wait(), job.err) == (1, "regroup: --stdin 2: expected a rank of at most 1\n")
    words = [*rival("openmpi-4"), "--oversubscribe", "--stdin", "2", "-np", "2", "cat"]
    theirs = subprocess.run(
        words, env=regroup.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S
    )
    assert theirs.returncode == 1


def test_a_member_that_reads_no_more_does_not_stop_the_others(regroup, tmp_path):
    data = os.urandom(2 << 20)
    (tmp_path / "in").write_bytes(data)
    script = "import os, sys\nif os.environ['RANK'] == '0': sys.exit(0)\n" + DIGEST
    with open(tmp_path / "in", "rb") as file:
        job = regroup.run(
            "--oversubscribe", "-np", "3", "--stdin", "all", *PYTHON, script, stdin=file
        )
    assert sorted(job.out.splitlines()) == [expected(1, data), expected(2, data)]
    assert job.process.returncode == 0


def test_the_slowest_sets_the_pace(regroup, tmp_path):
    """Rank 1 reads nothing until a file appears: what rank 0 gets until then is bounded."""
    go = tmp_path / "go"
    script = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "n = 0\n"
        "while b := os.read(0, 65536):\n"
        "    n += len(b)\n"
        "    if os.environ['RANK'] == '0': sys.stderr.write(f'{n}\\n')\n"
        "print(n)\n"
    )
    size = 4 << 20
    read, write = os.pipe()
    job = regroup.start(
        "--oversubscribe", "-np", "2", "--stdin", "all", *PYTHON, script, str(go), stdin=read
    )
    os.close(read)
    os.set_blocking(write, False)
    sent = 0

    def full() -> bool:
        nonlocal sent
        try:
            sent += os.write(write, b"x" * min(65536, size - sent))
            return False
        except BlockingIOError:
            return True

    until(full, "nothing more is taken")
    assert sent < 1 << 20
    go.touch()
    until(lambda: not full() and sent == size, "all is taken")
    os.close(write)
    assert job.wait() == 0
    assert job.out.split() == [str(size)] * 2


SHELL = f"""
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen([{str(BIN / "regroup")!r}, '-np', '1', *sys.argv[1:]], process_group=0)
print('started', flush=True)
"""


def test_input_of_a_terminal_waits_for_the_foreground(terminal):
    """What is typed while the job is in the background is the shell's; no SIGCONT tells of the
    change."""
    script = SHELL.replace("*sys.argv[1:]", "'sh', '-c', 'echo up; read line; echo got $line'") + (
        "line = sys.stdin.readline()\n"  # the shell's own, typed while the job is in the background
        "print('shell read', line, flush=True)\n"
        "os.tcsetpgrp(0, job.pid)\n"
        "job.wait()\n"
        "os.tcsetpgrp(0, os.getpid())\n"
        "print('status', job.returncode, flush=True)\n"
    )
    shell = terminal.run(sys.executable, "-c", script)
    try:
        until(lambda: terminal.sees(b"up"), "the member runs")
        os.write(terminal.master, b"one\n")
        until(lambda: terminal.sees(b"shell read one"), f"the shell reads: {terminal.text}")
        os.write(terminal.master, b"two\n")
        until(lambda: terminal.sees(b"got two"), f"the member reads: {terminal.text}")
        until(lambda: terminal.sees(b"status 0"), f"the job ends: {terminal.text}")
    finally:
        shell.kill()
        shell.wait()


def test_output_of_the_background_is_seen_even_with_tostop(terminal):
    """The job is not stopped by it: a training run goes on."""
    modes = termios.tcgetattr(terminal.slave)
    modes[3] |= termios.TOSTOP
    termios.tcsetattr(terminal.slave, termios.TCSANOW, modes)
    script = (
        SHELL.replace("*sys.argv[1:]", "'echo', 'from behind'")
        + "print('status', job.wait(), flush=True)\n"
    )
    shell = terminal.run(sys.executable, "-c", script)
    try:
        until(lambda: terminal.sees(b"status 0"), f"the job ends: {terminal.text}")
        assert terminal.sees(b"from behind")
    finally:
        shell.kill()
        shell.wait()


def test_modes_of_a_terminal_stay_as_they_are(terminal, regroup):
    tty.setraw(terminal.slave)
    before = termios.tcgetattr(terminal.slave)
    job = regroup.start(
        "-np",
        "1",
        "sh",
        "-c",
        "echo up; head -c 3; echo",
        stdin=terminal.slave,
        stdout=terminal.slave,
    )
    until(lambda: terminal.sees(b"up"), "the member runs")
    assert termios.tcgetattr(terminal.slave) == before
    os.write(terminal.master, b"a\x03b")  # no line, and no signal: the terminal is raw
    assert job.wait() == 0
    until(lambda: terminal.sees(b"a\x03b"), "what was typed came back")
    assert termios.tcgetattr(terminal.slave) == before
