"""Members of several hosts: each is bound on its host, and gets GPUs that a file there
describes."""

import json
import os
import re
import signal
import sys

import pytest
from hosts import ROOT, Hosts, until
from test_run import REGROUP, Done, run, start

CORES = sorted(os.sched_getaffinity(0))
TELL = (
    "import json, os; print(json.dumps([dict(os.environ), os.uname().nodename, "
    "sorted(os.sched_getaffinity(0))]))"
)
MEMBER = ROOT / "build/tests/bin/elastic_member"


def told(job: Done) -> dict:
    """By rank: environment, host, processors."""
    assert job.status == 0, job.err
    lines = [json.loads(line) for line in job.out.splitlines() if line.startswith("[{")]
    return {
        int(environment["RANK"]): (environment, host, cpus) for environment, host, cpus in lines
    }


@pytest.fixture
def machines(hosts: Hosts) -> str:
    """On each host at the same path: its own two GPUs, each with a NIC, on processors that are
    here."""
    half = max(1, len(CORES) // 2)
    nodes = [CORES[:half], CORES[half:] or CORES[:half]]
    for host in hosts:
        lines = ["cpu amd"]
        for number, cpus in enumerate(nodes):
            lines += [
                f"numa {number} cpus={','.join(map(str, cpus))}",
                f"gpu {number} at=numa:{number} model=A100 arch=sm80 memory=40 "
                f"uuid=GPU-{host.name}-{number}",
                f"nic mlx5_{number} at=numa:{number} kind=ib speed=200",
            ]
        write = ["sh", "-c", "cat > /tmp/machine.topo"]
        with host.popen(write, text=True, stdin=-1) as process:
            process.communicate("\n".join(lines) + "\n", timeout=60)
    return "/tmp/machine.topo"


def python(*words: str) -> list[str]:
    return [*words, sys.executable, "-c", TELL]


def test_members_are_bound_where_they_run(hosts: Hosts):
    count = len(CORES)
    job = run(hosts, *python("-H", f"node1:{count},node2:{count}", "-np", str(count + 1)))
    ranks = told(job)
    assert [cpus for _, _, cpus in (ranks[r] for r in range(count))] == [[core] for core in CORES]
    assert ranks[count][1:] == ("node2", [CORES[0]])
    unbound = told(run(hosts, *python("-H", "node1,node2", "--bind-to", "none")))
    assert all(cpus == CORES for _, _, cpus in unbound.values())


def test_threads_are_a_share_of_what_a_host_has(hosts: Hosts):
    words = ["-H", "node1:64,node2:64", "--map-by", "node", "--bind-to", "none", "-np", "2"]
    ranks = told(run(hosts, *python(*words)))
    assert {(host, env["OMP_NUM_THREADS"]) for env, host, _ in ranks.values()} == {
        ("node1", str(len(CORES))),
        ("node2", str(len(CORES))),
    }


def test_bindings_are_reported_and_shown(hosts: Hosts):
    job = run(hosts, "-H", "node1,node2", "--report-bindings", "--display", "map", "true")
    assert job.status == 0, job.err
    lines = re.findall(r"^\[(\S+):\d+\] Rank (\d+) bound to package", job.err, re.MULTILINE)
    assert lines == [("node1", "0"), ("node2", "1")]
    assert "map: 2 members on 2 hosts, by core, bound to core" in job.out
    shown = run(hosts, "-H", "node1,node2", "--do-not-launch", "--display", "map", "false")
    assert shown.status == 0 and "node2" in shown.out


def test_hosts_below_others_are_asked_too(hosts: Hosts):
    ranks = told(run(hosts, *python("--tree-radix", "1", "-H", "node1,node2,node3")))
    assert [ranks[r][1:] for r in range(3)] == [(f"node{i + 1}", [CORES[0]]) for i in range(3)]


def test_memory_policy_goes_along(hosts: Hosts):
    maps = "cut -d' ' -f2 /proc/self/numa_maps | sort -u | head -1"
    job = run(hosts, "-H", "node1,node2", "--mem-bind", "bind", "sh", "-c", maps)
    assert (job.status, job.out.split()) == (0, ["bind:0", "bind:0"]), job.err


def test_ppr_counts_objects_of_all_hosts(hosts: Hosts):
    ranks = told(run(hosts, *python("-H", "node1:4,node2:4", "--map-by", "ppr:1:node")))
    assert [ranks[r][1] for r in range(2)] == ["node1", "node2"]


def test_a_rank_file_names_hosts(hosts: Hosts):
    write = f"printf 'rank 0=node2 slot=0\\nrank 1=node1 slot=0\\n' > /tmp/ranks; echo {CORES[0]}"
    assert hosts[0].run(["sh", "-c", write]).returncode == 0
    ranks = told(run(hosts, *python("-H", "node1,node2", "-np", "2", "--rankfile", "/tmp/ranks")))
    assert [ranks[r][1] for r in range(2)] == ["node2", "node1"]
    assert all(len(cpus) == 1 for _, _, cpus in ranks.values())


def test_gpus_of_each_host(hosts: Hosts, machines: str):
    words = ["-H", "node1:2,node2:2", "-np", "4", "--placement", "best", "--topology", machines]
    job = run(hosts, *python("--display", "map", *words))
    ranks = told(job)
    assert [ranks[r][1] for r in range(4)] == ["node1", "node1", "node2", "node2"]
    seen = set()
    for environment, host, cpus in ranks.values():
        gpu = environment["CUDA_VISIBLE_DEVICES"]
        assert gpu.startswith(f"GPU-{host}-")
        # the file's cards are not here
        assert not {"UCX_NET_DEVICES", "NCCL_IB_HCA"} & set(environment)
        assert json.loads(environment["REGROUP_PLACEMENT"])["host"] == host
        assert set(cpus) <= set(CORES)
        seen.add(gpu)
    assert len(seen) == 4
    assert "every rank can send and receive" in job.out
    pack = [*words[:2], "-np", "2", "--placement", "spread", *words[6:]]
    assert {host for _, host, _ in told(run(hosts, *python(*pack))).values()} == {"node1", "node2"}


def test_gpus_of_another_job_are_not_taken(hosts: Hosts, machines: str):
    words = ["--placement", "best", "--topology", machines]
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 1000"]
    first = start(hosts, "-H", "node2:2", "-np", "1", *words, *show)

    def claimed() -> str:
        return hosts[1].run(["grep", "-o", "regroup-gpu-.*=.*", "/proc/net/unix"]).stdout

    taken = until(claimed, "a GPU of node2 that is taken", 60).split("/")[1].split("=")[0]
    ranks = told(run(hosts, *python("-H", "node1:2,node2:2", "-np", "3", *words)))
    seen = {environment["CUDA_VISIBLE_DEVICES"] for environment, _, _ in ranks.values()}
    assert len(seen) == 3 and taken not in seen
    refused = run(hosts, "-H", "node1:2,node2:2", "-np", "4", *words, "true")
    assert refused.status == 213
    assert f"not free: GPU {taken[-1]} of node2, used by job " in refused.err
    os.kill(hosts[0].inner(first), signal.SIGTERM)
    assert Done(first).status != 0
    until(lambda: not claimed(), "the GPU given back", 60)
    assert len(told(run(hosts, *python("-H", "node1:2,node2:2", "-np", "4", *words)))) == 4


def test_agents_know_the_claims_and_the_job_of_the_head(hosts: Hosts, machines: str):
    words = ["-H", "node2:2", "-np", "2", "--placement", "best", "--topology", machines]
    first = start(hosts, *words, "sleep", "1000")

    def claims() -> bool:
        return (
            hosts[1].run(["grep", "-c", "regroup-gpu-.*=.*", "/proc/net/unix"]).stdout.strip()
            == "2"
        )

    until(claims, "both GPUs of node2 claimed", 60)
    assert run(hosts, *words, "true").status == 213
    assert run(hosts, *words, "true", env={**os.environ, "REGROUP_GPU_CLAIMS": "mine"}).status == 0
    os.kill(hosts[0].inner(first), signal.SIGTERM)
    assert Done(first).status != 0
    # A job inside of the member on node1 may use what that member's job has on node2.
    inner = " ".join([str(REGROUP), "--ssh-command", f"'{' '.join(hosts.ssh)}'", *words])
    script = f'test "$(uname -n)" != node1 || exec {inner} printenv CUDA_VISIBLE_DEVICES'
    outer = ["-H", "node1:1,node2:2", "-np", "3", *words[4:]]
    job = run(hosts, *outer, "sh", "-c", script)
    assert job.status == 0, job.err
    assert set(job.out.split()) == {"GPU-node2-0", "GPU-node2-1"}


def test_what_cannot_be_is_said(hosts: Hosts, machines: str):
    job = run(
        hosts,
        "-H",
        "node1:4,node2:4",
        "-np",
        "5",
        "--placement",
        "best",
        "--topology",
        machines,
        "true",
    )
    assert job.status == 213 and "the nearest fit is 4" in job.err
    hosts[1].run(["sh", "-c", "echo nonsense > /tmp/machine.topo"])
    job = run(hosts, "-H", "node1,node2", "--placement", "best", "--topology", machines, "true")
    assert job.status == 213 and "host node2: /tmp/machine.topo:1:" in job.err


def test_an_elastic_job_begins_without_a_host_that_cannot_be_used(hosts: Hosts, machines: str):
    hosts[1].run(["sh", "-c", "echo nonsense > /tmp/machine.topo"])
    words = ["-H", "node1:2,node2:2", "--placement", "best", "--topology", machines]
    job = run(hosts, *words, "-np", "1:4", MEMBER, "20", "5")
    assert job.status == 0, job.err
    assert (
        "host node2: /tmp/machine.topo:1:" in job.err and "; the job starts without it" in job.err
    )
    job = run(hosts, *words, "-np", "3:4", MEMBER, "20", "5")
    assert job.status == 213 and "host node2: /tmp/machine.topo:1:" in job.err


def test_a_fabric_tells_which_hosts_are_near(hosts: Hosts, machines: str):
    text = (
        "SwitchName=a Nodes=node1\\nSwitchName=b Nodes=node[2-3]\\nSwitchName=top Switches=a,b\\n"
    )
    assert hosts[0].run(["sh", "-c", f"printf '{text}' > /tmp/topology.conf"]).returncode == 0
    words = [
        "-H",
        "node1:1,node2:1,node3:1",
        "-np",
        "2",
        "--placement",
        "best",
        "--topology",
        machines,
    ]
    ranks = told(run(hosts, *python(*words, "--fabric", "/tmp/topology.conf")))
    assert {host for _, host, _ in ranks.values()} == {"node2", "node3"}


def test_elastic_members_of_each_host_have_seats(hosts: Hosts, machines: str):
    job = start(
        hosts, "-H", "node1:2,node2:2", "--initial-size", "4", "-np", "1:4", "--placement", "best",
        "--topology", machines, MEMBER, "1000000", "5",
    )  # fmt: skip

    def gpus() -> set[str]:
        found = set()
        for host in hosts:
            shown = host.run(
                ["sh", "-c", "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"]
            ).stdout
            found |= set(re.findall(r"^CUDA_VISIBLE_DEVICES=(GPU-\S+)$", shown, re.MULTILINE))
        return found if len(found) == 4 else set()

    found = until(gpus, "four members with a GPU each", 60)
    assert found == {f"GPU-node{host}-{gpu}" for host in (1, 2) for gpu in (0, 1)}

    def used() -> list[dict]:
        answer = hosts[0].run([ROOT / "build/bin/regroup", "status", "--json"]).stdout
        members = json.loads(answer or "{}").get("members", [])
        return members if len([m for m in members if m.get("memory_bytes", 0) > 0]) == 4 else []

    members = until(used, "usage of members of both hosts", 60)
    assert {m["host"] for m in members} == {"node1", "node2"}
    os.kill(hosts[0].inner(job), signal.SIGTERM)
    assert Done(job).status == 1


def test_a_job_of_a_fixed_number_tells_of_all_hosts(hosts: Hosts):
    job = start(hosts, "-H", "node1,node2", "-np", "2", "sleep", "1000")

    def used() -> list[dict]:
        answer = hosts[0].run([ROOT / "build/bin/regroup", "status", "--json"]).stdout
        members = json.loads(answer or "{}").get("members", [])
        return members if len({m["host"] for m in members if m["memory_bytes"] > 0}) == 2 else []

    members = until(used, "usage of members of both hosts", 60)
    assert sorted(m["rank"] for m in members) == [0, 1]
    os.kill(hosts[0].inner(job), signal.SIGTERM)
    assert Done(job).status != 0
    assert "no job of this user" in hosts[0].run([ROOT / "build/bin/regroup", "status"]).stderr


def test_usage_of_all_hosts_is_logged(hosts: Hosts):
    log = hosts.folder / "usage.csv"  # which the members see, and end once they are in it
    script = f"until grep -q node1, {log} && grep -q node2, {log}; do sleep 0.1; done"
    job = run(hosts, "-H", "node1,node2", "--usage-log", str(log), "sh", "-c", script)
    assert job.status == 0, job.err
    rows = log.read_text().splitlines()
    assert rows[0].startswith("time,host,member,rank")
    assert {row.split(",")[1] for row in rows[1:]} == {"node1", "node2"}
