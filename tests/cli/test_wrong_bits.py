"""--audit: two members compute the same leaf, and the one whose bits are wrong is replaced."""

import os
import re
import signal

import pytest
from conftest import elastic, needs_device_kernels, until
from test_elastic import members, pid_of, status
from test_planes import FAKE

STEPS = "20"
TWO_HOSTS = ("--launcher", "fork", "-H", "a:2,b:2")


def train(regroup, member, fault: str, *options: str, size: int = 3):
    """Returns the ended job and the bits of the weights of all members that trained to the end."""
    words = elastic(f"{size}:{size}", "--shards", "6", *options)
    job = regroup.run(*words, member, STEPS, "0", "", "sum", "0", "64", fault)
    job.wait()
    return job, set(re.findall(r"^weights (\w+)$", job.out, re.M))


@pytest.fixture
def weights(regroup, member) -> set[str]:
    """Of an undisturbed job."""
    job, found = train(regroup, member, "flip")
    assert job.wait() == 0, job.err
    assert len(found) == 1
    return found


@pytest.mark.parametrize(("step", "hosts"), [(4, ()), (7, ()), (4, TWO_HOSTS)])
def test_a_member_that_computes_wrong_bits_is_replaced_and_no_bit_changes(
    regroup, member, weights, step, hosts
):
    """Its leaves of the step in which it is found are computed again."""
    job, found = train(regroup, member, f"flip=1@{step}", "--audit", "1", *hosts)
    assert job.wait() == 0, job.err
    told = rf"audit: leaf \d of step {step}: member 1 computed other bits than members \d and \d: "
    assert len(re.findall(told, job.err)) == 1, job.err
    assert "member 1 was lost (exited with status 3)" in job.err
    assert found == weights


def test_without_audits_nobody_sees_it(regroup, member, weights):
    job, found = train(regroup, member, "flip=1@4")
    assert job.wait() == 0, job.err
    assert "audit" not in job.err
    assert found != weights


@pytest.mark.parametrize(
    ("size", "fault", "why"),
    [
        (2, "flip=1@4", "members 0 and 1 computed different bits; with two members it cannot be"),
        (3, "flip=0,1@4", "computed different bits, so the program computes a leaf from more than"),
    ],
)
def test_where_it_cannot_be_known_who_is_wrong_the_job_ends(regroup, member, size, fault, why):
    job, _ = train(regroup, member, fault, "--audit", "1", size=size)
    assert job.wait() == 1
    (told,) = {line for line in job.err.splitlines() if line.startswith("regroup: the job failed:")}
    assert re.search(r"audit: leaf \d of step \d+: ", told) and why in told


def test_members_die_and_come_between_audits_without_a_change_of_a_bit(
    regroup, member, weights, tmp_path
):
    timeline = tmp_path / "timeline"
    words = elastic("2:3", "--initial-size", "3", "--shards", "6", "--audit", "1")
    words += ["--timeline", str(timeline)]
    job = regroup.start(*words, member, STEPS, "60", "", "sum", "0", "64", "flip")
    for victim in (0, 1):
        until(lambda: len(members(regroup)) >= 2, "a World")
        before = status(regroup)["step"]
        until(lambda before=before: status(regroup)["step"] > before + 1, "audited steps")
        os.kill(pid_of(job, victim), signal.SIGKILL)
    job.hurry()
    assert job.wait() == 0, job.err
    assert "audit" not in job.err
    assert set(re.findall(r"^weights (\w+)$", job.out, re.M)) == weights
    assert timeline.read_text().count('"audit of shard') > 5


@needs_device_kernels
@pytest.mark.parametrize(
    ("kind", "plane"), [("device", "cuda"), ("harvest", "cuda"), ("device", "staged")]
)
def test_leaves_on_a_gpu_are_compared(regroup, device_member, kind, plane):
    words = elastic("3:3", "--shards", "6", "--plane", plane)
    train = [device_member, kind, "30", "0"]
    environment = {"LD_LIBRARY_PATH": str(FAKE)}
    job = regroup.run(*words, *train, env=environment)
    assert job.wait() == 0, job.err
    undisturbed = set(re.findall(r"finished (\w+)", job.out))
    environment["DEVICE_MEMBER_WRONG"] = "1:4"
    job = regroup.run(*words, "--audit", "1", *train, env=environment)
    assert job.wait() == 0, job.err
    assert re.search(r"audit: leaf \d of step 4: member 1 computed other bits than", job.err)
    assert set(re.findall(r"finished (\w+)", job.out)) == undisturbed


def test_members_with_other_bits_cannot_be_audited(regroup, member):
    job, _ = train(regroup, member, "", "--audit", "5", "--reproducible=off")
    assert job.wait() == 1
    assert "--audit and --reproducible off cannot be combined: an audit compares bits" in job.err
