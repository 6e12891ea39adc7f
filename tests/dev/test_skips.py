"""Which skips CI takes, of pytest and of CTest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import skips

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("reason", "fails"),
    [
        ("mounts: root and /dev/fuse", True),
        ("no headers of libpmix", True),
        ("control groups: cannot be made here", True),
        ("no control groups can be made here", True),
        ("no network namespace, or too few files: Operation not permitted", True),
        ("libpmix.so.2: cannot open shared object file", True),
        ("mount is not permitted here", True),
        ("no reason was given", True),
        ("5 GiB on the disk: --full only", False),
        ("only with REGROUP_TEST_FULL", False),
        ("this machine has GPUs", False),
        ("two processors are needed", False),
        ("one core; two are needed", False),
        ("this processor has no avx512", False),
    ],
)
def test_in_ci_only_hardware_and_time_are_reasons(reason, fails):
    assert skips.skip_fails(reason, {"CI": "true"}) is fails
    assert not skips.skip_fails(reason, {})


CASES = """cmake_minimum_required(VERSION 3.25)
project(Toy NONE)
enable_testing()
foreach(reason "no control groups can be made here" "one core")
  string(MD5 name "${reason}")
  add_test(NAME ${name} COMMAND sh -c "printf 'x.cc:3: Skipped\\n${reason}\\n'")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "control groups|one core")
endforeach()
add_test(NAME long COMMAND sh -c "echo skipped: only with REGROUP_TEST_FULL; exit 77")
set_tests_properties(long PROPERTIES SKIP_RETURN_CODE 77)
"""


@pytest.mark.parametrize(("ci", "status", "verdict"), [("true", 1, "FAILED"), ("", 0, "skipped")])
def test_a_skip_of_ctest_is_told_and_may_fail(tmp_path, ci, status, verdict):
    (tmp_path / "CMakeLists.txt").write_text(CASES)
    script = (
        f"cmake -S . -B b >/dev/null && ctest --test-dir b --output-junit {tmp_path}/r.xml "
        f">/dev/null"
    )
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, ROOT / "tools/dev/skips.py", tmp_path / "r.xml"],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first.startswith(f"1 {verdict}") and "no control groups can be made here" in first
    assert second.startswith("1 skipped: one core (")
    assert third == "1 skipped: only with REGROUP_TEST_FULL (long)"


def test_the_suite_heeds_them(tmp_path, function_of_dev):
    """ctest_preset of ./dev fails where a skip does, and not else."""
    (tmp_path / "CMakeLists.txt").write_text(CASES)
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / "log").mkdir()
    subprocess.run(
        ["cmake", "-S", ".", "-B", "b"], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    function = function_of_dev("ctest_preset")
    script = f"set -euo pipefail; LOGS=log; folder_of() {{ echo b; }}\n{function}ctest_preset dev"
    for ci, status in (("true", 1), ("", 0)):
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "CI": ci},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == status, done.stderr
        assert b"only with REGROUP_TEST_FULL (long)" in done.stdout


def test_a_file_whose_import_changes_the_environment_fails(inner_pytest):
    said = inner_pytest(
        "test_z.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\ndef test_one(): pass\n"
    )
    assert "tests/test_z.py: the import changes the environment of all tests" in said, said
    assert "CUDA_VISIBLE_DEVICES: None is now ''" in said and "1 error" in said, said
