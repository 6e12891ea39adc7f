"""./dev check --record: records which files of pytest run which source, in tests/pytest_map.json.

A clone of HEAD in build-coverage/tree is built with preset coverage and runs each file of pytest by
itself; then gcov says which functions ran. Rows of other files of pytest stay. A process that a
signal kills has no counts. One whose environment lacks GCOV_PREFIX leaves them next to the objects:
they count with --jobs 1.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from pytest_map import PytestMap

ROOT = Path(__file__).resolve().parents[2]
MAP = ROOT / "tests/pytest_map.json"
TREE = ROOT / "build-coverage/tree"
DEADLINE_S = 1800
BATCH = 8  # objects that one gcov reads
PYTEST = ["env", "--default-signal=INT,QUIT,HUP", ".venv/bin/python", "-m", "pytest", "-q"]


def executed(tree: Path, reports: Iterable[str]) -> set[str]:
    """The sources of the tree of which a function ran; a report is a line of gcov --json-format
    --stdout."""
    found = set()
    for report in map(json.loads, reports):
        for file in report["files"]:
            path = Path(os.path.normpath(Path(report["current_working_directory"], file["file"])))
            if path.is_relative_to(tree) and any(f["execution_count"] for f in file["functions"]):
                found.add(str(path.relative_to(tree)))
    return found


def gcov(tree: Path, data: list[Path]) -> list[str]:
    words = ["gcov", "--json-format", "--stdout", "--relative-only", "--source-prefix", str(tree)]
    done = subprocess.run([*words, *map(str, data)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def sources_of(tree: Path, folder: Path) -> set[str]:
    """What ran, by the counts that lie under `folder` as they would under /."""
    data = sorted(folder.rglob("*.gcda"))
    for file in data:
        notes = file.with_suffix(".gcno")
        if not notes.exists():
            notes.symlink_to(Path("/") / notes.relative_to(folder))
    batches = [data[first : first + BATCH] for first in range(0, len(data), BATCH)]
    return executed(tree, (report for batch in batches for report in gcov(tree, batch)))


def imported(tree: Path, folder: Path) -> set[str]:
    """The Python sources of the tree that processes wrote into `folder`."""
    lines = {line for file in folder.iterdir() for line in file.read_text().splitlines()}
    paths = {Path(os.path.realpath(line)) for line in lines if line.endswith(".py")}
    return {str(path.relative_to(tree)) for path in paths if path.is_relative_to(tree)}


def conftests(test: str) -> set[str]:
    """Where a conftest.py of pytest may lie: the later ones replace the first in sys.modules."""
    return {str(folder / "conftest.py") for folder in Path(test).parents}


def git(*words: str, folder: Path = ROOT) -> list[str]:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def make_tree() -> None:
    """HEAD, built with preset coverage."""
    if not TREE.exists():
        TREE.parent.mkdir(exist_ok=True)
        git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(TREE))
    git("fetch", "--quiet", "origin", "HEAD", folder=TREE)
    git("checkout", "--quiet", "--force", "--detach", "FETCH_HEAD", folder=TREE)
    venv = TREE / ".venv"
    if not venv.is_symlink():
        venv.symlink_to((ROOT / ".venv").resolve())
    subprocess.run(
        ["cmake", "--preset", "coverage", "-B", "build"],
        cwd=TREE,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    listed = subprocess.run(
        ["ninja", "-C", "build", "-t", "targets", "all"],
        cwd=TREE,
        check=True,
        capture_output=True,
        text=True,
    )
    programs = re.findall(
        r"^(\S+): CXX_(?:EXECUTABLE|MODULE_LIBRARY)_LINKER", listed.stdout, re.MULTILINE
    )
    wanted = [p for p in programs if not re.search(r"_test$|/fuzz_\w+$", p)]
    jobs = os.environ.get("REGROUP_JOBS", str(os.cpu_count()))
    subprocess.run(["ninja", "-C", "build", "-j", jobs, *wanted], cwd=TREE, check=True)


def move_strays(build: Path, folder: Path) -> None:
    """Moves counts that lie next to the objects to where GCOV_PREFIX=folder would have put them."""
    for file in build.rglob("*.gcda"):
        target = folder / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)


class NotRecorded(Exception):
    """Why a file of pytest has no row."""


def run_pytest(tree: Path, test: str, alone: bool) -> tuple[float, set[str], str]:
    """Seconds, sources and closing line of one file of pytest; `alone`: no other file runs
    meanwhile. Raises NotRecorded if a test fails, which may not have run what it would."""
    with tempfile.TemporaryDirectory(prefix="regroup-map-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # some tests start processes of other users
        for part in ("counts", "strays", "imports", "run"):
            (folder / part).mkdir()
            (folder / part).chmod(0o700 if part == "run" else 0o777)
        environment = os.environ | {
            "GCOV_PREFIX": str(folder / "counts"),
            "REGROUP_IMPORTS": str(folder / "imports"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PATH": f"{tree}/build/bin:{tree}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": f"{tree}/build/python:{tree}/tools/dev/imports",
        }
        start = time.monotonic()
        done = subprocess.run(
            [*PYTEST, test],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        seconds = time.monotonic() - start
        if alone:
            move_strays(tree / "build", folder / "strays")
        sources = {test, *conftests(test)} | imported(tree, folder / "imports")
        for part in ("counts", "strays"):
            sources |= sources_of(tree, folder / part)
    closing = ([""] + done.stdout.strip().splitlines())[-1]
    if done.returncode != 0:
        raise NotRecorded(f"exit status {done.returncode}: {closing}")
    return seconds, sources, closing


def record(tests: list[str], jobs: int) -> int:
    """Writes the map after each file, so that a stopped run keeps what it has."""
    failed = 0
    for file in (TREE / "build").rglob("*.gcda"):
        file.unlink()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_pytest, TREE, test, jobs == 1): test for test in tests}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            test = running[done]
            try:
                seconds, sources, closing = done.result()
            except (NotRecorded, subprocess.SubprocessError) as error:
                print(f"[{number}/{len(tests)}] {test}: not recorded: {error}", flush=True)
                failed += 1
                continue
            found = PytestMap.read(MAP)
            found.put(test, seconds, sources)
            found.keep(set(git("ls-files", folder=TREE)))
            found.write(MAP)
            print(f"[{number}/{len(tests)}] {test}: {len(sources)} sources; {closing}", flush=True)
    strays = sum(1 for _ in (TREE / "build").rglob("*.gcda"))
    if strays:
        print(
            f"left out: {strays} objects, counted by processes without GCOV_PREFIX; --jobs 1 "
            f"counts them"
        )
    return failed


def all_tests() -> list[str]:
    return [
        path for path in git("ls-files", "tests") if re.fullmatch(r"tests/.*/test_\w+\.py", path)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev check --record", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--only", action="append", metavar="PATH", help="these files of pytest, or all of a folder"
    )
    parser.add_argument("--missing", action="store_true", help="files that the map has no row of")
    parser.add_argument(
        "--built", action="store_true", help="use what build-coverage/tree holds as it is"
    )
    parser.add_argument(
        "--jobs", type=int, default=3, metavar="N", help="files at a time (default 3)"
    )
    options = parser.parse_args()
    tests = all_tests()
    if options.only:
        tests = [
            t
            for t in tests
            if any(t == p or t.startswith(p.rstrip("/") + "/") for p in options.only)
        ]
    if options.missing:
        tests = [t for t in tests if t not in PytestMap.read(MAP).seconds]
    if not tests:
        print("./dev check --record: no file of pytest is named by these options", file=sys.stderr)
        return 2
    if not options.built:
        make_tree()
    print(f"{len(tests)} files of pytest, {options.jobs} at a time", flush=True)
    return 1 if record(tests, options.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
