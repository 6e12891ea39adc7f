"""How long building and testing take, compared with the commit before issue 35.

The figures of that commit are recorded in tests/bench/results/loop.json.
Clones of HEAD and, with --old, of that commit lie in build-loop/ and are kept. Rows of builds run without
ccache; status.h, world.h and one.cc append a comment to a source and build all with tests again. Before that
all is built and nothing is left to do; a change that compiles nothing is refused.

  ./dev bench loop --only status.h --only one.cc    these rows
  ./dev bench loop --only cold --old                measures the old commit too, and records its figure

What is asked stands below the table as met or MISSED; a miss ends the bench with status 1.
"""

import datetime
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
from common import BenchError, Figure, Row, Side

RECORDED = common.ROOT / "tests/bench/results/loop.json"
FOLDER = common.ROOT / "build-loop"
DEADLINE_S = 3 * 3600
CONFIGURE = ["cmake", "--preset", "dev", "-DREGROUP_TESTS=ON", "-DREGROUP_BENCH=ON"]


@dataclass(frozen=True)
class Case:
    """One row: what it measures, how often, and at most how many seconds and which part of the old are asked.
    `touch`: the source that is changed before all is built again."""

    name: str
    what: str
    samples: int
    asked_s: float | None = None
    asked_of_old: float | None = None
    touch: str | None = None


ONE = "launcher/alloc/slurm.cc"
CASES = [
    Case("status.h", "rebuild after a change of base/status.h", 3, None, 1 / 3, "base/status.h"),
    Case("world.h", "rebuild after a change of proto/world.h", 3, None, 1 / 3, "proto/world.h"),
    Case("one.cc", f"rebuild after a change of {ONE}", 3, 10, None, ONE),
    Case("cold", "cold build of everything with tests", 1, None, 1 / 3),
    Case("test", "./dev test, warm cache", 1, 15 * 60),
]
# In a chroot made by debootstrap.
BY_HAND = [Case("demo", "./dev demo on a bare Debian 12", 0, 6 * 60, 1 / 3)]


class Tree:
    """A clone of one commit, and what is run in it."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.commit = commit
        self.folder = folder

    def run(self, *command: str, deadline: float = DEADLINE_S, **environment: str) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=os.environ | environment,
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
            raise BenchError(f"loop: {' '.join(command)}: exit status {done.returncode}, expected 0:\n{last}")
        return done.stdout

    def prepare(self) -> None:
        """The commit as it is, without changes of an earlier run; what was built stays."""
        if not self.folder.exists():
            self.folder.parent.mkdir(exist_ok=True)
            subprocess.run(
                ["git", "clone", "--quiet", "--shared", "--no-checkout", str(common.ROOT), str(self.folder)],
                check=True,
            )
        self.run("git", "fetch", "--quiet", "origin", "HEAD")
        self.run("git", "checkout", "--quiet", "--force", "--detach", self.commit)
        venv = self.folder / ".venv"
        if not venv.is_symlink():
            venv.symlink_to((common.ROOT / ".venv").resolve())

    def build(self, **environment: str) -> int:
        """Configures and builds all, and returns how many steps that took."""
        self.run(*CONFIGURE)
        jobs = os.environ.get("REGROUP_JOBS", str(os.cpu_count()))
        return steps(self.run("ninja", "-C", "build", "-j", jobs, **environment))

    def build_whole(self) -> None:
        """Builds what is not built, with ccache; afterwards nothing is left to do."""
        self.build()
        if left := self.build():
            raise BenchError(f"loop: {self.folder}: {left} steps are left after a build of everything")


def steps(output: str) -> int:
    """How many steps a ninja ran; that it looks for new files and configures again is none."""
    return max((int(n) for n in re.findall(r"^\[\d+/(\d+)\] (?!Re-)", output, re.MULTILINE)), default=0)


def seconds_of(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def touched(tree: Tree, source: str) -> float:
    """Seconds of a build after a change of `source`."""
    file = tree.folder / source
    file.write_text(file.read_text() + f"// {time.time_ns()}\n")
    built = 0

    def build() -> None:
        nonlocal built
        built = tree.build(CCACHE_DISABLE="1")

    took = seconds_of(build)
    if built < 2:  # to compile and to link or archive
        raise BenchError(f"loop: a change of {source} made {built} steps, expected at least 2")
    return took


def cold(tree: Tree) -> float:
    tree.run("rm", "-rf", "build")
    return seconds_of(lambda: tree.build(CCACHE_DISABLE="1"))


def side(case: Case, tree: Tree, name: str) -> Side:
    if case.touch:
        return Side(name, tree.build_whole, lambda: [touched(tree, case.touch)])
    if case.name == "cold":
        return Side(name, tree.prepare, lambda: [cold(tree)])
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
        asked.append((f"<= 1/{1 / case.asked_of_old:.0f} of {recorded['commit']}: {limit:.0f} s", limit))
    if seconds is None:
        return [Figure(case.what, words, "not measured", None) for words, _ in asked]
    return [Figure(case.what, words, f"{seconds:.1f} s{note}", seconds <= limit) for words, limit in asked]


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


def main() -> None:
    parser = common.parser(__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--only", action="append", choices=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--old", action="store_true", help="measure the old commit too, and record it")
    options = parser.parse_args()
    wanted = options.only or (["one.cc"] if options.quick else names)
    cases = [case for case in CASES if case.name in wanted]
    if options.old and any(case.name == "test" for case in cases):
        raise BenchError("loop: ./dev test of the old commit would install its packages here; see --only")
    recorded = json.loads(RECORDED.read_text())
    new, old = Tree("FETCH_HEAD", FOLDER / "tree"), Tree(recorded["commit"], FOLDER / "old")
    rows, told = [], []
    for case in cases:
        trees = {"ours": new} | ({recorded["commit"]: old} if options.old else {})
        for tree in trees.values():
            tree.prepare()
        sides = [side(case, tree, name) for name, tree in trees.items()]
        samples = common.alternate(sides, 1 if options.quick else case.samples)
        if options.old:
            record_old(case, samples[recorded["commit"]])
            recorded = json.loads(RECORDED.read_text())
        rows.append(row_of(case, samples["ours"], recorded))
        told += figures(case, rows[-1].ours.p50, recorded)
    for case in BY_HAND:
        known = recorded["by_hand"][case.name]
        seconds = common.summarize(known["seconds"]).p50
        told += figures(case, seconds, recorded, f" by hand on {known['date']}")
    common.report(rows, options.json)
    for case in cases:
        if stored := recorded["old"].get(case.name):
            where = f"{stored['date']}, {stored['machine']} ({stored['from']})"
            print(f"{recorded['commit']}, {case.name}: {where}")
    common.conclude(told, options.json)


if __name__ == "__main__":
    common.main(main)
