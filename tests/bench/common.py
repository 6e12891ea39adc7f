"""What every bench of the project shares.

A bench verifies each side, then times ours and the rivals in alternating blocks of one run, prints
a table with the machine it ran on, and with --json FILE writes one object per row:

  {"bench", "case", "unit", "ours": {"min", "p50", "p99", "samples"}, "rivals": {NAME: {same}},
   "ratio", "bound_rivals": [NAMES the ratio uses], "machine": {"cores", "model", "load"}, "date",
   "commit"}

and one for each figure that was asked for: {"figure", "asked", "found", "met"}.
tools/docs/result_pages.py makes a page of docs/results of such a file.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# regroup and our members
BIN = Path(os.environ.get("REGROUP_BENCH_BIN") or ROOT / "build-release/bin")
TIME_UNITS = ("s", "ms", "us", "ns")
RATE_UNITS = ("GB/s", "1/s")


class BenchError(Exception):
    """A side gave a wrong answer, or cannot be measured; the message says which and why."""


@dataclass(frozen=True)
class Work:
    """What every side trains: so many fp32 parameters, so much processor time per shard, so many
    workers."""

    params_mb: float = 25.0
    compute_ms: float = 2.0
    workers: int = 4

    @property
    def parameters(self) -> int:
        return int(self.params_mb * 250_000)


@dataclass(frozen=True)
class Stats:
    """The distribution of one side's samples, in the unit of its row."""

    min: float
    p50: float
    p99: float
    max: float
    samples: int

    def to_json(self) -> dict:
        return {"min": self.min, "p50": self.p50, "p99": self.p99, "samples": self.samples}


def percentile(ordered: Sequence[float], q: float) -> float:
    """The nearest-rank percentile: the smallest sample with at least q % of the samples at or below
    it."""
    return ordered[max(0, math.ceil(q / 100 * len(ordered)) - 1)]


def summarize(samples: Sequence[float]) -> Stats:
    """Raises BenchError on no samples, and on one that is not a finite number."""
    if not samples or not all(math.isfinite(value) for value in samples):
        raise BenchError(f"no statistics of {len(samples)} samples: none, or one is not finite")
    ordered = sorted(samples)
    return Stats(
        ordered[0], percentile(ordered, 50), percentile(ordered, 99), ordered[-1], len(ordered)
    )


@dataclass(frozen=True)
class Row:
    """One line of the table: our samples and the rivals', all in `unit`. `bound` names the rivals
    that the ratio uses; without any of them the ratio is null."""

    bench: str
    case: str
    unit: str
    ours: Stats
    rivals: Mapping[str, Stats] = field(default_factory=dict)
    bound: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.unit not in TIME_UNITS + RATE_UNITS:
            raise BenchError(f"row {self.bench}/{self.case}: unknown unit {self.unit!r}")
        if missing := set(self.bound) - set(self.rivals):
            raise BenchError(
                f"row {self.bench}/{self.case}: no samples of bound rival {sorted(missing)}"
            )

    def ratio(self) -> float | None:
        """How many times better than the best bound rival our median is; above 1 is better."""
        medians = [self.rivals[name].p50 for name in self.bound]
        if not medians:
            return None
        numerator, denominator = (
            (min(medians), self.ours.p50)
            if self.unit in TIME_UNITS
            else (self.ours.p50, max(medians))
        )
        return numerator / denominator if denominator > 0 else None

    def to_json(self, machine: Mapping) -> dict:
        return {
            "bench": self.bench,
            "case": self.case,
            "unit": self.unit,
            "ours": self.ours.to_json(),
            "rivals": {name: stats.to_json() for name, stats in self.rivals.items()},
            "ratio": self.ratio(),
            "bound_rivals": list(self.bound),
            "machine": dict(machine),
        }


@dataclass(frozen=True)
class Side:
    """One side of the comparison. `verify` raises BenchError unless the side does the work that is
    timed; `block` measures one block and returns its samples."""

    name: str
    verify: Callable[[], None]
    block: Callable[[], Sequence]


def alternate(sides: Sequence[Side], blocks: int) -> dict[str, list]:
    """Verifies every side, then runs `blocks` rounds of one block of each. Each round starts with
    another side, so that no side always runs in another's wake. Returns the samples by side
    name."""
    for side in sides:
        side.verify()
    samples: dict[str, list] = {side.name: [] for side in sides}
    for number in range(blocks):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            samples[side.name].extend(side.block())
    return samples


