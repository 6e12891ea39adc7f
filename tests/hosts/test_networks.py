"""Members of hosts with two networks, of which one is filtered; behind a firewall; on the network
that the user names."""

from collections.abc import Iterator

import pytest
from conftest import started
from hosts import Host, Hosts, until
from training import Start, starter

UCX_PORTS = "50000-50499"
OTHER_PORTS = "40000 40999"  # of links and state transfers
KERNEL_RANGE = "net.ipv4.ip_local_port_range"
MEMBERS = "node1:2,node2:2,node3:2"


@pytest.fixture(scope="module")
def two_networks_of_hosts() -> Iterator[Hosts]:
    """Three hosts on two networks, whose members listen on UCX_PORTS."""
    with started(3) as hosts:
        for host in hosts:
            host.plug_second()
            done = host.run(["sysctl", "-qw", f"{KERNEL_RANGE}={OTHER_PORTS}"])
            assert done.returncode == 0, done.stderr
        yield hosts


@pytest.fixture
def begin(two_networks_of_hosts: Hosts) -> Iterator[Start]:
    with starter(two_networks_of_hosts) as begin:
        yield begin
    for host in two_networks_of_hosts:
        host.network("iptables", "-F", "INPUT")


def filter_ports(host: Host, interface: str, ports: str, verdict: str) -> None:
    rule = f"-A INPUT -i {interface} -p tcp --dport {ports.replace('-', ':')} -j {verdict}"
    host.network("iptables", *rule.split())


def dropped(host: Host) -> int:
    """Packets that the last rule has taken."""
    return int(host.network("iptables", "-vxnL", "INPUT").splitlines()[-1].split()[0])


@pytest.mark.parametrize("verdict", ["DROP", "REJECT"])
def test_members_find_the_network_that_is_open(
    two_networks_of_hosts: Hosts, begin: Start, undisturbed: str, verdict: str
):
    for host in two_networks_of_hosts:
        filter_ports(host, "eth0", UCX_PORTS, verdict)
    job = begin(MEMBERS, "6:6", "-x", f"UCX_TCP_PORT_RANGE={UCX_PORTS}")
    job.expect_weights(undisturbed)
    assert all(dropped(host) > 0 for host in list(two_networks_of_hosts)[1:])


def test_members_call_again_when_a_firewall_is_mended(
    two_networks_of_hosts: Hosts, begin: Start, undisturbed: str
):
    for host in two_networks_of_hosts:
        for interface in ("eth0", "eth1"):
            filter_ports(host, interface, UCX_PORTS, "REJECT")
    job = begin(MEMBERS, "6:6", "-x", f"UCX_TCP_PORT_RANGE={UCX_PORTS}")
    job.until_said("generation 1: 6 members", 60)
    until(lambda: any(dropped(host) for host in two_networks_of_hosts), "a call")
    for host in two_networks_of_hosts:
        host.network("iptables", "-F", "INPUT")
    job.expect_weights(undisturbed)


def test_members_meet_behind_a_firewall_that_lets_their_ports_through(
    two_networks_of_hosts: Hosts, begin: Start, undisturbed: str
):
    for host in two_networks_of_hosts:
        for ports in ("22", UCX_PORTS, OTHER_PORTS.replace(" ", "-")):
            filter_ports(host, "eth0", ports, "ACCEPT")
        host.network("iptables", *["-A", "INPUT", "-i", "eth1", "-j", "DROP"])
        host.network("iptables", *["-A", "INPUT", "-i", "eth0", "-p", "tcp", "--syn", "-j", "DROP"])
    job = begin(MEMBERS, "6:6", "-x", f"UCX_TCP_PORT_RANGE={UCX_PORTS}")
    job.expect_weights(undisturbed)
    assert not any(dropped(host) for host in two_networks_of_hosts)


def test_gradients_take_the_network_that_the_user_names(
    two_networks_of_hosts: Hosts, begin: Start, undisturbed: str
):
    for host in two_networks_of_hosts:
        filter_ports(host, "eth0", UCX_PORTS, "DROP")
    before = [host.counters("eth1")[0] for host in two_networks_of_hosts]
    job = begin(
        MEMBERS, "6:6", "-x", "UCX_NET_DEVICES=eth1", "-x", f"UCX_TCP_PORT_RANGE={UCX_PORTS}"
    )
    job.expect_weights(undisturbed)
    gradients = 4 * 650 * job.steps
    for host, bytes_before in zip(two_networks_of_hosts, before, strict=True):
        assert host.counters("eth1")[0] > bytes_before + gradients
        assert dropped(host) == 0  # nobody called there


@pytest.fixture
def begin_on_six(two_networks_of_hosts: Hosts, begin: Start) -> Iterator[Start]:
    """The second network speaks IPv6 alone."""
    for index, host in enumerate(two_networks_of_hosts):
        done = host.run(["sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=0"])
        assert done.returncode == 0, done.stderr
        host.network("ip", *f"addr add fd78::{index + 1}/64 dev eth1 nodad".split())
        host.network("ip", *f"addr del 10.78.0.{index + 1}/24 dev eth1".split())
    yield begin
    for index, host in enumerate(two_networks_of_hosts):
        host.run(["sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=1"])
        host.network("ip", *f"addr add 10.78.0.{index + 1}/24 dev eth1".split())


def test_members_meet_where_there_is_ipv6_alone(
    two_networks_of_hosts: Hosts, begin_on_six: Start, undisturbed: str
):
    before = [host.counters("eth1")[0] for host in two_networks_of_hosts]
    job = begin_on_six(MEMBERS, "6:6", "-x", "UCX_NET_DEVICES=eth1")
    job.expect_weights(undisturbed)
    gradients = 4 * 650 * job.steps
    for host, bytes_before in zip(two_networks_of_hosts, before, strict=True):
        assert host.counters("eth1")[0] > bytes_before + gradients


def test_a_range_of_ports_that_is_none_is_told(two_networks_of_hosts: Hosts, begin: Start):
    job = begin("node1:1,node2:1", "2:2", "-x", "UCX_TCP_PORT_RANGE=9-1")
    assert job.wait() != 0
    assert (
        "UCX_TCP_PORT_RANGE=9-1: expected a range such as 20000-20999, or 0 for any port"
        in job.text()
    )
