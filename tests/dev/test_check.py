"""What ./dev check chooses to run for a change."""

import shutil
import subprocess
import sys
from pathlib import Path

import check
import pytest
import record_map
from pytest_map import PytestMap, from_ranges, to_ranges

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("proto/wire.cc", "proto"),
        ("elastic/session.cc", "elastic"),
        ("membership/plan.cc", "membership"),
        ("launcher/process/pipe.cc", "launcher/process"),
        ("launcher/job/run.cc", "launcher/job"),
        ("checkpoint/hdf5/writer.cc", "checkpoint"),
        ("checkpoint/writer/checkpoints.cc", "checkpoint/writer"),
        ("tools/pmi/layout.cc", "tools/pmi"),
        ("tools/bench/stats.cc", "tools"),
        ("tests/bench/placement_cases.cc", None),
        ("tests/launcher/cli/options_test.cc", "launcher/cli"),
        ("tests/membership/job_test.cc", "membership"),
        ("python/module.cc", None),
        ("tests/model/doorbell_model_test.cc", "model"),
        ("tests/cli/member.cc", None),
        ("README.md", None),
    ],
)
def test_each_source_has_the_unit_tests_of_its_folder(path, folder):
    assert check.tests_of(path) == folder


def test_each_folder_of_unit_tests_mirrors_a_folder_of_sources():
    of_tests_alone = {"fakes/cuda", "fakes/nccl", "fuzz", "model", "scale"}
    assert of_tests_alone < set(check.UNIT_TESTS)
    for folder in set(check.UNIT_TESTS) - of_tests_alone:
        assert (ROOT / folder / "CMakeLists.txt").exists(), folder


def test_who_includes_a_header_through_others_is_touched():
    includes = {"a.cc": {"b.h"}, "b.h": {"c.h"}, "d.cc": {"e.h"}, "c.cc": {"c.h"}}
    assert check.includers({"c.h"}, includes) == {"c.h", "b.h", "a.cc", "c.cc"}
    assert check.includers({"d.cc"}, includes) == {"d.cc"}


def test_headers_that_include_each_other_end():
    assert check.includers({"a.h"}, {"a.h": {"b.h"}, "b.h": {"a.h"}}) == {"a.h", "b.h"}


def test_what_does_not_fit_is_left_out_and_named():
    assert check.within(10, [("slow", 9.0), ("quick", 1.0), ("middle", 2.0)]) == (
        ["quick", "middle"],
        ["slow"],
    )


SECONDS = {"tests/x/test_all.py": 30.0, "tests/x/test_a.py": 50.0, "tests/x/test_quick.py": 2.0}
SOURCES = {
    "tests/x/test_all.py": ["a.cc", "b.cc"],
    "tests/x/test_a.py": ["a.cc"],
    "tests/x/test_quick.py": ["a.cc", "b.cc", "c.h", "python/regroup/m.py"],
}
INCLUDES = {"b.cc": {"e.h", "c.h"}, "d.cc": {"c.h"}}
TEXTS = {
    "tests/x/test_quick.py": "import regroup.m\n",
    "tests/x/test_late.py": "run('examples/user.py')\n",  # not recorded
    "tests/x/test_other.py": "import m  # a module of that name elsewhere\nfrom late import x\n",
    "examples/user.py": "from regroup import a, m\n",
    "python/regroup/m.py": "",
    "python/regroup/other.py": "",
    "tests/x/late.py": "",
}


