"""./dev check: builds what a change touches and runs the tests and linters that it touches.

A changed source asks for the unit tests of its folder; a changed header also for those of every folder with a
source that includes it, through whatever headers. A changed file of C++ or Python asks for the files of
pytest that ran it when tests/pytest_map.json was recorded, a changed file of pytest for itself. Tests beyond
the limits of time are named, not run.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pytest_map import PytestMap

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
MAP = ROOT / "tests/pytest_map.json"  # ./dev check --record writes it
UNIT_SECONDS = 40.0
PYTEST_SECONDS = 60.0
UNKNOWN_SECONDS = 15.0  # of a file of pytest that was not recorded
PYTEST = re.compile(r"tests/.*/test_\w+\.py")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# The folder of tests/ that tests a folder of sources: the longest prefix counts.
TESTS_OF = {
    "core": "core",
    "collective": "collective",
    "checkpoint": "checkpoint",
    "elastic": "elastic",
    "elastic/membership": "membership",
    "launcher": "launcher",
    "launcher/alloc": "launcher/alloc",
    "launcher/cmd": "launcher/cmd",
    "launcher/net": "net",
    "launcher/node": "node",
    "launcher/notice": "launcher/notice",
    "launcher/options": "launcher/options",
    "launcher/place": "launcher/place",
    "launcher/pmi": "pmi",
    "launcher/roles": "roles",
    "launcher/spawn": "net",
    "launcher/topo": "launcher/topo",
    "launcher/usage": "launcher/usage",
    "tools": "tools",
    "tools/checkpoint": "tools/checkpoint",
    "tools/pmi": "pmi",
}


def tests_of(path: str) -> str | None:
    """The folder of tests/ whose unit tests a source or a test belongs to; None: it has none."""
    if path.startswith("tests/"):
        return next(
            (
                t
                for t in sorted(set(TESTS_OF.values()), key=len, reverse=True)
                if path.startswith(f"tests/{t}/")
            ),
            None,
        )
    folder = max((f for f in TESTS_OF if path.startswith(f + "/")), key=len, default=None)
    return TESTS_OF[folder] if folder else None


def includers(changed: set[str], includes: dict[str, set[str]]) -> set[str]:
    """The files of `changed`, and all that include one of them, through whatever headers."""
    above: dict[str, set[str]] = {}
    for file, names in includes.items():
        for name in names:
            above.setdefault(name, set()).add(file)
    reached, open_ = set(changed), list(changed)
    while open_:
        for file in above.get(open_.pop(), ()):
            if file not in reached:
                reached.add(file)
                open_.append(file)
    return reached


def within(limit: float, candidates: Iterable[tuple[str, float]]) -> tuple[list[str], list[str]]:
    """Cheapest first as many as fit into `limit` seconds; and the others."""
    taken, left, sum_ = [], [], 0.0
    for name, seconds in sorted(candidates, key=lambda c: (c[1], c[0])):
        sum_ += seconds
        (taken if sum_ <= limit else left).append(name)
    return taken, left


def naming(path: str) -> re.Pattern:
    """What stands in a Python file that imports another or runs it as a script."""
    name = re.escape(Path(path).stem)
    patterns = [rf"\b{name}\.py\b"]
    if path == "python/regroup/__init__.py":
        patterns.append(r"^\s*(?:from|import) regroup\b")
    elif path.startswith("python/regroup/"):
        patterns += [rf"\bregroup\.{name}\b", rf"^\s*from regroup import .*\b{name}\b"]
    else:
        patterns.append(rf"^\s*(?:from|import) {name}\b")
    return re.compile("|".join(patterns), re.MULTILINE)


def mentioners(changed: str, texts: Mapping[str, str]) -> set[str]:
    """`changed` and the Python files that import it or name it as a script, also through others."""
    reached, open_ = {changed}, [changed]
    while open_:
        pattern = naming(open_.pop())
        found = {file for file, text in texts.items() if file not in reached and pattern.search(text)}
        reached |= found
        open_ += found
    return reached


class Pytests:
    """Which files of pytest a change asks for: the files that ran a changed source when the map was recorded.
    A header without code of its own has the tests of the files that include it. Files of pytest that the map
    lacks are asked for by changed Python files that they import or name."""

    def __init__(self, known: PytestMap, includes: Mapping[str, set[str]], texts: Mapping[str, str]) -> None:
        self.seconds = known.seconds
        self.breadth = {test: len(sources) for test, sources in known.sources.items()}
        self.recorded = known.by_source()
        self.includes = includes
        self.texts = texts  # of Python files

    def of(self, path: str) -> set[str]:
        found = set(self.recorded.get(path, ()))
        if not found and path.endswith(".h"):
            for file, names in self.includes.items():
                if path in names:
                    found |= set(self.recorded.get(file, ()))
        if path.endswith(".py"):
            found |= {
                f for f in mentioners(path, self.texts) if PYTEST.fullmatch(f) and f not in self.seconds
            }
        return found

    def choose(self, changed: Sequence[str], limit: float) -> tuple[list[str], list[str]]:
        """Those to run within `limit` seconds, and those left out. Changed ones come first, then the one that
        runs the fewest sources, which is most about what changed, then the others by their seconds."""
        first = [path for path in changed if PYTEST.fullmatch(path)]
        others = sorted(set().union(*map(self.of, changed)) - set(first), key=lambda t: (self.cost(t), t))
        if others:
            narrowest = min(others, key=lambda t: (self.breadth.get(t, sys.maxsize), self.cost(t), t))
            others.remove(narrowest)
            others.insert(0, narrowest)
        taken, left, sum_ = [], [], 0.0
        for test in [*first, *others]:
            if sum_ + self.cost(test) <= limit:
                sum_ += self.cost(test)
                taken.append(test)
            else:
                left.append(test)
        return taken, left

    def cost(self, test: str) -> float:
        return self.seconds.get(test, UNKNOWN_SECONDS)


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def changed_files(since: str | None) -> list[str]:
    base = since or "HEAD"
    paths = git("diff", "--name-only", "--diff-filter=d", base) + git(
        "ls-files", "--others", "--exclude-standard"
    )
    if not paths and since is None:  # all is committed: the last commit
        paths = git("diff", "--name-only", "--diff-filter=d", "HEAD~1", "HEAD")
    return sorted(set(paths))


def all_includes() -> dict[str, set[str]]:
    files = [f for f in git("ls-files", "-co", "--exclude-standard", "*.h", "*.cc") if (ROOT / f).exists()]
    return {f: set(INCLUDE.findall((ROOT / f).read_text())) for f in files}


def costs() -> dict[str, float]:
    """Seconds of each CTest the last time it ran."""
    file = BUILD / "Testing/Temporary/CTestCostData.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = (line.rsplit(" ", 2) for line in lines if line.count(" ") >= 2)
    return {name: float(seconds) for name, _, seconds in rows}


def all_pytests() -> list[str]:
    return [path for path in git("ls-files", "tests") if PYTEST.fullmatch(path)]


def python_texts() -> dict[str, str]:
    files = [f for f in git("ls-files", "-co", "--exclude-standard", "*.py") if (ROOT / f).exists()]
    return {f: (ROOT / f).read_text() for f in files}


class Run:
    """Steps one after the other, whatever fails; what each took."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.start = time.monotonic()

    def step(self, name: str, *command: str) -> bool:
        print(f"==> {name}", flush=True)
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL)
        print(f"    {time.monotonic() - start:.0f} s{'' if done.returncode == 0 else ', FAILED'}", flush=True)
        if done.returncode != 0:
            self.failed.append(name)
        return done.returncode == 0


