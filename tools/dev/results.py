"""Records of what passed on a tree: the parts of `./dev test --full`, and whole runs of `./dev
test`.

  tests/full-results/TREE/PART.json    the last run of a part on this tree
  tests/full-results/TREE/runs.jsonl   one line for each recorded run of ./dev test on this tree

TREE is git's hash of HEAD's tree without tests/full-results, so that a commit of records keeps the
key. Only a clean working tree is recorded. The first part of another tree deletes the parts of
older ones; runs stay.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = "tests/full-results"
RUNS = "runs.jsonl"
RUNS_ASKED = 10


DEFAULT_PARTS = {
    "build",
    "demo-build",
    "ctest",
    "pytest",
    "format",
    "ruff",
    "docs",
    "chaos",
    "quarantine",
    "race",
}


class NotRecorded(Exception):
    """Why nothing is recorded."""


class Damaged(Exception):
    """A record that cannot be read: its file and why."""


class Records:
    """The records in the repository at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER

    def git(self, *words: str, given: str | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.root, input=given, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise NotRecorded(f"git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def tree(self) -> str:
        """The key of HEAD. The trees that `git mktree` makes are those of a commit without the
        folder."""
        top, name = FOLDER.split("/")
        rows = self.git("ls-tree", "HEAD").splitlines(keepends=True)
        for number, row in enumerate(rows):
            if row.endswith(f"\t{top}\n"):
                inner = self.git("ls-tree", f"HEAD:{top}").splitlines(keepends=True)
                given = "".join(r for r in inner if not r.endswith(f"\t{name}\n"))
                rows[number] = f"040000 tree {self.git('mktree', given=given).strip()}\t{top}\n"
        return self.git("mktree", given="".join(rows)).strip()

    def changes(self) -> list[str]:
        """What differs from HEAD, without records."""
        return self.git("status", "--porcelain", "--", ".", f":!{FOLDER}").splitlines()

    def clean_tree(self) -> str:
        if changes := self.changes():
            more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
            raise NotRecorded(f"the working tree differs from HEAD ({changes[0].strip()}{more})")
        return self.tree()

    def started(self, tree: str, seconds: float) -> dict:
        """What every record has. Raises NotRecorded if the tree is no longer what it was at the
        start."""
        if self.clean_tree() != tree:
            raise NotRecorded("HEAD has another tree than when this began")
        commit = self.git("rev-parse", "HEAD").strip()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return {
            "tree": tree,
            "commit": commit,
            "date": now,
            "machine": machine(),
            "seconds": round(seconds),
        }

    def add_part(self, part: str, tree: str, seconds: float, passed: bool, closing: str) -> Path:
        record = {"part": part} | self.started(tree, seconds)
        record |= {"closing": closing, "verdict": "passed" if passed else "failed"}
        for old in self.folder.glob("*/*.json"):
            if old.parent.name != tree:
                old.unlink()
                if not any(old.parent.iterdir()):
                    old.parent.rmdir()
        return self.write(tree, f"{part}.json", json.dumps(record, indent=1) + "\n", "w")

    def add_run(self, tree: str, seconds: float, parts: list[dict]) -> Path:
        """`seconds`: in all, with set-up; `parts`: name, seconds, passed, failures (names of tests
        that failed, also of a first try)."""
        record = self.started(tree, seconds)
        record["minutes"] = {part["name"]: round(part["seconds"] / 60, 2) for part in parts}
        record["failures"] = [name for part in parts for name in part["failures"]]
        if absent := sorted(DEFAULT_PARTS - record["minutes"].keys()):
            record["failures"].append(f"parts that did not run: {' '.join(absent)}")
        green = all(part["passed"] for part in parts) and not record["failures"]
        record["verdict"] = "passed" if green else "failed"
        return self.write(tree, RUNS, json.dumps(record) + "\n", "a")

    def write(self, tree: str, name: str, text: str, mode: str) -> Path:
        file = self.folder / tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if mode == "a" and file.exists():
            text = file.read_text() + text
        half = file.with_name(f".{name}.{os.getpid()}")
        try:
            half.write_text(text)
            half.rename(file)  # whole or not at all, on a full disk too
        except OSError as error:
            half.unlink(missing_ok=True)
            raise NotRecorded(f"{file}: {error.strerror}") from None
        return file

    def part(self, tree: str, part: str) -> dict | None:
        """Raises Damaged."""
        file = self.folder / tree / f"{part}.json"
        if not file.exists():
            return None
        record = loads(file, file.read_text())
        if (record.get("tree"), record.get("part")) != (tree, part):
            raise Damaged(
                f"{file}: it is of part {record.get('part')} of tree {record.get('tree')}"
            )
        return record

    def missing(self, tree: str, parts: Iterable[str]) -> list[str]:
        """Those without a passing record, in the given order."""
        return [name for name in parts if not self.look_up(tree, name)[0]]

    def look_up(self, tree: str, part: str) -> tuple[bool, str]:
        """Whether the part has a passing record, and a line about it for people."""
        try:
            record = self.part(tree, part)
        except Damaged as why:
            return False, f"damaged: {why}"
        return (record["verdict"] == "passed", line_of(record)) if record else (False, "missing")

    def runs(self, tree: str) -> list[dict]:
        file = self.folder / tree / RUNS
        return (
            [loads(file, line) for line in file.read_text().splitlines()] if file.exists() else []
        )

    def status(self, parts: list[str]) -> tuple[list[str], bool]:
        """Lines for people, and whether each part has a passing record."""
        tree = self.tree()
        lines = [f"tree {tree} (HEAD without {FOLDER})"]
        if changes := self.changes():
            lines.append(
                f"the working tree differs from it in {len(changes)} files: a run now is not "
                f"recorded"
            )
        found = {name: self.look_up(tree, name) for name in parts}
        lines += [f"  {name:<24} {line}" for name, (_, line) in found.items()]
        recorded = sum(passed for passed, _ in found.values())
        lines.append(f"{recorded} of {len(parts)} parts of ./dev test --full are recorded")
        runs = self.runs(tree)
        green = sum(run["verdict"] == "passed" for run in runs)
        lines.append(
            f"{green} of {len(runs)} recorded runs of ./dev test are green; asked: {RUNS_ASKED}"
        )
        return lines, recorded == len(parts)


def loads(file: Path, text: str) -> dict:
    try:
        record = json.loads(text)
        if not isinstance(record, dict) or record.get("verdict") not in ("passed", "failed"):
            raise ValueError("no record of a run")
        return record
    except ValueError as error:
        raise Damaged(f"{file}: {error}") from None


def line_of(record: dict) -> str:
    word = "recorded" if record["verdict"] == "passed" else "FAILED"
    return f"{word} {record['date'][:16].replace('T', ' ')} UTC, {record['seconds'] / 60:.1f} min"


def machine() -> dict:
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "kernel": os.uname().release}


def parts_of(file: Path) -> list[dict]:
    """The rows that tools/dev/parts.sh writes: name, seconds, exit status, failures, separated by
    tabs."""
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    return [
        {
            "name": name,
            "seconds": float(seconds),
            "passed": status == "0",
            "failures": failures.split(),
        }
        for name, seconds, status, failures in rows
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/dev/results.py", description=__doc__.split("\n\n")[0]
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("tree", help="print the key of HEAD; fails if the working tree is not clean")
    part = verbs.add_parser("part", help="record a part")
    part.add_argument("name")
    part.add_argument("tree")
    part.add_argument("seconds", type=float)
    part.add_argument("status", type=int)
    part.add_argument("closing")
    run = verbs.add_parser("run", help="record a run of ./dev test")
    run.add_argument("tree")
    run.add_argument("seconds", type=float)
    run.add_argument("file", type=Path)
    for verb in ("status", "missing"):
        verbs.add_parser(verb).add_argument("parts", nargs="+")
    given = parser.parse_args()
    records = Records(Path.cwd())
    try:
        match given.verb:
            case "tree":
                print(records.clean_tree())
            case "part":
                what = (given.name, given.tree, given.seconds, given.status == 0, given.closing)
                print(f"recorded: {records.add_part(*what).relative_to(records.root)}")
            case "run":
                file = records.add_run(given.tree, given.seconds, parts_of(given.file))
                print(f"recorded: {file.relative_to(records.root)}")
            case "missing":
                for name in records.missing(records.clean_tree(), given.parts):
                    print(name)
            case "status":
                lines, whole = records.status(given.parts)
                print("\n".join(lines))
                return 0 if whole else 1
    except Damaged as why:
        print(f"damaged record: {why}; delete the file", file=sys.stderr)
        return 3
    except NotRecorded as why:
        print(f"not recorded: {why}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
