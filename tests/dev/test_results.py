"""What is recorded under tests/full-results, for which tree, and what --status says of it."""

import errno
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import results

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ["-c", "user.name=a", "-c", "user.email=a@b"]


@pytest.fixture
def records(tmp_path):
    """A repository with one commit."""
    found = results.Records(tmp_path)
    found.git("init", "-q")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/a.py").write_text("1\n")
    (tmp_path / "b.cc").write_text("2\n")
    commit(found)
    return found


def commit(records):
    records.git("add", "-A")
    records.git(*ENVIRONMENT, "commit", "-q", "-m", "x")


def test_the_key_is_the_tree_and_a_commit_of_records_keeps_it(records):
    tree = records.clean_tree()
    assert tree == records.git("rev-parse", "HEAD^{tree}").strip()
    records.add_part("format", tree, 60, True, "")
    assert records.clean_tree() == tree
    commit(records)
    assert records.git("rev-parse", "HEAD^{tree}").strip() != tree
    assert records.clean_tree() == tree


def test_the_key_is_that_of_a_tree_without_the_folder(records):
    tree = records.tree()
    records.add_part("format", tree, 60, True, "")
    (records.root / "tests/c.py").write_text("3\n")
    commit(records)
    records.git("rm", "-rq", "tests/full-results")
    assert records.git("write-tree").strip() != tree
    assert records.git("write-tree").strip() == records.tree()


@pytest.mark.parametrize("path", ["b.cc", "tests/new.py"])
def test_a_dirty_tree_is_not_recorded_and_named(records, path):
    tree = records.clean_tree()
    (records.root / path).write_text("other\n")
    with pytest.raises(results.NotRecorded, match=f"differs from HEAD .*{path}"):
        records.add_part("format", tree, 60, True, "")
    with pytest.raises(results.NotRecorded, match=path):
        records.add_run(tree, 1, [])
    assert not records.folder.exists()
    assert "in 1 files: a run now is not recorded" in records.status(["format"])[0][1]


def test_a_commit_during_a_part_is_not_recorded(records):
    tree = records.clean_tree()
    (records.root / "b.cc").write_text("other\n")
    commit(records)
    with pytest.raises(results.NotRecorded, match="another tree than when this began"):
        records.add_part("format", tree, 60, True, "")


def test_a_part_is_recorded_with_all_that_was_asked(records):
    tree = records.clean_tree()
    file = records.add_part(
        "ctest-rest", tree, 90.2, True, "100% tests passed, 0 tests failed out of 9"
    )
    record = json.loads(file.read_text())
    assert (
        record.pop("date")[:2] == "20"
        and record.pop("commit") == records.git("rev-parse", "HEAD").strip()
    )
    assert sorted(record.pop("machine")) == ["cores", "cpu", "kernel"]
    assert record == {
        "part": "ctest-rest",
        "tree": tree,
        "seconds": 90,
        "closing": "100% tests passed, 0 tests failed out of 9",
        "verdict": "passed",
    }


def test_missing_is_what_has_no_passing_record_of_this_tree(records):
    tree = records.clean_tree()
    records.add_part("a", tree, 1, True, "")
    records.add_part("b", tree, 1, False, "")
    assert records.missing(tree, ["c", "a", "b"]) == ["c", "b"]
    lines, whole = records.status(["a", "b", "c"])
    assert [line.split()[1] for line in lines[1:4]] == ["recorded", "FAILED", "missing"]
    assert lines[4] == "1 of 3 parts of ./dev test --full are recorded" and not whole
    records.add_part("b", tree, 1, True, "")
    assert records.status(["a", "b"])[1]
    records.add_part("a", tree, 1, False, "")  # the last run counts
    assert not records.status(["a", "b"])[1]


