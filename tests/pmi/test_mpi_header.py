"""regroup/mpi.h: Regroup's operations and bits among the ranks of MPI programs, compiled with each
MPI."""

import re
import subprocess
from pathlib import Path

import numpy
import pytest
from mpi_peers import MPIS, ROOT, Mpi

BUILD = ROOT / "build"
BY_STANDARD_ABI = Mpi("mpich5-abi", ROOT / ".venv/mpich/bin/mpicc_abi", [], [])
ELEMENTS = 100_000  # of the example


def link_flags() -> list[str]:
    """The libraries of regroup.pc, where the build has them."""
    text = (BUILD / "regroup.pc").read_text()
    (libraries,) = re.findall(r"^Libs: -L\$\{libdir\} (.*)$", text, re.MULTILINE)
    return [f"-L{BUILD}/lib", *libraries.split()]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mpi_header")

    def program(mpi: Mpi, source: Path) -> Path:
        out = folder / f"{source.stem}-{mpi}"
        if not out.exists():
            compiler = str(mpi.mpicc).replace("mpicc", "mpicxx")
            flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror"]
            flags += ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", f"-I{ROOT}/include"]
            command = [compiler, *flags, source, "-o", out, *link_flags()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
        return out

    return program


@pytest.fixture
def program(compiled, mpi) -> Path:
    return compiled(mpi, ROOT / "tests/pmi/mpi_header.cc")


def run(runner, mpi: Mpi, ranks: int, *words):
    return runner.regroup(
        *mpi.options, "--oversubscribe", "-np", str(ranks), *map(str, words), env=mpi.env
    )


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_operations_do_what_they_say(runner, mpi, program, ranks):
    done = run(runner, mpi, ranks, program)
    assert done.status == 0, done.out + done.err
    assert done.lines == [f"rank {r} of {ranks}: 0 failed" for r in range(ranks)]


def gradient(shard: int) -> numpy.ndarray:
    state, out = (shard * 2_654_435_761 + 1) % 2**32, numpy.empty(ELEMENTS, numpy.uint32)
    for i in range(ELEMENTS):
        state = (state * 1_664_525 + 1_013_904_223) % 2**32
        out[i] = state
    return out.view(numpy.int32).astype(numpy.float32) * numpy.float32(2.0**-24)


def tree(leaves: list[numpy.ndarray]) -> numpy.ndarray:
    if len(leaves) == 1:
        return leaves[0]
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    return tree(leaves[:middle]) + tree(leaves[middle:])


@pytest.fixture(scope="module")
def digest() -> str:
    """FNV-1a of the canonical sum."""
    value = 0xCBF29CE484222325
    for byte in tree([gradient(shard) for shard in range(8)]).tobytes():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


@pytest.mark.parametrize("mpi", [*MPIS, BY_STANDARD_ABI], ids=str)
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_the_example_has_the_bits_of_the_canonical_tree(runner, mpi, compiled, digest, ranks):
    done = run(runner, mpi, ranks, compiled(mpi, ROOT / "examples/cpp/mpi_sum.cc"))
    assert done.status == 0, done.err
    assert done.lines == [f"sum of 8 leaves: {digest}"] * ranks


def test_it_runs_under_the_mpis_own_launcher(runner, mpi, program):
    done = runner.run([*mpi.launcher, "-np", "3", program], env=mpi.env)
    assert done.status == 0, done.out + done.err
    assert done.lines == [f"rank {r} of 3: 0 failed" for r in range(3)]


def test_ranks_in_different_operations_are_named(runner, mpi, program):
    done = run(runner, mpi, 3, program, "mismatch")
    assert done.status == 0, done.err
    # UCX, in MPICH, tells of what was not received before MPI_Finalize.
    lines = [line for line in done.lines if line.startswith("rank")]
    for line in lines:
        assert re.fullmatch(
            r"rank \d: invalid argument: \w+: rank \d is in (barrier|allreduce .*), "
            r"rank \d in (barrier|allreduce .*)",
            line,
        )
    assert len(lines) == 3


def test_a_rank_that_does_not_arrive_is_named_at_the_deadline(runner, mpi, program):
    done = run(runner, mpi, 3, program, "late")
    assert done.status == 0, done.err
    lines = [line for line in done.lines if line.startswith("rank")]
    for line in (lines[0], lines[2]):
        assert re.fullmatch(
            r"rank \d: deadline exceeded: allreduce: rank (0, |)1(, 2|) of 3 did not arrive after "
            r"\d\.\d+ s",
            line,
        )
    assert lines[1] == "rank 1: ok"


@pytest.mark.parametrize("mpi", MPIS, ids=str)
def test_before_mpi_init_it_says_so(runner, mpi, program):
    done = run(runner, mpi, 1, program, "early")
    assert done.out == "unavailable: make_mpi: MPI_Init has not been called\n", done.err
