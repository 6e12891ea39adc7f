"""Elastic jobs on several hosts: members, agents, hosts, links and coordinators are lost; same
weights, every sample once."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hosts import ROOT, Host, Hosts, until
from training import BIN, WHERE, Start, agent_of, kill, left_on, processes

PYTHON = str(ROOT / ".venv/bin/python")
UNHEARD = "host {}: neither its agent nor its members are heard any more"
# Of a shard, so that what a test does meets a job that trains, however late it is; each hurries
# once it has seen what it waits for. The others wait for hosts that come back.
PACE_US = 50_000
LONG_PACE_US = 300_000


def test_six_members_on_three_hosts(hosts: Hosts, start: Start, undisturbed: str):
    before = [host.sent() for host in hosts]
    job = start(pace_us=0)
    job.expect_weights(undisturbed)
    assert len(job.trails.weights()) == 6
    gradients = 4 * 650 * job.steps  # of 650 floats: far less than what goes over the wires
    for host, bytes_before in zip(hosts, before, strict=True):
        assert host.sent() > bytes_before + gradients


def test_a_member_dies_and_is_replaced(hosts: Hosts, start: Start, undisturbed: str):
    job = start(pace_us=PACE_US)
    job.reach(10)
    kill(processes(hosts[1], "chaos_member")[:1])
    job.until_lost(6, 5)
    job.until_said("-> 6 members", 60)
    job.hurry()
    job.expect_weights(undisturbed)


def test_all_members_of_a_host_die_at_once(hosts: Hosts, start: Start, undisturbed: str):
    job = start(pace_us=PACE_US)
    job.reach(10)
    kill(processes(hosts[2], "chaos_member"))
    job.hurry()
    job.expect_weights(undisturbed)


@pytest.mark.parametrize("host", [0, 1])
def test_an_agent_dies_and_its_host_comes_back(
    hosts: Hosts, start: Start, undisturbed: str, host: int
):
    job = start(pace_us=LONG_PACE_US)
    job.reach(5)
    kill(agent_of(hosts[host]))
    job.until_said("its host was lost): 6 -> 4 members", 60)
    job.until_said("-> 6 members", 60)
    job.hurry()
    job.expect_weights(undisturbed)
    assert f"host node{host + 1}: the connection to its agent is lost" in job.text()


def test_a_coordinator_dies_and_the_job_goes_on_in_its_generation(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = start(pace_us=PACE_US)
    job.reach(10)
    kill(processes(hosts[0], "regroup-coord"))
    job.until_said("incarnation 2 of the coordinator continues with generation 1", 60)
    job.hurry()
    job.expect_weights(undisturbed)


def slow_ssh(hosts: Hosts, host: Host, seconds: float) -> str:
    """An ssh that takes so long to begin on that host."""
    script = hosts.folder / "slow_ssh"
    wait = f'case " $* " in *" {host.name} "*) sleep {seconds} ;; esac'
    script.write_text(f'#!/bin/sh\n{wait}\nexec {" ".join(hosts.ssh)} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_coordinator_dies_twice_before_the_agents_have_come(
    hosts: Hosts, start: Start, undisturbed: str
):
    """They come after more than the usual 5 s."""
    slow = ("--ssh-command", slow_ssh(hosts, hosts[2], 6))
    job = start(WHERE, "6:6", *slow)
    first = until(lambda: processes(hosts[0], "regroup-coord"), "a coordinator")
    kill(first)
    kill(
        until(
            lambda: sorted({*processes(hosts[0], "regroup-coord")} - {*first}),
            "another coordinator",
        )
    )
    assert not processes(hosts[2], "regroup-agent"), "it has come already"
    job.expect_weights(undisturbed)
    assert job.text().count("restarting it") == 2


def test_a_member_and_the_coordinator_die_together(hosts: Hosts, start: Start, undisturbed: str):
    job = start(pace_us=PACE_US)
    job.reach(10)
    kill(processes(hosts[0], "regroup-coord") + processes(hosts[2], "chaos_member")[:1])
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_host_loses_its_power(start_own: Start, undisturbed: str):
    job = start_own(pace_us=PACE_US)
    job.reach(10)
    job.hosts[2].kill()
    job.hurry()
    job.expect_weights(undisturbed)
    assert UNHEARD.format("node3") in job.text()


@pytest.mark.parametrize("tree", [(), ("--tree-radix", "1")], ids=["star", "chain"])
def test_a_host_that_members_wait_for_is_lost_by_their_word(
    start_own: Start, undisturbed: str, tree: tuple[str, ...]
):
    """Its agent alone would be waited for longer, and the job would give another reason: in the
    chain node2's agent is the one that does not hear it, and not the controller."""
    job = start_own(WHERE, "2:6", *tree, pace_us=LONG_PACE_US)
    job.reach(5)
    away = [member["id"] for member in job.status()["members"] if member["node"] == 3]
    job.hosts[2].link(up=False)
    job.until_said("6 -> 4 members", 60)
    assert UNHEARD.format("node3") in job.text()
    said = [sentence["why"] for sentence in job.status()["history"]]
    lost = said.index(UNHEARD.format("node3"))
    missed = [i for i, why in enumerate(said) if "cannot be reached by another: " in why]
    assert missed and missed[0] < lost, said
    assert all(int(said[i].split()[1]) in away for i in missed), said
    job.hosts[2].link(up=True)  # so that its agent need not look for the controller for long
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_host_loses_its_link_and_comes_back(own_trio: Hosts, start_own: Start, undisturbed: str):
    own_trio.give_up_dead_hosts_soon()
    job = start_own(pace_us=LONG_PACE_US)
    job.reach(5)
    job.hosts[1].link(up=False)
    job.until_said("6 -> 4 members", 60)
    assert UNHEARD.format("node2") in job.text()
    until(
        lambda: not processes(job.hosts[1], "chaos_member"),
        "the end of members that nobody hears",
    )
    job.until_said("; trying again", 60)
    job.hosts[1].link(up=True)
    job.until_said("-> 6 members", 60)
    said = [line for line in job.text().splitlines() if line.endswith("; trying again")]
    assert all("node2" in line for line in said) and len(said) == len(set(said)), said
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_job_ends_while_a_host_comes_back(start_own: Start, undisturbed: str):
    job = start_own(pace_us=PACE_US)
    job.reach(10)
    job.hosts[2].slow("30kbit")  # its ssh takes a while
    kill(processes(job.hosts[2], "regroup-agent"))
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_host_that_stood_still_is_fenced_and_joins_again(start_own: Start, undisturbed: str):
    job = start_own(pace_us=LONG_PACE_US)
    job.reach(5)
    old = processes(job.hosts[2], "chaos_member")
    job.hosts[2].stop()
    job.until_said("6 -> 4 members", 60)
    job.hosts[2].resume()
    until(
        lambda: not set(old) & set(processes(job.hosts[2], "chaos_member")),
        "the end of the old members",
    )
    job.until_said("-> 6 members", 60)
    job.hurry()
    job.expect_weights(undisturbed)


