"""What ./dev test leaves: records of parts and of runs, through the shell functions that it
calls."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import results

ROOT = Path(__file__).resolve().parents[2]
SOURCED = """
say() { printf '==> %s\\n' "$*"; }
die() { echo "$*" >&2; exit 1; }
source tools/dev/progress.sh
source tools/dev/parts.sh
good() { echo '100% tests passed, 0 tests failed out of 7'; }
bad() {
  echo ' 3/9 Test  #3: Wire.Reads ....................***Failed    0.10 sec'
  echo 'FAILED tests/cli/test_a.py::test_b[x] - assert 1 == 2'
  echo '2 failed, 5 passed in 3.21s'
  return 8
}
"""


@pytest.fixture
def repository(tmp_path):
    """The scripts, committed."""
    shutil.copytree(
        ROOT / "tools/dev", tmp_path / "tools/dev", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/a").write_text("")
    (tmp_path / ".gitignore").write_text("/.dev/\n__pycache__/\n")
    records = results.Records(tmp_path)
    records.git("init", "-q")
    records.git("add", "-A")
    records.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x")
    return records


def bash(records, script: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", SOURCED + script],
        cwd=records.root,
        capture_output=True,
        text=True,
    )


def test_each_part_leaves_a_record_with_its_closing_line(repository):
    done = bash(repository, "RECORD_TREE=$(results tree); part one good; part two bad; close_parts")
    assert done.returncode == 1 and "failed: two" in done.stderr, done
    tree = repository.tree()
    one, two = repository.part(tree, "one"), repository.part(tree, "two")
    assert (one["verdict"], one["closing"]) == (
        "passed",
        "100% tests passed, 0 tests failed out of 7",
    )
    assert (two["verdict"], two["closing"]) == ("failed", "2 failed, 5 passed in 3.21s")
    assert "failed: Wire.Reads" in done.stdout and "tests/cli/test_a.py::test_b[x]" in done.stdout


def test_no_tree_no_record(repository):
    assert bash(repository, "part one good; close_parts").returncode == 0
    assert not repository.folder.exists()


def test_a_change_during_a_part_is_told_and_not_recorded(repository):
    done = bash(
        repository,
        "RECORD_TREE=$(results tree); part one good; part two touch tests/new; close_parts",
    )
    assert done.returncode == 0
    assert "not recorded: the working tree differs from HEAD (?? tests/new)" in done.stderr
    assert list(repository.folder.glob("*/*.json")) == [
        repository.folder / repository.tree() / "one.json"
    ]


def test_a_run_is_appended_with_its_failures(repository):
    first_parts = " ".join(
        f"part {name} good;" for name in sorted(results.DEFAULT_PARTS - {"pytest"})
    )
    run = f'tree=$(results tree); {first_parts} part pytest %s; results run "$tree" 61 "$PART_ROWS"'
    assert bash(repository, run % "good").returncode == 0
    assert bash(repository, run % "bad").returncode == 0
    first, second = repository.runs(repository.tree())
    assert (first["verdict"], first["failures"]) == ("passed", [])
    assert (second["verdict"], second["failures"]) == (
        "failed",
        ["Wire.Reads", "tests/cli/test_a.py::test_b[x]"],
    )
    assert list(first["minutes"]) == [*sorted(results.DEFAULT_PARTS - {"pytest"}), "pytest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--missing"], "--missing is for --full"),
        (["--full", "--record"], "--record is for a run without --full"),
        (["--record", "--only", "ruff"], "--record is for whole runs"),
        (["--fulll"], "unknown argument --fulll"),
    ],
)
def test_what_does_not_go_together_is_refused(words, said):
    done = subprocess.run(["./dev", "test", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr


def test_status_lists_each_part_and_installs_nothing():
    done = subprocess.run(
        ["./dev", "test", "--full", "--status"], cwd=ROOT, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    words = [line.split()[1] for line in lines if line.startswith("  ")]
    assert set(words) <= {"recorded", "FAILED", "missing"} and len(words) > 20
    assert done.returncode == (0 if set(words) == {"recorded"} else 1)
    assert lines[-1].endswith("recorded runs of ./dev test are green; asked: 10")


def test_ctrl_c_ends_a_run_and_records_no_part(repository):
    """Also where the program that ran took it for itself and ended well, as pytest does."""
    script = (
        "RECORD_TREE=$(results tree)\n"
        'caught() { kill -INT $$; sleep 0.1; echo "100% tests passed"; }\n'
        "part one good; part two caught; part three good"
    )
    done = bash(repository, script)
    assert (
        done.returncode == 1
        and "interrupted in part two, of which nothing is recorded" in done.stderr
    )
    tree = repository.tree()
    assert repository.missing(tree, ["one", "two", "three"]) == ["two", "three"]


def test_a_second_run_in_a_folder_is_refused(tmp_path, function_of_dev):
    """Its rows would be taken for those of the first."""
    function = function_of_dev("one_test_run")
    script = (
        f"set -euo pipefail; die() {{ echo $*; exit 1; }}; AT_EXIT=()\n{function}one_test_run; "
    )
    (tmp_path / ".dev").mkdir()
    (tmp_path / "dev").write_text(script + "touch up; while [ ! -e over ]; do sleep 0.01; done")
    first = subprocess.Popen(["bash", "dev", "test"], cwd=tmp_path)
    deadline = time.monotonic() + 30
    while not (tmp_path / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    words = ["bash", "-c", script + "echo runs"]
    second = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    (tmp_path / "over").touch()
    assert first.wait(30) == 0
    third = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert second.stdout == f"test: another ./dev test runs here (process {first.pid})\n"
    assert third.stdout == "runs\n"  # the file of one that was killed is no hindrance
