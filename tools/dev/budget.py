"""Compares what `./dev test` took with tests/budget.json, by part and by folder.

usage: budget.py SECONDS-IN-ALL PARTS.tsv LOG-OF-CTEST LOG-OF-PYTEST

Rows of "parts" are minutes of wall clock with a warm compiler cache; their sum is at most the
"warm" minutes. A run whose build took longer than its row is cold. Rows of "folders" are minutes of
all workers together; their sum is at most the row of the part times its "workers".
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from results import parts_of

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/budget.json"
CTEST_ROW = re.compile(r"^(\S+)\s+= +([0-9.]+) sec\*proc", re.MULTILINE)
PYTEST_TABLE = re.compile(r"^=+ minutes by folder .*=+\n((?: *[0-9.]+  \S+.*\n?)+)", re.MULTILINE)
ALSO_LABELS = {"full"}  # of tests that have the label of their folder too


def minutes_of_ctest(log: str) -> dict[str, float]:
    """By label, from CTest's summary of labels; of several runs the sum."""
    found: dict[str, float] = {}
    for label, seconds in CTEST_ROW.findall(log):
        if label not in ALSO_LABELS:
            found[label] = found.get(label, 0.0) + float(seconds) / 60
    return found


def minutes_of_pytest(log: str) -> dict[str, float]:
    """By folder, from the tables that tests/conftest.py prints; of several runs the sum."""
    found: dict[str, float] = {}
    for table in PYTEST_TABLE.findall(log):
        for row in table.splitlines():
            minutes, folder = row.split()[:2]
            found[folder] = found.get(folder, 0.0) + float(minutes)
    return found


def problems(budget: Mapping, folders: Mapping[str, Iterable[str]]) -> list[str]:
    """What is wrong with the file itself; `folders`: the folders with tests, of each kind."""
    found = []
    limit = budget["minutes"]["warm"]
    if (total := sum(budget["parts"].values())) > limit + 1e-6:
        found.append(f"the parts have {total:.2f} minutes in all; at most {limit} are allowed")
    for kind, rows in budget["folders"].items():
        limit = budget["parts"][kind] * budget["workers"][kind]
        if (total := sum(rows.values())) > limit + 1e-6:
            found.append(
                f"the folders of {kind} have {total:.2f} minutes in all; at most {limit:.2f} are "
                f"allowed"
            )
        have = set(folders[kind])
        found += [f"{kind}: {name} has tests and no row" for name in sorted(have - set(rows))]
        found += [f"{kind}: {name} has a row and no tests" for name in sorted(set(rows) - have)]
    return found


def rows_of(took: Mapping[str, float], allowed: Mapping[str, float]) -> list[str]:
    """Most minutes first."""
    lines = []
    for name, minutes in sorted(took.items(), key=lambda row: (-row[1], row[0])):
        limit = allowed.get(name)
        over = "  NO ROW" if limit is None else "  over" if minutes > limit else ""
        lines.append(
            f"  {minutes:7.2f} of {'-' if limit is None else f'{limit:.1f}':>4}  {name}{over}"
        )
    return lines


def report(
    budget: Mapping,
    whole: float,
    parts: Mapping[str, float],
    folders: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """Lines for people: minutes by part, in all, by folder; last a warning if `whole`, which has
    set-up too, took too long."""
    cold = parts.get("build", 0.0) > budget["parts"]["build"]
    state = "cold" if cold else "warm"
    limit = budget["minutes"][state]
    lines = ["minutes by part, and the budget with a warm cache", *rows_of(parts, budget["parts"])]
    lines.append(f"  {whole - sum(parts.values()):7.2f} of    -  set-up")
    lines.append(f"  {whole:7.2f} of {limit:4.1f}  in all, {state}")
    for kind, took in folders.items():
        if took:
            lines += [
                f"minutes by folder of {kind}, {sum(took.values()):.2f} of all workers together",
                *rows_of(took, budget["folders"][kind]),
            ]
    if whole > limit:
        lines.append(
            f"WARNING: ./dev test took {whole:.1f} minutes ({state}); tests/budget.json allows "
            f"{limit}"
        )
    return lines


def main(seconds: str, parts_file: str, ctest_log: str, pytest_log: str) -> None:
    parts = {part["name"]: part["seconds"] / 60 for part in parts_of(Path(parts_file))}
    folders = {}
    for kind, log, read in (
        ("ctest", ctest_log, minutes_of_ctest),
        ("pytest", pytest_log, minutes_of_pytest),
    ):
        if kind in parts:
            folders[kind] = read(Path(log).read_text(errors="replace"))
    try:
        budget = json.loads(FILE.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{FILE}: {error}")
    print("\n".join(report(budget, float(seconds) / 60, parts, folders)))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
