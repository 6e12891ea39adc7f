"""Hosts as people write them: in options, files and allocations, with what editors leave. A script
stands in for ssh: it notes the host and runs the command here."""

import socket
import subprocess
import sys

import pytest
from conftest import BIN, DEADLINE_S

NAME = socket.gethostname().split(".")[0]


class Ssh:
    def __init__(self, folder):
        self.log, self.program = folder / "log", folder / "ssh-stand-in"
        self.log.touch()
        self.program.write_text(
            f'#!/bin/sh\n[ "$1" = -l ] && shift 2\necho "$1" >> {self.log}\nshift\nexec "$@"\n'
        )
        self.program.chmod(0o755)

    def hosts(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def ssh(tmp_path):
    return Ssh(tmp_path)


@pytest.fixture
def run(regroup, ssh):
    def call(*words, **options):
        return regroup.run("--ssh-command", str(ssh.program), *words, **options)

    return call


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["-H", "hA:0,hB:2", "-np", "2"], ["hB"]),
        (["-H", "hA:0,hB:1", "-np", "2", "--oversubscribe"], ["hA", "hB"]),
        (["--hostfile", "zero", "-np", "2"], ["hB"]),
        (["--hostfile", "most", "-np", "3"], ["hA"]),
    ],
)
def test_a_host_without_slots_takes_no_member(run, ssh, tmp_path, words, hosts):
    (tmp_path / "zero").write_text("hA slots=0\nhB slots=2\n")
    (tmp_path / "most").write_text("hA max_slots=3\n")
    job = run(*words, "true", cwd=tmp_path)
    assert job.wait() == 0, job.err
    assert sorted(ssh.hosts()) == hosts


def test_a_host_that_the_host_file_lacks_takes_its_member(run, ssh, tmp_path):
    (tmp_path / "hosts").write_text("hA slots=2\n")
    job = run("--hostfile", "hosts", "-H", "hB,hA", "-np", "2", "true", cwd=tmp_path)
    assert job.wait() == 0, job.err
    assert sorted(ssh.hosts()) == ["hA", "hB"]


def test_no_slot_at_all_is_refused(run, ssh):
    job = run("-H", "localhost:0", "-np", "1", "true")
    assert job.wait() == 213
    assert "no slots" in job.err
    assert ssh.hosts() == []


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbfhA slots=1\n", b"hA slots=1\r\n", b"hA slots=1\r", b"hA slots=1\n\x1a"]
)
def test_what_editors_leave_is_no_part_of_a_name(run, ssh, tmp_path, text):
    (tmp_path / "hosts").write_bytes(text)
    job = run("--hostfile", str(tmp_path / "hosts"), "-np", "1", "true")
    assert job.wait() == 0, job.err
    assert ssh.hosts() == ["hA"]


def test_another_encoding_is_refused_by_name(run, tmp_path):
    (tmp_path / "hosts").write_text("hA slots=1\n", encoding="utf-16")
    job = run("--hostfile", str(tmp_path / "hosts"), "-np", "1", "true")
    assert job.wait() == 250
    assert "UTF-16, expected UTF-8" in job.err


