"""What ./dev bench loop makes of its measurements; nothing is built."""

import json
import subprocess

import loop
import pytest
from common import BenchError, Figure

RECORDED = {
    "commit": "99d5af0",
    "old": {"status.h": {"seconds": [720.0]}, "cold": {"seconds": [2000.0, 2200.0, 2100.0]}},
}
CASES = {case.name: case for case in loop.CASES}
STATUS, WORLD, ONE, COLD, TEST = (
    CASES[n] for n in ("status.h", "world.h", "one.cc", "cold", "test")
)
TEST_COLD = CASES["test-cold"]


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
        (TEST_COLD, 2401.0, ["<= 2400 s"], [False]),
    ],
)
def test_what_is_asked_is_judged(case, seconds, asked, met):
    found = loop.figures(case, seconds, RECORDED)
    assert [(f.asked, f.met) for f in found] == list(zip(asked, met, strict=True))
    assert all(isinstance(f, Figure) for f in found)


def test_the_committed_figures_are_of_rows_that_exist():
    stored = json.loads(loop.RECORDED.read_text())
    assert set(stored["old"]) <= set(CASES) and set(stored["by_hand"]) <= set(CASES)
    for row in [*stored["old"].values(), *stored["by_hand"].values()]:
        assert row["seconds"] and row["date"] and row["machine"] and row["from"]


def test_an_old_figure_is_recorded_in_place(tmp_path):
    file = tmp_path / "loop.json"
    file.write_text(loop.RECORDED.read_text())
    before = json.loads(file.read_text())
    loop.record_old(STATUS, [700.04], file)
    after = json.loads(file.read_text())
    assert (
        after["old"]["status.h"]["seconds"] == [700.0]
        and "cores" in after["old"]["status.h"]["machine"]
    )
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
        self.folder, self.built, self.environments, self.commands = folder, built, [], []

    def source(self, name):
        return self.folder / name

    def run(self, *command, **environment):
        self.commands.append(command)

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


def test_check_runs_on_what_was_changed(tmp_path):
    (tmp_path / "a.h").write_text("int x;\n")
    tree = FakeTree(tmp_path, 0)
    assert loop.checked(tree, "a.h") >= 0
    assert tree.commands == [("./dev", "check")] and (tmp_path / "a.h").read_text().startswith(
        "int x;\n// "
    )


def test_a_source_is_found_by_its_name(tmp_path):
    make = "git init -q; mkdir core base; touch core/world.h base/a.h core/a.h; git add -A"
    for command in map(str.split, make.split(";")):
        subprocess.run(command, cwd=tmp_path, check=True)
    tree = loop.Tree("HEAD", tmp_path)
    assert tree.source("world.h") == tmp_path / "core/world.h"
    with pytest.raises(BenchError, match="expected one source a.h"):
        tree.source("a.h")


def run_of(seconds, build, verdict="passed", **machine):
    found = loop.results.machine() | machine
    return {"seconds": seconds, "verdict": verdict, "minutes": {"build": build}, "machine": found}


def test_samples_can_be_recorded_runs():
    budget = {"parts": {"build": 1.0}}
    runs = [
        run_of(700, 0.5),
        run_of(710, 1.0),
        run_of(2000, 9.0),
        run_of(600, 0.4, "failed"),
        run_of(5, 0.1, cores=99),
    ]
    with pytest.raises(BenchError, match="expected 3 recorded runs .* found 2"):
        loop.recorded_seconds(TEST, runs, budget)
    runs.append(run_of(690, 0.2))
    assert loop.recorded_seconds(TEST, runs, budget) == [700, 710, 690]
    with pytest.raises(BenchError, match="test-cold: .* found 1"):
        loop.recorded_seconds(TEST_COLD, runs, budget)


@pytest.mark.parametrize(
    ("green", "failed", "met"),
    [(10, 0, True), (12, 0, True), (10, 1, False), (9, 0, None), (0, 0, None)],
)
def test_ten_green_runs_are_asked(green, failed, met):
    figure = loop.of_runs([run_of(1, 1)] * green + [run_of(1, 1, "failed")] * failed)
    assert figure.met is met and figure.asked == "10 green"


def line_of(case, seconds):
    return {"case": case.what, "ours": {"p50": seconds}}


def test_rows_that_were_not_measured_now_stay(tmp_path):
    file, found = tmp_path / "loop.json", tmp_path / "found.json"
    figure = {"figure": COLD.what, "asked": "<= 1/3 of 99d5af0: 700 s", "found": "1 s", "met": True}
    found.write_text(
        "".join(json.dumps(x) + "\n" for x in (line_of(COLD, 1), line_of(TEST, 2), figure))
    )
    loop.merge(file, found)
    later = [
        line_of(STATUS, 3),
        line_of(TEST, 4),
        figure | {"asked": "<= 1/3 of 99d5af0: 600 s", "met": False},
    ]
    found.write_text("".join(json.dumps(x) + "\n" for x in later))
    loop.merge(file, found)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [line_of(COLD, 1), line_of(STATUS, 3), line_of(TEST, 4), later[2]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--only", "runs", "--json", "x"], "expected a row to measure"),
        (["--only", "test", "--old"], "test is not measured of the old commit"),
        (["--only", "cold", "--recorded"], "expected --only test or test-cold, got cold"),
        (["--only", "demo"], "expected --debian FOLDER"),
    ],
)
def test_options_that_do_not_fit_are_refused(monkeypatch, words, why):
    monkeypatch.setattr("sys.argv", ["loop.py", *words])
    with pytest.raises(BenchError, match=why):
        loop.main()


def test_a_tree_that_is_never_done_is_refused(tmp_path):
    tree = loop.Tree("HEAD", tmp_path)
    tree.build = lambda: 3
    with pytest.raises(BenchError, match="3 steps are left"):
        tree.build_whole()
