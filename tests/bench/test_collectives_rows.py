"""What ./dev bench collectives makes of measured rows."""

import json

import collectives
import collectives_docs
import common
import neighbours
import pytest


def row(size, ours, rivals, memory="arena", wrong=0, **more):
    figures = {
        "mean_us": ours,
        "min_us": ours,
        "p50_us": ours,
        "p99_us": ours,
        "max_us": ours,
        "samples": 3,
    }
    found = [
        figures | {"name": name, "ratio": {memory: ratio}, "pairs": 3, "wrong": 0}
        for name, ratio in rivals.items()
    ]
    return {
        "size": size,
        "memory": {memory: {"out_of_place": figures | {"wrong": wrong} | more}},
        "rivals": found,
    }


MIB = 1 << 20


def test_multiples_are_of_each_default_and_of_the_best_tuning():
    rows = [
        row(
            MIB,
            10,
            {"Open MPI 5": 9, "Open MPI 5, coll sm": 5, "MPICH": 7.5},
            bare_percent=96,
            copy_percent=80,
        )
    ]
    lines = {line.what: line for line in collectives.asked_of_two_ranks(rows)}
    assert lines["all-reduce 1 MiB, arena, to the default of Open MPI 5"].reached is True
    assert lines["all-reduce 1 MiB, arena, to the default of MPICH"].reached is False
    best = lines["all-reduce 1 MiB, arena, to the best of all tunings"]
    assert (best.reached, best.measured) == (False, "5.00x (Open MPI 5, coll sm)")
    bare = lines["all-reduce 1 MiB, arena, of a bare loop"]
    assert (bare.reached, bare.measured) == (True, "96 % (80 % of the copy bound)")
    assert lines["all-reduce, 2 ranks, ordinary memory, ordinary"].reached is None


def test_the_worst_size_decides_whether_a_rival_is_faster():
    rows = [row(8, 1, {"a": 3, "b": 2}), row(64, 1, {"a": 0.98}), row(512, 1, {"a": 0.5, "b": 4})]
    (line,) = collectives.not_slower("allgather", rows, ["arena"])
    assert line.reached is False
    assert line.measured == "0.50x at worst (512 B, a); slower at 512 B"
    (line,) = collectives.not_slower("allgather", rows[:2], ["arena"])
    assert line.reached is True


def test_latency_is_asked_of_the_best_rival():
    (line,) = collectives.asked_of_latency([row(8, 1, {"a": 3, "b": 1.5})])
    assert (line.reached, line.measured) == (False, "1.50x (b)")


@pytest.mark.parametrize(("took", "reached"), [(20, True), (30, False)])
def test_sixteen_ranks_have_25_us_for_64_bytes(took, reached):
    (line,) = collectives.asked_of_a_crowd([row(64, took, {"a": 2})])
    assert line.reached is reached
    (line,) = collectives.asked_of_many_ranks([row(64, took, {"a": took})], 16)
    assert line.reached is True


def test_what_was_not_measured_is_said():
    (line,) = collectives.asked_of_latency([row(8, 1, {})])
    assert line.reached is None and str(line).endswith("measured nothing: not measured")


def test_wrong_elements_are_told_with_their_place():
    rows = [row(64, 4, {}, wrong=0), row(512, 1, {}, wrong=3)]
    result = {"operation": "allreduce", "ranks": 2, "rows": rows}
    line = collectives.all_right(result)
    assert line.reached is False and line.measured == "3 (512 B arena out of place)"


def test_rows_of_the_table():
    result = {
        "operation": "allreduce",
        "ranks": 2,
        "rows": [row(65536, 4, {"a": 2}), row(8, 1, {}, "ordinary")],
    }
    first, second = collectives.table_rows(result)
    assert (first.case, first.unit, first.bound) == (
        "allreduce 64 KiB, 2 ranks, arena",
        "us",
        ["a"],
    )
    assert second.rivals == {} and second.ratio() is None
    common.format_table([first, second])
    first, _ = collectives.table_rows(result, contended=True)
    assert first.case == "allreduce 64 KiB, 2 ranks beside a process that computes, arena"


def test_means_are_told_with_the_best_rivals():
    measured = row(8, 2, {"a": 1, "b": 1})
    for rival, mean in zip(measured["rivals"], (6, 4), strict=True):
        rival["mean_us"] = mean
    (line,) = collectives.means("it", [measured])
    assert str(line) == "it 8 B, arena, mean: 2 us, b 4 us, 2.00x"
    (line,) = collectives.means("it", [row(8, 2, {})])
    assert str(line) == "it 8 B, arena, mean: 2 us"


