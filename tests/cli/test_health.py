"""Checks of a GPU before its member is admitted, over fake GPUs: a member on a bad one is refused,
another one starts elsewhere, and the weights keep their bits. A healthy GPU is never refused."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import BIN, DEADLINE_S, ROOT, elastic, needs_device_kernels, until
from test_planes import FAKE, LEAF_MS, STEPS, alone, digest, env, status

pytestmark = needs_device_kernels

CHIP = "NVIDIA H100 80GB HBM3"
UUIDS = [f"GPU-face7265-6772-6f75-7000-00000000000{n}" for n in range(3)]
# Each member has the fake GPU that it was given, and settings and faults of that; without
# --placement all have the first one.
SCRIPT = (
    """
number=${CUDA_VISIBLE_DEVICES#${CUDA_VISIBLE_DEVICES%?}}
number=${number:-0}
eval "settings=\\$SETTINGS_$number faults=\\$FAULTS_$number"
eval "limit=\\$LIMIT_$number factor=\\$FACTOR_$number"
export REGROUP_FAKE_CUDA="uuid=PREFIX$number;$settings"
[ -z "$faults" ] || export REGROUP_FAKE_CUDA_FAULTS="$faults"
[ -z "$limit" ] || export REGROUP_HEALTH_LIMIT="$limit"
[ -z "$factor" ] || export REGROUP_TIME_LIMIT_FACTOR="$factor"
exec "$0" "$@"
"""
).replace("PREFIX", UUIDS[0][4:-1].replace("-", ""))
WRONG = r"GPU 0: the fixed product has wrong bits in 1 of 132 blocks, the first is block 0"
weights: list[str] = []  # of an undisturbed job, once they are known


@pytest.fixture
def machine(tmp_path) -> tuple[str, ...]:
    """Words of a job on a machine with three GPUs."""
    path = tmp_path / "three.topo"
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    gpus = [f"gpu {n} at=numa:0 model=H100 arch=sm90 uuid={u}" for n, u in enumerate(UUIDS)]
    path.write_text("\n".join(["cpu amd", f"numa 0 cpus={cores}", *gpus]) + "\n")
    return ("--health", "--shards", "6", "--placement", "best", "--topology", str(path))


def program(member: str, leaf_ms: str = "0", memory: str = "device") -> list[str]:
    return ["sh", "-c", SCRIPT, member, memory, STEPS, leaf_ms]


def fakes(**more: str) -> dict[str, str]:
    libraries = os.pathsep.join([str(FAKE), str(FAKE.parent / "nvml")])
    return env(LD_LIBRARY_PATH=libraries, **more)


def assert_same_bits(job, regroup, member: str) -> None:
    found = digest(job)
    if not weights:
        weights.append(alone(regroup, member))
    assert [found] == weights


def refusals(job) -> dict[int, str]:
    return {int(m): why for m, why in re.findall(r"member (\d+) is refused: (.*)", job.err)}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"SETTINGS_0": "wrong_product=1"}, WRONG),
        # Its first work is the program's, the second clears memory for the product.
        (
            {"FAULTS_0": "at=3 hang", "LIMIT_0": "4"},
            r"GPU 0: the fixed product: not done after \d+ s",
        ),
        ({"REGROUP_FAKE_NVML": f"{UUIDS[0]} failed=1"}, "a remap of a memory row failed"),
    ],
    ids=["wrong bits", "no answer", "driver"],
)
def test_a_member_on_a_bad_gpu_is_replaced_on_another(regroup, device_member, machine, bad, why):
    words = elastic("2:3", *machine, initial=2)
    job = regroup.run(*words, *program(device_member), env=fakes(**bad))
    assert_same_bits(job, regroup, device_member)
    (told,) = refusals(job).values()
    assert re.fullmatch(re.escape(f"{UUIDS[0]} ({CHIP}): ") + why, told), told


def test_no_healthy_gpu_is_refused(regroup, device_member, machine):
    """Nor a MIG instance, one whose work is slow from the first launch on, or one with errors that
    were remapped."""
    words = elastic("3:3", *machine)
    faults = {"SETTINGS_0": "mig=1", "FAULTS_1": "at=1 slow=20"}
    faults["FACTOR_1"] = "0.01"  # shortens no limit of the check
    faults["REGROUP_FAKE_NVML"] = f"{UUIDS[2]} ecc=3; {UUIDS[2]} pending=1; {UUIDS[2]} action=3"
    job = regroup.run(*words, *program(device_member), env=fakes(**faults))
    assert_same_bits(job, regroup, device_member)
    assert refusals(job) == {}


def test_members_that_share_a_healthy_gpu_are_not_refused(regroup, device_member):
    words = elastic("3:3", "--health", "--shards", "6")
    job = regroup.run(*words, *program(device_member), env=fakes())
    assert_same_bits(job, regroup, device_member)
    assert refusals(job) == {}


def test_without_another_gpu_the_job_goes_on_with_those_it_has(regroup, device_member, machine):
    words = elastic("2:3", *machine, initial=2)
    bad = fakes(SETTINGS_2="wrong_product=1")
    job = regroup.start(*words, *program(device_member, LEAF_MS), env=bad)
    until(lambda: status(regroup).get("size") == 2, "a World")
    assert regroup.control("resize", "3").returncode == 0
    until(lambda: "slot 2: there is no other GPU" in job.err, lambda: job.err)
    (refused,) = status(regroup)["refused_gpus"]
    assert (refused["gpu"], refused["member"]) == (UUIDS[2], 2)
    table = regroup.control("status").stdout
    assert f"GPU {UUIDS[2]} is not used, since member 2 was refused: {refused['why']}\n" in table
    job.hurry()
    assert_same_bits(job, regroup, device_member)
    assert set(refusals(job)) == {2, 3}


def test_without_a_healthy_gpu_the_job_ends_with_the_reason(regroup, device_member):
    words = elastic("1:2", "--health", "--shards", "6", initial=2)
    bad = fakes(SETTINGS_0="wrong_product=1")
    job = regroup.run(*words, *program(device_member), env=bad)
    assert job.wait() == 1
    assert re.search(
        rf"the job failed: member \d is refused: GPU-\S+ \({CHIP}\): {WRONG}: "
        r"0 of at least 1 member left",
        job.err,
    ), job.err


@pytest.mark.parametrize("memory", ["staged", "apart"])
def test_a_gpu_that_the_member_may_not_use_is_not_checked(regroup, device_member, memory):
    """With gradients that the caller stages it is known by the context of the thread."""
    words = elastic("1:1", "--health", "--shards", "6")
    bad = fakes(SETTINGS_0="wrong_product=1")
    job = regroup.run(*words, *program(device_member, memory=memory), env=bad)
    if memory == "apart":
        assert_same_bits(job, regroup, device_member)
    else:
        assert job.wait() == 1
    assert bool(refusals(job)) == (memory == "staged")


def test_without_checks_nobody_is_refused(regroup, device_member, machine):
    words = elastic("2:2", *machine[1:])
    bad = fakes(SETTINGS_0="wrong_product=1", SETTINGS_1="wrong_product=1")
    job = regroup.run(*words, *program(device_member), env=bad)
    assert_same_bits(job, regroup, device_member)
    assert refusals(job) == {}


SMI = f"""#!/bin/sh
case $1 in *uuid*) echo {UUIDS[0]} ;; *) echo "{CHIP}, 580.0" ;; esac
"""
# DIR STEPS MB HELD_GIB, as gpu_member takes them, which needs the runtime of CUDA.
GPU_MEMBER = """#!/bin/sh
digest=$(MEMBER device "$2" 0 | sed -n 's/^finished //p')
[ -z "$digest" ] || echo "1 weights-$digest $2 1 1" >"$1/timeline.$$"
"""


@pytest.mark.parametrize("bad", ["", "wrong_product=1"])
def test_the_check_of_gpu_test_over_the_fake(device_member, tmp_path, bad):
    for name, text in {"nvidia-smi": SMI, "gpu_member": GPU_MEMBER}.items():
        (tmp_path / name).write_text(text.replace("MEMBER", device_member))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gpu_health").symlink_to(BIN / "gpu_health")
    report = tmp_path / "report.json"
    words = ["--programs", str(tmp_path), "--only", "health", "--json", str(report)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/gpu/run.py"), *words],
        env={
            **os.environ,
            **env(REGROUP_FAKE_CUDA=bad, PATH=f"{tmp_path}:{BIN}:{os.environ['PATH']}"),
        },
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
    )
    found = json.loads(report.read_text())["checks"]["health"]
    assert done.returncode == (1 if bad else 0), done.stdout + done.stderr
    if bad:
        assert "the fixed product has wrong bits" in found["why"]
    else:
        assert found["chip"] == CHIP and found["rows"]["check"]["samples"] == 5
