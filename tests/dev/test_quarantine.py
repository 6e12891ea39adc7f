"""How ./dev test leaves out and runs the tests of tests/quarantine.txt."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = """\
# a comment
Suite/Case.Holds/2  # since 2026-01-01: a deadline of 5 s
  tests/cli/test_x.py::test_y[a#b-1:2] \t # since 2026-01-02: a port
   \t
"""


def bash(tmp_path: Path, script: str) -> str:
    listed = tmp_path / "quarantine.txt"
    listed.write_text(LINES)
    begin = (
        f'LOGS={tmp_path}; say() {{ echo "$*"; }}; source tools/dev/quarantine.sh; '
        f"QUARANTINE={listed}\n"
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", begin + script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ctest_leaves_out_these_and_no_others(tmp_path):
    left_out = re.compile(bash(tmp_path, "quarantined_ctest").strip())
    assert left_out.search("Suite/Case.Holds/2")
    assert not left_out.search("Suite/Case.Holds/23") and not left_out.search("Suite/CaseXHolds/2")


def test_pytest_leaves_them_out(tmp_path, inner_pytest):
    assert bash(tmp_path, "quarantined_pytest") == "tests/cli/test_x.py::test_y[a#b-1:2]\n"
    cases = (
        "import pytest\n"
        "@pytest.mark.parametrize('x', ['a', 'ab'])\n"
        "def test_one(x): pass\n"
        "def test_help(): pass\n"
        "def test_help_too(): pass\n"
    )
    left_out = "tests/test_z.py::test_one[a]\ntests/test_z.py::test_help"
    said = inner_pytest("test_z.py", cases, "-v", REGROUP_DESELECT=left_out)
    assert re.findall(r"::(\S+) PASSED", said) == ["test_one[ab]", "test_help_too"], said


def test_nothing_is_left_out_where_none_is_listed(tmp_path):
    assert bash(
        tmp_path, ': >"$QUARANTINE"; quarantined_ctest; quarantined_pytest; quarantine dev'
    ) == (f"\nno test is in {tmp_path}/quarantine.txt\n")


def test_each_is_run_and_its_failures_are_counted_and_fail_nothing(tmp_path):
    runs = (
        "pytest_in() { false; }; ctest_preset() { [[ $3 == '^Suite/Case\\.Holds/2$' ]]; }; "
        "quarantine dev"
    )
    assert bash(tmp_path, runs) == (
        "Suite/Case.Holds/2: failed 0 of 5 runs\ntests/cli/test_x.py::test_y[a#b-1:2]: failed 5 of "
        "5 runs\n"
    )


def test_a_name_that_no_test_has_fails_the_part(tmp_path):
    peers = "pytest_in() { echo 'ERROR: not found: x'; return 4; }; ctest_preset() { false; }"
    runs = f"{peers}; quarantine dev && exit 9 || true"
    assert (
        f"{tmp_path}/quarantine.txt: there is no test tests/cli/test_x.py::test_y[a#b-1:2]"
        in bash(tmp_path, runs)
    )