@pytest.mark.parametrize(
    ("changed", "limit", "taken", "left"),
    [
        # first the one that runs the fewest sources, then the quickest
        (["a.cc"], 100, ["test_a", "test_quick", "test_all"], []),
        (["a.cc"], 60, ["test_a", "test_quick"], ["test_all"]),
        (["a.cc"], 40, ["test_quick", "test_all"], ["test_a"]),
        (["b.cc"], 1, [], ["test_all", "test_quick"]),
        (["tests/x/test_new.py"], 60, ["test_new"], []),
        (["tests/x/test_all.py", "a.cc"], 60, ["test_all", "test_quick"], ["test_a"]),
        (["d.cc"], 60, [], []),
        # no code of its own: those of b.cc, which includes it
        (["e.h"], 60, ["test_all", "test_quick"], []),
        (["c.h"], 60, ["test_quick"], []),
        (["python/regroup/m.py"], 60, ["test_quick", "test_late"], []),
        (["python/regroup/m.py"], 16, ["test_quick"], ["test_late"]),
        (["python/regroup/other.py"], 60, [], []),
        (["tests/x/late.py"], 60, ["test_other"], []),
    ],
)
def test_pytests_are_chosen_within_the_limit(changed, limit, taken, left):
    def paths(names):
        return [f"tests/x/{name}.py" for name in names]

    chosen, dropped = check.Pytests(PytestMap(SECONDS, SOURCES), INCLUDES, TEXTS).choose(
        changed, limit
    )
    assert chosen == paths(taken) and sorted(dropped) == sorted(paths(left))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([0], "0"), ([5, 0, 1, 2], "0-2 5"), ([0, 2, 4], "0 2 4"), ([7, 8], "7-8")],
)
def test_ranges_of_the_map(numbers, text):
    assert to_ranges(numbers) == text
    assert from_ranges(text) == sorted(numbers)


def test_the_map_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "map.json"
    written = PytestMap.read(file)
    written.put("tests/b.py", 2.04, ["x.cc", "z.h"])
    written.put("tests/a.py", 1.0, ["x.cc"])
    written.put("tests/gone.py", 1.0, ["x.cc", "y.cc"])
    written.keep({"tests/a.py", "tests/b.py", "x.cc", "z.h"})
    written.write(file)
    read = PytestMap.read(file)
    assert read.seconds == {"tests/a.py": 1.0, "tests/b.py": 2.0}
    assert read.by_source() == {"x.cc": ["tests/a.py", "tests/b.py"], "z.h": ["tests/b.py"]}
    read.put("tests/b.py", 3.0, ["z.h"])  # recorded again
    assert read.by_source()["x.cc"] == ["tests/a.py"]


def test_the_committed_map_has_rows_of_both_languages():
    sources = PytestMap.read(check.MAP).by_source()
    assert sources["proto/world.cc"] and sources["python/regroup/torch.py"]


PROGRAM = """
struct Static { Static(); int i; };
Static::Static() : i(1) {}
static Static at_start;
inline int called(int x) { return x + at_start.i; }
#include "never.h"
int main() { return called(-1); }
"""


def test_what_ran_is_told_by_function(tmp_path):
    """Also where GCOV_PREFIX sends the counts elsewhere; a header of which nothing ran is not
    named."""
    build, counts = tmp_path / "build", tmp_path / "counts"
    build.mkdir()
    (build / "program.cc").write_text(PROGRAM)
    (build / "never.h").write_text(
        "inline int never(int x) { return x; }\nint (*kept)(int) = never;\n"
    )
    words = ["g++", "--coverage", "-O1", "-fno-early-inlining"]
    subprocess.run([*words, "-c", build / "program.cc", "-o", "program.o"], cwd=build, check=True)
    subprocess.run([*words, "program.o", "-o", "program"], cwd=build, check=True)
    subprocess.run([build / "program"], env={"GCOV_PREFIX": str(counts)}, check=True)
    assert record_map.sources_of(tmp_path, counts) == {"build/program.cc"}
    subprocess.run([build / "program"], env={}, check=True)
    record_map.move_strays(build, tmp_path / "strays")
    assert record_map.sources_of(tmp_path, tmp_path / "strays") == {"build/program.cc"}


