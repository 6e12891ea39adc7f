"""Data planes: which one a job uses, what regroup status says of it, and that it changes no bit."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, DEADLINE_S, elastic, has_device_kernels, rival, until

FAKE = BIN.parent / "tests/fakes/cuda"
STEPS = "300"
LEAF_MS = "200"  # so all steps take minutes, unless the job is told to hurry
NO_CUDA = (
    "its leaf buffers are in the host's memory (--device-memory)"
    if has_device_kernels()
    else "built without nvcc: there are no device kernels"
)
NO_NCCL = (
    "no libnccl.so.2: libnccl.so.2: cannot open shared object file: No such file or directory"
    if has_device_kernels()
    else NO_CUDA
)
TWO_HOSTS = ("--launcher", "fork", "-H", "a:2,b:2")


def env(**more: str) -> dict[str, str]:
    """The fakes' faults count what the program does, so without checks of the GPU."""
    return {"LD_LIBRARY_PATH": str(FAKE), **more}


def digest(job) -> str:
    assert job.wait() == 0, job.err
    (found,) = set(re.findall(r"finished (\w+)", job.out))
    return found


def alone(regroup, member: str) -> str:
    words = elastic("1:1", "--shards", "6")
    return digest(regroup.run(*words, member, "host", STEPS, "0", env=env()))


def status(regroup) -> dict:
    return json.loads(regroup.control("status", "--json").stdout or "{}")


def plane(regroup, wanted: str) -> str:
    """The sentence about the plane, once it is the wanted one."""
    until(lambda: status(regroup).get("plane") == wanted, f"plane {wanted}")
    return status(regroup)["plane_why"]


def maps_of(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_status_shows_the_plane_of_members_on_one_host(regroup, device_member):
    job = regroup.start(*elastic("2:2", "--shards", "6"), device_member, "host", "100000", "5")
    assert plane(regroup, "shm") == "shm: the members are on one host"
    table = regroup.control("status")
    assert "\nplane: shm: the members are on one host\n" in table.stdout
    text = regroup.control("status", "--prometheus").stdout
    assert re.search(r'^regroup_plane_info\{job="[^"]+",plane="shm"\} 1$', text, re.MULTILINE)
    job.process.terminate()
    job.wait()


@pytest.mark.parametrize(
    ("memory", "here", "both"),
    [
        ("host", "shm: the members are on one host", "ucx: the members are on 2 hosts (a, b)"),
        (
            "device",
            f"staged over shm: cuda is not viable: {NO_CUDA}",
            f"staged over ucx: nccl is not viable: {NO_NCCL}",
        ),
    ],
)
def test_a_newcomer_changes_the_plane_but_no_bit(regroup, device_member, memory, here, both):
    """It is on another host, which memory of one host cannot serve. When it leaves, the plane of
    one host comes back. The World of a job has no plane in its fingerprint."""
    words = elastic("1:4", "--shards", "6", *TWO_HOSTS, initial=2)
    job = regroup.start(*words, device_member, memory, STEPS, LEAF_MS, env=env())
    slow, fast = ("shm", "ucx") if memory == "host" else ("staged", "staged")
    assert plane(regroup, slow) == here
    assert regroup.control("resize", "3").returncode == 0
    until(lambda: status(regroup).get("plane_why") == both, "a World on both hosts")
    assert status(regroup)["plane"] == fast
    assert regroup.control("resize", "2").returncode == 0
    until(lambda: status(regroup).get("plane_why") == here, "a World on one host")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_requested_plane_is_used(regroup, device_member):
    words = elastic("2:2", "--shards", "6", "--plane", "ucx")
    job = regroup.start(*words, device_member, "host", STEPS, LEAF_MS)
    assert plane(regroup, "ucx") == "ucx: requested (--plane)"
    members = job.named("device_member")
    until(lambda: all("/libucp" in maps_of(pid) for pid in members), "UCX in both members")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    words = elastic("2:2", "--shards", "6", "--plane=staged")
    job = regroup.run(*words, device_member, "device", STEPS, "0", env=env())
    assert digest(job) == alone(regroup, device_member)


@pytest.mark.parametrize(
    ("requested", "memory", "hosts", "why"),
    [
        (
            "cuda",
            "device",
            ("--device-memory", "0"),
            f"it is not viable: {NO_CUDA}; --plane staged",
        ),
        (
            "mpi",
            "host",
            ("--mpi-dir", "/nowhere"),
            "it is not viable: no libmpi.so.40 (Open MPI), libmpi_abi.so.1 or libmpi.so.12 (MPICH) "
            "in /nowhere; "
            "--plane shm",
        ),
        (
            "cuda",
            "device",
            TWO_HOSTS,
            "it serves one host, the members are on 2 hosts (a, b); --plane staged",
        ),
        (
            "shm",
            "host",
            TWO_HOSTS,
            "it serves one host, the members are on 2 hosts (a, b); --plane ucx",
        ),
        (
            "nccl",
            "host",
            (),
            "it sums gradients in memory of a GPU, those of member 0 are in the host's memory; "
            "--plane shm",
        ),
        (
            "shm",
            "device",
            (),
            "it sums gradients in the host's memory, those of member 0 are in memory of a GPU; "
            "--plane staged",
        ),
    ],
)
def test_a_requested_plane_that_cannot_work_ends_the_job(
    regroup, device_member, requested, memory, hosts, why
):
    words = elastic("4:4", "--plane", requested, *hosts)
    job = regroup.run(*words, device_member, memory, STEPS, "0", env=env())
    assert job.wait() == 1
    assert f"--plane {requested}: {why} fits" in job.err
    assert "step 1 " not in job.out


def test_a_member_with_gradients_elsewhere_is_refused(regroup, device_member):
    """The job goes on with the members like the first one that is ready."""
    words = elastic("1:2", "--shards", "6", "--max-restarts", "0", initial=2)
    script = 'exec "$0" $([ "$REGROUP_MEMBER" = 0 ] && echo device || echo host) "$@"'
    words += ["sh", "-c", script, device_member]
    job = regroup.start(*words, "100000", "5", env=env())
    job.wait_err(
        r"member \d is refused: its gradients are in (the host's memory|memory of a GPU), those of "
        r"member \d (in memory of a GPU|in the host's memory)"
    )
    seen = job.out.count("size 1\n")
    until(lambda: job.out.count("size 1\n") > seen + 1, "steps after the refusal")
    job.process.terminate()
    job.wait()


def test_a_rank_with_gradients_elsewhere_ends_a_world_of_fixed_size(device_member):
    """Of ranks that mpirun starts, none can be refused and replaced."""
    ranks = [device_member, "device", "100000", "5", ":", "-np", "1", device_member, "host"]
    done = subprocess.run(
        [*rival("openmpi-4"), "-np", "1", *ranks, "100000", "5"],
        env={**os.environ, **env()},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode != 0
    assert re.search(r"member \d is refused: its gradients are in .*, those of", done.stderr)
