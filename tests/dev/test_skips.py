"""Which skips CI takes."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "root_conftest", Path(__file__).resolve().parents[1] / "conftest.py"
)
conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conftest)


@pytest.mark.parametrize(
    ("reason", "fails"),
    [
        ("mounts: root and /dev/fuse", True),
        ("no headers of libpmix", True),
        ("control groups: cannot be made here", True),
        ("mount is not permitted here", True),
        ("5 GiB on the disk: --full only", False),
        ("this machine has GPUs", False),
        ("two processors are needed", False),
    ],
)
def test_in_ci_only_hardware_and_time_are_reasons(reason, fails):
    assert conftest.skip_fails(reason, {"CI": "true"}) is fails
    assert not conftest.skip_fails(reason, {})
