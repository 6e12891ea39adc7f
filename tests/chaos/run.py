"""Random schedules of kills, joins and notices against undisturbed runs: same weights, every sample
once.

./dev chaos [--schedules N] [--seed S] [--cpp]: PyTorch members, or C++ ones, which ./dev test runs
too; with --plane NAME: C++ members with gradients on a fake GPU, so that the job uses that plane
or changes between planes while it runs (planes.py); with --hosts N [--faults F]: C++ members on so
many hosts, which are lost too (hosts_run.py).
Each line says what happened; the first broken promise ends the run with the seed that repeats it. A
run of many schedules fails, too, if few of the events found somebody to happen to.
"""

import argparse
import gzip
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import sklearn
from audit import Work, check_accesses, check_ends, check_trails
from planes import PLANES, Plane, has_kernels, missing_planes, seen
from schedule import KINDS, Broken, Disturber, Job, Schedule, named, wait_for_training

ROOT = Path(__file__).resolve().parents[2]
MANY = 50  # schedules from which on the events must have happened
OFTEN = {"kill": 3, "join": 3, "notice": 3, "newcomer": 5}  # once in so many schedules, on average
# it imports for seconds: on a busy machine most jobs end before
OFTEN_TORCH = {**OFTEN, "newcomer": 20}


def digits_csv(folder: Path) -> str:
    """scikit-learn's digits as plain CSV."""
    packed = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
    path = folder / "digits.csv"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return str(path)


@dataclass
class Outcome:
    """What a schedule that kept its promises came to."""

    weights: str
    happened: Counter  # of the events; the others found nobody to happen to
    work: Work
    seconds: float
    planes: set[str]

    def __str__(self) -> str:
        done = " ".join(f"{n} {what}" for what, n in self.happened.items() if n)
        what = f"{self.work.excess} shards computed again, {self.work.shared} steps shared"
        planes = "".join(f", {plane}" for plane in sorted(self.planes))
        return f"{done or 'nothing'}, {what}, {self.seconds:.1f} s{planes}"


def run(
    schedule: Schedule, program: list[str], regroup: str, check, plane: Plane | None = None
) -> Outcome:
    """Runs the schedule, over the plane if there is one. Raises Broken."""
    with tempfile.TemporaryDirectory(prefix="regroup-chaos-") as name:
        folder = Path(name)
        command = [word.format(folder=name) for word in program]
        command += [str(schedule.epochs), str(schedule.pace_us)]
        if plane is not None:
            command = plane.program([*command, "0", "0", "device"])
            env = plane.env(folder, Path(regroup).parents[1], schedule.seed)
            job = Job(schedule, command, folder, regroup, plane.words, env)
        else:
            job = Job(schedule, command, folder, regroup)
        began = time.monotonic()
        wait_for_training(job)
        disturber = Disturber(job, schedule)
        disturber.play(seen if plane is not None else None)
        status = job.wait()
        after_finish = disturber.killed_late and "with status 137 after finish()" in job.text()
        if status != (137 if after_finish else 0):
            raise Broken(f"exit status {status}\n{job.text()}")
        if left := job.members():
            raise Broken(f"processes left behind: {left}")
        deaths = disturber.happened["kill"] + len(named(folder, "faulty"))
        work = check(folder, schedule, deaths * (plane.unsealed if plane else 1))
        weights = check_ends(folder, disturber)
    seconds = time.monotonic() - began
    return Outcome(weights, disturber.happened, work, seconds, disturber.planes)


def play(args: argparse.Namespace, program: list[str], check, over: str | None = None) -> int:
    """Plays the schedules one after another; the number of failures, 0 or 1."""
    regroup = str(args.bin / "regroup")
    plane = PLANES[over] if over else None
    planes: set[str] = set()
    undisturbed: dict[int, str] = {}
    totals = Counter(dict.fromkeys(KINDS, 0))
    # steps that were held to it; steps of the schedules that began with two or more
    shared, several = 0, 0
    for seed in range(args.seed, args.seed + args.schedules):
        schedule = Schedule.draw(seed)
        schedule.epochs = 20 if args.torch else schedule.epochs
        try:
            if schedule.shards not in undisturbed:
                alone = Schedule(0, schedule.shards, 1, largest=1, epochs=schedule.epochs)
                undisturbed[schedule.shards] = run(alone, program, regroup, check).weights
            outcome = run(schedule, program, regroup, check, plane)
            if outcome.weights != undisturbed[schedule.shards]:
                raise Broken("other weights than the undisturbed run")
        except Broken as broken:
            print(f"FAILED {schedule}\n{broken}", flush=True)
            print(f"{seed - args.seed} passed, 1 failed")
            return 1
        totals.update(outcome.happened)
        planes |= outcome.planes
        shared += outcome.work.shared
        several += schedule.steps if schedule.start > 1 else 0
        print(f"ok {schedule} | {outcome}", flush=True)
    print("happened: " + ", ".join(f"{n} {what}" for what, n in totals.items()))
    often = OFTEN_TORCH if args.torch else OFTEN
    rare = [
        what
        for what, n in totals.items()
        if args.schedules >= MANY and n * often[what] < args.schedules
    ]
    for what in rare:
        print(f"FAILED fewer than one in {often[what]} schedules, on average, had a {what}")
    print(f"shared: {shared} steps between events, by two or more members")
    if few := args.schedules >= MANY and shared < several // 4:
        print(
            f"FAILED too few: {several} steps belong to schedules that begin with two or more "
            f"members"
        )
    unseen = ""
    if plane is not None:
        unseen = missing_planes(plane, planes, args.schedules, has_kernels(args.bin.parent))
        print(f"planes: {', '.join(sorted(planes))}" + (f"\nFAILED {unseen}" if unseen else ""))
    failed = len(rare) + few + bool(unseen)
    print(f"{args.schedules} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--schedules", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--bin", type=Path, default=ROOT / "build" / "bin")
    options.add_argument(
        "--cpp", dest="torch", action="store_false", help="C++ members instead of PyTorch's"
    )
    options.add_argument(
        "--plane", choices=[*PLANES, "each"], help="C++ members with gradients on a fake GPU"
    )
    options.add_argument("--hosts", type=int, help="on so many test hosts")
    options.add_argument("--faults", type=int, default=100, help="with --hosts: how many there are")
    args = options.parse_args()
    args.torch = args.torch and args.plane is None
    if args.hosts:
        import hosts_run

        return hosts_run.play(args.hosts, args.faults, args.seed)
    if args.torch:
        return play(
            args,
            [sys.executable, str(ROOT / "tests/chaos/torch_member.py"), "{folder}"],
            check_accesses,
        )
    with tempfile.TemporaryDirectory(prefix="regroup-digits-") as name:
        csv = digits_csv(Path(name))
        member = [str(args.bin / "chaos_member"), csv, "{folder}"]
        for plane in PLANES if args.plane == "each" else [args.plane]:
            if plane:
                print(f"gradients on a device, plane {plane}", flush=True)
            if failed := play(args, member, check_trails, plane):
                return failed
    return 0


if __name__ == "__main__":
    sys.exit(main())