def cases_of(folders: Iterable[str]) -> list[str]:
    """Names of the CTests with one of these labels."""
    names = []
    for folder in folders:
        out = subprocess.run(
            ["ctest", "--test-dir", str(BUILD), "-N", "-L", f"^{folder}$"], capture_output=True, text=True
        ).stdout
        names += re.findall(r"^\s*Test\s+#\d+: (.+)$", out, re.MULTILINE)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev check", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--since", metavar="COMMIT", help="what differs from COMMIT (default: from HEAD, or the last commit)"
    )
    parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    options = parser.parse_args()
    try:
        changed = changed_files(options.since)
    except subprocess.CalledProcessError as error:
        print(f"./dev check: git: {error.stderr.strip()}", file=sys.stderr)
        return 2
    sources = [f for f in changed if f.endswith((".h", ".cc"))]
    includes = all_includes()
    touched = includers(set(sources), includes)
    folders = sorted({t for f in touched if (t := tests_of(f))})
    known = PytestMap.read(MAP)
    known.keep(set(git("ls-files")))
    pytests, left_pytests = Pytests(known, includes, python_texts()).choose(changed, PYTEST_SECONDS)
    print(f"{len(changed)} files changed")
    print(f"    unit tests of: {', '.join(folders) or 'none'}")
    print(f"    pytest: {', '.join(pytests) or 'none'}")
    if left_pytests:
        print(f"    left to ./dev test, beyond {PYTEST_SECONDS:.0f} s: {', '.join(left_pytests)}")
    if unknown := sorted(set(all_pytests()) - set(known.seconds)):
        print(f"    not in tests/pytest_map.json: {len(unknown)} files of pytest, {unknown[0]} for example")
    if options.plan:
        return 0
    run = Run()
    targets = "all" if pytests else " ".join(f"tests/{folder}/all" for folder in folders)
    configure = "cmake --preset dev -DREGROUP_TESTS=ON -DREGROUP_BENCH=ON >/dev/null"
    built = not targets or run.step("build", "bash", "-c", f"{configure} && ninja -C build {targets}")
    if built and folders:
        cost = costs()
        cases, left = within(UNIT_SECONDS, ((name, cost.get(name, 0.1)) for name in cases_of(folders)))
        pattern = "^(" + "|".join(re.escape(name) for name in cases) + ")$"
        ctest = ["ctest", "--test-dir", str(BUILD), "--parallel", "2", "--output-on-failure", "--quiet"]
        run.step(f"{len(cases)} unit tests", *ctest, "--timeout", "120", "-R", pattern)
        if left:
            print(
                f"    left to ./dev test, as they take longer: {len(left)}, for example {', '.join(left[:3])}"
            )
    if built and pytests:
        run.step(
            "pytest", ".venv/bin/python", "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", *pytests
        )
    if sources:
        run.step("clang-format", "clang-format", "--dry-run", "--Werror", *sources)
    if units := [f for f in sources if f.endswith(".cc")]:
        run.step(
            "clang-tidy",
            "bash",
            "-c",
            'JOBS=$(nproc); source tools/dev/lint.sh; lint_tidy "$@"',
            "tidy",
            *units,
        )
    if scripts := [f for f in changed if f.endswith(".py")]:
        run.step("ruff", ".venv/bin/ruff", "check", *scripts)
        run.step("ruff format", ".venv/bin/ruff", "format", "--check", *scripts)
    verdict = f"failed: {', '.join(run.failed)}" if run.failed else "all passed"
    print(f"==> {verdict}, {time.monotonic() - run.start:.0f} s")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
