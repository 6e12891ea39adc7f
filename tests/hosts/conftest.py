"""Fixtures of test hosts. A conftest.py elsewhere imports hosts.py after adding this folder to sys.path."""

import contextlib
from collections.abc import Iterator

import pytest
from hosts import Hosts, missing_rights
from training import EPOCHS, Start, starter, weights_alone

# Two hosts of a job send more than this each. A login by ssh that does nothing costs either end 5,300 bytes
# at most, and more go with the program and the secret of an agent, and through its link.
CONTROL_BYTES = 6_000


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "no_wire: no agent comes up on another host: that is what it is about")


@pytest.fixture(autouse=True)
def bytes_cross_the_wire(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that gets hosts uses the wire between two of them, unless it is marked `no_wire`."""
    names = [name for name in request.fixturenames if name.endswith(("hosts", "trio"))]
    hosts = [host for name in names for host in request.getfixturevalue(name)]
    before = [host.sent() for host in hosts]
    yield
    sent = sorted(host.sent() - was for host, was in zip(hosts, before, strict=True))
    if hosts and not request.node.get_closest_marker("no_wire"):
        assert sent[-2] > CONTROL_BYTES, f"no two hosts have talked to each other: {sent} bytes"


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
