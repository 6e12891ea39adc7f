"""How long building and testing take, compared with the commit before issue 35.

The figures of that commit are recorded in tests/bench/results/loop.json, with machine and date.
Clones of HEAD and, with --old, of that commit lie in build-loop/ and are kept. Rows of builds run
without ccache; status.h, world.h and one.cc append a comment to a source and build all with tests
again; check.* do the same and run ./dev check. Before that all is built and nothing is left to do;
a change that compiles nothing is refused. test-cold runs in a clone made for each sample, with an
empty compiler cache.

  ./dev bench loop --only status.h --only one.cc    these rows
  ./dev bench loop --only cold --old                measures the old commit too, and records its
  figure
  ./dev bench loop --only test --recorded           samples: the runs that ./dev test --record has
  recorded
  ./dev bench loop --only demo --debian FOLDER      in copies of FOLDER, a bare Debian 12 made by
  debootstrap
  ./dev bench loop --only cold --json FILE          rows of FILE that are not measured now stay

What is asked stands below the table as met or MISSED; a miss ends the bench with status 1.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
from common import BenchError, Figure, Row, Side

sys.path.insert(0, str(common.ROOT / "tools/dev"))

import results  # noqa: E402

RECORDED = common.ROOT / "tests/bench/results/loop.json"
FOLDER = common.ROOT / "build-loop"
DEADLINE_S = 3 * 3600
CONFIGURE = ["cmake", "--preset", "dev", "-DREGROUP_TESTS=ON", "-DREGROUP_BENCH=ON"]


@dataclass(frozen=True)
class Case:
    """One row: what it measures, how often, and at most how many seconds and which part of the old
    are asked. `touch`: the name of the source that is changed before all is built again, or before
    ./dev check."""

    name: str
    what: str
    samples: int
    asked_s: float | None = None
    asked_of_old: float | None = None
    touch: str | None = None


ONE = "slurm.cc"
CASES = [
    Case("demo", "./dev demo on a bare Debian 12", 3, 6 * 60, 1 / 3),
    Case("cold", "cold build of everything with tests", 3, None, 1 / 3),
    Case("status.h", "rebuild after a change of status.h", 3, None, 1 / 3, "status.h"),
    Case("world.h", "rebuild after a change of world.h", 3, None, 1 / 3, "world.h"),
    Case("one.cc", f"rebuild after a change of {ONE}", 3, 10, None, ONE),
    Case("check.one", f"./dev check after a change of {ONE}", 3, 90, None, ONE),
    Case("check.status", "./dev check after a change of status.h", 3, 5 * 60, None, "status.h"),
    Case("test", "./dev test, warm cache", 3, 15 * 60),
    Case("test-cold", "./dev test, cold cache", 3, 40 * 60),
]
RECORDED_ROWS = ("test", "test-cold")
NOT_OF_OLD = (
    "test",
    "test-cold",
    "check.one",
    "check.status",
)  # they install packages, or there is no such verb
RUNS = "runs"  # not a row, but a figure


class Tree:
    """A clone of one commit, and what is run in it."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.commit = commit
        self.folder = folder

    def run(self, *command: str, deadline: float = DEADLINE_S, **environment: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=inherited | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=deadline,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"loop: {' '.join(command)}: over {deadline:.0f} s") from error
        if done.returncode != 0:
            last = "\n".join(done.stdout.strip().splitlines()[-12:])
            raise BenchError(
                f"loop: {' '.join(command)}: exit status {done.returncode}, expected 0:\n{last}"
            )
        return done.stdout

    def prepare(self, linked: bool = True) -> None:
        """The commit as it is, without changes of an earlier run; what was built stays. `linked`:
        with the objects of this repository and its virtual environment."""
        if not self.folder.exists():
            self.folder.parent.mkdir(exist_ok=True)
            subprocess.run(
                ["git", "clone", "--quiet", "--shared" if linked else "--no-hardlinks",
                 "--no-checkout",
                 str(common.ROOT), str(self.folder)],
                check=True,
            )  # fmt: skip
        self.run("git", "fetch", "--quiet", "origin", "HEAD")
        self.run("git", "checkout", "--quiet", "--force", "--detach", self.commit)
        venv = self.folder / ".venv"
        if linked and not venv.is_symlink():
            venv.symlink_to((common.ROOT / ".venv").resolve())

    def source(self, name: str) -> Path:
        """The one source of this name, wherever this commit has it."""
        found = self.run("git", "ls-files", f"*/{name}").split()
        if len(found) != 1:
            raise BenchError(f"loop: expected one source {name} in {self.folder}, found {found}")
        return self.folder / found[0]

    def build(self, **environment: str) -> int:
        """Configures and builds all, and returns how many steps that took."""
        self.run(*CONFIGURE)
        jobs = os.environ.get("REGROUP_JOBS", str(os.cpu_count()))
        return steps(self.run("ninja", "-C", "build", "-j", jobs, **environment))

    def build_whole(self) -> None:
        """Builds what is not built, with ccache; afterwards nothing is left to do."""
        self.build()
        if left := self.build():
            raise BenchError(
                f"loop: {self.folder}: {left} steps are left after a build of everything"
            )


