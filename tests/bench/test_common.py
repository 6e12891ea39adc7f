"""Tests of the harness that every bench number passes through."""

import json
import re

import common
import pytest
from common import BenchError, Figure, Row, Side, Stats, alternate, summarize


def stats(p50: float) -> Stats:
    return Stats(p50, p50, p50, p50, 1)


@pytest.mark.parametrize(
    ("count", "p50", "p99"),
    [(1, 1, 1), (2, 1, 2), (3, 2, 3), (99, 50, 99), (100, 50, 99), (101, 51, 100), (200, 100, 198)],
)
def test_percentiles_are_nearest_rank(count, p50, p99):
    found = summarize(list(range(count, 0, -1)))
    assert found == Stats(1, p50, p99, count, count)


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_no_statistics_of_nothing_or_of_nonsense(samples):
    with pytest.raises(BenchError, match="samples"):
        summarize(samples)


@pytest.mark.parametrize(
    ("unit", "ours", "rivals", "bound", "ratio"),
    [
        ("ms", 10, {"a": 20, "b": 30}, ["a", "b"], 2.0),  # times: the fastest bound rival over ours
        ("ms", 10, {"a": 20, "b": 5}, ["a"], 2.0),  # an unbound rival is shown, not used
        ("ms", 10, {"a": 5}, ["a"], 0.5),
        ("GB/s", 10, {"a": 4, "b": 5}, ["a", "b"], 2.0),  # rates: ours over the best bound rival
        ("1/s", 10, {"a": 40}, ["a"], 0.25),
        ("us", 10, {"a": 20}, [], None),
        ("us", 10, {}, [], None),
    ],
)
def test_ratio_above_one_is_better_than_the_best_bound_rival(unit, ours, rivals, bound, ratio):
    row = Row(
        "b", "c", unit, stats(ours), {name: stats(p50) for name, p50 in rivals.items()}, bound
    )
    assert row.ratio() == ratio


def test_a_row_refuses_an_unknown_unit_and_a_bound_rival_without_samples():
    with pytest.raises(BenchError, match="furlong"):
        Row("b", "c", "furlong", stats(1))
    with pytest.raises(BenchError, match="mpirun"):
        Row("b", "c", "ms", stats(1), {}, ["mpirun"])


def test_sides_are_verified_first_and_then_alternate_in_turning_order():
    calls = []

    def side(name):
        return Side(
            name, lambda: calls.append("verify " + name), lambda: calls.append(name) or [len(calls)]
        )

    samples = alternate([side("a"), side("b")], blocks=3)
    assert calls == ["verify a", "verify b", "a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [3, 6, 7], "b": [4, 5, 8]}


def test_nothing_is_timed_when_a_side_is_wrong():
    def wrong():
        raise BenchError("sum is 3, expected 4")

    timed = []
    with pytest.raises(BenchError, match="sum is 3"):
        alternate(
            [Side("a", lambda: None, lambda: timed.append(1) or []), Side("b", wrong, list)],
            blocks=1,
        )
    assert timed == []


def test_a_figure_that_is_missed_ends_the_bench_behind_all_lines(capsys):
    good = [
        Figure("start", "<= 2 s", "measured 1 s", True),
        Figure("end", "<= 2 s", "not measured", None),
        Figure("8 B", "", "measured 0.5", None),
    ]
    common.conclude(good)
    with pytest.raises(BenchError, match="missed 1 of 4 figures: stop"):
        common.conclude([Figure("stop", "<= 2 s", "measured 3 s", False), *good])
    lines = [
        "start: asked <= 2 s, measured 1 s: met",
        "end: asked <= 2 s, not measured",
        "8 B: measured 0.5",
    ]
    told = capsys.readouterr().out.splitlines()
    assert told == [*lines, "stop: asked <= 2 s, measured 3 s: MISSED", *lines]


def test_json_lines_carry_the_schema(tmp_path, capsys):
    rows = [
        Row(
            "launch",
            "true x8",
            "ms",
            summarize([1.0, 2.0, 3.0]),
            {"mpirun": summarize([4.0])},
            ["mpirun"],
        ),
        Row("overhead", "step", "us", summarize([1.0])),
    ]
    file = tmp_path / "out.jsonl"
    common.report(rows, str(file))
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    machine = first.pop("machine")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first.pop("date")) and first.pop("commit") is not None
    assert machine["cores"] >= 1 and machine["model"] and machine["load"] >= 0
    assert first == {
        "bench": "launch",
        "case": "true x8",
        "unit": "ms",
        "ours": {"min": 1.0, "p50": 2.0, "p99": 3.0, "samples": 3},
        "rivals": {"mpirun": {"min": 4.0, "p50": 4.0, "p99": 4.0, "samples": 1}},
        "ratio": 2.0,
        "bound_rivals": ["mpirun"],
    }
    assert second["ratio"] is None and second["rivals"] == {} and second["bound_rivals"] == []
    table = capsys.readouterr().out
    assert "mpirun*" in table and "machine: " in table
