"""For all tests. Workers of pytest-xdist have a runtime folder each, as the jobs of one are not
those of the others. Open MPI's mpirun keeps its sessions there too, by process id: a later one that
has the id of one that was killed fails. The longest files come first, so that none is left to run
alone at the end; pytest_seconds.json says which they are, and is written anew where
REGROUP_RECORD_SECONDS is set. In CI a skip is a failure, unless hardware or `--full` is what it
lacks. A file whose import changes the environment fails: the tests after it, and what they start,
would have that environment too. At the end a table says what each folder took; REGROUP_TEST_COSTS
names a file to which each test adds a line."""

import collections
import itertools
import json
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools/dev"))
from skips import skip_fails  # noqa: E402

SECONDS = Path(__file__).with_name("pytest_seconds.json")
# Variables that libraries set when they are imported.
OF_LIBRARIES = ("CUBLAS_", "ENABLE_RUNTIME_", "HDF5_PLUGIN_PATH", "KMP_", "TF", "TORCH", "TPU_")
folder = pytest.StashKey[str]()
before = pytest.StashKey[float]()  # processor_seconds() when the last phase of a test ended


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[folder] = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="run-")
        os.environ |= {"PRTE_MCA_prte_tmpdir_base": config.stash[folder]}


def pytest_unconfigure(config: pytest.Config) -> None:
    if made := config.stash.get(folder, None):
        shutil.rmtree(made, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without what `./dev test` names of tests/quarantine.txt: a whole function or one of its
    cases."""
    left_out = tuple(os.environ.get("REGROUP_DESELECT", "").split("\n"))
    items[:] = [
        i for i in items if i.nodeid not in left_out and i.nodeid.partition("[")[0] not in left_out
    ]
    seconds = json.loads(SECONDS.read_text())
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    kept = dict(os.environ)
    report = yield
    if not isinstance(collector, pytest.Module):
        return report
    changed = [
        f"{name}: {kept.get(name)!r} is now {os.environ.get(name)!r}"
        for name in sorted(kept.keys() | os.environ.keys())
        if kept.get(name) != os.environ.get(name) and not name.startswith(OF_LIBRARIES)
    ]
    if changed and report.passed:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid}: the import changes the environment of all tests: "
            + ("; ".join(changed))
        )
    return report


def processor_seconds() -> float:
    """Of this process and of its children that were waited for; daemons and what they start do not
    count."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[before] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    now = processor_seconds()
    report.processor = now - item.stash.get(before, now)
    item.stash[before] = now
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if skip_fails(reason, os.environ):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: skipped, which fails in CI: {reason}"
    return report


class Costs:
    """Seconds of tests: in all, in fixtures (where daemons and jobs start), and computing."""

    def __init__(self) -> None:
        self.wall = self.fixtures = self.computing = 0.0

    def add(self, report: pytest.TestReport) -> None:
        self.wall += report.duration
        self.fixtures += 0 if report.when == "call" else report.duration
        self.computing += getattr(report, "processor", 0.0)


def pytest_terminal_summary(terminalreporter) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the process that started it has the reports of all workers
    tests: dict[str, Costs] = collections.defaultdict(Costs)
    files: dict[str, Costs] = collections.defaultdict(Costs)
    folders: dict[str, Costs] = collections.defaultdict(Costs)
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if hasattr(report, "duration"):
            name = report.nodeid.partition("::")[0]
            for table, key in (
                (tests, report.nodeid),
                (files, name),
                (folders, "/".join(name.split("/")[:2])),
            ):
                table[key].add(report)
    if folders:
        terminalreporter.section("minutes by folder (of all workers together)")
        for name, costs in sorted(folders.items(), key=lambda row: -row[1].wall):
            more = f"{costs.fixtures / 60:.2f} in fixtures, {costs.computing / 60:.2f} computing"
            terminalreporter.write_line(f"{costs.wall / 60:6.2f}  {name}  ({more})")
    if files and "REGROUP_RECORD_SECONDS" in os.environ:
        known = json.loads(SECONDS.read_text()) | {
            name: round(costs.wall) for name, costs in files.items()
        }
        SECONDS.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")
    if tests and (path := os.environ.get("REGROUP_TEST_COSTS")):
        with open(path, "a", encoding="utf-8") as out:
            for name, costs in tests.items():
                print(
                    f"{costs.wall:.2f}",
                    f"{costs.fixtures:.2f}",
                    f"{costs.computing:.2f}",
                    name,
                    sep="\t",
                    file=out,
                )
