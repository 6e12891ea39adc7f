"""Random schedules of kills, joins and notices against undisturbed runs: same weights, every sample once.

./dev chaos [--schedules N] [--seed S] [--python]. Each line says what happened; the first broken promise
ends the run with the seed that repeats it.
"""

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

import sklearn
from schedule import Broken, Schedule, run

ROOT = Path(__file__).resolve().parents[2]


def digits_csv(folder: Path) -> str:
    """scikit-learn's digits as plain CSV."""
    packed = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
    path = folder / "digits.csv"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return str(path)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--schedules", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--bin", type=Path, default=ROOT / "build" / "bin")
    args = options.parse_args()
    program, regroup = str(args.bin / "chaos_member"), str(args.bin / "regroup")
    undisturbed: dict[int, str] = {}
    with tempfile.TemporaryDirectory(prefix="regroup-digits-") as name:
        csv = digits_csv(Path(name))
        for seed in range(args.seed, args.seed + args.schedules):
            schedule = Schedule.draw(seed)
            try:
                if schedule.shards not in undisturbed:
                    alone = Schedule(0, schedule.shards, 1, largest=1)
                    undisturbed[schedule.shards], _ = run(alone, program, csv, regroup)
                weights, story = run(schedule, program, csv, regroup)
                if weights != undisturbed[schedule.shards]:
                    raise Broken("other weights than the undisturbed run")
            except Broken as broken:
                print(f"FAILED {schedule}\n{broken}", flush=True)
                print(f"{seed - args.seed} passed, 1 failed")
                return 1
            print(f"ok {schedule} | {story}", flush=True)
    print(f"{args.schedules} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
