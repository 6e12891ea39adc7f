"""./dev check: builds what a change touches and runs the tests and linters that it touches.

A changed source selects the unit tests of its folder; a changed header or schema also those of
every folder with a source that includes it, directly or not. Golden files select the tests that
name their folder. What configures or compiles the tree, and sources that belong to no folder of
unit tests, select a build of everything. A changed file of C++ or Python selects the files of
pytest that ran it when tests/pytest_map.json was recorded, a changed file of pytest itself, a file
of ./dev tests/dev. Pages are checked after any change. Tests beyond the limits of time are named,
not run.
"""

import argparse
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
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
SOURCE = re.compile(r".*\.(h|cc|c|inc|cu)")
BUILD_FILE = re.compile(r"(.*/)?CMakeLists\.txt|CMakePresets\.json|cmake/.*|.*\.in")
OF_DEV = re.compile(
    r"dev|mkdocs\.yml|tools/(dev|docs)/.*|requirements/.*|tests/[^/]*\.(json|txt)|\.ci/.*"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# Folders below tests/, which mirror the tree, with unit tests: their CMakeLists.txt adds them.
UNIT_TESTS = tuple(
    file.parent.relative_to(ROOT / "tests").as_posix()
    for file in sorted((ROOT / "tests").rglob("CMakeLists.txt"))
    if file.parent != ROOT / "tests"
    and re.search(r"^ *(regroup|add)_test\(", file.read_text(), re.MULTILINE)
)


def tests_of(path: str) -> str | None:
    """The folder of tests/ whose unit tests a source or a test belongs to; None: it has none."""
    inside = path.removeprefix("tests/")
    return max((f for f in UNIT_TESTS if inside.startswith(f + "/")), key=len, default=None)


def schema_header(path: str) -> str:
    """The header that is generated from a schema, as sources include it; other files:
    themselves."""
    return path.removesuffix(".fbs") + "_generated.h" if path.endswith(".fbs") else path


def golden_users(path: str, texts: Mapping[str, str]) -> set[str]:
    """The tests that read a golden file: those that name its folder below tests/golden, and a fuzz
    target."""
    if not path.startswith("tests/golden/"):
        return set()
    folder = path.split("/")[2].partition(".")[0]
    pattern = re.compile(rf"golden/{re.escape(folder)}\b|golden\W+{re.escape(folder)}\b")
    named = {
        file for file, text in texts.items() if file.startswith("tests/") and pattern.search(text)
    }
    return named | ({f"tests/fuzz/{folder}.cc"} & texts.keys())


def builds_all(path: str) -> bool:
    """Whether a change of it may reach every target, or one that no folder of unit tests builds."""
    return bool(BUILD_FILE.fullmatch(path) or (SOURCE.fullmatch(path) and tests_of(path) is None))


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
        found = {
            file for file, text in texts.items() if file not in reached and pattern.search(text)
        }
        reached |= found
        open_ += found
    return reached


class Pytests:
    """Which files of pytest a change asks for: the files that ran a changed source when the map was
    recorded. A header without code of its own has the tests of the files that include it. Files of
    pytest that the map lacks are asked for by changed Python files that they import or name."""

    def __init__(
        self, known: PytestMap, includes: Mapping[str, set[str]], texts: Mapping[str, str]
    ) -> None:
        self.seconds = known.seconds
        self.breadth = {test: len(sources) for test, sources in known.sources.items()}
        self.recorded = known.by_source()
        self.includes = includes
        self.texts = texts  # of Python files
        self.all_tests = {file for file in texts if PYTEST.fullmatch(file)}

    def of(self, path: str) -> set[str]:
        found = set(self.recorded.get(path, ()))
        if not found and path.endswith(".h"):
            for file, names in self.includes.items():
                if path in names:
                    found |= set(self.recorded.get(file, ()))
        found |= golden_users(path, self.texts) & self.all_tests
        if OF_DEV.fullmatch(path):
            found |= {test for test in self.all_tests if test.startswith("tests/dev/")}
        if path.endswith(".py"):
            found |= {
                f
                for f in mentioners(path, self.texts)
                if PYTEST.fullmatch(f) and f not in self.seconds
            }
        return found

    def choose(self, changed: Sequence[str], limit: float) -> tuple[list[str], list[str]]:
        """Those to run within `limit` seconds, and those left out. Changed ones come first, then
        the one that runs the fewest sources, which is most about what changed, then the others by
        their seconds."""
        first = [path for path in changed if PYTEST.fullmatch(path)]
        others = sorted(
            set().union(*map(self.of, changed)) - set(first), key=lambda t: (self.cost(t), t)
        )
        if others:
            narrowest = min(
                others, key=lambda t: (self.breadth.get(t, sys.maxsize), self.cost(t), t)
            )
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
    command = ["git", "-c", "core.quotepath=off", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def changed_files(since: str | None) -> list[str]:
    """Deleted files are among them, a renamed one under both names."""
    base = (
        "HEAD"
        if since is None
        else git("rev-parse", "--verify", "--end-of-options", f"{since}^{{commit}}")[0]
    )
    paths = git("diff", "--name-only", "--no-renames", base)
    paths += git("ls-files", "--others", "--exclude-standard")
    if not paths and since is None:  # all is committed: the last commit
        paths = git("diff", "--name-only", "--no-renames", "HEAD~1", "HEAD")
    return sorted(set(paths))


def all_includes() -> dict[str, set[str]]:
    files = [
        f
        for f in git("ls-files", "-co", "--exclude-standard", "*.h", "*.cc")
        if (ROOT / f).exists()
    ]
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


def tidy_units(sources: Sequence[str], includes: Mapping[str, set[str]]) -> list[str]:
    """What clang-tidy reads: changed sources, and for a header that none of them includes the
    source of that name, else the first that includes it."""
    units = {f for f in sources if f.endswith(".cc")}
    for header in (f for f in sources if f.endswith(".h")):
        users = sorted(f for f, names in includes.items() if f.endswith(".cc") and header in names)
        own = header.removesuffix(".h") + ".cc"
        if users and not units.intersection(users):
            units.add(own if own in users else users[0])
    return sorted(units)


class Run:
    """Steps one after the other, whatever fails; what each took."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.start = time.monotonic()

    def step(self, name: str, *command: str) -> bool:
        print(f"==> {name}", flush=True)
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL)
        print(
            f"    {time.monotonic() - start:.0f} s{'' if done.returncode == 0 else ', FAILED'}",
            flush=True,
        )
        if done.returncode != 0:
            self.failed.append(name)
        return done.returncode == 0


def cases_of(folders: Iterable[str]) -> dict[str, int]:
    """The CTests with one of these labels: their numbers by name."""
    label = f"^({'|'.join(map(re.escape, folders))})$"
    listed = subprocess.run(
        ["ctest", "--test-dir", str(BUILD), "-N", "-L", label],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        name: int(n)
        for n, name in re.findall(r"^\s*Test\s+#(\d+): (.+)$", listed.stdout, re.MULTILINE)
    }


def run_cases(run: "Run", numbers: Sequence[int]) -> None:
    """By number: of a regular expression of 50,000 characters CTest says that it is too big, and
    succeeds."""
    report = BUILD / "check.junit.xml"
    report.unlink(missing_ok=True)
    chosen = ",".join(map(str, sorted(numbers)))
    words = ["ctest", "--test-dir", str(BUILD), "--parallel", "2", "--output-on-failure", "--quiet"]
    words += [
        "--no-tests=error",
        "--timeout",
        "120",
        "--output-junit",
        str(report),
        "-I",
        f"0,0,0,{chosen}",
    ]
    name = f"{len(numbers)} unit tests"
    if run.step(name, *words):
        ran = int(ET.parse(report).getroot().get("tests", "0"))
        if ran != len(numbers):
            print(f"    CTest ran {ran} of {len(numbers)} tests, FAILED", flush=True)
            run.failed.append(name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev check", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--since",
        metavar="COMMIT",
        help="what differs from COMMIT (default: from HEAD, or the last commit)",
    )
    parser.add_argument(
        "--plan", action="store_true", help="say what would be done, and do nothing"
    )
    parser.add_argument(
        "--parse", action="store_true", help=argparse.SUPPRESS
    )  # ./dev: before it installs anything
    options = parser.parse_args()
    if options.parse:
        return 0
    try:
        changed = changed_files(options.since)
    except subprocess.CalledProcessError as error:
        print(f"./dev check: git: {error.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return 2
    sources = [f for f in changed if f.endswith((".h", ".cc")) and (ROOT / f).exists()]
    includes = all_includes()
    touched = includers({schema_header(f) for f in changed}, includes)
    cxx_tests = {f: (ROOT / f).read_text() for f in includes if f.startswith("tests/")}
    for path in changed:
        touched |= golden_users(path, cxx_tests)
    folders = sorted({t for f in touched if not OF_DEV.fullmatch(f) and (t := tests_of(f))})
    everything = [f for f in changed if builds_all(f)]
    known = PytestMap.read(MAP)
    known.keep(set(git("ls-files")))
    pytests, left_pytests = Pytests(known, includes, python_texts()).choose(changed, PYTEST_SECONDS)
    print(f"{len(changed)} files changed")
    if everything:
        print(f"    builds everything, because of {everything[0]}")
    print(f"    unit tests of: {', '.join(folders) or 'none'}")
    print(f"    pytest: {', '.join(pytests) or 'none'}")
    if left_pytests:
        print(f"    left to ./dev test, beyond {PYTEST_SECONDS:.0f} s: {', '.join(left_pytests)}")
    if unknown := sorted(set(all_pytests()) - set(known.seconds)):
        print(
            f"    not in tests/pytest_map.json: {len(unknown)} files of pytest, {unknown[0]} for "
            f"example"
        )
    if options.plan:
        return 0
    run = Run()
    targets = (
        "all" if pytests or everything else " ".join(f"tests/{folder}/all" for folder in folders)
    )
    configure = "cmake --preset dev -DREGROUP_TESTS=ON -DREGROUP_BENCH=ON >/dev/null"
    built = not targets or run.step(
        "build",
        "bash",
        "-c",
        f"{configure} && ninja -C build -j${{REGROUP_JOBS:-$(nproc)}} {targets}",
    )
    if built and folders:
        cost = costs()
        try:
            known_cases = cases_of([*folders, "lint"])
        except subprocess.CalledProcessError as error:
            print(f"    ctest cannot list the tests: {error.stderr.strip()}")
            run.failed.append("ctest -N")
            known_cases = {}
        cases, left = within(UNIT_SECONDS, ((name, cost.get(name, 0.1)) for name in known_cases))
        if cases:
            run_cases(run, [known_cases[name] for name in cases])
        if left:
            print(
                f"    left to ./dev test, as they take longer: {len(left)}, for example "
                f"{', '.join(left[:3])}"
            )
    if built and pytests:
        run.step(
            "pytest",
            ".venv/bin/python",
            "-m",
            "pytest",
            "-q",
            "-n",
            "3",
            "--dist",
            "loadfile",
            *pytests,
        )
    if sources:
        run.step("clang-format", "clang-format", "--dry-run", "--Werror", *sources)
    if units := tidy_units(sources, includes):
        run.step(
            "clang-tidy",
            "bash",
            "-c",
            'JOBS=$(nproc); source tools/dev/lint.sh; lint_tidy "$@"',
            "tidy",
            *units,
        )
    if scripts := [f for f in changed if f.endswith(".py") and (ROOT / f).exists()]:
        run.step("ruff", ".venv/bin/ruff", "check", *scripts)
        run.step("ruff format", ".venv/bin/ruff", "format", "--check", *scripts)
    if changed:  # a moved file breaks links of pages that did not change
        run.step("pages", sys.executable, "tests/lint/docs_test.py", ".")
        run.step(
            "generated pages", sys.executable, "tools/docs/reference.py", "--check", "--regroup", ""
        )
    verdict = f"failed: {', '.join(run.failed)}" if run.failed else "all passed"
    print(f"==> {verdict}, {time.monotonic() - run.start:.0f} s")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
