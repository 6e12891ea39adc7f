"""What ./dev check chooses to run for a change."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("dev_check", ROOT / "tools/dev/check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("core/wire.cc", "core"),
        ("elastic/session.cc", "elastic"),
        ("elastic/membership/plan.cc", "membership"),
        ("launcher/supervise/pipe.cc", "launcher"),
        ("launcher/cmd/run.cc", "launcher/cmd"),
        ("tools/pmi/layout.cc", "pmi"),
        ("tests/launcher/cmd/options_test.cc", "launcher/cmd"),
        ("tests/membership/job_test.cc", "membership"),
        ("python/module.cc", None),
        ("README.md", None),
    ],
)
def test_each_source_has_the_unit_tests_of_its_folder(path, folder):
    assert check.tests_of(path) == folder


def test_every_folder_of_unit_tests_is_known():
    with_tests = {
        str(file.parent.relative_to(ROOT / "tests"))
        for file in (ROOT / "tests").rglob("CMakeLists.txt")
        if re.search(r"^regroup_test\(|^  regroup_test\(", file.read_text(), re.MULTILINE)
    }
    assert with_tests - {"model", "scale"} == set(check.TESTS_OF.values())


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


def test_pytests_that_run_few_sources_come_first():
    recorded = {
        "a.cc": [["tests/x/test_all.py", 30.0], ["tests/x/test_a.py", 5.0]],
        "b.cc": [["tests/x/test_all.py", 30.0]],
    }
    assert check.pytests_of(["a.cc"], recorded, 60) == (["tests/x/test_a.py", "tests/x/test_all.py"], [])
    assert check.pytests_of(["a.cc"], recorded, 20) == (["tests/x/test_a.py"], ["tests/x/test_all.py"])
    assert check.pytests_of(["tests/x/test_new.py"], recorded, 60) == (["tests/x/test_new.py"], [])
