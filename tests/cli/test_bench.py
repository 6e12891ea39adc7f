"""`regroup bench`: small real runs, what they print, and what is refused."""

import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
from conftest import BIN, DEADLINE_S

TIMEOUT_S = 240.0  # rivals compile, and import torch
BENCH = [str(BIN / "regroup"), "bench"]
QUICK = ["-f", "16", "-n", "3", "-w", "1", "--rounds", "2"]
OPERATIONS = [
    "allreduce",
    "reduce_scatter",
    "allgather",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
    "barrier",
]
PLACEMENTS = dict.fromkeys(OPERATIONS, ("out", "in")) | {
    "broadcast": ("in",),
    "barrier": ("in",),
    "sendrecv": ("out",),
}
COLUMNS = ("time", "p50", "p99", "algbw", "busbw", "copy", "wrong")


def rows_of(text: str) -> list[dict]:
    """The lines of the table: the columns on the left by name, and those of each placement."""
    rows = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        assert len(words) == 6 + 2 * len(COLUMNS) + 1, line
        row = dict(zip(("size", "count", "type", "redop", "root", "memory"), words, strict=False))
        row["out"] = dict(zip(COLUMNS, words[6:13], strict=True))
        row["in"] = dict(zip(COLUMNS, words[13:20], strict=True))
        row["bare"] = words[20]
        rows.append(row)
    return rows


def bench(regroup, ranks: int, *words: str):
    job = regroup.start("--oversubscribe", "-np", str(ranks), *BENCH, *words)
    job.wait(TIMEOUT_S)
    job.assert_nothing_left()
    return job


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_sizes_and_both_memories_are_verified_and_timed(regroup, ranks):
    job = bench(regroup, ranks, "allreduce", "-b", "8", "-e", "32K", *QUICK)
    rows = rows_of(job.out)
    assert [(row["size"], row["memory"]) for row in rows] == [
        (str(size), memory) for size in (8, 128, 2048, 32768) for memory in ("arena", "ordinary")
    ], job.err
    for row in rows:
        assert (row["count"], row["type"], row["redop"]) == (
            str(int(row["size"]) // 4),
            "float32",
            "sum",
        )
        assert row["out"]["wrong"] == row["in"]["wrong"] == "0", job.out
        assert float(row["out"]["p50"]) > 0 and float(row["in"]["p99"]) > 0
    assert job.process.returncode == 0, job.err
    assert rows[-1]["out"]["copy"] != "-" and rows[-2]["bare"] != "-" and rows[2]["bare"] == "-"
    assert (rows[0]["bare"] != "-") == (ranks > 1)  # an exchange of cache lines
    assert f"regroup bench allreduce: {ranks} rank" in job.out


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_right(regroup, operation):
    job = bench(regroup, 3, operation, "-b", "8", "-e", "128K", *QUICK)
    rows = rows_of(job.out)
    assert len(rows) >= 2, job.err
    for row in rows:
        for placement in ("out", "in"):
            expected = "0" if placement in PLACEMENTS[operation] else "-"
            assert row[placement]["wrong"] == expected, job.out
    assert job.process.returncode == 0, job.err


def test_types_and_operators(regroup):
    job = bench(
        regroup, 2, "reduce_scatter", "-b", "4K", "-e", "4K", "-d", "all", "-o", "all", *QUICK
    )
    assert job.process.returncode == 0, job.err + job.out
    found = {(row["type"], row["redop"]) for row in rows_of(job.out)}
    assert len(found) == 4 * 5 + 5 * 7  # floats have no bit operations
    assert {("bfloat16", "avg"), ("int8", "band"), ("uint8", "max"), ("float64", "prod")} <= found


def test_root_and_memory(regroup):
    job = bench(
        regroup, 3, "broadcast", "-b", "1M", "-e", "1M", "-r", "2", "--memory", "ordinary", *QUICK
    )
    assert job.process.returncode == 0, job.err
    (row,) = rows_of(job.out)
    assert (row["root"], row["memory"], row["in"]["wrong"]) == ("2", "ordinary", "0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["allredcue"], "operation allredcue: expected one of allreduce"),
        (["allreduce", "--minbyts", "8"], "unknown option --minbyts; did you mean --minbytes?"),
        (["allreduce", "-b", "8", "-e", "4"], "expected -b <= -e"),
        (["broadcast", "-r", "2"], "option --root 2: expected a rank below 2"),
        (["allreduce", "-e", "100T", "-b", "100T"], "bytes"),
    ],
)
def test_what_is_wrong_is_said_once(regroup, words, told):
    job = bench(regroup, 2, *words)
    assert job.process.returncode != 0
    assert job.err.count("regroup bench: ") == 1, job.err
    assert told in job.err and not rows_of(job.out)


def test_without_a_job_it_says_what_to_type(regroup):
    done = regroup.control("bench", "allreduce")
    assert done.returncode == 1
    assert "regroup -np 2 regroup bench allreduce" in done.stderr
    assert (
        "usage: regroup -np N regroup bench OPERATION" in regroup.control("bench", "--help").stdout
    )


def test_ranks_with_different_options_are_refused(regroup):
    first, second = [*BENCH, "allreduce", "-e", "8"], [*BENCH, "allreduce", "-e", "16"]
    job = regroup.run("--oversubscribe", "-np", "1", *first, ":", "-np", "1", *second)
    assert job.process.returncode != 0
    assert "the ranks were started with different options" in job.err


