"""What ./dev bench loop makes of its measurements; nothing is built."""

import json

import loop
import pytest
from common import BenchError, Figure

RECORDED = {
    "commit": "99d5af0",
    "old": {"status.h": {"seconds": [720.0]}, "cold": {"seconds": [2000.0, 2200.0, 2100.0]}},
}
STATUS, WORLD, ONE, COLD, TEST = loop.CASES


def test_a_row_has_the_recorded_old_as_its_rival():
    row = loop.row_of(STATUS, [180.0, 120.0, 150.0], RECORDED)
    assert row.ours.p50 == 150 and row.ratio() == 720 / 150
    assert loop.row_of(COLD, [700.0], RECORDED).ratio() == 3.0
    unknown = loop.row_of(WORLD, [100.0], RECORDED)
    assert unknown.ratio() is None and not unknown.rivals


@pytest.mark.parametrize(
    ("case", "seconds", "asked", "met"),
    [
        (STATUS, 240.0, ["<= 1/3 of 99d5af0: 240 s"], [True]),
        (STATUS, 240.1, ["<= 1/3 of 99d5af0: 240 s"], [False]),
        (COLD, None, ["<= 1/3 of 99d5af0: 700 s"], [None]),
        (WORLD, 100.0, [], []),  # nothing to compare with
        (ONE, 10.1, ["<= 10 s"], [False]),
        (TEST, 899.0, ["<= 900 s"], [True]),
    ],
)
def test_what_is_asked_is_judged(case, seconds, asked, met):
    found = loop.figures(case, seconds, RECORDED)
    assert [(f.asked, f.met) for f in found] == list(zip(asked, met, strict=True))
    assert all(isinstance(f, Figure) for f in found)


def test_the_committed_figures_are_of_rows_that_exist():
    stored = json.loads(loop.RECORDED.read_text())
    known = {case.name for case in [*loop.CASES, *loop.BY_HAND]}
    assert set(stored["old"]) <= known and {case.name for case in loop.BY_HAND} <= set(stored["by_hand"])
    for row in [*stored["old"].values(), *stored["by_hand"].values()]:
        assert row["seconds"] and row["date"] and row["machine"] and row["from"]


def test_an_old_figure_is_recorded_in_place(tmp_path):
    file = tmp_path / "loop.json"
    file.write_text(loop.RECORDED.read_text())
    before = json.loads(file.read_text())
    loop.record_old(STATUS, [700.04], file)
    after = json.loads(file.read_text())
    assert after["old"]["status.h"]["seconds"] == [700.0] and "cores" in after["old"]["status.h"]["machine"]
    del before["old"]["status.h"], after["old"]["status.h"]
    assert before == after


OUTPUT = "[0/2] Re-checking globbed directories...\n[0/1] Re-running CMake...\n"


@pytest.mark.parametrize(
    ("output", "count"), [(OUTPUT, 0), (OUTPUT + "[1/7] Building a\n[7/7] Linking b\n", 7), ("", 0)]
)
def test_steps_of_ninja_are_counted(output, count):
    assert loop.steps(output) == count


class FakeTree:
    def __init__(self, folder, built):
        self.folder, self.built, self.environments = folder, built, []

    def build(self, **environment):
        self.environments.append(environment)
        return self.built


def test_a_touched_source_differs_each_time_and_must_be_compiled(tmp_path):
    (tmp_path / "a.h").write_text("int x;\n")
    tree = FakeTree(tmp_path, 2)
    assert loop.touched(tree, "a.h") >= 0 and loop.touched(tree, "a.h") >= 0
    text, first, second = (tmp_path / "a.h").read_text().splitlines()
    assert text == "int x;" and first.startswith("// ") and first != second
    assert tree.environments == [{"CCACHE_DISABLE": "1"}] * 2
    with pytest.raises(BenchError, match="made 0 steps, expected at least 2"):
        loop.touched(FakeTree(tmp_path, 0), "a.h")


def test_a_tree_that_is_never_done_is_refused(tmp_path):
    tree = loop.Tree("HEAD", tmp_path)
    tree.build = lambda: 3
    with pytest.raises(BenchError, match="3 steps are left"):
        tree.build_whole()
