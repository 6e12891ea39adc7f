"""The two halves of the pytests of ./dev test."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def runs_of(function_of_dev, tmp_path):
    """Which runs of pytest there are, with their folders, if that of tests/hosts ends so; and the
    status of all."""

    def runs(status: int) -> tuple[int, list[str]]:
        listed = re.search(r"(?m)^WITH_HOSTS=.*$", (ROOT / "dev").read_text())[0]
        script = (
            f"LOGS={tmp_path} PYTEST_JOBS=1; {listed}\n"
            "say() { :; }; quarantined_pytest() { :; }\n"
            f'pytest_in() {{ echo "run ${{*:7}}"; [[ $1 != hosts ]] || return {status}; }}\n'
            + "".join(map(function_of_dev, ["pytest_all", "pytest_hosts"]))
            + re.search(r"(?m)^pytest_files\(\).*$", (ROOT / "dev").read_text())[0]
            + "\npytest_all\n"
        )
        done = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", script],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        return done.returncode, re.findall(r"(?m)^run (.*)$", done.stdout)

    return runs


def test_each_folder_is_in_one_run(runs_of):
    status, (others, *halves) = runs_of(0)
    first, *ignored = others.split()
    named = [word for half in halves for word in half.split()]
    assert (status, first) == (0, "tests") and halves[0] == "tests/hosts" and len(halves) == 2
    assert ignored == [f"--ignore={folder}" for folder in named]
    assert all((ROOT / folder).is_dir() for folder in named)


def test_failed_tests_of_hosts_fail_the_part_and_the_others_run(runs_of):
    status, runs = runs_of(1)
    assert status == 1 and len(runs) == 3


def test_after_an_interrupt_no_further_run_begins(runs_of):
    status, runs = runs_of(2)
    assert status == 1 and len(runs) == 2
