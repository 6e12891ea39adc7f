"""A job of -np N on several hosts whose ranks join: one World, with the weights of a single
process."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from hosts import Host, Hosts, until
from training import BIN, Start, agent_of, kill, processes

# Of a shard, so that what is to be seen, and a kill then, meet ranks that train.
PACE_US = 50_000


def test_ranks_on_three_hosts_are_one_world(hosts: Hosts, start: Start, undisturbed: str):
    before = [host.sent() for host in hosts]
    job = start(members="6", pace_us=0)
    job.expect_weights(undisturbed)
    assert len(job.trails.weights()) == 6
    gradients = 4 * 650 * job.steps  # far less than what goes over the wires
    for host, bytes_before in zip(hosts, before, strict=True):
        assert host.sent() > bytes_before + gradients


@pytest.mark.parametrize("host", [0, 2])
def test_a_rank_that_dies_ends_all(hosts: Hosts, start: Start, host: int):
    job = start(members="6", pace_us=PACE_US)
    job.reach(10)
    kill(processes(hosts[host], "chaos_member")[:1])
    assert job.wait() == 137, job.text()
    assert "was killed by signal 9 (SIGKILL): ending the other ranks" in job.text()
    assert not job.trails.weights()


def test_a_lost_job_goes_on_from_its_checkpoint(hosts: Hosts, start: Start, undisturbed: str):
    keep = ("--checkpoint", str(Path(hosts.folder) / "kept"), "--checkpoint-interval", "5")
    job = start("node1:2,node2:2", "4", *keep, pace_us=PACE_US)
    job.until_said("checkpoint of step 5: in", 60)
    kill(processes(hosts[1], "chaos_member")[:1])
    assert job.wait() == 137, job.text()
    again = start("node1:2,node2:2", "4", *keep, pace_us=0)
    assert again.wait() == 0, again.text()
    assert "the job resumes after step" in again.text()
    assert "no checkpoints are " not in again.text()
    assert set(again.trails.weights()) == {undisturbed}


def test_hosts_keep_their_own_checkpoints_and_share_a_directory(
    hosts: Hosts, start: Start, undisturbed: str
):
    own, shared = Path("/tmp/own-fixed"), Path(hosts.folder) / "shared-fixed"
    keep = (
        "--checkpoint",
        str(own),
        "--checkpoint-shared",
        str(shared),
        "--checkpoint-interval",
        "5",
    )
    job = start("node1:2,node2:2", "4", *keep, pace_us=PACE_US)
    job.until_said(f"copied to {shared}", 60)
    kill(processes(hosts[1], "chaos_member")[:1])
    assert job.wait() == 137, job.text()
    again = start("node2:2,node3:2", "4", *keep, pace_us=0)
    assert again.wait() == 0, again.text()
    assert "the job resumes after step" in again.text() and f"from {shared}/step-" in again.text()
    assert set(again.trails.weights()) == {undisturbed}


def test_a_rank_that_ends_without_joining_is_named(hosts: Hosts):
    member = BIN.parent / "tests/bin/elastic_member"
    script = f"[ $RANK = 1 ] && exit 0; exec {member} 5 1"
    words = [
        "--ssh-command",
        " ".join(hosts.ssh),
        "-H",
        "node1:1,node2:1",
        "-np",
        "2",
        "sh",
        "-c",
        script,
    ]
    done = hosts[0].run([BIN / "regroup", *words], stderr=subprocess.STDOUT)
    assert done.returncode == 1, done.stdout
    assert "without calling join(), for which 1 of 2 ranks wait" in done.stdout


@pytest.mark.parametrize("members", ["2:2", "2"])
def test_members_that_have_finished_and_do_not_end_fail_no_job(hosts: Hosts, members: str):
    """They are named after --hang-timeout; what ends them then, be it their host's end, is no
    failure."""
    gates = Path(hosts.folder) / f"gates-{members[1:]}"
    gates.mkdir()
    for member in range(2):
        (gates / f"end.{member}").touch()
    output = gates / "output"
    training = [
        BIN.parent / "tests/bin/elastic_member",
        "10",
        "1",
        "",
        "sum",
        "0",
        "64",
        f"gates={gates}",
    ]
    options = ["--hang-timeout", "0.5", "--term-grace", "0.5", "-np", members]
    words = ["--ssh-command", " ".join(hosts.ssh), "-H", "node2:1,node3:1", *options, *training]
    with output.open("w") as out:
        job = hosts[0].popen(
            [BIN / "regroup", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    named = "member {} .*has finished, but its process has not ended"
    until(
        lambda: all(re.search(named.format(m), output.read_text()) for m in range(2)),
        "both named",
        60,
    )
    if members == "2:2":  # its host is lost with its member
        kill(agent_of(hosts[2]))
        until(lambda: not processes(hosts[2], "elastic_member"), "the end of the member", 60)
    os.kill(Host.inner(job), signal.SIGTERM)
    assert job.wait(60) == 0, output.read_text()
