"""How ./dev test leaves out and runs the tests of tests/quarantine.txt."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = """\
# a comment
Suite/Case.Holds/2  # since 2026-01-01: a deadline of 5 s
tests/cli/test_x.py::test_y[a b-1:2]  # since 2026-01-02: a port
"""


def bash(tmp_path: Path, script: str) -> str:
    listed = tmp_path / "quarantine.txt"
    listed.write_text(LINES)
    begin = f'LOGS={tmp_path}; say() {{ echo "$*"; }}; source tools/dev/quarantine.sh; QUARANTINE={listed}\n'
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


def test_pytest_leaves_them_out(tmp_path):
    assert bash(tmp_path, "quarantined_pytest") == "--deselect=tests/cli/test_x.py::test_y[a b-1:2]\n"


def test_nothing_is_left_out_where_none_is_listed(tmp_path):
    assert bash(tmp_path, ': >"$QUARANTINE"; quarantined_ctest; quarantined_pytest; quarantine dev') == (
        f"\nno test is in {tmp_path}/quarantine.txt\n"
    )


def test_each_is_run_and_its_failures_are_counted_and_fail_nothing(tmp_path):
    runs = "pytest_in() { false; }; ctest_preset() { [[ $3 == '^Suite/Case\\.Holds/2$' ]]; }; quarantine dev"
    assert bash(tmp_path, runs) == (
        "Suite/Case.Holds/2: failed 0 of 5 runs\ntests/cli/test_x.py::test_y[a b-1:2]: failed 5 of 5 runs\n"
    )
