"""Ranks on GPUs that a file describes: what each is told, and where it runs."""

import json
import os
import sys
from pathlib import Path

import pytest

CORES = sorted(os.sched_getaffinity(0))
TELL = "import json, os; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0))]))"


@pytest.fixture
def machine(tmp_path):
    """Two GPUs, each at a NUMA node of its own, on processors that are here."""
    path = tmp_path / "two.topo"
    half = max(1, len(CORES) // 2)
    nodes = [CORES[:half], CORES[half:] or CORES[:half]]
    lines = ["cpu amd"]
    for number, cpus in enumerate(nodes):
        lines += [
            f"numa {number} cpus={','.join(map(str, cpus))}",
            f"gpu {number} at=numa:{number} model=A100 arch=sm80 memory=40 uuid=GPU-{number}",
            f"nic mlx5_{number} at=numa:{number} kind=ib speed=200",
        ]
    path.write_text("\n".join(lines) + "\n")
    return str(path), nodes


def told(regroup, *words) -> dict:
    """By rank, environment and processors."""
    job = regroup.start("--oversubscribe", *words, sys.executable, "-c", TELL)
    assert job.wait() == 0, job.err
    lines = [json.loads(line) for line in job.out.splitlines()]
    return {int(environment["RANK"]): (environment, cpus) for environment, cpus in lines}


def test_each_rank_gets_its_gpu_nic_and_cores(regroup, machine):
    path, nodes = machine
    ranks = told(regroup, "-np", "2", "--placement", "best", "--topology", path)
    assert sorted(environment["CUDA_VISIBLE_DEVICES"] for environment, _ in ranks.values()) == [
        "GPU-0",
        "GPU-1",
    ]
    for environment, cpus in ranks.values():
        number = int(environment["CUDA_VISIBLE_DEVICES"][-1])
        assert environment["UCX_NET_DEVICES"] == f"mlx5_{number}:1"
        assert environment["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
        assert set(cpus) <= set(nodes[number])
        assert json.loads(environment["REGROUP_PLACEMENT"])["gpus"][0]["uuid"] == f"GPU-{number}"


def test_near_a_device(regroup, machine):
    path, _ = machine
    ranks = told(regroup, "-np", "1", "--map-by", "device=mlx5_1", "--topology", path)
    assert ranks[0][0]["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_elastic_members_have_theirs(regroup, machine, member):
    path, _ = machine
    words = ["--oversubscribe", "-np", "1:2", "--start", "2", "--placement", "best", "--topology", path]
    job = regroup.start(*words, member, "1000000", "5")
    job.wait_out("^step 5 ")
    found = set()
    for pid in job.living():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {word for word in environ if word.startswith(b"CUDA_VISIBLE_DEVICES=GPU-")}
    assert found == {b"CUDA_VISIBLE_DEVICES=GPU-0", b"CUDA_VISIBLE_DEVICES=GPU-1"}
    job.process.terminate()
    assert job.wait() == 1


def test_not_asked_for_nothing_is_set(regroup, machine):
    environment, _ = told(regroup, "-np", "1")[0]
    assert "CUDA_VISIBLE_DEVICES" not in environment and "REGROUP_PLACEMENT" not in environment


def test_too_many_ranks_are_refused(regroup, machine):
    path, _ = machine
    job = regroup.start("--oversubscribe", "-np", "3", "--placement", "best", "--topology", path, "true")
    assert job.wait() == 213
    assert "the nearest that fits is 2" in job.err


@pytest.mark.skipif(
    any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/kfd")), reason="this machine has GPUs"
)
def test_without_gpus_says_so(regroup):
    job = regroup.start("-np", "1", "--placement", "best", "true")
    assert job.wait() == 213
    assert "this machine has no GPU" in job.err