def test_without_the_guardian_the_job_holds_then_ends(hosts: Hosts, start: Start):
    job = start("node1:2,node2:2", "2:4", "--orphan-timeout", "2", pace_us=LONG_PACE_US)
    job.reach(5)
    began = time.monotonic()
    os.kill(hosts[0].inner(job.process), signal.SIGKILL)
    job.process.wait(60)
    until(lambda: not left_on(hosts), "an end of all processes", 60)
    assert time.monotonic() - began > 1.5, "it did not hold"


def test_a_host_that_cannot_be_reached_is_done_without(
    hosts: Hosts, start: Start, undisturbed: str
):
    job = start("node1:2,nowhere:2,node3:2", pace_us=0)
    job.expect_weights(undisturbed)
    assert "nowhere" in job.text()
    assert "generation 1: 4 members" in job.text()


def test_without_the_program_on_any_host_the_job_ends_at_once(hosts: Hosts):
    job = [
        str(BIN / "regroup"),
        "--ssh-command",
        " ".join(hosts.ssh),
        "-H",
        "node1,node2",
        "-np",
        "1:2",
    ]
    done = hosts[0].run([*job, "no-such-program"], timeout=60)
    assert done.returncode == 66  # as on this machine alone
    for host in ("node1", "node2"):
        assert f"host {host}: program no-such-program was not found" in done.stderr
    assert "the hosts that came up have 0 slots for at least 1 member" in done.stderr


