"""tests/pytest_map.json: which files of pytest run which source, and for how long
(tools/dev/record_map.py).

  {"tests": [[FILE OF PYTEST, SECONDS], ...], "sources": {SOURCE: "0-3 7"}}

The numbers and ranges of a source are places in "tests". A C++ source counts as run if one of its
functions ran, a Python source if a process that ended by itself had imported it.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def to_ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] is "0-2 5"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def from_ranges(text: str) -> list[int]:
    numbers: list[int] = []
    for word in text.split():
        first, _, last = word.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


class PytestMap:
    """What each recorded file of pytest took and ran."""

    def __init__(self, seconds: Mapping[str, float], sources: Mapping[str, Iterable[str]]) -> None:
        self.seconds = dict(seconds)  # by file of pytest
        self.sources = {test: set(sources[test]) for test in seconds}  # by file of pytest

    @classmethod
    def read(cls, file: Path) -> "PytestMap":
        if not file.exists():
            return cls({}, {})
        try:
            stored = json.loads(file.read_text())
        except ValueError as error:
            sys.exit(f"{file}: {error}")
        tests = [name for name, _ in stored["tests"]]
        sources: dict[str, set[str]] = {name: set() for name in tests}
        for source, ranges in stored["sources"].items():
            for number in from_ranges(ranges):
                sources[tests[number]].add(source)
        return cls(dict(stored["tests"]), sources)

    def put(self, test: str, seconds: float, sources: Iterable[str]) -> None:
        self.seconds[test] = seconds
        self.sources[test] = set(sources)

    def keep(self, existing: set[str]) -> None:
        """Drops files of pytest, and sources, that are not among the files that exist."""
        self.seconds = {test: seconds for test, seconds in self.seconds.items() if test in existing}
        self.sources = {test: self.sources[test] & existing for test in self.seconds}

    def by_source(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for test in sorted(self.seconds):
            for source in self.sources[test]:
                found.setdefault(source, []).append(test)
        return found

    def write(self, file: Path) -> None:
        tests = sorted(self.seconds)
        numbers: dict[str, list[int]] = {}
        for number, test in enumerate(tests):
            for source in self.sources[test]:
                numbers.setdefault(source, []).append(number)
        rows = [json.dumps([test, round(self.seconds[test], 1)]) for test in tests]
        columns = [f"{json.dumps(s)}: {json.dumps(to_ranges(numbers[s]))}" for s in sorted(numbers)]
        file.write_text(
            '{"tests": [\n'
            + ",\n".join(rows)
            + '\n], "sources": {\n'
            + ",\n".join(columns)
            + "\n}}\n"
        )
