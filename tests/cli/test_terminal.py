"""At a terminal members get terminals for their standard output, as under mpirun, which runs
beside."""

import collections
import contextlib
import fcntl
import hashlib
import os
import re
import struct
import subprocess
import sys
import termios
import tty

import pytest
from conftest import DEADLINE_S, rival, until

TWO = ["-np", "2"]
MARK = b"<the end>"
STREAMS = """
import fcntl, os, sys, termios
rank = next(os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK") if n in os.environ)
for fd in range(3):
    said = "none"
    if os.isatty(fd):
        modes = termios.tcgetattr(fd)[:4]
        said = f"modes {modes} size {tuple(os.get_terminal_size(fd))}"
    os.write(1, f"rank {rank} stream {fd}: {said}\\n".encode())
"""


def read_all(terminal, process: subprocess.Popen) -> bytes:
    """What comes until the program at the terminal has ended. The kernel hands over what is written
    at one side some time later, in order: behind the program's last words comes our own mark."""
    os.set_blocking(terminal.master, False)
    parts: list[bytes] = []

    def take() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                parts.append(os.read(terminal.master, 1 << 20))

    def over() -> bool:
        ended = process.poll() is not None
        take()
        return ended

    def marked() -> bool:
        take()
        parts[:] = [b"".join(parts)]
        return parts[0].endswith(MARK)

    until(over, "the job ends", 4 * DEADLINE_S)
    os.write(terminal.slave, MARK)
    until(marked, "the mark behind the last words")
    return parts[0].removesuffix(MARK)


def streams_under(terminal, launcher: str) -> list[str]:
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    process = terminal.run(*rival(launcher), *TWO, sys.executable, "-c", STREAMS)
    return sorted(re.findall(r"rank .*", read_all(terminal, process).decode().replace("\r", "")))


@pytest.mark.parametrize("launcher", ["openmpi-4", "openmpi-5"])
def test_streams_are_what_mpirun_gives(terminal, launcher):
    ours = streams_under(terminal, "regroup")
    assert len(ours) == 6
    assert [("size (77, 33)" in line) for line in ours] == [False, True, False] * 2
    assert ours == streams_under(terminal, launcher)


def test_streams_are_what_hydra_gives(terminal):
    ours = streams_under(terminal, "regroup-mpich")
    assert ours == [f"rank {rank} stream {fd}: none" for rank in range(2) for fd in range(3)]
    assert ours == streams_under(terminal, "hydra")


def test_elsewhere_members_have_pipes(regroup):
    job = regroup.run("-np", "1", sys.executable, "-c", STREAMS)
    assert job.out.splitlines() == [f"rank 0 stream {fd}: none" for fd in range(3)]


@pytest.mark.parametrize(
    "job", [["-np", "1"], ["-np", "1:2", "--initial-size", "1"], ["--role", "a=1"]]
)
def test_each_line_is_seen_when_it_ends(terminal, tmp_path, job):
    """The member's own library holds back what it prints, unless it prints to a terminal."""
    go = tmp_path / "go"
    script = (
        "import os, sys, time\n"
        "print('first line')\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "print('last line')\n"
    )
    process = terminal.run(*rival("regroup"), *job, sys.executable, "-c", script, str(go))
    until(lambda: terminal.sees(b"first line\r\n"), "the first line")
    assert not terminal.sees(b"last line")
    go.touch()
    assert b"last line\r\n" in read_all(terminal, process)


@pytest.mark.parametrize("launcher", ["regroup", "openmpi-4"])
def test_a_prompt_is_seen_before_its_answer(terminal, launcher):
    script = 'printf "who? "; read name; echo "I am $name"'
    process = terminal.run(*rival(launcher), "-np", "1", "sh", "-c", script)
    until(lambda: terminal.sees(b"who? "), "the prompt")
    terminal.type(b"Ada\n")
    assert b"I am Ada\r\n" in read_all(terminal, process)


def test_a_bar_that_grows_is_seen_growing(terminal, tmp_path):
    """On standard error too, which stays a pipe: there the bars of training runs are."""
    go = tmp_path / "go"
    script = (
        f'printf "\\r10 pct" >&2; until [ -e {go} ]; do sleep 0.01; done; printf "\\r20 pct\\n" >&2'
    )
    process = terminal.run(*rival("regroup"), "-np", "1", "sh", "-c", script)
    until(lambda: terminal.sees(b"\r10 pct"), "the beginning")
    go.touch()
    assert b"\r20 pct\r\n" in read_all(terminal, process)


def test_last_words_without_an_end_are_kept(terminal):
    tty.setraw(terminal.slave)
    for _ in range(20):
        process = terminal.run(
            *rival("regroup"), "-np", "4", "sh", "-c", 'printf "bye $RANK,"; exit 0'
        )
        assert sorted(read_all(terminal, process).split(b",")) == [b""] + [
            b"bye %d" % r for r in range(4)
        ]


@pytest.mark.parametrize("options", [["-np", "1"], ["-np", "2", "-l"]], ids=" ".join)
def test_volume_passes_unharmed(terminal, options):
    """20 MB of lines with odd bytes, far more than pipes and terminal hold; the terminal is raw, so
    it changes nothing itself."""
    tty.setraw(terminal.slave)
    script = (
        "import hashlib, os\n"
        "rank = os.environ['RANK'].encode()\n"
        "odd = bytes(b for b in range(256) if b != 10)\n"
        "digest = hashlib.sha256()\n"
        "for i in range(100):\n"
        "    block = b''.join(b'%s:%d %s\\n' % (rank, i * 1000 + j, odd * 2) for j in "
        "range(1000))\n"
        "    digest.update(block)\n"
        "    while block: block = block[os.write(1, block):]\n"
        "os.write(1, b'%s:digest %s\\n' % (rank, digest.hexdigest().encode()))\n"
    )
    ranks = int(options[1])
    script = script.replace("100)", f"{40 // ranks})")
    process = terminal.run(*rival("regroup"), *options, sys.executable, "-c", script)
    text = read_all(terminal, process)
    assert process.returncode == 0
    assert len(text) > 20_000_000
    digests = collections.defaultdict(hashlib.sha256)
    for line in re.findall(rb"[^\n]*\n", text):
        if "-l" in options:
            tag, line = line[:4], line[4:]
            assert tag == b"[%b] " % line[:1]
        rank, _, rest = line.partition(b":")
        if rest.startswith(b"digest "):
            assert rest.split()[1] == digests.pop(rank).hexdigest().encode()
        else:
            digests[rank].update(line)
    assert not digests
    assert text.count(b":digest ") == ranks