def test_imports_of_the_tree_are_told_by_their_true_paths(tmp_path):
    tree, wrote, linked = tmp_path / "tree", tmp_path / "wrote", tmp_path / "tree/build/m.py"
    for folder in (wrote, tree / "build", tree / "python"):
        folder.mkdir(parents=True)
    (tree / "python/m.py").write_text("")
    linked.symlink_to(tree / "python/m.py")
    script = f"import sys; sys.path.insert(0, {str(linked.parent)!r}); import m"
    environment = {"PYTHONPATH": str(ROOT / "tools/dev/imports"), "REGROUP_IMPORTS": str(wrote)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert record_map.imported(tree, wrote) == {"python/m.py"}


def test_a_file_of_pytest_that_fails_has_no_row(tmp_path):
    """One that passes has itself, what it imports and what runs of its programs."""
    shutil.copytree(ROOT / "tools/dev/imports", tmp_path / "tools/dev/imports")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    tests = tmp_path / "tests/x"
    tests.mkdir(parents=True)
    (tests / "helper_of_x.py").write_text("")
    (tests / "test_good_x.py").write_text("import helper_of_x\n\ndef test_a():\n    pass\n")
    (tests / "test_bad_x.py").write_text("def test_a():\n    assert False\n")
    _, sources, closing = record_map.run_pytest(tmp_path, "tests/x/test_good_x.py", alone=True)
    assert {"tests/x/test_good_x.py", "tests/x/helper_of_x.py"} <= sources and "1 passed" in closing
    with pytest.raises(record_map.NotRecorded, match="exit status 1: .*1 failed"):
        record_map.run_pytest(tmp_path, "tests/x/test_bad_x.py", alone=True)


def test_each_folder_of_golden_files_has_its_readers():
    texts = {f: (ROOT / f).read_text() for f in check.all_includes() if f.startswith("tests/")}
    texts |= check.python_texts()
    folders = [path for path in sorted((ROOT / "tests/golden").iterdir()) if path.is_dir()]
    lost = [f.name for f in folders if not check.golden_users(f"tests/golden/{f.name}/file", texts)]
    assert lost == []


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("CMakeLists.txt", True),
        ("tests/base/CMakeLists.txt", True),
        ("cmake/Regroup.cmake", True),
        ("python/module.cc", True),
        ("tests/bench/hosts_member.cc", True),
        ("base/status.h", False),
        ("proto/wire.fbs", False),
        ("docs/guide/elastic.md", False),
    ],
)
def test_what_may_reach_every_target_builds_all(path, answer):
    assert check.builds_all(path) == answer


def test_a_schema_is_the_header_that_is_made_of_it():
    includes = check.all_includes()
    touched = check.includers({check.schema_header("launcher/agent/wire.fbs")}, includes)
    assert {"launcher/agent"} <= {check.tests_of(file) for file in touched}


def test_clang_tidy_reads_a_source_for_each_changed_header():
    includes = {"a.cc": {"a.h", "b.h"}, "c.cc": {"b.h", "d.h"}, "e.cc": {"d.h"}}
    assert check.tidy_units(["a.h"], includes) == ["a.cc"]
    assert check.tidy_units(["b.h", "c.cc"], includes) == ["c.cc"]
    assert check.tidy_units(["d.h", "lonely.h"], includes) == ["c.cc"]


def test_a_change_of_dev_asks_for_its_tests():
    pytests = check.Pytests(PytestMap({}, {}), {}, check.python_texts())
    assert "tests/dev/test_check.py" in pytests.of("tools/dev/parts.sh") & pytests.of("dev")


TOY = """cmake_minimum_required(VERSION 3.25)
project(Toy NONE)
enable_testing()
foreach(i RANGE 1 1500)
  add_test(NAME Suite.ACaseWithANameOfSomeFortyCharacters${i} COMMAND ${how})
  set_tests_properties(Suite.ACaseWithANameOfSomeFortyCharacters${i} PROPERTIES LABELS toy)
endforeach()
"""


def test_as_many_unit_tests_run_as_were_chosen(tmp_path, monkeypatch):
    """More than a regular expression of CTest holds."""
    (tmp_path / "CMakeLists.txt").write_text(TOY)
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-Dhow=true"]
    subprocess.run(configure, check=True, capture_output=True, timeout=60)
    monkeypatch.setattr(check, "BUILD", tmp_path / "build")
    known, run = check.cases_of(["toy", "other"]), check.Run()
    assert len(known) == 1500
    check.run_cases(run, list(known.values())[100:])
    assert run.failed == []
    report = (tmp_path / "build/check.junit.xml").read_text()
    assert report.count("<testcase") == 1400
