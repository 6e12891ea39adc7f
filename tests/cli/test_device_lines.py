"""Device memory that no member owns: regroup-devices makes it, the agent hands it out."""

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import BIN, elastic, needs_device_kernels, until, write_whole

FAKE = BIN.parent / "tests/fakes/cuda"
STEPS = "300"


@pytest.fixture
def line_member() -> str:
    return str(BIN.parent / "tests/bin/line_member")


def env(**more: str) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(FAKE), **more}


def look(regroup, job, name: str, member: int) -> dict[int, int]:
    """What each slot's line holds, as `member` reads it now."""
    write_whole(Path(regroup.runtime) / "look", name)
    seen = job.wait_out(rf"^{name}: member {member} sees(.*)$").group(1)
    return {int(slot): int(value) for slot, value in re.findall(r"(\d+)=(\d+)", seen)}


def slot_of(job, line: str) -> int:
    return int(job.wait_out(line).group(1))


def test_the_memory_of_a_killed_member_is_read_by_another_through_its_descriptor(
    regroup, line_member
):
    words = elastic("1:2", "--device-memory", "2", "--replace", "never", initial=2)
    job = regroup.start(*words, line_member, env=env())
    until(lambda: len(re.findall(r"^joined as slot \d+$", job.out, re.M)) == 2, "two members")
    assert sorted(look(regroup, job, "before", 0).values()) == [1000, 1001]
    second = job.member("line_member", 1)
    os.kill(second, signal.SIGKILL)
    until(lambda: second not in job.named("line_member"), "the end of the second member")
    assert sorted(look(regroup, job, "after", 0).values()) == [1000, 1001]


def test_nobody_notices_that_regroup_devices_is_killed_and_a_new_one_serves_a_newcomer(
    regroup, line_member
):
    words = elastic("1:2", "--device-memory", "2", initial=2)
    job = regroup.start(*words, line_member, env=env())
    until(lambda: len(re.findall(r"^joined as slot \d+$", job.out, re.M)) == 2, "two members")
    helper = job.the("regroup-devices")
    os.kill(helper, signal.SIGKILL)
    until(lambda: helper not in job.named("regroup-devices"), "the end of regroup-devices")
    assert sorted(look(regroup, job, "before", 0).values()) == [1000, 1001]
    first, second = (job.member("line_member", number) for number in (0, 1))
    os.kill(second, signal.SIGKILL)
    until(lambda: len(re.findall(r"^joined as slot \d+$", job.out, re.M)) == 3, "a third member")
    assert 1002 in look(regroup, job, "after", 0).values()
    assert first in job.named("line_member")
    assert "regroup-devices" not in job.err


def digests(job) -> set[str]:
    return set(re.findall(r"finished (\w+)", job.out))


def test_a_training_with_lines_has_the_bits_of_one_without(regroup, device_member):
    alone = regroup.run(*elastic("1:1", "--shards", "6"), device_member, "host", STEPS, "0")
    words = elastic("2:2", "--shards", "6", "--device-memory", "2", initial=2)
    job = regroup.run(*words, device_member, "device", STEPS, "0", env=env())
    assert job.wait() == 0, job.err
    assert digests(job) == digests(alone)
    assert "go through the host" not in job.err


@needs_device_kernels
def test_without_room_on_the_gpu_a_join_ends_with_the_numbers(regroup, device_member):
    words = elastic("2:2", "--device-memory", "2", "--max-restarts", "0", initial=2)
    small = env(REGROUP_FAKE_CUDA="memory=1M")
    job = regroup.run(*words, device_member, "device", STEPS, "0", env=small)
    assert job.wait() != 0
    assert re.search(
        r"GPU 0: 2 leaf buffers of 12\.0 kB and a slice of 12\.0 kB wanted, 1\.0 MB free; "
        r"--device-memory 1 needs 24\.\d kB",
        job.err,
    ), job.err


@needs_device_kernels
def test_an_agent_without_libcuda_lets_its_members_train_over_the_host(
    regroup, device_member, tmp_path
):
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    words = elastic("1:1", "--shards", "6", "--device-memory", "2")
    run = [
        "env",
        f"LD_LIBRARY_PATH={FAKE}",
        device_member,
        "device",
        STEPS,
        "0",
    ]
    job = regroup.run(*words, *run, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert job.wait() == 0, job.err
    assert re.search(r"its gradients go through the host: no libcuda\.so\.1: ", job.err), job.err


def test_a_gpu_that_exports_no_descriptors_is_named(regroup, line_member):
    words = elastic("1:1", "--device-memory", "2")
    job = regroup.start(*words, line_member, env=env(REGROUP_FAKE_CUDA="descriptors=0"))
    job.wait_out(r"^joined without a line: GPU 0 cannot export memory as a file descriptor$")
    assert "GPU 0 cannot export memory as a file descriptor" in job.err


def test_without_the_option_no_process_is_started_for_lines(regroup, line_member):
    job = regroup.start(*elastic("1:1"), line_member, env=env())
    job.wait_out(r"^joined without a line: $")
    assert job.named("regroup-devices") == []