def steps(output: str) -> int:
    """How many steps a ninja ran; that it looks for new files and configures again is none."""
    return max(
        (int(n) for n in re.findall(r"^\[\d+/(\d+)\] (?!Re-)", output, re.MULTILINE)), default=0
    )


def seconds_of(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def change(tree: Tree, name: str) -> Path:
    """Makes a source differ from all that was compiled before."""
    file = tree.source(name)
    file.write_text(file.read_text() + f"// {time.time_ns()}\n")
    return file


def touched(tree: Tree, name: str) -> float:
    """Seconds of a build after a change."""
    file = change(tree, name)
    built = 0

    def build() -> None:
        nonlocal built
        built = tree.build(CCACHE_DISABLE="1")

    took = seconds_of(build)
    if built < 2:  # to compile and to link or archive
        raise BenchError(f"loop: a change of {file.name} made {built} steps, expected at least 2")
    return took


def checked(tree: Tree, name: str) -> float:
    change(tree, name)
    return seconds_of(lambda: tree.run("./dev", "check"))


def cold(tree: Tree) -> float:
    tree.run("rm", "-rf", "build")
    return seconds_of(lambda: tree.build(CCACHE_DISABLE="1"))


def tested_cold(commit: str) -> float:
    """Of a clone made for it, which is removed again."""
    with tempfile.TemporaryDirectory(prefix="cold-", dir=FOLDER) as place:
        tree = Tree(commit, Path(place) / "tree")
        tree.prepare()
        return seconds_of(lambda: tree.run("./dev", "test", CCACHE_DIR=f"{place}/ccache"))


# What a copy of a bare Debian needs of this machine: how to reach names, packages and Python
# packages.
OF_MACHINE = """/etc/resolv.conf /etc/pip.conf /etc/apt/sources.list /etc/apt/sources.list.d
    /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d /etc/ssl/certs /usr/local/share/ca-certificates"""
IN_ROOT = """mount --make-rprivate / && mount --rbind /dev "$0/dev" &&
mount -t proc proc "$0/proc" &&
exec chroot "$0" sh -c 'cd /regroup && exec ./dev demo'"""


def demo(commit: str, debian: Path) -> float:
    """Seconds until ./dev demo has written its picture in a copy of `debian`, which is removed
    again."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir=FOLDER) as place:
        root = Path(place) / "root"
        subprocess.run(["cp", "-a", debian, root], check=True)
        for path in map(Path, OF_MACHINE.split()):
            if path.exists():
                copy = root / path.relative_to("/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(copy, ignore_errors=True)
                subprocess.run(["cp", "-aL", "--remove-destination", path, copy], check=True)
        tree = Tree(commit, root / "regroup")
        tree.prepare(linked=False)
        took = seconds_of(
            lambda: tree.run(
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                IN_ROOT,
                str(root),
            )
        )
        if not (root / "regroup/demo.png").exists():
            raise BenchError("loop: ./dev demo has written no demo.png")
        return took


def recorded_seconds(case: Case, runs: Sequence[Mapping], budget: Mapping) -> list[float]:
    """Of the green runs with a warm or with a cold cache, as tools/dev/budget.py tells them
    apart."""
    cold_cache = case.name == "test-cold"
    samples = [
        float(run["seconds"])
        for run in runs
        if run["verdict"] == "passed"
        and (run["minutes"]["build"] > budget["parts"]["build"]) == cold_cache
        and (run["machine"]["cpu"], run["machine"]["cores"])
        == (results.machine()["cpu"], results.machine()["cores"])
    ]
    if len(samples) < case.samples:
        raise BenchError(
            f"loop: {case.name}: expected {case.samples} recorded runs of this tree, passed on "
            f"this machine, "
            f"found {len(samples)}; ./dev test --record adds one"
        )
    return samples


def side(case: Case, tree: Tree, name: str, debian: Path | None) -> Side:
    if case.name == "demo":
        return Side(name, lambda: None, lambda: [demo(tree.commit, debian)])
    if case.name.startswith("check."):
        return Side(name, tree.build_whole, lambda: [checked(tree, case.touch)])
    if case.touch:
        return Side(name, tree.build_whole, lambda: [touched(tree, case.touch)])
    if case.name == "cold":
        return Side(name, tree.prepare, lambda: [cold(tree)])
    if case.name == "test-cold":
        return Side(name, lambda: None, lambda: [tested_cold(tree.commit)])
    return Side(name, tree.build_whole, lambda: [seconds_of(lambda: tree.run("./dev", "test"))])


def row_of(case: Case, ours: Sequence[float], recorded: Mapping) -> Row:
    """A row whose rival is the recorded figure of the old commit, where there is one."""
    old = recorded["old"].get(case.name, {}).get("seconds")
    rivals = {recorded["commit"]: common.summarize(old)} if old else {}
    return Row("loop", case.what, "s", common.summarize(ours), rivals, list(rivals))


def figures(case: Case, seconds: float | None, recorded: Mapping, note: str = "") -> list[Figure]:
    """What is asked of a case: a time, and a part of the old one."""
    old = recorded["old"].get(case.name)
    asked = []
    if case.asked_s is not None:
        asked.append((f"<= {case.asked_s:g} s", case.asked_s))
    if case.asked_of_old is not None and old:
        limit = case.asked_of_old * common.summarize(old["seconds"]).p50
        asked.append(
            (f"<= 1/{1 / case.asked_of_old:.0f} of {recorded['commit']}: {limit:.0f} s", limit)
        )
    if seconds is None:
        return [Figure(case.what, words, "not measured", None) for words, _ in asked]
    return [
        Figure(case.what, words, f"{seconds:.1f} s{note}", seconds <= limit)
        for words, limit in asked
    ]


def record_old(case: Case, samples: Sequence[float], file: Path = RECORDED) -> None:
    stored = json.loads(file.read_text())
    machine = common.machine()
    stored["old"][case.name] = {
        "seconds": [round(value, 1) for value in samples],
        "date": datetime.date.today().isoformat(),
        "machine": f"{machine['cores']} cores, {machine['model']}, load {machine['load']:g}",
        "from": "./dev bench loop --old",
    }
    rows = [
        f' "{key}": '
        + ("{\n" + ",\n".join(f'  "{n}": {json.dumps(r)}' for n, r in value.items()) + "\n }"
           if isinstance(value, dict) else json.dumps(value))
        for key, value in stored.items()
    ]  # fmt: skip
    file.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def of_runs(runs: Sequence[Mapping]) -> Figure:
    green = sum(run["verdict"] == "passed" for run in runs)
    found = f"{green} of {len(runs)} recorded runs green" if runs else "not measured"
    asked = results.RUNS_ASKED
    met = (green >= asked and green == len(runs)) if len(runs) >= asked else None
    return Figure("runs of ./dev test on this tree, without retries", f"{asked} green", found, met)


def merge(file: Path, found: Path, cases: Sequence[Case] = CASES) -> None:
    """Replaces in `file` the rows and figures that `found` has; rows stand in the order of
    `cases`."""
    lines: dict[str | tuple[str, str], dict] = {}
    for source in (file, found):
        if source.exists():
            for line in map(json.loads, source.read_text().splitlines()):
                lines[line.get("case") or (line["figure"], line["asked"].split(":")[0])] = line
    order = [case.what for case in cases]

    def place(line: Mapping) -> tuple[bool, int]:
        named = line.get("case") or line["figure"]
        return ("case" not in line, order.index(named) if named in order else len(order))

    file.write_text("".join(json.dumps(line) + "\n" for line in sorted(lines.values(), key=place)))


def main() -> None:
    parser = common.parser(__doc__)
    names = [case.name for case in CASES]
    rows_help = ", ".join([*names, RUNS])
    parser.add_argument(
        "--only", action="append", choices=[*names, RUNS], metavar="ROW", help=rows_help
    )
    parser.add_argument(
        "--old", action="store_true", help="measure the old commit too, and record it"
    )
    parser.add_argument(
        "--recorded", action="store_true", help=f"{', '.join(RECORDED_ROWS)}: of recorded runs"
    )
    parser.add_argument("--debian", type=Path, metavar="FOLDER", help="a bare Debian 12, for demo")
    options = parser.parse_args()
    wanted = options.only or (["one.cc"] if options.quick else [*names, RUNS])
    if not options.debian and not options.only and "demo" in wanted:
        wanted.remove("demo")  # its figure was measured by hand
    cases = [case for case in CASES if case.name in wanted]
    refuse(options, cases)
    recorded = json.loads(RECORDED.read_text())
    records = results.Records(common.ROOT)
    runs = records.runs(records.tree())
    budget = json.loads((common.ROOT / "tests/budget.json").read_text())
    new, old = Tree("FETCH_HEAD", FOLDER / "tree"), Tree(recorded["commit"], FOLDER / "old")
    rows, told = [], []
    for case in cases:
        if options.recorded and case.name in RECORDED_ROWS:
            samples = {"ours": recorded_seconds(case, runs, budget)}
        else:
            trees = {"ours": new} | ({recorded["commit"]: old} if options.old else {})
            for tree in trees.values():
                tree.prepare()
            sides = [side(case, tree, name, options.debian) for name, tree in trees.items()]
            samples = common.alternate(sides, 1 if options.quick else case.samples)
        if options.old:
            record_old(case, samples[recorded["commit"]])
            recorded = json.loads(RECORDED.read_text())
        rows.append(row_of(case, samples["ours"], recorded))
        told += figures(case, rows[-1].ours.p50, recorded)
    if "demo" not in wanted:
        known = recorded["by_hand"]["demo"]
        seconds = common.summarize(known["seconds"]).p50
        (by_hand,) = [case for case in CASES if case.name == "demo"]
        told += figures(by_hand, seconds, recorded, f" by hand on {known['date']}")
    if RUNS in wanted:
        told.append(of_runs(runs))
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "found.json"
        common.report(rows, str(found))
        for case in cases:
            if stored := recorded["old"].get(case.name):
                where = f"{stored['date']}, {stored['machine']} ({stored['from']})"
                print(f"{recorded['commit']}, {case.name}: {where}")
        try:
            common.conclude(told, str(found))
        finally:
            if options.json:
                merge(Path(options.json), found)


def refuse(options: argparse.Namespace, cases: Sequence[Case]) -> None:
    """BenchError for options that do not fit each other."""
    if not cases and options.json:
        raise BenchError("loop: --json: expected a row to measure, got --only runs alone")
    for case in cases:
        if options.old and case.name in NOT_OF_OLD:
            raise BenchError(f"loop: --old: {case.name} is not measured of the old commit")
        if options.recorded and case.name not in RECORDED_ROWS:
            raise BenchError(
                f"loop: --recorded: expected --only {' or '.join(RECORDED_ROWS)}, got {case.name}"
            )
        if case.name == "demo":
            if not options.debian or not (options.debian / "usr/bin/dpkg").exists():
                raise BenchError(
                    "loop: demo: expected --debian FOLDER, a Debian 12 made by debootstrap"
                )
            if os.geteuid() != 0:
                raise BenchError("loop: demo: expected to run as root, for mount and chroot")


if __name__ == "__main__":
    common.main(main)
