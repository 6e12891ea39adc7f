"""Ranks on GPUs that a file describes: what each is told, and where it runs."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import BIN, elastic

CORES = sorted(os.sched_getaffinity(0))
TELL = (
    "import json, os; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0))]), "
    "flush=True)"
)
# The job is over, and its ps with it, when the workers are: they wait until all have told.
TOLD = "open(f'{sys.argv[1]}/' + os.environ['RANK'], 'x')"
AWAIT = (
    "end = time.monotonic() + 30\n"
    "while len(os.listdir(sys.argv[1])) < 3 and time.monotonic() < end: time.sleep(0.01)"
)


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


def told(regroup, *words, program: str = TELL, argument: str = "") -> dict:
    """By rank, environment and processors."""
    job = regroup.start("--oversubscribe", *words, sys.executable, "-c", program, argument)
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
        assert json.loads(environment["REGROUP_PLACEMENT"])["nics"] == [f"mlx5_{number}"]
        # They are of the file only: what names them would make UCX and NCCL fail here.
        assert not {"UCX_NET_DEVICES", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"} & set(environment)
        assert set(cpus) <= set(nodes[number])
        assert json.loads(environment["REGROUP_PLACEMENT"])["gpus"][0]["uuid"] == f"GPU-{number}"


def test_nccl_is_given_its_file_wherever_ranks_are(regroup, tmp_path):
    tree = (
        '<cpu numaid="0" affinity="1" arch="x86_64" vendor="GenuineIntel" familyid="6" '
        'modelid="85">'
    )
    gpu = '<pci busid="0000:01:00.0" class="0x030200" link_width="16"><gpu dev="0" sm="80"/></pci>'
    path = tmp_path / "one.xml"
    path.write_text(
        f'<!-- as clouds begin theirs -->\n<system version="1">{tree}{gpu}</cpu></system>\n'
    )
    words = ["-np", "1", "--placement", "best", "--topology", os.path.relpath(path), "--wdir", "/"]
    environment, _ = told(regroup, *words)[0]
    assert environment["NCCL_TOPO_FILE"] == str(path)


def test_two_jobs_do_not_take_the_same_gpu(regroup, machine):
    path, _ = machine
    words = ("-np", "1", "--placement", "best", "--topology", path)
    show = ("printenv", "CUDA_VISIBLE_DEVICES")
    first = regroup.start(*words, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 1000")
    taken = first.wait_out("^GPU-.")[0]
    other = {"GPU-0": "GPU-1", "GPU-1": "GPU-0"}[taken]
    second = regroup.start(*words, *show)
    assert (second.wait(), second.out.strip()) == (0, other), second.err
    both = (*words, "--gpus-per-rank", "2")
    refused = regroup.start(*both, *show)
    assert refused.wait() == 213
    name = json.loads(regroup.control("status", "--json").stdout)["job"]
    assert f"; not free: GPU {taken[-1]} of " in refused.err
    assert (
        f", used by job {name} (process {first.agent}) (--oversubscribe shares them," in refused.err
    )
    shared = regroup.start("--oversubscribe", *both, *show)
    assert (shared.wait(), set(shared.out.strip().split(","))) == (0, {taken, other}), shared.err
    assert f"is shared with job {name}" in shared.err
    os.kill(first.agent, signal.SIGKILL)  # whatever ends it gives them back
    first.wait()
    first.assert_nothing_left()
    free = regroup.start(*both, *show)
    assert (free.wait(), set(free.out.strip().split(","))) == (0, {taken, other}), free.err


def test_a_job_inside_of_a_job_has_its_gpus(regroup, machine):
    path, _ = machine
    words = ("-np", "1", "--placement", "best", "--topology", path)
    inner = (str(BIN / "regroup"), *words, "printenv", "CUDA_VISIBLE_DEVICES")
    job = regroup.start(*words, "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; exec "$@"', "sh", *inner)
    assert job.wait() == 0, job.err
    seen = job.out.split()
    assert len(seen) == 2 and seen[0] == seen[1]


def test_near_a_device(regroup, machine):
    path, _ = machine
    ranks = told(regroup, "-np", "1", "--map-by", "device=mlx5_1", "--topology", path)
    assert ranks[0][0]["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_elastic_members_have_theirs(regroup, machine, member):
    path, _ = machine
    words = elastic("1:2", "--placement", "best", "--topology", path, initial=2)
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


def test_an_elastic_job_grows_past_a_gpu_that_another_job_took(regroup, member, tmp_path):
    path = tmp_path / "three.topo"
    gpus = [f"gpu {n} at=numa:0 model=A100 arch=sm80 uuid=GPU-{n}" for n in range(3)]
    path.write_text(
        "\n".join(["cpu amd", f"numa 0 cpus={','.join(map(str, CORES))}", *gpus]) + "\n"
    )
    words = ["--oversubscribe", "--placement", "best", "--topology", str(path)]
    tell = 'echo "$REGROUP_MEMBER has $CUDA_VISIBLE_DEVICES"; exec "$@"'
    script = ("-np", "1:3", *words, "sh", "-c", tell, "sh", member)
    every = regroup.run("--initial-size", "3", *script, "1", "0")
    order = dict(re.findall(r"^(\d) has (GPU-\d)$", every.out, re.MULTILINE))
    assert len(order) == 3, every.err
    job = regroup.start("--initial-size", "1", *script, "1000000", "5")
    job.wait_out("^step 5 ")
    name = json.loads(regroup.control("status", "--json").stdout)["job"]
    show = ("sh", "-c", "echo has $CUDA_VISIBLE_DEVICES; sleep 1000")
    other = regroup.start("-np", "1", *words[1:], *show, env={"CUDA_VISIBLE_DEVICES": order["1"]})
    other.wait_out(f"^has {order['1']}$")
    assert regroup.control("resize", "2", name).returncode == 0
    job.wait_out(f" has {order['2']}$")
    assert f" has {order['1']}" not in job.out
    job.process.terminate()
    assert job.wait() == 1


def test_members_of_roles_get_what_they_need(regroup, machine, tmp_path):
    path, _ = machine
    (tmp_path / "told").mkdir()
    program = {
        "program": f"import sys, time; {TELL}\n{TOLD}\n{AWAIT}",
        "argument": str(tmp_path / "told"),
    }
    roles = ["--role", "ps=1", "--role", "worker=2"]
    ranks = told(regroup, *roles, "--placement", "best", "--topology", path, **program)
    visible = [ranks[rank][0]["CUDA_VISIBLE_DEVICES"] for rank in range(3)]
    assert visible[0] == "" and sorted(visible[1:]) == ["GPU-0", "GPU-1"]
    assert json.loads(ranks[0][0]["REGROUP_PLACEMENT"])["role"] == "ps"
    assert json.loads(ranks[0][0]["TF_CONFIG"])["task"]["type"] == "ps"
    job = regroup.start("--role", "worker=3", "--placement", "best", "--topology", path, "true")
    assert job.wait() == 213 and "the nearest fit is 2" in job.err


def test_several_gpus_for_each_and_only_some(regroup, machine):
    path, _ = machine
    ranks = told(regroup, "-np", "1", "--gpus-per-rank", "2", "--topology", path)
    assert set(ranks[0][0]["CUDA_VISIBLE_DEVICES"].split(",")) == {"GPU-0", "GPU-1"}
    words = ["-np", "1", "--gpus-per-rank", "1", "--gpu-label", "H100", "--topology", path]
    job = regroup.start("--oversubscribe", *words, "true")
    assert job.wait() == 213 and "0 free GPUs with the label or product H100" in job.err


def test_binding_is_asked_of_the_cores_near_the_gpu(regroup, machine):
    path, nodes = machine
    words = ["-np", "2", "--placement", "best", "--topology", path]
    for environment, cpus in told(regroup, *words, "--bind-to", "core").values():
        assert len(cpus) == 1 and cpus[0] in nodes[int(environment["CUDA_VISIBLE_DEVICES"][-1])]
    assert all(cpus == CORES for _, cpus in told(regroup, *words, "--bind-to", "none").values())
    job = regroup.start("--oversubscribe", *words, "--map-by", "package", "true")
    assert job.wait() == 213 and "--map-by of members with GPUs: expected slot" in job.err


def test_not_asked_for_nothing_is_set(regroup, machine):
    environment, _ = told(regroup, "-np", "1")[0]
    assert "CUDA_VISIBLE_DEVICES" not in environment and "REGROUP_PLACEMENT" not in environment


def test_too_many_ranks_are_refused(regroup, machine):
    path, _ = machine
    job = regroup.start(
        "--oversubscribe", "-np", "3", "--placement", "best", "--topology", path, "true"
    )
    assert job.wait() == 213
    assert "the nearest fit is 2" in job.err


@pytest.mark.skipif(
    any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/kfd")),
    reason="this machine has GPUs",
)
def test_without_gpus_says_so(regroup):
    job = regroup.start("-np", "1", "--placement", "best", "true")
    assert job.wait() == 213
    assert "this machine has no GPU" in job.err
