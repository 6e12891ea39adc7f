"""Real allocators on this machine: never skipped, since what they do is what is tested."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm import Slurm, missing


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if why := missing():
        pytest.fail(why, pytrace=False)
    with Slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