def test_a_rank_that_does_not_come_ends_the_wait(regroup):
    script = f'[ "$RANK" = 1 ] && exec sleep 60; exec {" ".join(BENCH)} allreduce -e 8 --timeout 1'
    job = regroup.run("--oversubscribe", "-np", "2", "sh", "-c", script)
    assert job.process.returncode == 1
    assert "only 1 of 2 ranks have started" in job.err


def test_two_jobs_at_once_do_not_meet(regroup):
    words = ["--oversubscribe", "-np", "2", *BENCH, "barrier", "--memory", "arena", *QUICK]
    jobs = [regroup.start(*words) for _ in range(2)]
    for job in jobs:
        assert job.wait(DEADLINE_S) == 0, job.err


def test_elastic_jobs_are_refused(regroup):
    job = regroup.start("--oversubscribe", "-np", "1:2", "--max-restarts", "0", *BENCH, "allreduce")
    job.wait()
    assert "requires a job of -np N, got -np MIN:MAX" in job.err


def test_json_has_what_the_table_has(regroup, tmp_path):
    file = tmp_path / "out.json"
    job = bench(regroup, 2, "allgather", "-b", "4K", "-e", "64K", "--json", str(file), *QUICK)
    assert job.process.returncode == 0, job.err
    result = json.loads(file.read_text())
    assert (result["operation"], result["ranks"], result["rounds"]) == ("allgather", 2, 2)
    assert result["machine"]["cores"] >= 1 and result["machine"]["model"]
    told = rows_of(job.out)
    assert [row["size"] for row in result["rows"]] == [4096, 65536]
    for number, row in enumerate(result["rows"]):
        assert (row["type"], row["redop"], row["root"]) == ("float32", None, None)
        for memory, placements in row["memory"].items():
            (line,) = (x for x in told if (x["size"], x["memory"]) == (str(row["size"]), memory))
            for key, name in (("out_of_place", "out"), ("in_place", "in")):
                figures = placements[key]
                assert figures["wrong"] == 0 and figures["samples"] == 6
                assert (
                    figures["min_us"] <= figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]
                )
                assert line[name]["p50"] == f"{figures['p50_us']:.2f}"
                assert figures["busbw_gbs"] == pytest.approx(figures["algbw_gbs"] / 2)
        assert number < 2


def test_plot_is_a_picture(regroup, tmp_path):
    file = tmp_path / "out.png"
    job = bench(regroup, 2, "allgather", "-b", "8", "-e", "32K", "--plot", str(file), *QUICK)
    assert job.process.returncode == 0, job.err
    picture = matplotlib.image.imread(file)
    assert picture.shape[0] > 300 and picture.shape[1] > 600
    assert picture[..., :3].min() < 0.5 < picture[..., :3].max()  # something is drawn


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_file_that_cannot_be_written_is_said_before_measuring(regroup, tmp_path, option):
    file = str(tmp_path / "none" / "out.png")
    job = bench(regroup, 2, "allreduce", "-e", "8M", "--memory", "ordinary", option, file)
    assert job.process.returncode == 1
    assert f"open({file}): No such file or directory" in job.err
    assert not rows_of(job.out)


def rival_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"#   \S", line)]


@pytest.mark.parametrize(
    ("baseline", "names"),
    [
        ("openmpi=/usr/bin", ["Open MPI 4", "Open MPI 4"]),
        ("mpich", ["MPICH 4"]),
        (f"gloo={Path(sys.executable).parent}", ["Gloo (torch"]),
    ],
)
def test_rivals_take_turns_and_are_verified(regroup, tmp_path, baseline, names):
    file = tmp_path / "out.json"
    words = [
        "-b",
        "4K",
        "-e",
        "4K",
        "--memory",
        "ordinary",
        "--compare",
        baseline,
        "--json",
        str(file),
    ]
    job = bench(regroup, 2, "allreduce", *words, *QUICK)
    assert job.process.returncode == 0, job.err
    lines = rival_lines(job.out)
    assert len(lines) == len(names)
    assert all(line.startswith(f"#   {name}") for line, name in zip(lines, names, strict=True)), (
        lines
    )
    assert [", coll sm:" in line for line in lines] == [False, True][: len(lines)]
    rivals = json.loads(file.read_text())["rows"][0]["rivals"]
    for rival, line in zip(rivals, lines, strict=True):
        assert rival["wrong"] == 0 and rival["samples"] == 6 and rival["pairs"] == 2
        assert rival["p50_us"] > 0 and rival["ratio"]["ordinary"] > 0
        assert "(median of 2 paired ratios)" in line and "6 samples" in line


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rival_does_every_operation(regroup, operation):
    job = bench(regroup, 2, operation, "-b", "4K", "-e", "4K", "--compare", "mpich", *QUICK)
    assert job.process.returncode == 0, job.err
    (line,) = rival_lines(job.out)
    assert "x ours in ordinary memory" in line, line


def test_what_a_rival_cannot_do_is_said(regroup):
    words = ["allreduce", "-b", "64", "-e", "64", "-d", "bfloat16", "--compare", "mpich"]
    job = bench(regroup, 2, *words, *QUICK)
    assert job.process.returncode == 0, job.err
    assert "MPI has no allreduce of bfloat16 by sum" in rival_lines(job.out)[0]


def test_a_rival_that_is_not_there_is_said(regroup, tmp_path):
    job = bench(regroup, 2, "allreduce", "-e", "8", "--compare", f"openmpi={tmp_path}", *QUICK)
    assert job.process.returncode == 1
    assert f"no {tmp_path}/mpirun" in job.err and "openmpi=FOLDER" in job.err


def test_installed_beside_the_command():
    assert (
        subprocess.run([BIN / "regroup-bench"], capture_output=True, timeout=DEADLINE_S).returncode
        == 1
    )
