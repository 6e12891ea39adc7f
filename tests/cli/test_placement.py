"""Where members are bound on this machine, compared with the real mpiruns, and what is shown of
it."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import DEADLINE_S, ROOT, ROOT_MAY, rival, until
from test_elastic import members, pid_of

MACHINES = ROOT / "tests/golden/placement"
CORES = sorted(os.sched_getaffinity(0))
# The processors of the rank in one line without a tab: a pseudo-terminal hands a line over in parts
# there, and Open MPI 4 puts a tag before each part that it reads.
ALLOWED = ["sed", "-n", "s/^Cpus_allowed_list:\\t/Cpus_allowed_list: /p", "/proc/self/status"]

needs_two = pytest.mark.skipif(len(CORES) < 2, reason="two processors are needed")


def masks(output: str) -> list[str]:
    """Processors of each rank; lines are tagged with it."""
    found = re.findall(r"\[\d+,(\d+)\]<stdout>:\s*Cpus_allowed_list:\s*(\S+)", output)
    return [mask for _, mask in sorted(found, key=lambda pair: int(pair[0]))]


def mpirun(launcher: str, *words: str) -> subprocess.CompletedProcess:
    """Without the --oversubscribe of LAUNCHERS."""
    env = {**os.environ, "HWLOC_COMPONENTS": "-gl,-opencl"}
    command = [rival(launcher)[0], *ROOT_MAY, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=env)


def asked(launcher: str, *words: str) -> list[str]:
    return masks(mpirun(launcher, "--tag-output", *words, *ALLOWED).stdout)


SAME_IN_BOTH = [
    ["-np", "1"],
    ["-np", "2"],
    ["-np", "2", "--bind-to", "none"],
    ["-np", "2", "--bind-to", "core"],
    ["-np", "4", "--oversubscribe"],
    ["-np", "2", "--map-by", "core", "--bind-to", "core"],
    ["-np", "1", "--map-by", "slot:PE=2"],
    ["-np", "2", "--map-by", "slot", "--bind-to", "core"],
    ["-np", "4", "--oversubscribe", "--bind-to", "core"],  # both refuse
    ["-np", "2", "--map-by", "core:PE=2"],  # both refuse
]
ONLY_IN_5 = [
    ["-np", "4", "--oversubscribe", "--bind-to", "core:overload-allowed"],
    ["-np", "2", "--map-by", "pe-list=0,1:ordered"],
    ["-np", "1", "--map-by", "package"],
    ["-np", "2", "--map-by", "ppr:2:package", "--bind-to", "core"],
]


@needs_two
@pytest.mark.parametrize("words", SAME_IN_BOTH + ONLY_IN_5, ids=" ".join)
def test_members_are_bound_as_under_mpirun_5(regroup, words):
    job = regroup.start("--tag-output", *words, *ALLOWED)
    refused = job.wait() != 0
    assert bool(masks(job.out)) != refused
    assert masks(job.out) == asked("openmpi-5", *words), job.err


@needs_two
@pytest.mark.parametrize("words", SAME_IN_BOTH, ids=" ".join)
def test_members_are_bound_as_under_mpirun_4(regroup, words):
    job = regroup.start("--tag-output", *words, *ALLOWED)
    refused = job.wait() != 0
    assert bool(masks(job.out)) != refused
    assert masks(job.out) == asked("openmpi-4", *words), job.err


def test_memory_policy_reaches_the_member(regroup):
    maps = ["sh", "-c", "cut -d' ' -f2 /proc/self/numa_maps | sort -u | head -1"]
    for words, policy in (
        (["--bind-to", "core", "--mem-bind", "bind"], "bind:0"),
        (["--mem-bind", "interleave"], "interleave:0"),
        (["--bind-to", "core", "--mem-bind", "prefer"], "prefer:0"),
        ([], "default"),
    ):
        job = regroup.run("-np", "1", *words, *maps)
        assert (job.wait(), job.out.strip()) == (0, policy), job.err
    unbound = regroup.run("-np", "1", "--bind-to", "none", "--mem-bind", "bind", "true")
    assert unbound.wait() == 213 and "--bind-to binds it" in unbound.err
    wrong = regroup.run("-np", "1", "--mem-bind", "tight", "true")
    assert wrong.wait() == 1 and "expected none, firsttouch" in wrong.err


@pytest.fixture
def host_file(tmp_path) -> str:
    """Open MPI 4 knows this host by its own name only, here."""
    path = tmp_path / "hosts"
    path.write_text(f"{socket.gethostname()}\n" * 2)
    return str(path)


@needs_two
@pytest.mark.parametrize(
    "words", [[], ["-np", "1"], ["--bind-to", "none"], ["-np", "3"]], ids=" ".join
)
def test_seq_takes_a_line_for_each_member_as_under_mpirun(regroup, host_file, words):
    """Without -np all of them; more members than lines are refused."""
    words = ["--map-by", "seq", "--hostfile", host_file, *words]
    job = regroup.run("--tag-output", *words, *ALLOWED)
    assert job.wait() == (213 if "3" in words else 0), job.err
    assert len(masks(job.out)) == (0 if "3" in words else 1 if "1" in words else 2)
    assert masks(job.out) == asked("openmpi-5", *words) == asked("openmpi-4", *words)


@needs_two
def test_seq_takes_hosts_of_the_list_or_of_its_own_file(regroup, host_file):
    for words in (
        ["-H", "localhost,localhost", "--map-by", "seq"],
        ["--map-by", f"seq:file={host_file}"],
    ):
        job = regroup.run("--tag-output", *words, *ALLOWED)
        assert (job.wait(), len(masks(job.out))) == (0, 2), job.err
        assert masks(job.out) == asked("openmpi-5", *words)
    counted = [
        "-H",
        "localhost:2",
        "--map-by",
        "seq",
        "-np",
        "2",
    ]  # a mention is one member, whatever its slots
    assert (
        regroup.run(*counted, "true").wait()
        == mpirun("openmpi-5", *counted, "true").returncode
        == 213
    )


@needs_two
@pytest.mark.parametrize(
    "words", [["-np", "2"], ["-np", "2", "--bind-to", "package"], ["-np", "2", "--bind-to", "none"]]
)
def test_reported_bindings_read_as_those_of_mpirun_5(regroup, words):
    job = regroup.start("--report-bindings", *words, "true")
    assert job.wait() == 0
    theirs = mpirun("openmpi-5", "--report-bindings", *words, "true")
    report = re.compile(r"^\[(\S+):\d+\] (Rank \d+ .*?)\s*$", re.MULTILINE)
    assert sorted(report.findall(job.err)) == sorted(report.findall(theirs.stdout + theirs.stderr))
    assert len(report.findall(job.err)) == 2


def test_the_affinity_mask_is_kept(regroup):
    job = regroup.start(
        "-np",
        "1",
        "--bind-to",
        "core",
        *ALLOWED,
        preexec_fn=lambda: os.sched_setaffinity(0, CORES[-1:]),
    )
    assert job.wait() == 0, job.err
    assert job.out.split()[-1] == str(CORES[-1])


def test_a_described_machine_is_shown_and_nothing_starts(regroup):
    env = {"HWLOC_XMLFILE": str(MACHINES / "numa.xml")}
    job = regroup.start(
        *["--display", "map,allocation,topo", "--map-by", "numa", "--bind-to", "core", "-np", "5"],
        *["--do-not-launch", "cat"],
        env=env,
    )
    assert (job.wait(), job.err) == (0, "")
    assert "2 packages, 4 NUMA nodes, 8 cores, 16 hardware threads" in job.out
    rows = [line.split() for line in job.out.splitlines() if re.match(r"\s+\d+  cat ", line)]
    assert [row[4] for row in rows] == ["0-1", "2-3", "4-5", "8-9", "12-13"]
    assert rows[3] == ["3", "cat", "numa", "2", "8-9", "package[1][core:L4]"]


def test_a_described_machine_is_that_of_all_hosts_and_none_is_contacted(regroup):
    """As under mpirun, where the launcher's machine stands for all."""
    env = {"HWLOC_XMLFILE": str(MACHINES / "numa.xml")}
    words = ["-H", "nowhere1:2,nowhere2", "--map-by", "package", "--do-not-launch", "cat"]
    job = regroup.start(*words, env=env)
    assert (job.wait(), job.err) == (0, "")
    rows = [line.split() for line in job.out.splitlines() if re.match(r"\s+\d+  cat ", line)]
    assert [(row[2], row[5]) for row in rows] == [
        ("nowhere1", "0-7"),
        ("nowhere1", "8-15"),
        ("nowhere2", "0-7"),
    ]
    refused = regroup.start("-np", "4", *words, env=env)
    assert refused.wait() == 1 and "4 members requested, 3 slots available" in refused.err


