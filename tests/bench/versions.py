"""This tree against another commit of this project: launch, step, recovery and latency.

  ./dev bench versions --other FOLDER

FOLDER is a clone of the other commit whose release build `./dev bench` has made (build-release).
The two take turns: a pair is one run of each, and every second pair begins with the other one. Each
tree is measured by its own scripts and members, since options change their names. A line below the
table compares each quantity pair by pair; one that is slower ends the bench with status 1.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
import launch
import pairs
from common import ROOT, BenchError, Row

DEADLINE_S = 120.0
KILLS = 3  # of one run of the recovery bench
Values = dict[str, float]  # by name of a quantity; less is better

# Prints what one run measured, as a script of the tree sees it.
STEP = """
import json, statistics, overhead
sides = overhead.run(2)
print(json.dumps({f"empty step, 4 KiB ({name})": statistics.median(us for one in sides[key]
                  for us in one) for name, key in (("session", "session"),
                                                   ("communicator", "communicator"))}))
"""
RECOVERY = f"""
import json, statistics, ours_recovery
from common import Work
found = ours_recovery.measure({KILLS}, Work(), seed=SEED)
names = {{"added_delay": "delay that a kill adds to the open step",
          "kill_to_commit": "kill to the last survivor's next commit",
          "detect": "kill to detected", "regroup": "detected to the new generation",
          "step": "undisturbed step"}}
print(json.dumps({{name: 1e3 * statistics.median(found[key]) for key, name in names.items()
                  if found.get(key)}}))
"""


@dataclass(frozen=True)
class Version:
    """A tree with its release build."""

    name: str
    root: Path

    @property
    def programs(self) -> Path:
        return self.root / "build-release/bin"

    def regroup(self, *words: str) -> list[str]:
        return [str(self.programs / "regroup"), "--oversubscribe", *words]

    def script(self, text: str) -> Values:
        """The JSON that `text` prints, run by Python among the tree's bench scripts."""
        told = self.run([sys.executable, "-c", text], cwd=self.root / "tests/bench")
        return json.loads(told.splitlines()[-1])

    def run(self, command: Sequence[str], cwd: Path | None = None) -> str:
        environment = launch.environment() | {"REGROUP_BENCH_BIN": str(self.programs)}
        return launch.run(f"versions: {self.name}", command, environment, cwd, DEADLINE_S)


def launches(version: Version, _: int) -> Values:
    """Milliseconds of the whole launcher."""
    env = launch.environment()
    cases = {"-np 8 true": ("-np", "8"), "-np 1 true": ("-np", "1"), "-np 1:2 true": ("-np", "1:2")}
    return {
        name: statistics.median(
            launch.launch_ms(version.regroup(*words, "true"), env) for _ in range(3)
        )
        for name, words in cases.items()
    }


def steps(version: Version, _: int) -> Values:
    """Microseconds; the members check every sum."""
    return version.script(STEP)


def recovery(version: Version, number: int) -> Values:
    """Milliseconds; the members check every sum. Both trees kill at the same moments."""
    return version.script(RECOVERY.replace("SEED", str(number + 1)))


def latency(version: Version, _: int) -> Values:
    """Microseconds of an all-reduce of two ranks, which `regroup bench` verifies."""
    with tempfile.TemporaryDirectory(prefix="regroup-versions-") as folder:
        file = Path(folder) / "result.json"
        bench = (str(version.programs / "regroup"), "bench", "allreduce")
        sizes = ("-b", "8", "-e", "56", "-i", "48", "-n", "2000", "--rounds", "1")
        version.run(version.regroup("-np", "2", *bench, *sizes, "--json", str(file)))
        rows = json.loads(file.read_text())["rows"]
    return {
        f"all-reduce, {row['size']} B, {memory}": found["out_of_place"]["p50_us"]
        for row in rows
        for memory, found in row["memory"].items()
    }


PARTS: dict[str, tuple[str, Callable[[Version, int], Values]]] = {
    "launch": ("ms", launches),
    "overhead": ("us", steps),
    "recovery": ("ms", recovery),
    "latency": ("us", latency),
}


def measure(part: str, versions: Sequence[Version], count: int) -> dict[str, dict[str, list]]:
    """Values by quantity and version. A quantity that either tree lacks in a pair is left out of
    that pair."""
    out: dict[str, dict[str, list]] = {}
    for number in range(count):
        order = versions if number % 2 == 0 else list(reversed(versions))
        found = {version.name: PARTS[part][1](version, number) for version in order}
        for quantity in set.intersection(*(set(values) for values in found.values())):
            lists = out.setdefault(quantity, {version.name: [] for version in versions})
            for name, values in found.items():
                lists[name].append(values[quantity])
        print(f"versions: {part}: pair {number + 1} of {count}", file=sys.stderr)
    return out


def find_other(given: str) -> Version:
    root = Path(given).resolve()
    version = Version("other", root)
    for needed in (version.programs / "regroup", root / "tests/bench/overhead.py"):
        if not needed.exists():
            raise BenchError(
                f"versions: --other {given}: {needed} is missing; expected a clone in which "
                "`./dev bench` has made its release build"
            )
    return version


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--other", metavar="FOLDER", required=True, help="clone to compare with")
    options.add_argument("--only", action="append", choices=list(PARTS), help="measure this part")
    args = options.parse_args()
    other = find_other(args.other)
    versions = [Version("this tree", ROOT), other]
    rows, figures = [], []
    for part in args.only or PARTS:
        found = measure(part, versions, 2 if args.quick else pairs.ENOUGH)
        for quantity in sorted(found):
            ours, theirs = found[quantity]["this tree"], found[quantity]["other"]
            rows.append(
                Row(
                    "versions",
                    f"{part}: {quantity}",
                    PARTS[part][0],
                    common.summarize(ours),
                    {"other": common.summarize(theirs)},
                )
            )
            figures.append(pairs.compare(f"{part}: {quantity}", ours, theirs))
    common.report(rows, args.json)
    common.conclude(figures, args.json)


if __name__ == "__main__":
    common.main(main)
