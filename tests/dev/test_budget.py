"""The budget of ./dev test: the file is sound, the report sums what was measured. No speed is
asserted."""

import copy
import json
import re
from pathlib import Path

import budget
import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = json.loads(budget.FILE.read_text())
SMALL = {
    "minutes": {"warm": 3, "cold": 10},
    "parts": {"build": 1.0, "ctest": 1.0, "pytest": 1.0},
    "workers": {"ctest": 2, "pytest": 6},
    "folders": {"ctest": {"base": 2.0}, "pytest": {"tests/cli": 4.0, "tests/pmi": 2.0}},
}
FOLDERS = {"ctest": ["base"], "pytest": ["tests/cli", "tests/pmi"]}


def folders_with_tests() -> dict[str, set[str]]:
    tests = ROOT / "tests"
    pytests = {f"tests/{file.relative_to(tests).parts[0]}" for file in tests.rglob("test_*.py")}
    ctests = {
        str(file.parent.relative_to(tests))
        for file in tests.rglob("CMakeLists.txt")
        if file.parent != tests and re.search(r"\bregroup_test\(|\badd_test\(", file.read_text())
    }
    return {"ctest": ctests | {"lint"}, "pytest": pytests}


def test_the_committed_budget_has_a_row_for_each_folder_and_stays_below_its_caps():
    assert budget.problems(COMMITTED, folders_with_tests()) == []
    assert COMMITTED["minutes"] == {"warm": 15, "cold": 40}


def test_files_of_one_run_have_names_of_their_own():
    """pytest imports them by name. tests/hosts is a run of its own."""
    files = [path for path in ROOT.glob("tests/*/test_*.py") if path.parent.name != "hosts"]
    names = [path.name for path in files]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_it_has_a_row_for_each_part():
    function = re.search(r"(?ms)^test_default\(\) \{\n(.*?)^\}", (ROOT / "dev").read_text())[1]
    assert set(re.findall(r"(?m)^\s*(?:\w+= )?part ([\w-]+) ", function)) == set(COMMITTED["parts"])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("parts", "build"), 1.01, "the parts have 3.01 minutes in all; at most 3 are allowed"),
        (
            ("folders", "ctest", "base"),
            2.1,
            "the folders of ctest have 2.10 minutes in all; at most 2.00",
        ),
        (
            ("folders", "pytest", "tests/pmi"),
            2.5,
            "the folders of pytest have 6.50 minutes in all; at most",
        ),
        (("folders", "pytest", "tests/gone"), 0.0, "pytest: tests/gone has a row and no tests"),
    ],
)
def test_a_budget_above_its_cap_is_refused(path, value, said):
    assert budget.problems(SMALL, FOLDERS) == []
    changed = copy.deepcopy(SMALL)
    row = changed
    for key in path[:-1]:
        row = row[key]
    row[path[-1]] = value
    found = budget.problems(changed, FOLDERS)
    assert len(found) == 1 and found[0].startswith(said)


def test_a_folder_without_a_row_is_refused():
    found = budget.problems(SMALL, FOLDERS | {"pytest": ["tests/cli", "tests/pmi", "tests/new"]})
    assert found == ["pytest: tests/new has tests and no row"]


CTEST_LOG = """
Label Time Summary:
base                =  90.00 sec*proc (97 tests)
full                =   0.15 sec*proc (20 tests)
launcher/alloc      =   6.00 sec*proc (28 tests)

Total Test time (real) =  50.00 sec
"""
PYTEST_LOG = """
================= minutes by folder (of all workers together) ==================
  3.00  tests/cli  (0.25 in fixtures, 1.50 computing)
  0.50  tests/pmi
============================= slowest 15 durations =============================
165.22s call     tests/pmi/test_mpi4py.py::test_its_own_tests[openmpi5]
353 passed in 957.91s (0:15:57)
==> tests/hosts, which ran beside them
================= minutes by folder (of all workers together) ==================
 46.35  tests/hosts
============================= slowest 15 durations =============================
"""


def test_minutes_of_folders_are_read_from_the_logs():
    assert budget.minutes_of_ctest(CTEST_LOG) == {"base": 1.5, "launcher/alloc": 0.1}
    assert budget.minutes_of_ctest(CTEST_LOG * 2)["base"] == 3.0
    assert budget.minutes_of_pytest(PYTEST_LOG) == {
        "tests/cli": 3.0,
        "tests/pmi": 0.5,
        "tests/hosts": 46.35,
    }
    assert budget.minutes_of_pytest(PYTEST_LOG * 2)["tests/hosts"] == 92.7


def test_the_table_that_pytest_prints_is_read(inner_pytest):
    """By the conftest.py of all tests, of a run of its own."""
    said = inner_pytest("some/test_a.py", "import time\ndef test_a(): time.sleep(0.7)\n", "-q")
    assert budget.minutes_of_pytest(said)["tests/some"] >= 0.01, said


def test_the_report_sums_parts_and_folders_and_warns_above_the_whole():
    parts = {"build": 0.5, "ctest": 1.5, "pytest": 1.5}
    folders = {"ctest": {"base": 1.0, "new": 0.25}, "pytest": {"tests/cli": 4.5}}
    lines = budget.report(SMALL, 3.75, parts, folders)
    assert lines == [
        "minutes by part, and the budget with a warm cache",
        "     1.50 of  1.0  ctest  over",
        "     1.50 of  1.0  pytest  over",
        "     0.50 of  1.0  build",
        "     0.25 of    -  set-up",
        "     3.75 of  3.0  in all, warm",
        "minutes by folder of ctest, 1.25 of all workers together",
        "     1.00 of  2.0  base",
        "     0.25 of    -  new  NO ROW",
        "minutes by folder of pytest, 4.50 of all workers together",
        "     4.50 of  4.0  tests/cli  over",
        "WARNING: ./dev test took 3.8 minutes (warm); tests/budget.json allows 3",
    ]


def test_a_run_that_compiled_is_compared_with_the_cold_budget():
    lines = budget.report(SMALL, 4.0, {"build": 2.0, "ctest": 2.0}, {})
    assert lines[-1] == "     4.00 of 10.0  in all, cold"
    assert budget.report(SMALL, 11.0, {"build": 9.0, "ctest": 2.0}, {})[-1].startswith(
        "WARNING: ./dev test took 11.0"
    )


def test_the_program_reads_what_a_run_leaves(tmp_path, capsys):
    (tmp_path / "parts.tsv").write_text("build\t30\t0\t\nctest\t90\t8\tA.B\npytest\t60\t0\t\n")
    (tmp_path / "ctest").write_text(CTEST_LOG)
    (tmp_path / "pytest").write_text(PYTEST_LOG)
    budget.main("190", *(str(tmp_path / name) for name in ("parts.tsv", "ctest", "pytest")))
    told = capsys.readouterr().out
    assert (
        "3.17 of 15.0  in all, warm" in told
        and "1.50 of  0.1  base  over" in told
        and "46.35" in told
    )
