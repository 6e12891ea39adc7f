"""What the frameworks bench says of the figures that were asked for."""

import ast

import common
import frameworks
import pytest
from frameworks import Case, judge

LATENCY = Case("a", "us", (40, 3), most=15)
SPEED = Case("b", "ms", (40, 3), times=2)


def samples(ours: float, gloo: float, pairs: int = 30) -> dict[str, list[float]]:
    return {"regroup": [ours] * pairs, "gloo": [gloo] * pairs}


@pytest.mark.parametrize(
    ("case", "ours", "gloo", "met"),
    [
        (LATENCY, 15, 10, True),
        (LATENCY, 15.1, 100, False),
        (SPEED, 1, 2, True),
        (SPEED, 1, 1.9, False),
        (Case("c", "ms", (40, 3)), 1, 0.5, None),
    ],
)
def test_a_figure_is_met_or_missed(case: Case, ours: float, gloo: float, met: bool | None):
    assert judge(case, samples(ours, gloo)).met is met


def test_few_pairs_are_not_judged():
    figure = judge(SPEED, samples(1, 1, 29))
    assert figure.met is None and "not judged: only 29 pairs" in figure.found


def test_the_ratio_is_of_pairs():
    drifting = {"regroup": [1.0, 2.0, 4.0] * 10, "gloo": [2.0, 4.0, 8.0] * 10}
    assert judge(SPEED, drifting).met is True


def test_every_case_is_one_of_the_members():
    member = ast.parse(frameworks.MEMBER.read_text())
    tables = [n.value for n in member.body if isinstance(n, ast.AnnAssign)]
    names = [key.value for table in tables for key in table.keys]
    assert names == [case.name for case in frameworks.CASES]
    assert {case.unit for case in frameworks.CASES} <= set(common.TIME_UNITS)