TWO_HOSTS = {"hosts": "a slots=4\nb slots=4\n"}


@pytest.mark.parametrize(
    ("words", "files", "places"),
    [
        # A rank file says how many members there are.
        (
            ["-H", "a:3,b:2", "--rankfile", "ranks"],
            {"ranks": "rank 0=b slot=4\nrank 1=a slot=2\n"},
            ["b 8-9", "a 4-5"],
        ),
        # A mention in -H is one slot, unless the job needs those of the host file.
        (["--hostfile", "hosts", "-H", "a,b", "-np", "2"], TWO_HOSTS, ["a 0-1", "b 0-1"]),
        (["--hostfile", "hosts", "-H", "b"], TWO_HOSTS, ["b 0-1"]),
        (["--hostfile", "hosts", "-H", "b:3,a:1"], TWO_HOSTS, ["b 0-1", "b 2-3", "b 4-5", "a 0-1"]),
        (["--hostfile", "hosts", "-H", "a", "-np", "3"], TWO_HOSTS, ["a 0-1", "a 2-3", "a 4-5"]),
        # These say how many members a host gets.
        (
            ["--hostfile", "hosts", "-H", "a", "--map-by", "ppr:2:node"],
            TWO_HOSTS,
            ["a 0-1", "a 2-3"],
        ),
        (
            ["--hostfile", "hosts", "-H", "a", "--rankfile", "ranks"],
            {**TWO_HOSTS, "ranks": "rank 0=a slot=4\nrank 1=a slot=2\n"},
            ["a 8-9", "a 4-5"],
        ),
        # Ranks by node or by slot, however members were mapped.
        (
            ["-H", "a:3,b:3", "-np", "4", "--rank-by", "node"],
            {},
            ["a 0-1", "b 0-1", "a 2-3", "a 4-5"],
        ),
        (
            ["-H", "a:3,b:3", "-np", "4", "--map-by", "node", "--rank-by", "slot"],
            {},
            ["a 0-3", "a 0-3", "b 0-3", "b 0-3"],
        ),
        # As many members as --cpu-set has processors.
        (["-H", "a:4", "--cpu-set", "1,2"], {}, ["a 2-5", "a 2-5"]),
        # -H limits the program that follows it.
        (
            ["-np", "1", "-H", "a:2", "cat", ":", "-np", "2", "-H", "b:2"],
            {},
            ["a 0-1", "b 0-1", "b 2-3"],
        ),
        (
            ["-np", "1", "-H", "b:2", "cat", ":", "-np", "3", "-H", "a:2,b:1"],
            {},
            ["b 0-1", "b 2-3", "a 0-1", "a 2-3"],
        ),
        # A program without -H has the order of the file.
        (
            ["--hostfile", "hosts", "-np", "2", "cat", ":", "-np", "1", "-H", "b:1,a:4"],
            {"hosts": "a slots=1\nb slots=2\n"},
            ["a 0-1", "a 2-3", "b 0-1"],
        ),
        # As many members as a list names processors run on each host.
        (["-H", "a:5,b", "--cpu-set", "0,1", "-np", "3"], {}, ["a 0-3", "a 0-3", "b 0-3"]),
        # -N names no object: more than two members are bound to NUMA nodes.
        (["-H", "a:4", "-N", "3"], {}, ["a 0-3", "a 0-3", "a 4-7"]),
        (["-H", "a:1,b:1", "-N", "1"], {}, ["a 0-1", "b 0-1"]),
        (["-H", "a:2", "--map-by", "node"], {}, ["a 0-1", "a 2-3"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_ranks_are_placed_on_described_hosts_as_under_mpirun_5(
    regroup, tmp_path, words, files, places
):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    env = {"HWLOC_XMLFILE": str(MACHINES / "numa.xml")}
    job = regroup.start("--do-not-launch", *words, "cat", env=env, cwd=tmp_path)
    assert job.wait() == 0, job.err
    only = re.match(r"map: \d+ members? on ([ab]),", job.out)  # else each row names its host
    found = []
    for line in job.out.splitlines():
        if row := re.match(r"\s+\d+  cat +(.*?)  +([\d-]+|any)  ", line):
            found.append(f"{only[1] if only else row[1].split()[0]} {row[2]}")
    assert found == places, job.out


def test_a_list_of_processors_is_not_passed_over_where_members_do_not_fit(regroup):
    """Nobody has asked for --bind-to, but for these processors."""
    env = {"HWLOC_XMLFILE": str(MACHINES / "packages.xml")}
    job = regroup.start(
        *["-H", "a:9", "-np", "9", "--cpu-set", "0,1", "--do-not-launch", "cat"], env=env
    )
    assert job.wait() == 213
    assert "--cpu-set: got 9 members for 2 processors of the list" in job.err


def test_without_a_count_ppr_says_how_many(regroup):
    job = regroup.start(
        *["--map-by", "ppr:1:numa", "--display", "map", "--do-not-launch", "cat"],
        env={"HWLOC_XMLFILE": str(MACHINES / "numa.xml")},
    )
    assert job.wait() == 0, job.err
    assert job.out.startswith("map: 4 members ")


def test_slots_are_cores_or_hardware_threads(regroup):
    env = {"HWLOC_XMLFILE": str(MACHINES / "packages.xml")}
    for words, count in (
        (["--do-not-launch"], 8),
        (["--do-not-launch", "--use-hwthread-cpus"], 16),
    ):
        job = regroup.start(*words, "--display-map", "cat", env=env)
        assert job.wait() == 0, job.err
        assert job.out.startswith(f"map: {count} members ")


def test_another_machine_is_not_bound_to(regroup):
    env = {"HWLOC_XMLFILE": str(MACHINES / "numa.xml")}
    unbound = regroup.start("-np", "1", *ALLOWED, env=env)
    assert unbound.wait() == 0, unbound.err
    assert (
        unbound.out.split()[-1]
        == Path("/proc/self/status").read_text().split("Cpus_allowed_list:")[1].split()[0]
    )
    refused = regroup.start("-np", "1", "--bind-to", "core", "true", env=env)
    assert refused.wait() != 0
    assert "another machine" in refused.err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (
            ["--map-by", "pe-list=4000"],
            213,
            "--map-by pe-list: core 4000 is not available to this job, only ",
        ),
        (
            ["--map-by", "ppr:1:package", "-np", "100", "--oversubscribe"],
            213,
            "--map-by ppr:1:package: permits ",
        ),
    ],
)
def test_what_is_not_possible_is_refused_with_its_cause(regroup, words, status, text):
    job = regroup.start("-np", "1", *words, "true")
    assert job.wait() == status
    assert text in job.err
    assert job.out == ""


@needs_two
def test_roles_are_bound_where_it_is_asked_for(regroup):
    words = ["--role", "a=1", "--role", "b=1", "--tag-output", "--bind-to", "core"]
    job = regroup.start(*words, *ALLOWED)
    assert job.wait() == 0, job.err
    assert masks(job.out) == [str(core) for core in CORES[:2]]


ELASTIC = ["-np", "1:2", "--term-grace", "0.2"]


def cores_of(job, member_id: int) -> set[int]:
    return os.sched_getaffinity(pid_of(job, member_id))


@needs_two
def test_elastic_members_are_bound_where_it_is_asked_for(regroup, member):
    """Who takes the place of a dead one takes its core, however often."""
    job = regroup.start(
        *ELASTIC, "--initial-size", "2", "--bind-to", "core", member, "1000000", "5"
    )
    job.wait_out("^step 5 ")
    bound = [cores_of(job, 0), cores_of(job, 1)]
    assert bound == [{core} for core in CORES[:2]]
    for newcomer in range(2, 6):
        victim = newcomer % 2
        dead = members(regroup)[victim]
        core = cores_of(job, dead)
        os.kill(pid_of(job, dead), signal.SIGKILL)
        until(lambda: newcomer in members(regroup), lambda: f"member {newcomer}: {job.err}")  # noqa: B023
        assert cores_of(job, newcomer) == core
    job.process.terminate()
    assert job.wait() == 1


@needs_two
def test_elastic_members_are_not_bound_otherwise(regroup, member):
    job = regroup.start(*ELASTIC, "--initial-size", "1", member, "1000000", "5")
    job.wait_out("^step 5 ")
    assert cores_of(job, 0) == set(CORES)
    job.process.terminate()
    assert job.wait() == 1


@needs_two
def test_elastic_members_that_do_not_fit_are_refused(regroup):
    words = ["--oversubscribe", "-np", f"1:{len(CORES) + 1}", "--bind-to", "core", "true"]
    job = regroup.start(*words)
    assert job.wait() == 213
    assert f"only {len(CORES)} fit" in job.err
