"""--progress and `regroup top`: at a terminal one line that is redrawn and never mixes with others,
else lines."""

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from conftest import BIN, DEADLINE_S, elastic, until

STEPS = 400
MEMBER_MS = 10  # of a leaf
BAR = r"epoch 1/1 \[#*\.*\] \d+ %"
PART = r"(  loss (1|0\.\d+))?(  [\d.]+ samples/s)?"
END = r"(  \d members?( \(generation \d+\))?)?(  ETA [\d:]+)?"
DRAWN = re.compile(rf"({BAR}|epoch 1/1 \d+ %)  step \d+{PART}{END}")
PRINTED = re.compile(rf"epoch 1/1 \d+ %  step \d+{PART}{END}")
OF_MEMBERS = re.compile(r"step \d+ size \d|finished [\d.]+|regroup: .*|left|")


def training(member: str, steps: int = STEPS, milliseconds: int = MEMBER_MS) -> list[str]:
    return [member, str(steps), str(milliseconds), "f", "sum", "0", "64", "loss"]


def rows(text: bytes) -> list[str]:
    """What a terminal shows: \r goes to the first column, \x1b[K erases from there, and a row that
    is written over keeps what is not."""
    out, row, column = [], [], 0
    for token in re.findall(r"\x1b\[K|.", text.decode(), re.DOTALL):
        if token == "\n":
            out.append("".join(row))
            row, column = [], 0
        elif token == "\r":
            column = 0
        elif token == "\x1b[K":
            del row[column:]
        else:
            row[column : column + 1] = [token]
            column += 1
    return [*out, "".join(row)]


def drawn_steps(text: bytes) -> list[int]:
    return [int(step) for step in re.findall(rb"\r\x1b\[Kepoch [^\r\n]*  step (\d+)", text)]


def read_to_end(terminal, process: subprocess.Popen) -> bytes:
    def over() -> bool:
        ended, before = process.poll() is not None, len(terminal.text)
        terminal.sees(b"")
        return ended and len(terminal.text) == before

    until(over, "the job ends")
    return terminal.text


def set_width(terminal, columns: int) -> None:
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, columns, 0, 0))


def last_drawn(text: bytes) -> str:
    """The one row that a line of progress has left; all others are of members or messages."""
    drawn = [row for row in rows(text) if not OF_MEMBERS.fullmatch(row)]
    assert len(drawn) == 1, drawn
    assert DRAWN.fullmatch(drawn[0]), drawn
    return drawn[0]


def test_a_terminal_has_one_line_that_never_mixes_with_others(terminal, member):
    set_width(terminal, 120)
    launcher = str(BIN / "regroup")
    process = terminal.run(launcher, "--progress", *elastic("2:2", *training(member)))
    text = read_to_end(terminal, process)
    assert process.returncode == 0, text.decode()
    steps = drawn_steps(text)
    assert len(steps) > 3
    assert steps == sorted(steps)
    assert last_drawn(text).startswith(
        f"epoch 1/1 [##########] 100 %  step {STEPS}  loss {1 / STEPS:.4g}  "
    )


def test_a_kill_in_the_middle_neither_mixes_nor_goes_back(regroup, terminal, member):
    set_width(terminal, 100)
    words = elastic("1:3", "--initial-size", "3", *training(member))
    process = terminal.run(str(BIN / "regroup"), "--progress", *words)
    until(lambda: terminal.sees(b" samples/s"), "the first speed")
    assert regroup.control("kill-member", "1").returncode == 0
    until(lambda: terminal.sees(b"generation 2: "), "the next World")
    text = read_to_end(terminal, process)
    assert process.returncode == 0, text.decode()
    steps = drawn_steps(text)
    assert steps == sorted(steps)
    assert f"  step {STEPS}  " in last_drawn(text)


def test_a_coordinator_that_dies_is_replaced_without_a_trace(regroup, terminal, member):
    words = elastic("2:2", *training(member))
    process = terminal.run(str(BIN / "regroup"), "--progress", *words)
    until(lambda: terminal.sees(b"  step "), "the first line")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def coordinator() -> int | None:
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):  # some are there for a moment only
                if Path(f"/proc/{pid}/comm").read_text() == "regroup-coord\n":
                    return int(pid)
        return None

    os.kill(until(coordinator, "the coordinator"), signal.SIGKILL)
    until(lambda: terminal.sees(b"restarting it"), "the next coordinator")
    text = read_to_end(terminal, process)
    assert process.returncode == 0, text.decode()
    assert f"  step {STEPS}  " in last_drawn(text)
    steps = drawn_steps(text)
    assert steps == sorted(steps)


def test_a_prompt_is_not_drawn_over(terminal, member, tmp_path):
    """A line without its end stays the last one, while the training goes on."""
    steps = tmp_path / "steps"
    passed = f"until grep -q '^step %d ' {steps}; do sleep 0.05; done"
    script = f"""{" ".join(training(member, 60))} >{steps} &
        {passed % 3}; printf 'name: '; {passed % 30}; echo Ada; wait $!"""
    process = terminal.run(str(BIN / "regroup"), "--progress", *elastic("1:1", "sh", "-c", script))
    text = read_to_end(terminal, process)
    assert process.returncode == 0, text.decode()
    assert "name: Ada" in rows(text)


@pytest.mark.parametrize("term", [{"TERM": "dumb"}, {}], ids=["dumb", "file"])
def test_without_a_terminal_there_are_lines(regroup, terminal, member, term):
    words = ["--progress", "--quiet", *elastic("2:2", *training(member, 20))]
    if term:
        terminal.env = {**terminal.env, **term}
        process = terminal.run(str(BIN / "regroup"), *words)
        text = read_to_end(terminal, process).decode().replace("\r\n", "\n")
    else:
        text = regroup.run(*words).err
    lines = [line for line in text.splitlines() if line.startswith("regroup: ")]
    assert lines, text
    for line in lines:
        assert PRINTED.fullmatch(line.removeprefix("regroup: ")), line
    assert lines[-1].startswith(f"regroup: epoch 1/1 100 %  step 20  loss {1 / 20:.4g}")
    assert "\x1b" not in text


