"""For tests that run beside others (pytest-xdist): a runtime folder of their own, as their jobs are not the
others', and the longest files first, so that none is left to run alone at the end."""

import os
import shutil
import tempfile

import pytest

LONG = ("pmi/test_mpi4py", "python/test_types", "tensorflow/", "hosts/test_hostile", "python/test_install")
folder = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[folder] = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="run-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if made := config.stash.get(folder, None):
        shutil.rmtree(made, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONG))
