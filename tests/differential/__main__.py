"""Compares `regroup` with its peers on generated input for as long as asked.

usage: ./dev differential [--seconds N] [--seed S] [--count N]
                          [--of command_lines|host_lists|hydra]

What differs without a reason (differences.py, host_lists.py, hydra.py) is printed, with the seed
that makes it; of Open MPI's command lines it is made small. Status 1: there was some.
"""

import argparse
import collections
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import host_lists
import hydra
from command_lines import CommandLine, Generator
from comparison import Difference, compare, shrink, unexplained
from differences import explained
from machines import write_synthetic

BATCH = 200


def smallest(difference: Difference, folder: Path) -> Difference:
    kept = [difference]

    def fails(line: CommandLine) -> bool:
        found = unexplained(line, folder)
        if found is None or found.kind != difference.kind:
            return False
        kept[0] = found
        return True

    shrink(difference.line, fails)
    return kept[0]


class Comparison:
    """Of one kind of input; counts what it has tried, by reason."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.pool = ThreadPoolExecutor(options.jobs)
        self.end = time.monotonic() + options.seconds
        self.tried = 0
        self.reasons: collections.Counter[str] = collections.Counter()

    def check(self, seed: int) -> tuple[str, object] | None:
        """The reason of a difference and what differs; None: there is none."""
        if self.options.of != "command_lines":
            peer = hydra if self.options.of == "hydra" else host_lists
            found = peer.compare(peer.Generator(seed).make(), self.folder)
            return None if found is None else (found[1], found[0])
        difference = compare(Generator(seed).make(), self.folder)
        return None if difference is None else (explained(difference), difference)

    def unexplained(self) -> Iterator[tuple[int, object]]:
        """With the seeds; goes on until the time or the count is reached."""
        first = self.options.seed
        last = first + self.options.count
        while first < last and time.monotonic() < self.end:
            seeds = range(first, min(first + BATCH, last))
            first = seeds.stop
            for seed, found in zip(seeds, self.pool.map(self.check, seeds), strict=True):
                self.tried += 1
                if found is None:
                    continue
                self.reasons[found[0]] += 1
                if not found[0]:
                    yield seed, found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=4, help="inputs at a time")
    parser.add_argument("--most", type=int, default=20, help="failures to make small and print")
    kinds = ["command_lines", "host_lists", "hydra"]
    parser.add_argument("--of", choices=kinds, default=kinds[0])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rd") as name:
        folder = Path(name)
        write_synthetic(folder)
        host_lists.write_configuration(folder)
        comparison = Comparison(options, folder)
        printed: set[str] = set()
        for seed, found in comparison.unexplained():
            if len(printed) >= options.most:
                continue
            small = smallest(found, folder) if isinstance(found, Difference) else found
            if str(small) not in printed:
                print(f"seed {seed}: {small}\n", flush=True)
            printed.add(str(small))
    what = "command lines of hydra" if options.of == "hydra" else options.of.replace("_", " ")
    print(f"{comparison.tried} {what}, which differ for these reasons:")
    for reason, count in comparison.reasons.most_common():
        print(f"{count:8}  {reason or 'UNEXPLAINED'}")
    return 1 if comparison.reasons[""] else 0


if __name__ == "__main__":
    sys.exit(main())