def test_a_line_comes_each_ten_seconds_of_a_job_on_two_hosts(regroup, member):
    hosts = ["--launcher", "fork", "-H", "a:1,b:1"]
    job = regroup.start("--progress", *hosts, *elastic("2:2", *training(member, 3000)))
    parts = ("loss 0\\.", " samples/s", "2 members \\(generation 1\\)", "ETA ")
    seen = "".join(f"(?=.*{part})" for part in parts)  # a slow start has no speed at first
    line = job.wait_err(rf"^{seen}regroup: epoch 1/1 \d+ %  step \d+ .*$")[0]
    assert PRINTED.fullmatch(line.removeprefix("regroup: ")), line
    job.hurry()
    assert job.wait() == 0
    job.wait_err(rf"^regroup: epoch 1/1 100 %  step 3000  loss {1 / 3000:.4g} ")


def test_a_job_that_is_not_elastic_says_so(regroup):
    job = regroup.run("--progress", "-np", "1", "true")
    assert "--progress: ignored; requires an elastic job (-np MIN:MAX)" in job.err


def test_top_shows_a_running_job_until_it_ends(regroup, member, tmp_path):
    job = regroup.start(*elastic("2:2", *training(member, 3000)))
    top = [str(BIN / "regroup"), "top"]
    until(lambda: " samples/s" in regroup.control("top", "--once").stdout, "a speed")
    once = regroup.control("top", "--once")
    assert once.returncode == 0
    assert PRINTED.fullmatch(once.stdout.removesuffix("\n")), once.stdout
    out, err = tmp_path / "out", tmp_path / "err"

    def lines() -> list[str]:
        return [line[:-1] for line in out.read_text().splitlines(True) if line.endswith("\n")]

    with out.open("wb") as to, err.open("wb") as errors:
        follower = subprocess.Popen(
            [*top, "--interval=0.2"], env=regroup.env, stdout=to, stderr=errors
        )
    try:
        until(lines, "a line")
        os.kill(job.coordinator, signal.SIGKILL)
        job.wait_err("restarting it")
        seen = len(lines())
        until(lambda: len(lines()) > seen, "a line after the restart")
        job.hurry()
        assert follower.wait(DEADLINE_S) == 0
    finally:
        follower.kill()
        follower.wait()
    assert re.fullmatch(r"regroup: job \S+ has ended\n", err.read_text())
    assert all(PRINTED.fullmatch(line) for line in lines()), lines()
    assert job.wait() == 0
    after = regroup.control("top")
    assert (after.returncode, after.stdout) == (1, "")
    assert after.stderr == "regroup: no elastic job of this user is running\n"


def test_top_at_a_terminal_ends_by_ctrl_c_and_the_job_goes_on(regroup, terminal, member):
    job = regroup.start(*elastic("2:2", *training(member, 3000)))
    until(lambda: " samples/s" in regroup.control("top", "--once").stdout, "a speed")
    set_width(terminal, 60)
    process = terminal.run(str(BIN / "regroup"), "top", "--interval", "0.2")
    until(lambda: len(drawn_steps(terminal.text)) > 2 or terminal.sees(b"\0"), "three lines")
    terminal.type(b"\x03")
    assert process.wait(DEADLINE_S) == -signal.SIGINT
    terminal.sees(b"\0")
    *_, last, after = rows(terminal.text)
    assert PRINTED.fullmatch(last.removesuffix("^C")), last
    assert after == ""
    assert job.process.poll() is None
    job.hurry()
    assert job.wait() == 0


def test_top_names_jobs_and_what_it_cannot_show(regroup, member):
    jobs = [regroup.start(*elastic("1:1", *training(member, 3000))) for _ in range(2)]
    for job in jobs:
        job.wait_out("step 1 ")
    several = regroup.control("top", "--once")
    assert several.returncode == 1
    match = re.search(r"several elastic jobs .*: (\S+), (\S+)$", several.stderr.strip())
    assert match, several.stderr
    for name in match.groups():
        assert regroup.control("top", "--once", name).returncode == 0
    for job in jobs:
        job.hurry()
        assert job.wait() == 0
    fixed = regroup.start("-np", "1", "sh", "-c", "echo up; sleep 60")
    fixed.wait_out("up")
    assert "no elastic job" in regroup.control("top").stderr


def test_top_before_the_first_world_says_what_is_waited_for(regroup):
    job = regroup.start(*elastic("2:2", "sh", "-c", "echo up; sleep 60"))
    job.wait_out("up")
    once = regroup.control("top", "--once")
    assert (once.returncode, once.stderr) == (0, "")
    assert re.fullmatch(r"(starting|waiting: .*)\n", once.stdout), once.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "0"], "top: --interval 0: expected 0.1 to 86400 seconds"),
        (["--interval", "soon"], "top: --interval soon: expected 0.1 to 86400 seconds"),
        (["--interval"], "top: --interval: SECONDS is missing"),
        (["--interval=1e99"], "top: --interval 1e99: expected 0.1 to 86400 seconds"),
        (["--onse"], "top: unknown option --onse; did you mean --once?"),
        (["a", "b"], "top: unexpected argument 'b'"),
    ],
)
def test_top_refuses_wrong_words(regroup, words, message):
    done = regroup.control("top", *words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"regroup: {message}"), done.stderr