def own_addresses() -> list[str]:
    shown = subprocess.run(
        ["hostname", "-I"], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return shown.stdout.split()


def test_this_host_needs_no_ssh_by_any_of_its_names(run, ssh):
    names = [
        NAME,
        NAME.upper(),
        f"{NAME}.some.site",
        "LOCALHOST",
        "127.0.0.1",
        "::1",
        *own_addresses(),
    ]
    job = run("-H", ",".join(names), "-np", str(len(names)), "true")
    assert job.wait() == 0, job.err
    assert ssh.hosts() == []


@pytest.mark.parametrize("hosts", ["hA:1,HA:1", "hA,hA.site", "ha.site:1,hA:1"])
def test_another_host_is_one_by_all_its_names(run, ssh, hosts):
    job = run("-H", hosts, "-np", "2", "true")
    assert job.wait() == 0, job.err
    assert len(ssh.hosts()) == 1


def test_names_that_differ_behind_the_first_dot_are_told(run):
    job = run("-H", f"{NAME}.1.site,{NAME}.2.site", "-np", "2", "true")
    assert f"{NAME}.1.site, {NAME}.2.site: taken for this host" in job.err


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a/b", "a..b", "a$(b)", "hA\u00a0"])
def test_a_malformed_name_reaches_nobody(run, ssh, tmp_path, name):
    for file in ("hosts", "ranks", "nodes"):
        text = f"rank 0={name} slot=0\n" if file == "ranks" else f"{name}\n"
        (tmp_path / file).write_text(text)
    pbs = {"PBS_JOBID": "7.server", "PBS_NODEFILE": str(tmp_path / "nodes")}
    calls = [
        run("-H", name, "-np", "1", "true"),
        run("--hostfile", str(tmp_path / "hosts"), "-np", "1", "true"),
        run("--rankfile", str(tmp_path / "ranks"), "-np", "1", "true"),
        run("-np", "1", "true", env=pbs),
    ]
    for job in calls:
        assert job.wait() not in (0, None)
        assert "is not a host name" in job.err or "expected rank N=HOST" in job.err, job.err
    assert ssh.hosts() == []


def test_relative_hosts_count_from_the_host_file(run, ssh, tmp_path):
    (tmp_path / "hosts").write_text("hA slots=1\nhB slots=2\nhC slots=1\n")
    words = ("--hostfile", str(tmp_path / "hosts"))
    job = run(*words, "-H", "+n1", "-np", "2", "true")
    assert (job.wait(), ssh.hosts()) == (0, ["hB"]), job.err
    job = run(*words, "-H", "hB,+e", "-np", "4", "true")
    assert (job.wait(), sorted(ssh.hosts()[1:])) == (0, ["hA", "hB", "hC"]), job.err
    job = run(*words, "-H", "+n3", "-np", "1", "true")
    assert job.wait() == 213
    assert "+n3: expected a number below 3" in job.err


def test_a_rank_file_heeds_slots_and_max_slots(run, tmp_path):
    (tmp_path / "hosts").write_text("hA slots=1 max_slots=1\nhB slots=4\n")
    (tmp_path / "ranks").write_text("rank 0=hA slot=0\nrank 1=hA slot=0\n")
    words = (
        "--hostfile",
        str(tmp_path / "hosts"),
        "--rankfile",
        str(tmp_path / "ranks"),
        "-np",
        "2",
        "true",
    )
    job = run(*words)
    assert (job.wait(), "2 ranks on host hA, expected at most 1 (slots)" in job.err) == (
        213,
        True,
    ), job.err
    job = run("--oversubscribe", *words)
    assert (job.wait(), "2 ranks on host hA, expected at most 1 (max_slots)" in job.err) == (
        213,
        True,
    ), job.err


def test_a_folder_that_another_host_lacks_has_the_status_of_this_one(run):
    for host in ("hA", "localhost"):
        job = run("-H", f"{host}:1", "-np", "1", "--wdir", "/nowhere-at-all", "pwd")
        assert job.wait() == 181, job.err
        assert "--wdir /nowhere-at-all: No such file or directory" in job.err


@pytest.mark.parametrize("host", ["hA", "localhost"])
def test_a_program_that_another_host_lacks_has_the_status_of_this_one(run, host):
    for words in (["-np", "1"], ["--role", "worker=1"]):
        for program, status in (("no-such-program", 66), ("./no-such-program", 183)):
            job = run("-H", f"{host}:1", *words, program)
            assert job.wait() == status, job.err
        job = run("-H", f"{host}:1", *words, "--wdir", "/nowhere-at-all", "pwd")
        assert job.wait() == 181, job.err


def test_a_program_that_all_hosts_of_an_elastic_job_lack_has_the_status_of_this_one(run, tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for words, status in (
        (["no-such-program"], 66),
        (["./no-such-program"], 183),
        (["--wdir", "/nowhere-at-all", "pwd"], 181),
    ):
        job = run("-H", "hA:1,hB:1", "-np", "1:2", *words, env=env)
        assert job.wait() == status, job.err
        assert f"(exit status {status})" in job.err


@pytest.mark.parametrize(
    "variables", [{"SLURM_JOB_ID": "4242"}, {"PBS_JOBID": "7.srv"}, {"LSB_JOBID": "7"}]
)
def test_a_job_of_which_only_the_number_was_inherited_is_not_used(regroup, variables):
    job = regroup.run("-np", "1", "echo", "hi", env=variables)
    assert (job.wait(), job.out, job.err) == (0, "hi\n", "")


def test_an_address_in_an_allocation_may_be_this_host(run, ssh, tmp_path):
    (tmp_path / "nodes").write_text(f"{own_addresses()[0]}\n")
    job = run(
        "-np", "1", "true", env={"PBS_JOBID": "5.srv", "PBS_NODEFILE": str(tmp_path / "nodes")}
    )
    assert job.wait() == 0, job.err
    assert ssh.hosts() == []


def test_a_copy_that_srun_started_says_so(regroup):
    step = {
        "SLURM_STEP_NODELIST": NAME,
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NUM_TASKS": "2",
    }
    job_of = {"SLURM_JOB_ID": "900", "SLURM_JOB_NODELIST": NAME, "SLURM_TASKS_PER_NODE": "2"}
    for task, told in (("0", 0), ("1", 1)):
        env = {**job_of, **step, "SLURM_PROCID": task, "SLURMD_NODENAME": NAME}
        job = regroup.run("-np", "1", "true", env=env)
        assert job.wait() == 0, job.err
        assert job.err.count("srun started 2 launchers") == told, job.err


# Answers questions about names with an address or an alias of it, others with "no such name".
NAME_SERVER = """
import socket, struct, sys, time
RECORDS = {
    "front.site": ("A", "10.77.0.1"), "other.site": ("A", "10.77.0.9"),
    "twin.site": ("CNAME", "other.site"), "w1.site": ("A", "10.77.0.5"),
    "w2.site": ("A", "10.77.0.5"), "login.site": ("CNAME", "front.site"),
}

def wire(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\\0"

def answers(name, kind):
    found = RECORDS.get(name)
    if found and found[0] == "CNAME":
        data = wire(found[1])
        head = wire(name) + struct.pack("!HHIH", 5, 1, 60, len(data))
        return [head + data, *answers(found[1], kind)]
    if found and kind == 1:
        return [wire(name) + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(found[1])]
    return []

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
print("ready", flush=True)
while len(sys.argv) > 1:
    time.sleep(600)
while True:
    packet, client = server.recvfrom(512)
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    question = packet[12 : at + 5]
    name = ".".join(labels).lower()
    found = answers(name, struct.unpack("!H", packet[at + 1 : at + 3])[0])
    code = 0 if name in RECORDS else 3
    server.sendto(packet[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(found), 0, 0)
                  + question + b"".join(found), client)
"""


@pytest.fixture
def with_name_server(regroup, ssh, tmp_path):
    """Runs jobs in namespaces where this host is 10.77.0.1 and a name server knows some names."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    (tmp_path / "server.py").write_text(NAME_SERVER)
    (tmp_path / "ready").touch()

    def call(*words: str, silent: str = "") -> subprocess.CompletedProcess:
        serve = (
            f"{sys.executable} server.py {silent} > ready & server=$!; "
            "until test -s ready || ! kill -0 $server; do sleep 0.05; done"
        )
        script = f"""ip link set lo up; ip address add 10.77.0.1/32 dev lo; cd {tmp_path}
for file in resolv.conf nsswitch.conf; do mount --bind $file /etc/$file || exit 99; done
{serve}
"$@"; status=$?; kill $server; exit $status"""
        launcher = [BIN / "regroup", "--ssh-command", ssh.program]
        return subprocess.run(
            ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *launcher, *words],
            env=regroup.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    return call


@pytest.mark.parametrize(
    ("hosts", "reached"),
    [
        ("front.site:1", 0),
        ("login.site:1,localhost:1", 0),
        ("other.site:1,twin.site:1", 1),
        ("w1.site:1,w2.site:1", 2),  # as a wildcard record has it: ssh may know them apart
        ("unknown.site:1", 1),
    ],
)
def test_names_that_only_a_name_server_knows(with_name_server, ssh, hosts, reached):
    done = with_name_server("-H", hosts, "-np", str(hosts.count(":")), "true")
    assert done.returncode == 0, done.stderr
    assert len(ssh.hosts()) == reached, (ssh.hosts(), done.stderr)


def test_a_name_server_that_does_not_answer_is_not_waited_for(with_name_server, ssh):
    done = with_name_server("-H", "front.site:1", "-np", "1", "true", silent="silent")
    assert done.returncode == 0, done.stderr
    assert ssh.hosts() == ["front.site"]