@pytest.mark.no_wire("no host is there to be reached")
def test_without_any_host_the_job_ends_at_once(hosts: Hosts):
    job = [
        str(BIN / "regroup"),
        "--ssh-command",
        " ".join(hosts.ssh),
        "-H",
        "nowhere",
        "-np",
        "1:2",
    ]
    done = hosts[0].run([*job, "true"], timeout=60)
    assert done.returncode == 1
    assert "the hosts that came up have 0 slots for at least 1 member" in done.stderr


@pytest.mark.no_wire("the only other host is not there")
def test_too_few_slots_are_named(hosts: Hosts, start: Start):
    job = start("node1:1,nowhere:2", "2:6", pace_us=0)
    assert job.wait() == 1
    assert "the hosts that came up have 1 slot for at least 2 members" in job.text()


LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")


def take_libucp(host: Host) -> None:
    """From this host alone: a layer over its folder in which the library was removed."""
    layer = f"lowerdir={LIBRARIES},upperdir=/tmp/upper,workdir=/tmp/work"
    script = (
        f"mkdir /tmp/upper /tmp/work && mount -t overlay overlay -o {layer} {LIBRARIES}"
        f" && rm {LIBRARIES}/libucp.so*"
    )
    done = host.run(["sh", "-c", script])
    assert done.returncode == 0, done.stderr


def test_without_libucp_several_hosts_say_so_and_name_the_package(own_hosts: Hosts):
    job = [str(BIN / "regroup"), "--ssh-command", " ".join(own_hosts.ssh), "-np", "2:2"]
    member = [str(BIN.parent / "tests/bin/elastic_member"), "3", "1"]
    for host in own_hosts:
        take_libucp(host)
    alone = own_hosts[0].run([*job, "-H", "node1:2", *member], timeout=60)
    assert alone.returncode == 0, alone.stderr  # nothing goes over a wire
    done = own_hosts[0].run([*job, "-H", "node1,node2", *member], timeout=60)
    assert done.returncode != 0
    said = re.findall(r"not viable: no libucp; .* libucx0 .*", done.stdout + done.stderr)
    assert said, done.stdout + done.stderr


def test_resize_uses_the_other_hosts(hosts: Hosts, start: Start, undisturbed: str):
    job = start(WHERE, "2:6", "--initial-size", "2", pace_us=100_000)
    job.reach(5)
    assert {m["node"] for m in job.status()["members"]} == {1}
    job.control("resize", "6")
    job.until_size(6)
    assert len({m["node"] for m in job.status()["members"]}) == 3
    job.control("resize", "3")
    job.until_size(3)
    job.hurry()
    job.expect_weights(undisturbed)


# The example; all its members stay in a step of the second epoch until a file is there.
HELD_DIGITS = """
import pathlib, runpy, sys, time, regroup.torch
sys.path.insert(0, sys.argv.pop(1))
import _no_compiler
go, script = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
shards = regroup.torch.Step.__iter__

def held(step):
    end = time.monotonic() + 200
    while step.number == 30 and not go.exists():
        assert time.monotonic() < end, f"no {go}"
        time.sleep(0.02)
    yield from shards(step)

regroup.torch.Step.__iter__ = held
runpy.run_path(script, run_name="__main__")
"""


def test_pytorch_members_on_two_hosts(hosts: Hosts):
    script = [str(ROOT / "examples/pytorch/digits.py"), "--epochs", "3"]
    go = Path(hosts.folder) / "killed"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build/python")}
    alone = subprocess.run(
        [BIN / "regroup", "--shards", "2", "-np", "1:1", PYTHON, *script],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    held = [PYTHON, "-c", HELD_DIGITS, str(ROOT / "tests/python"), str(go)]
    script = ["--shards", "2", *held, *script]
    where = ["-H", "node1:1,node2:1", "-np", "1:2"]
    job = [str(BIN / "regroup"), "--ssh-command", " ".join(hosts.ssh), *where, *script]
    process = hosts[0].popen(
        job, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("epoch  1"):
            kill(processes(hosts[1], Path(PYTHON).name)[:1])
            go.touch()
    text = "".join(lines)
    assert process.wait(120) == 0, text
    # in the same generation where the other one is slow
    assert re.search(r"was lost.*: 2 -> [12] member", text), text

    def sums(output: str) -> set[str]:
        return {line for line in output.splitlines() if line.startswith("weights sha256")}

    assert len(sums(text)) == 1, text
    assert sums(text) == sums(alone.stdout), text
