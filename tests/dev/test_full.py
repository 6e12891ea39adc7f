"""The parts of `./dev test --full` together are the whole."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCED = "JOBS=1; source tools/dev/progress.sh; source tools/dev/full.sh; "


def bash(script: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-euc", SOURCED + script, "bash", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def parts():
    return dict(line.split(" ", 1) for line in bash("full_parts"))


def labels() -> set[str]:
    """Of CTest: the folders below tests/ that have a list for CMake, and lint."""
    lists = (ROOT / "tests").rglob("CMakeLists.txt")
    return {str(file.parent.relative_to(ROOT / "tests")) for file in lists} - {"."} | {"lint"}


def test_each_part_has_a_name_of_its_own(parts):
    assert len(parts) == len(bash("full_parts"))


@pytest.mark.parametrize("preset", ["dev", "asan", "tsan"])
def test_each_ctest_is_in_one_part_of_each_preset(parts, preset):
    groups = [c.split()[-1] for c in parts.values() if c.startswith(f"full_ctest {preset} ")]
    chosen = {group: bash('ctest_group "$1"', group) for group in groups}
    for label in labels():
        having = [
            g
            for g, (way, regex) in chosen.items()
            if bool(re.search(regex, label)) == (way == "-L")
        ]
        assert len(having) == 1, (label, having)
    assert len(groups) > 2


def test_each_folder_of_pytest_is_in_one_part(parts):
    groups = [c.split()[-1] for c in parts.values() if c.startswith("full_pytest ")]
    named = [g for g in groups if g != "rest"]
    assert len(groups) == len(named) + 1 and all((ROOT / "tests" / g).is_dir() for g in named)
    assert bash("pytest_group rest") == ["tests", *(f"--ignore=tests/{g}" for g in named)]
    assert [bash('pytest_group "$1"', g) for g in named] == [[f"tests/{g}"] for g in named]


def test_each_source_is_in_one_part_of_clang_tidy(parts):
    groups = {c.split()[-1] for c in parts.values() if c.startswith("full_tidy ")}
    listed = subprocess.run(
        ["git", "ls-files", "*.cc"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = listed.stdout.split()
    of_file = bash('tidy_group "$@"', *files)
    assert len(of_file) == len(files) and set(of_file) == groups
    assert of_file[files.index("proto/wire.cc")] == "base"
    assert of_file[files.index("launcher/job/run.cc")] == "launcher-job"
    assert of_file[files.index("launcher/agent/hosts.cc")] == "launcher"


def test_a_part_of_a_preset_builds_it_first(parts):
    """Else a record would be of what was built from another tree."""
    script = """
      build_preset() { echo "build $1"; }
      ctest_preset() { echo "ctest $* ${REGROUP_TEST_FULL:-short}"; }
      pytest_in() { echo "pytest ${REGROUP_TEST_FULL:-short}"; }
      run_script() { echo "run"; }
      PYTEST_JOBS=3
    """
    assert bash(script + "full_ctest dev rest")[0] == "build dev"
    assert bash(script + "full_ctest dev rest")[1].endswith(" 1")
    assert bash(script + "export REGROUP_TEST_FULL=1; full_ctest tsan rest")[1].endswith(" short")
    assert bash(script + "full_pytest cli") == ["build dev", "pytest 1"]
    demo = 'build_preset() { echo "$* with tests: ${WITH_TESTS}"; }; WITH_TESTS=1 full_demo'
    assert bash(demo) == ["demo --target programs with tests: "]
    assert bash(script + "full_chaos tests/chaos/run.py") == ["build dev", "run"]
    failing = (
        script + "build_preset() { return 1; }; full_ctest dev rest || full_pytest cli || echo none"
    )
    assert bash(failing) == ["none"]


def test_every_command_of_a_part_is_defined(parts):
    text = "".join(file.read_text() for file in [ROOT / "dev", *(ROOT / "tools/dev").glob("*.sh")])
    for name, command in parts.items():
        assert re.search(rf"^{command.split()[0]}\(\)", text, re.MULTILINE), name
