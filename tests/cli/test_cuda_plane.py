"""Plane cuda, over the fake GPU: gradients are summed where they lie, with the bits of the host."""

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import elastic, needs_device_kernels, until
from test_planes import LEAF_MS, STEPS, alone, digest, env, status

pytestmark = needs_device_kernels

LINES = ("--shards", "6", "--device-memory", "5")
CUDA = "cuda: the members are on one host"
# The agent's memory, and that of member 1, can be exported or not.
WITHOUT_DESCRIPTORS = '[ "$REGROUP_MEMBER" != 1 ] || export REGROUP_FAKE_CUDA=descriptors=0; '
CANNOT_SHARE = (
    "staged over shm: cuda is not viable: member 1: GPU 0 cannot share memory by file descriptors"
)


def wait_for_plane(regroup, wanted: str) -> None:
    def why() -> str:
        return status(regroup).get("plane_why", "")

    until(lambda: why() == wanted, lambda: f"{wanted!r}, not {why()!r}")


def kill(job, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in job.named("device_member"), "the end of a member")


def newest(job) -> int:
    """The living member with the highest number."""
    numbers = {}
    for pid in job.named("device_member"):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        numbers[int(dict(v.split(b"=", 1) for v in variables if v)[b"REGROUP_MEMBER"])] = pid
    return numbers[max(numbers)]


def sizes(job) -> list[int]:
    return [int(size) for size in re.findall(r"^step \d+ size (\d+)$", job.out, re.M)]


def test_members_of_one_gpu_sum_their_gradients_there(regroup, device_member):
    words = elastic("3:3", *LINES)
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=env())
    wait_for_plane(regroup, CUDA)
    until(lambda: sizes(job), "a step")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_leaves_are_filled_from_gradients_elsewhere_on_the_gpu(regroup, device_member):
    words = elastic("2:2", "--shards", "6", "--plane", "cuda")
    job = regroup.start(*words, device_member, "harvest", STEPS, "0", env=env())
    assert digest(job) == alone(regroup, device_member)


def test_leaves_are_filled_on_the_gpu_for_sums_of_the_host(regroup, device_member):
    job = regroup.start(
        *elastic("2:2", "--shards", "6"), device_member, "harvest", STEPS, "0", env=env()
    )
    assert digest(job) == alone(regroup, device_member)


def test_a_requested_plane_cuda_needs_no_number_of_buffers(regroup, device_member):
    words = elastic("2:2", "--shards", "6", "--plane", "cuda")
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=env())
    wait_for_plane(regroup, "cuda: requested (--plane)")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_members_die_and_come_without_a_change_of_a_bit(regroup, device_member):
    """The leaves of a dead member stay in its line, and are used."""
    words = elastic("1:3", *LINES, initial=2)
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=env())
    until(lambda: 2 in sizes(job), "a step of two members")
    for size in (2, 3):
        assert regroup.control("resize", str(size)).returncode == 0
        seen = len(sizes(job))
        until(lambda: size in sizes(job)[seen:], f"a step of {size} members")  # noqa: B023
        kill(job, newest(job))
        seen = len(sizes(job))
        until(lambda: sizes(job)[seen:], "a step after the death")  # noqa: B023
    wait_for_plane(regroup, CUDA)
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_learner_replays_sums_of_the_gpu(regroup, device_member):
    learn = ("--learner-steps", "8", "--learner-state", "1")
    words = elastic("1:2", *LINES, *learn, initial=1)
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=env())
    until(lambda: sizes(job), "a step")
    assert regroup.control("resize", "2").returncode == 0
    until(lambda: 2 in sizes(job), "a step of two members")
    wait_for_plane(regroup, CUDA)
    assert "has caught up" in "\n".join(s["why"] for s in status(regroup)["history"])
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_leaves_of_a_dead_member_on_the_gpu_are_summed_by_the_host(regroup, device_member):
    """The spare that comes in at once cannot use plane cuda, in which the dead member sealed."""
    script = WITHOUT_DESCRIPTORS.replace("!= 1", "!= 2") + 'exec "$0" "$@"'
    words = elastic("2:2", *LINES, "--spares", "1", initial=2)
    words += ["sh", "-c", script, device_member, "device", STEPS, LEAF_MS]
    job = regroup.start(*words, env=env())
    wait_for_plane(regroup, CUDA)
    until(lambda: sizes(job), "a step")
    until(
        lambda: any(m["state"] == "warm" for m in status(regroup).get("members", [])),
        "a warm member",
    )
    kill(job, job.member("device_member", 1))
    wait_for_plane(regroup, CANNOT_SHARE.replace("member 1", "member 2"))
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_job_changes_to_plane_cuda_and_back_without_a_change_of_a_bit(regroup, device_member):
    """Member 1 cannot use it: while it is there, sums go through the host."""
    script = WITHOUT_DESCRIPTORS + 'exec "$0" "$@"'
    words = elastic("1:3", *LINES, "--replace", "never", initial=1)
    words += ["sh", "-c", script, device_member, "device", STEPS, LEAF_MS]
    job = regroup.start(*words, env=env())
    wait_for_plane(regroup, CUDA)
    until(lambda: sizes(job), "a step")
    assert regroup.control("resize", "2").returncode == 0
    wait_for_plane(regroup, CANNOT_SHARE)
    until(lambda: 2 in sizes(job), "a step of two members")
    kill(job, job.member("device_member", 1))
    wait_for_plane(regroup, CUDA)
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_member_that_cannot_map_its_memory_trains_over_the_host(regroup, device_member):
    job = regroup.start(
        *elastic("1:1", *LINES), device_member, "device", STEPS, LEAF_MS,
        env=env(REGROUP_FAKE_CUDA="import=0"),
    )  # fmt: skip
    until(lambda: status(regroup).get("plane_why"), "a World")
    why = status(regroup)["plane_why"]
    assert "the device line of slot 0: cuMemImportFromShareableHandle of" in why
    assert why.startswith("staged over shm: cuda is not viable: ")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


@pytest.mark.parametrize("work", [4, 10], ids=["leaf", "sum"])
def test_a_gpu_that_hangs_ends_the_member_within_the_deadline(regroup, device_member, work):
    """Nothing that would wait for the GPU is freed then."""
    words = elastic("1:1", *LINES, "--max-restarts", "0")
    faults = env(REGROUP_FAKE_CUDA_FAULTS=f"at={work} hang")
    job = regroup.run(*words, device_member, "device", STEPS, "0", "1", env=faults)
    assert job.wait() != 0
    wanted = (
        r"GPU 0: leaf \d of step 1: not done after" if work == 4 else r"GPU 0: |sum of gradients"
    )
    assert re.search(wanted, job.err), job.err


def test_too_few_leaf_buffers_leave_the_gradients_to_the_host(regroup, device_member):
    words = elastic("1:1", "--shards", "6", "--device-memory", "2")
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=env())
    wait_for_plane(
        regroup,
        "staged over shm: cuda is not viable: 6 shards need 5 leaf buffers, --device-memory has 2",
    )
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
