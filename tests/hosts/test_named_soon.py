"""A host that does not come up: one line names it and why, in the time that is promised, and the
job ends or, if it is elastic, goes on without. Those that say nothing themselves: packets go
nowhere; elastic jobs without hosts that say why; and several at once."""

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from hosts import Hosts
from test_run import (  # noqa: F401
    PROMPT,
    REGROUP,
    Done,
    fails,
    named_in_time,
    nothing_is_left,
    run,
    ssh_with_another_key,
)


@contextlib.contextmanager
def no_link(hosts: Hosts) -> Iterator[None]:
    hosts[1].link(up=False)
    yield
    hosts[1].link(up=True)


@contextlib.contextmanager
def hung(hosts: Hosts, index: int = 1) -> Iterator[None]:
    """Its kernel takes connections, its sshd does not."""
    hosts[index].stop()
    yield
    hosts[index].resume()


def deaf(to: int) -> Callable[[Hosts], contextlib.AbstractContextManager[None]]:
    """That host's firewall drops what would open a connection from node2; ssh goes the other
    way."""

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
    r"|its agent was started, but could not connect back to {0}:\d+,\S+ within \d+ s) \(a "
    r"firewall\?\)"
)
HUNG = r"ssh failed: Connection to \S+ port 22 timed out"
FAULTS = {
    "no link": (no_link, (), r"ssh failed: .*(timed out|No route to host).*"),
    "hung": (hung, (), HUNG),
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
    done = fails(hosts, *options, *WHERE, "-np", "3", "true", env=PROMPT)
    assert done.status == 1
    assert re.fullmatch(line, done.err), done.err


def test_an_elastic_job_goes_on_without_it(hosts: Hosts, fault):
    options, line = fault

    done = named_in_time(run(hosts, *options, *WHERE, "-np", "1:3", "hostname", env=PROMPT))
    assert done.status == 0, done.err
    assert re.match(line, done.err), done.err
    assert sorted(done.out.split()) == ["node1", "node3"]


REFUSED = r"ssh failed: .*Permission denied \(publickey.*"
# What node1 and node3 have, and node2 does not; a script that makes a job of words; the reason.
ONLY = "/tmp/not-on-node2"
LACKS = {
    "the key": ("", 'exec {regroup} {ssh} "$@" hostname', REFUSED),
    "the folder": (
        f"mkdir {ONLY}",
        f'cd {ONLY}; exec {{regroup}} "$@" hostname',
        f"cannot change to folder {ONLY}",
    ),
    "regroup": (
        f"mkdir {ONLY}; cp {REGROUP} {ONLY}",
        f'exec {ONLY}/regroup "$@" hostname',
        f"program {ONLY}/regroup does not exist",
    ),
    "the program": (
        f"mkdir {ONLY}; cp /bin/hostname {ONLY}",
        f'exec {{regroup}} "$@" {ONLY}/hostname',
        f"program {ONLY}/hostname cannot be started: No such file or directory",
    ),
}


@pytest.mark.parametrize("lacking", LACKS)
def test_an_elastic_job_goes_on_without_a_host_that_lacks(hosts: Hosts, lacking: str):
    prepare, script, why = LACKS[lacking]
    option, ssh = ssh_with_another_key(hosts, "node2")
    script = script.format(regroup=REGROUP, ssh=f"{option} '{ssh}'")
    words = ["sh", "-c", script, "sh", "--ssh-command", " ".join(hosts.ssh), *WHERE, "-np", "1:3"]
    if lacking == "the key":
        words = ["sh", "-c", script, "sh", *WHERE, "-np", "1:3"]
    for index in (0, 2):
        assert hosts[index].run(["sh", "-c", f"rm -rf {ONLY}; {prepare}"]).returncode == 0

    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = named_in_time(Done(hosts[0].popen(words, text=True, **pipes)))
    assert done.status == 0, done.err
    # members may be started again without a host
    assert set(done.out.split()) == {"node1", "node3"}
    assert re.fullmatch(
        f"regroup: host node2: {why}\nregroup: the job is over: .* status 0\n", done.err
    ), done.err


@pytest.mark.no_wire("one host refuses, another is hung")
@pytest.mark.parametrize("members", ["3", "1:3"])
def test_each_host_is_named_as_soon_as_it_is_known(hosts: Hosts, members: str):
    """What refuses at once does not wait for a host that is hung."""
    ssh = ssh_with_another_key(hosts, "node2")
    with hung(hosts, 2):
        done = named_in_time(
            run(hosts, *ssh, *WHERE, "-np", members, "hostname", env=PROMPT), "node3"
        )
    refused, late = done.lines[:2]
    assert re.fullmatch(f"regroup: host node2: {REFUSED}\n", refused[1]), done.err
    assert re.fullmatch(f"regroup: host node3: {HUNG}\n", late[1]), done.err
    assert refused[0] < late[0] - 1
    assert (done.status, done.out) == ((1, "") if members == "3" else (0, "node1\n")), done.err
