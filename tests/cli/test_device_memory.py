"""Sessions whose gradients are in memory of a CUDA device: the fake driver of tests/fakes/cuda."""

import json
import os
import re
import signal
import subprocess

import pytest
from conftest import BIN, DEADLINE_S, elastic, until

FAKE = BIN.parent / "tests/fakes/cuda"
STEPS = 300  # 9 s and more, unless the job is told to hurry


@pytest.fixture
def device_member() -> str:
    path = BIN.parent / "tests/bin/device_member"
    assert path.exists(), f"{path} is not built"
    assert (FAKE / "libcuda.so.1").exists(), f"{FAKE}/libcuda.so.1 is not built"
    return str(path)


def env(**more: str) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(FAKE), **more}


def digests(job) -> set[str]:
    return set(re.findall(r"finished (\w+)", job.out))


def alone(regroup, member: str, memory: str) -> str:
    job = regroup.run(*elastic("1:1", "--shards", "6"), member, memory, str(STEPS), "0", env=env())
    assert job.wait() == 0, job.err
    (digest,) = digests(job)
    return digest


def test_gradients_on_a_device_give_the_bits_of_the_host(regroup, device_member):
    assert alone(regroup, device_member, "device") == alone(regroup, device_member, "host")


def test_kills_and_joins_change_no_bit_of_gradients_on_a_device(regroup, device_member):
    words = elastic("2:3", "--shards", "6", initial=3)
    job = regroup.start(*words, device_member, "device", str(STEPS), "30", env=env())
    for _ in range(2):
        seen = len(job.out)
        until(lambda seen=seen: "size 3" in job.out[seen:], "a World of three")
        members = until(lambda: job.named("device_member")[1:], "a member beside the first")
        os.kill(members[-1], signal.SIGKILL)
        seen = len(job.out)
        until(lambda seen=seen: "size 2" in job.out[seen:], "a World without it")
    until(lambda: job.out.rindex("size 3") > job.out.rindex("size 2"), "a World of three")
    job.hurry()
    assert job.wait() == 0, job.err
    assert digests(job) == {alone(regroup, device_member, "host")}


def test_a_ledger_has_no_place_on_the_device(regroup, device_member, tmp_path):
    """Its marks are in the host's memory; the device has the gradient only."""
    words = elastic("2:2", "--shards", "6", "--ledger", str(tmp_path), initial=2)
    job = regroup.run(*words, device_member, "device", str(STEPS), "0", env=env())
    assert job.wait() == 0, job.err
    assert digests(job) == {alone(regroup, device_member, "host")}
    verified = regroup.control("ledger", "verify", str(tmp_path))
    assert verified.returncode == 0, verified.stdout
    assert f"steps 1 to {STEPS}: {STEPS} lines" in verified.stdout


def test_a_checkpoint_of_weights_on_the_device_is_loaded_on_the_host(
    regroup, device_member, tmp_path
):
    words = elastic("1:1", "--shards", "6", checkpoint=tmp_path, interval=10)
    first = regroup.run(*words, device_member, "device", "40", "0", env=env())
    assert first.wait() == 0, first.err
    second = regroup.run(*words, device_member, "host", str(STEPS), "0", env=env())
    assert second.wait() == 0, second.err
    assert "step 41 " in second.out
    assert "step 40 " not in second.out
    assert digests(second) == {alone(regroup, device_member, "host")}


def test_an_error_of_the_device_is_told_with_its_call(regroup, device_member):
    words = elastic("1:1", "--shards", "6", "--max-restarts", "0")
    faults = env(REGROUP_FAKE_CUDA_FAULTS="at=20 illegal")
    job = regroup.run(*words, device_member, "device", str(STEPS), "0", env=faults)
    assert job.wait() != 0
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in job.err, job.err
    assert "GPU 0: " in job.err, job.err


def test_a_device_that_hangs_ends_the_member_within_the_deadline(regroup, device_member):
    words = elastic("1:1", "--shards", "6", "--max-restarts", "0")
    faults = env(REGROUP_FAKE_CUDA_FAULTS="at=30 hang")
    job = regroup.run(*words, device_member, "device", str(STEPS), "0", "1", env=faults)
    assert job.wait() != 0
    assert re.search(r"GPU 0: .*: not done after 1 s", job.err), job.err


def test_a_context_of_another_device_is_refused(regroup, device_member):
    words = elastic("1:1", "--max-restarts", "0")
    job = regroup.run(*words, device_member, "device", "1", "0", "60", "1", env=env())
    assert job.wait() != 0
    assert "expected a context of GPU 1 in this thread, got one of GPU 0" in job.err
    job = regroup.run(*words, device_member, "join", "1", "0", "60", "1", env=env())
    assert job.wait() != 0
    assert "join: Options::memory kDevice: GPU 1: cuDeviceGet: CUDA_ERROR_INVALID_DEVICE" in job.err


def test_without_memory_on_the_device_the_size_is_told(regroup, device_member):
    words = elastic("1:1", "--max-restarts", "0")
    faults = env(REGROUP_FAKE_CUDA_FAULTS="at=2 oom")
    job = regroup.run(*words, device_member, "device", str(STEPS), "0", env=faults)
    assert job.wait() != 0
    assert "GPU 0: cuMemAlloc of 12004 bytes for a gradient: CUDA_ERROR_OUT_OF_MEMORY" in job.err


def test_a_driver_that_cannot_be_loaded_is_named(regroup, device_member, tmp_path):
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    words = elastic("1:1", "--max-restarts", "0")
    job = regroup.run(
        *words, device_member, "join", "1", "0", env={"LD_LIBRARY_PATH": str(tmp_path)}
    )
    assert job.wait() != 0
    assert "Options::memory kDevice: no libcuda.so.1: " in job.err, job.err
    assert "file too short" in job.err, job.err


def test_gpu_truths_has_an_answer_of_the_fake_to_each_question(tmp_path):
    """Those that copy gigabytes are left to a GPU."""
    asked = ["driver", "create without context", "context", "forked child", "read-only map"]
    asked += ["killed kernel", "costs", "event to host"]
    report = tmp_path / "truths.json"
    words = [
        str(BIN / "gpu_truths"),
        "--library",
        str(FAKE / "libcuda.so.1"),
        "--json",
        str(report),
    ]
    for name in asked:
        words += ["--only", name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout
    rows = {row["name"]: row["seen"] for row in json.loads(report.read_text())}
    assert list(rows) == asked
    assert rows["forked child"].endswith("CUDA_ERROR_NOT_INITIALIZED")
    assert rows["read-only map"].endswith("the owner goes on, its word is unchanged")
    assert rows["killed kernel"] == "no store was seen after the reap"
