"""Output formats, -x and files of parameters as Open MPI 5.0.11 and hydra of MPICH 5.0.2 have them,
which run beside regroup."""

import re
import socket

import pytest
from mpi_peers import OPENMPI5, ROOT

HYDRA = ROOT / ".venv/mpich/bin/mpiexec.hydra"
PROGRAM = ["-np", "2", "sh", "-c", "echo A; echo B >&2"]


def plain(text: str) -> list[str]:
    """Lines in order of ranks, with one date, and one process on this host, for all."""
    text = re.sub(rf"\[{re.escape(socket.gethostname())}:\d+\]", "[HOST:PID]", text)
    return sorted(re.sub(r"\w{3} \w{3} [\d ]\d [\d:]{8} \d{4}", "DATE", text).splitlines())


def test_a_detailed_tag_names_the_process(runner):
    script = ["sh", "-c", "echo $$"]
    done = runner.regroup("--oversubscribe", "--output", "tag-detailed", "-np", "2", *script)
    assert len(done.lines) == 2
    assert all(re.fullmatch(r"\[1,\d\]\[.*:(\d+)\]<stdout>: \1", line) for line in done.lines)


@pytest.mark.parametrize(
    ("format", "first"),
    [
        ("tag", "[1,0]<stdout>: A"),
        ("rank", "[0]<stdout>: A"),
        ("tag,rank", "[1,0]<stdout>: A"),
        ("timestamp", "[DATE]<stdout>: A"),
        ("tag,timestamp", "[DATE][1,0]<stdout>: A"),
        ("timestamp,rank", "[DATE][0]<stdout>: A"),
        ("tag-detailed", "[1,0][HOST:PID]<stdout>: A"),
        ("rank,tag-detailed", "[1,0][HOST:PID]<stdout>: A"),
        ("tag,tag-detailed", "[1,0]<stdout>: A"),
        ("timestamp,tag-detailed", "[DATE]<stdout>: [1,0][HOST:PID]<stdout>: A"),
    ],
)
def test_formats_of_open_mpi_5(runner, format, first):
    words = ["--output", format, *PROGRAM]
    done = runner.regroup("--oversubscribe", *words)
    assert (done.status, plain(done.out)[0]) == (0, first)
    own = runner.run([*OPENMPI5.launcher, *words], OPENMPI5.env)
    assert (plain(done.out), plain(done.err)) == (plain(own.out), plain(own.err))


def test_tags_of_open_mpi_4_stay(runner):
    for words, first in (
        (["--tag-output"], "[1,0]<stdout>:A"),
        (["--timestamp-output"], "DATE<stdout>:A"),
        (["--tag-output", "--output", "timestamp"], "DATE[1,0]<stdout>:A"),
        (["--output", "timestamp", "--tag-output"], "DATE[1,0]<stdout>:A"),
    ):
        assert plain(runner.regroup("--oversubscribe", *words, *PROGRAM).out)[0] == first


@pytest.mark.parametrize("pattern", ["[%r] ", "%r of %h, %p, %g| ", "$x ${y} %% "])
def test_prefix_of_hydra(runner, pattern):
    words = ["-prepend-pattern", pattern, *PROGRAM]
    done = runner.regroup("--compat=mpich", *words)
    own = runner.run([HYDRA, *words])
    assert done.status == own.status == 0, done.err
    assert (plain(done.out), plain(done.err)) == (plain(own.out), plain(own.err))


def test_what_hydra_does_not_know_in_a_prefix_is_refused(runner):
    done = runner.regroup("--compat=mpich", "-prepend-pattern", "%q ", *PROGRAM)
    assert (done.status, done.out) == (255, "")
    assert "--prepend-pattern" in done.err.replace("'", "") or "-prepend-pattern" in done.err
    assert "'%q': expected %r (rank)" in done.err


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--tune", "/no/file"], 243),
        (["--am", "/no/file"], 243),
        (["--with-ft", "none"], 213),
        (["--with-ft", "all"], 213),
    ],
)
def test_refused_as_by_open_mpi_5(runner, words, status):
    done = runner.regroup(*words, "-np", "1", "true")
    own = runner.run([*OPENMPI5.launcher, *words, "-np", "1", "true"], OPENMPI5.env)
    assert (done.status, own.status) == (status, status)
    assert done.err.startswith(f"regroup: option {words[0]} ")


def test_of_two_values_of_x_the_last_counts_and_a_line_says_so(runner):
    words = ["-np", "1", "-x", "MODE=first", "-x", "MODE=second", "sh", "-c", "echo $MODE"]
    done = runner.regroup(*words)
    assert (done.status, done.out) == (0, "second\n")
    assert "-x MODE: given twice; the last value counts" in done.err
    assert runner.run([*OPENMPI5.launcher, *words], OPENMPI5.env).out == "first\n"
    same = ["-np", "1", "-x", "MODE=a", "-x", "MODE=a", "true"]
    assert runner.regroup(*same).err == ""