def samples_of(program: str, count: int, bench: str) -> dict[str, list[float]]:
    """Milliseconds by case, as `program` of BIN prints them: "CASE<tab>NANOSECONDS" for each of
    `count`."""
    done = subprocess.run(
        [str(BIN / program), str(count)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise BenchError(f"{bench}: {done.stderr.strip() or f'ended with {done.returncode}'}")
    out: dict[str, list[float]] = {}
    for line in done.stdout.splitlines():
        case, nanoseconds = line.split("\t")
        out.setdefault(case, []).append(int(nanoseconds) / 1e6)
    return out


@dataclass(frozen=True)
class Figure:
    """One line below the table, of a figure that was `asked` for; one with nothing asked is for
    comparison. `found` says what was measured, or why nothing was; `met` is None where it was not
    judged."""

    what: str
    asked: str
    found: str
    met: bool | None

    def __str__(self) -> str:
        asked = f"asked {self.asked}, " if self.asked else ""
        return (
            f"{self.what}: {asked}{self.found}"
            + {True: ": met", False: ": MISSED", None: ""}[self.met]
        )


def conclude(figures: Sequence[Figure], json_file: str | None = None) -> None:
    """Prints all of them, and appends them to `json_file`; BenchError if one was missed."""
    print("\n".join(map(str, figures)))
    if json_file is not None:
        with open(json_file, "a", encoding="utf-8") as out:
            for figure in figures:
                said = {"asked": figure.asked, "found": figure.found, "met": figure.met}
                out.write(json.dumps({"figure": figure.what} | said) + "\n")
    if missed := [figure.what for figure in figures if figure.met is False]:
        raise BenchError(f"missed {len(missed)} of {len(figures)} figures: {'; '.join(missed)}")


def machine() -> dict:
    """The machine a number belongs to: usable cores, CPU model, load average of the last minute."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cores": len(os.sched_getaffinity(0)),
        "model": model,
        "load": round(os.getloadavg()[0], 2),
    }


def when() -> dict:
    """Date and commit of a run; "" where git does not know."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return {"date": time.strftime("%Y-%m-%d"), "commit": done.stdout.strip()}


def machine_line(found: Mapping) -> str:
    return f"machine: {found['cores']} cores, {found['model']}, load {found['load']:.2f}"


def format_table(rows: Sequence[Row]) -> str:
    """The rows as aligned text, one line for ours and one for each rival; a bound rival carries a
    *."""
    lines = [("bench", "case", "side", "unit", "min", "p50", "p99", "max", "samples", "ratio")]
    for row in rows:
        ratio = row.ratio()
        sides = [("ours", row.ours, "" if ratio is None else f"{ratio:.2f}")]
        sides += [
            (name + "*" * (name in row.bound), stats, "") for name, stats in row.rivals.items()
        ]
        for name, stats, shown in sides:
            numbers = [f"{value:.4g}" for value in (stats.min, stats.p50, stats.p99, stats.max)]
            lines.append((row.bench, row.case, name, row.unit, *numbers, str(stats.samples), shown))
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    left = 4  # names to the left of their column, numbers to the right
    return "\n".join(
        "  ".join(
            c.ljust(w) if i < left else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def parser(description: str) -> argparse.ArgumentParser:
    """The options every bench has; a bench adds its own."""
    options = argparse.ArgumentParser(description=description.strip().split("\n\n")[0])
    options.add_argument(
        "--quick", action="store_true", help="fewer samples: under 50 s for all benches"
    )
    options.add_argument(
        "--json", metavar="FILE", help="also write one JSON object per row to FILE"
    )
    return options


def report(rows: Sequence[Row], json_file: str | None) -> None:
    """Prints the table and the machine line; replaces `json_file`, if given, by one object per
    row."""
    found = machine()
    print(format_table(rows))
    print(machine_line(found))
    if json_file is not None:
        with open(json_file, "w", encoding="utf-8") as out:
            out.writelines(
                json.dumps(row.to_json(found) | when(), allow_nan=False) + "\n" for row in rows
            )


def main(run: Callable[[], None]) -> None:
    """Runs a bench's main function: a BenchError becomes one line on standard error and exit status
    1."""
    began = time.monotonic()
    try:
        run()
        print(f"this took {time.monotonic() - began:.0f} s")
    except BenchError as error:
        sys.exit(f"bench: {error}")
