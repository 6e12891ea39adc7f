"""Fixtures of test hosts. A conftest.py elsewhere imports hosts.py after adding this folder to
sys.path."""

import contextlib
import os
from collections.abc import Iterator

import pytest
from hosts import Hosts, missing_rights
from talk import talk
from training import EPOCHS, Start, starter, weights_alone


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "no_wire(reason): the test is not about hosts that talk to each other; why it is not",
    )
    # A job goes on without a host whose agent needs more than 5 s to start, and on busy cores one
    # does. The factor also lengthens the limits of hung members and of checkpoint directories.
    # Tests about these times give their launchers a factor of their own.
    os.environ.setdefault("REGROUP_TIME_LIMIT_FACTOR", "4")


@pytest.fixture(autouse=True)
def bytes_cross_the_wire(request: pytest.FixtureRequest) -> Iterator[None]:
    """In each test that gets hosts, two of them talk to each other, unless it is marked
    `no_wire`."""
    names = [name for name in request.fixturenames if name.endswith(("hosts", "trio"))]
    marker = request.node.get_closest_marker("no_wire")
    assert not marker or marker.args, "no_wire wants a reason"
    with (
        talk(*map(request.getfixturevalue, names))
        if names and not marker
        else contextlib.nullcontext()
    ):
        yield


@contextlib.contextmanager
def started(count: int, **options) -> Iterator[Hosts]:
    """Test hosts, or a failure that says which right is missing: never a silent skip."""
    if missing := missing_rights():
        pytest.fail(missing, pytrace=False)
    with Hosts(count, **options) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Three hosts that the tests of a module share: leave them as they were."""
    with started(3) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    """Weights of one process alone, with the same seed and shards."""
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), EPOCHS)


@pytest.fixture
def own_hosts() -> Iterator[Hosts]:
    """Two hosts for one test, which may break them."""
    with started(2) as hosts:
        yield hosts


@pytest.fixture
def own_trio() -> Iterator[Hosts]:
    """Three hosts likewise."""
    with started(3) as hosts:
        yield hosts


@pytest.fixture
def start(hosts: Hosts) -> Iterator[Start]:
    """Begins jobs on the hosts of the module; behind the test nothing of them may be left."""
    with starter(hosts) as begin:
        yield begin


@pytest.fixture
def start_own(own_trio: Hosts) -> Iterator[Start]:
    """On hosts that the test may break."""
    with starter(own_trio) as begin:
        yield begin