def test_neighbours_compute_until_it_is_over():
    with neighbours.neighbours() as processes:
        pids = [process.pid for process in processes]
        neighbours.wait_for(
            lambda: [pid for pid in pids if neighbours.running_ns(pid) > 2e8],
            len(pids),
            "neighbours",
        )
    assert pids and all(process.poll() is not None for process in processes)


@pytest.mark.parametrize(
    ("operation", "size", "memory", "algorithm"),
    [
        ("allreduce", 56, "arena", "arrival"),
        ("allreduce", 512, "ordinary", "one chunk"),
        ("allreduce", 4 << 10, "arena", "one chunk"),
        ("allreduce", 16 << 10, "ordinary", "chunks"),
        ("allreduce", MIB, "ordinary", "chunks, by slices"),
        ("allreduce", MIB, "arena", "direct"),
        ("allreduce", MIB, collectives_docs.IN_PLACE, "results"),
        ("broadcast", 96, "arena", "inline chunks"),
        ("broadcast", 97, "arena", "one chunk"),
        ("allgather", 112, "arena", "arrival"),
        ("alltoall", 32 << 10, "ordinary", "one chunk"),
        ("allgather", 16 << 10, "arena", "one chunk"),
        ("allgather", 32 << 10, "arena", "direct"),
        ("alltoall", 64 << 10, "arena", "direct"),
    ],
)
def test_each_row_of_the_docs_says_how_it_went(operation, size, memory, algorithm):
    assert collectives_docs.way(operation, size, memory, amd=True) == algorithm


def test_not_only_a_root_uses_inline_chunks_where_they_pay():
    assert collectives_docs.way("allgather", 512, "ordinary", amd=False) == "inline chunks"
    assert collectives_docs.way("broadcast", 1024, "arena", amd=False) == "inline chunks"


def test_the_docs_know_the_limits_of_the_plan():
    plan = (common.ROOT / "collective/shm/plan.cc").read_text()
    assert "(shares_cores ? 32 : 4) * kKiB" in plan
    assert "from_root(kind) || kind == Kind::kAlltoall || shares_cores ? 32 : 8) * kKiB" in plan
    copied = {"allreduce": 4 << 10, "broadcast": 32 << 10, "alltoall": 32 << 10}
    assert copied == collectives_docs.MOST_COPIED
    assert f"return from_root(kind) ? {collectives_docs.LINES_OF_A_ROOT} : 0;" in plan
    assert "return (kind == Kind::kReduce ? 128 : 32) << 10;" in plan
    assert 2 * collectives_docs.SLICED == 32 << 10
    buffer = (common.ROOT / "collective/shm/bounce_buffer.h").read_text()
    assert f"kInlineChunks = {collectives_docs.LINES};" in buffer


def results(wrong=0):
    rows = [row(MIB, 50, {"a": 3, "b": 2}, copy_percent=80, wrong=wrong), row(3, 1, {"a": 2})]
    rows.append(row(512, 1, {"a": 2}))
    machine = {"cores": 2, "model": "EPYC", "load": 1.0}
    base = {"ranks": 2, "rows": rows, "machine": machine}
    return [base | {"operation": operation} for operation in collectives_docs.TRAFFIC]


def test_the_docs_show_algorithm_traffic_and_time():
    text = collectives_docs.table(results())
    line = "| allreduce | 1 MiB | arena | direct | 3 S = 3 MiB | 50 us | 80 % | 2.00 (b, 50 us) |\n"
    assert text.count(line) == 1
    assert "| broadcast | 512 B | arena | inline chunks |  | 1 us |  | 2.00 (a, 1 us) |\n" in text
    assert "| 3 B |" not in text


def test_an_allreduce_in_place_has_its_own_line_in_the_docs():
    measured = results()
    placements = measured[0]["rows"][0]["memory"]["arena"]
    placements["in_place"] = placements["out_of_place"] | {"p50_us": 20.0}
    line = (
        "| allreduce | 1 MiB | arena, in place | results | 4 S = 4 MiB | 20 us | 80 % | 2.50 (a, "
        "50 us) |\n"
    )
    assert line in collectives_docs.table(measured)


def test_the_bare_round_is_timed():
    line = collectives.bare_round()
    assert line.reached is None and line.wanted == ""
    assert 0 < float(line.measured.removesuffix(" us")) < 10_000


def test_the_docs_are_not_written_from_a_part_or_from_what_is_wrong(tmp_path):
    file = tmp_path / "collectives.json"
    with pytest.raises(common.BenchError, match="not measured: alltoall"):
        collectives_docs.write(results()[:-1], {}, file)
    with pytest.raises(common.BenchError, match="wrong elements in allgather"):
        collectives_docs.write(results(wrong=1), {}, file)
    assert not file.exists()
    run = {"bench": "collectives", "date": "2026-11-28"}
    collectives_docs.write(results(), run, file)
    assert json.loads(file.read_text()) == run | {"results": results()}
