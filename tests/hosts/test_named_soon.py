"""A host that does not come up: one line names it and why, in the time that is promised, and the job ends or,
if it is elastic, goes on without. Here those that say nothing themselves: packets go nowhere."""

import contextlib
import re
from collections.abc import Callable, Iterator

import pytest
from hosts import Hosts
from test_run import Done, fails, nothing_is_left, run, told_soon  # noqa: F401


@contextlib.contextmanager
def no_link(hosts: Hosts) -> Iterator[None]:
    hosts[1].link(up=False)
    yield
    hosts[1].link(up=True)


@contextlib.contextmanager
def hung(hosts: Hosts) -> Iterator[None]:
    """Its kernel takes connections, its sshd does not."""
    hosts[1].stop()
    yield
    hosts[1].resume()


def deaf(to: int) -> Callable[[Hosts], contextlib.AbstractContextManager[None]]:
    """That host's firewall drops what would open a connection from node2; ssh goes the other way."""

    @contextlib.contextmanager
    def barred(hosts: Hosts) -> Iterator[None]:
        rule = f"INPUT -i eth0 -s {hosts[1].address} -p tcp --syn -j DROP".split()
        hosts[to].network("iptables", "-A", *rule)
        yield
        hosts[to].network("iptables", "-D", *rule)

    return barred


# The agent's own word, or on busy cores that of who waits for it.
NO_WAY_BACK = (
    r"(the agent ended with status 1: it could not connect back: connect: {0}:\d+: no answer"
    r"|its agent was started, but could not connect back to {0}:\d+,\S+ within \d+ s) \(a firewall\?\)"
)
FAULTS = {
    "no link": (no_link, (), r"ssh failed: .*(timed out|No route to host).*"),
    "hung": (hung, (), r"ssh .*"),
    "no way back": (deaf(0), (), NO_WAY_BACK.format("10.77.0.1")),
    "no way back in a tree": (
        deaf(2),
        ("--tree-radix", "1"),
        NO_WAY_BACK.format("10.77.0.3") + r" \(from node3\)",
    ),
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, hosts: Hosts) -> Iterator[tuple[tuple[str, ...], str]]:
    broken, options, why = FAULTS[request.param]
    with broken(hosts):
        yield options, f"regroup: host node2: {why}\n"


WHERE = ("-H", "node1,node3,node2")


def test_the_job_ends(hosts: Hosts, fault):
    options, line = fault
    done = fails(hosts, *options, *WHERE, "-np", "3", "true")
    assert done.status == 1
    assert re.fullmatch(line, done.err), done.err


def test_an_elastic_job_goes_on_without_it(hosts: Hosts, fault):
    options, line = fault

    def attempt() -> Done:
        return run(hosts, *options, *WHERE, "-np", "1:3", "hostname")

    done = told_soon(hosts, attempt)
    assert done.status == 0, done.err
    assert re.match(line, done.err), done.err
    assert sorted(done.out.split()) == ["node1", "node3"]