def test_a_new_tree_deletes_the_parts_of_the_old_one_and_keeps_runs(records):
    old = records.clean_tree()
    records.add_part("a", old, 1, True, "")
    records.add_run(old, 30, [row("ctest")])
    (records.root / "b.cc").write_text("other\n")
    commit(records)
    new = records.clean_tree()
    assert records.part(old, "a") and not records.status(["a"])[1]
    records.add_part("a", new, 1, True, "")
    assert records.part(old, "a") is None and len(records.runs(old)) == 1
    assert records.status(["a"])[1]


def row(name, passed=True, failures=()):
    return {"name": name, "seconds": 30.0, "passed": passed, "failures": list(failures)}


def rows(**changed):
    """One for each part of ./dev test."""
    return [row(name, **changed.get(name, {})) for name in sorted(results.DEFAULT_PARTS)]


def test_green_runs_of_this_tree_are_counted(records):
    tree = records.clean_tree()
    records.add_run(tree, 61, rows())
    records.add_run(tree, 61, rows(ctest={"failures": ["A.B"]}))  # passed by a second try
    records.add_run(tree, 61, rows(build={"passed": False}))
    records.add_run(tree, 61, [row("build"), row("ctest")])  # of a run that another one cut short
    runs = records.runs(tree)
    assert [run["verdict"] for run in runs] == ["passed", "failed", "failed", "failed"]
    assert runs[0]["minutes"]["build"] == 0.5 and runs[0]["seconds"] == 61
    assert runs[1]["failures"] == ["A.B"]
    assert runs[3]["failures"] == [
        "parts that did not run: chaos demo-build docs format pytest quarantine race ruff"
    ]
    assert records.status(["a"])[0][-1] == "1 of 4 recorded runs of ./dev test are green; asked: 10"


def test_the_parts_of_a_whole_run_are_those_of_dev():
    parts = re.findall(r"^  (?:WITH_TESTS= )?part (\S+) ", (ROOT / "dev").read_text(), re.MULTILINE)
    of_default = parts[: parts.index("race") + 1]
    assert set(of_default) == results.DEFAULT_PARTS


@pytest.mark.parametrize(
    "text", ["", "{", '{"verdict": "passed", "part": "a"', "[]", '{"part": "a"}']
)
def test_a_damaged_record_counts_as_missing_and_is_named(records, text):
    tree = records.clean_tree()
    file = records.add_part("a", tree, 1, True, "")
    file.write_text(text)
    assert records.missing(tree, ["a", "b"]) == ["a", "b"]
    lines, whole = records.status(["a"])
    assert "damaged: " in lines[1] and str(file) in lines[1] and not whole


def test_a_record_of_another_part_or_tree_is_none(records):
    tree = records.clean_tree()
    file = records.add_part("a", tree, 1, True, "")
    file.with_name("b.json").write_text(file.read_text())
    file.write_text(file.read_text().replace(tree, "0000"))
    assert records.missing(tree, ["a", "b"]) == ["a", "b"]


def test_a_record_is_written_whole_or_not_at_all(records, monkeypatch):
    tree = records.clean_tree()
    file = records.add_part("a", tree, 1, True, "")
    before = file.read_text()

    def full(path, text):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(results.NotRecorded, match="No space left"):
        records.add_part("a", tree, 2, False, "")
    assert file.read_text() == before and [p.name for p in file.parent.iterdir()] == ["a.json"]


def test_rows_of_parts_are_read(tmp_path):
    file = tmp_path / "parts.tsv"
    file.write_text("build\t3\t0\t\nctest\t4\t8\tA.B C.D\n")
    assert results.parts_of(file) == [
        {"name": "build", "seconds": 3.0, "passed": True, "failures": []},
        {"name": "ctest", "seconds": 4.0, "passed": False, "failures": ["A.B", "C.D"]},
    ]


def test_the_command_says_why_nothing_is_recorded(records):
    (records.root / "b.cc").write_text("other\n")
    program = ["python3", results.__file__, "tree"]
    done = subprocess.run(program, cwd=records.root, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("not recorded: the working tree differs from HEAD (M b.cc)")
