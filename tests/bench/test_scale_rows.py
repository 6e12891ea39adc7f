"""What the bench of simulated hosts says of the figure that was asked for."""

import pytest
import scale


def row(change: str, seconds: float, agents: int = 10_000, radix: int = 64) -> dict:
    return {"change": change, "seconds": seconds, "agents": agents, "radix": radix}


def judge(*rows: dict) -> tuple[list[str], bool]:
    lines, missed = scale.judge(rows)
    return [line.rpartition(", ")[2] for line in lines], missed


def test_all_are_in_time():
    rows = [row(change, 0.25) for change in scale.GENERATIONS]
    assert judge(*rows) == (["measured 0.250 s: met"] * 3, False)


@pytest.mark.parametrize("late", scale.GENERATIONS)
def test_one_that_is_late_is_missed(late: str):
    rows = [row(change, 0.5 if change == late else 0.25) for change in scale.GENERATIONS]
    lines, missed = judge(*rows)
    assert missed and lines.count("measured 0.500 s: MISSED") == 1


def test_other_sizes_and_trees_are_no_answer():
    rows = [row("one member lost", 0.1, agents=1024), row("one member lost", 3.8, radix=0)]
    assert judge(*rows) == (["not measured"] * 3, False)


def test_what_makes_no_generation_is_not_judged():
    rows = [row(change, 0.25) for change in scale.GENERATIONS] + [row("fence", 0.9)]
    assert not judge(*rows)[1]
