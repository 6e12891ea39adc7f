"""For all tests. Workers of pytest-xdist have a runtime folder each, as the jobs of one are not those of the
others. The longest files come first, so that none is left to run alone at the end; pytest_seconds.json says
which they are, and is written anew where REGROUP_RECORD_SECONDS is set. In CI a skip is a failure, unless
hardware or `--full` is what it lacks. At the end a table says what each folder took."""

import collections
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

SECONDS = Path(__file__).with_name("pytest_seconds.json")
# What a machine of CI may lack; FUSE, control groups, namespaces, libpmix and daemons it must have.
MAY_LACK = re.compile(r"--full|REGROUP_TEST_FULL|\bGPUs?\b|two processors|two cores|cgroup v1")
folder = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[folder] = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="run-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if made := config.stash.get(folder, None):
        shutil.rmtree(made, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seconds = json.loads(SECONDS.read_text())
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


def skip_fails(reason: str, environment: collections.abc.Mapping[str, str]) -> bool:
    """Whether a test that was skipped for `reason` has failed."""
    return environment.get("CI") == "true" and not MAY_LACK.search(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if skip_fails(reason, os.environ):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: skipped, which fails in CI: {reason}"
    return report


def pytest_terminal_summary(terminalreporter) -> None:
    files: dict[str, float] = collections.defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                files[report.nodeid.partition("::")[0]] += report.duration
    folders: dict[str, float] = collections.defaultdict(float)
    for name, seconds in files.items():
        folders["/".join(name.split("/")[:2])] += seconds
    if folders:
        terminalreporter.section("minutes by folder (of all workers together)")
        for name, seconds in sorted(folders.items(), key=lambda row: -row[1]):
            terminalreporter.write_line(f"{seconds / 60:6.2f}  {name}")
    if files and "REGROUP_RECORD_SECONDS" in os.environ:
        known = json.loads(SECONDS.read_text()) | {name: round(seconds) for name, seconds in files.items()}
        SECONDS.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")
