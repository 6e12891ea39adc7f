"""regroup -H: members on several hosts by a real ssh, their output, input, ends, and what cannot
be."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hosts import ROOT, Host, Hosts, until
from leftovers import Leftovers
from training import Training

REGROUP = Path(shutil.which("regroup") or ROOT / "build/bin/regroup").resolve()
DEADLINE_S = 180.0
# In which a host that fails is named: what is promised, and what it takes to get a command onto a
# test host.
SOON_S = 2 * 5 + 0.5
NAMED_S = 2 * SOON_S  # a deadline beside other tests; ./dev bench hosts measures how soon
# The environment of launchers that shall give up a host that says nothing: after twice the 5 s,
# since on busy cores the other hosts need them.
PROMPT = {**os.environ, "REGROUP_TIME_LIMIT_FACTOR": "2"}


class Done:
    """A command's end. `told`: after how long it wrote its first line of errors, if any; `lines`:
    all, and when they came."""

    def __init__(
        self, process: subprocess.Popen, deadline_s: float = DEADLINE_S, text: str | None = None
    ):
        begin = time.monotonic()
        self.lines: list[tuple[float, str]] = []

        def listen(stream: IO[str]) -> None:
            for line in stream:
                self.lines.append((time.monotonic() - begin, line))

        errors, process.stderr = process.stderr, None
        ear = threading.Thread(target=listen, args=(errors,), daemon=True)
        ear.start()
        try:
            self.out = process.communicate(text, timeout=deadline_s)[0]
            ear.join(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        self.status, self.seconds = process.returncode, time.monotonic() - begin
        self.err = "".join(line for _, line in self.lines)
        self.told = self.lines[0][0] if self.lines else None

    def told_of(self, host: str) -> float:
        """When that host was named, in the one line that does so."""
        (when,) = [when for when, line in self.lines if line.startswith(f"regroup: host {host}: ")]
        return when


started: list[subprocess.Popen] = []


def start(hosts: Hosts, *args: str, on: int = 0, **popen) -> subprocess.Popen:
    command = [REGROUP, "--ssh-command", " ".join(hosts.ssh), *args]
    popen = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **popen,
    }
    started.append(hosts[on].popen(command, text=True, **popen))
    return started[-1]


def run(hosts: Hosts, *args: str, **popen) -> Done:
    return Done(start(hosts, *args, **popen))


def named_in_time(done: Done, host: str = "") -> Done:
    """The run has named a host, or this one, by a deadline: twice what is promised."""
    when = done.told_of(host) if host else done.told
    assert when is not None and when < NAMED_S, (when, done.err)
    return done


def fails(hosts: Hosts, *args: str, **popen) -> Done:
    """One that ends then, and waits for nobody."""
    done = named_in_time(run(hosts, *args, **popen))
    assert done.seconds < done.told + SOON_S, done.err
    return done


def left_on(hosts: Hosts) -> list[str]:
    """Processes of regroup on any host."""
    return [
        f"{host.name}: {name}"
        for host in hosts
        for name in host.names()
        if name.startswith("regroup")
    ]


@pytest.fixture(autouse=True)
def nothing_is_left(hosts: Hosts) -> Iterator[None]:
    """When a test is over."""
    yield
    while started:
        started.pop().kill()
    until(lambda: not left_on(hosts), "an end of all processes of regroup")


SAY = [
    "sh",
    "-c",
    "echo $OMPI_COMM_WORLD_RANK $(hostname) $OMPI_COMM_WORLD_LOCAL_RANK $LOCAL_WORLD_SIZE",
]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["-H", "node1:2,node2:1,node3:2", "-np", "5"],
            "0 node1 0 2,1 node1 1 2,2 node2 0 1,3 node3 0 2,4 node3 1 2",
        ),
        (["-H", "node2,node3"], "0 node2 0 1,1 node3 0 1"),
        (
            ["-H", "node2:2,node3:2", "-np", "3", "--map-by", "node"],
            "0 node2 0 2,1 node3 0 1,2 node2 1 2",
        ),
        (["-H", "node1:2,node2:2", "-N", "1"], "0 node1 0 1,1 node2 0 1"),
        (["-H", "node1:2,node2:2", "--nolocal"], "0 node2 0 2,1 node2 1 2"),
        (["-H", "node2:2,node3:2", "--map-by", "ppr:1:node"], "0 node2 0 1,1 node3 0 1"),
        (["--hostfile", "FILE", "-np", "4"], "0 node2 0 1,1 node3 0 3,2 node3 1 3,3 node3 2 3"),
        (
            ["--hostfile", "MOST", "-np", "3", "--oversubscribe"],
            "0 node2 0 1,1 node3 0 2,2 node3 1 2",
        ),
    ],
)
def test_members_run_where_mpirun_would_put_them(hosts: Hosts, options, expected):
    files = {
        "FILE": "node2 slots=1\nnode3 slots=3\n",
        "MOST": "node2 slots=1 max_slots=1\nnode3 slots=1\n",
    }
    for name, text in files.items():
        assert hosts[0].run(["sh", "-c", f"printf '{text}' > /tmp/{name}"]).returncode == 0
    before = [host.sent() for host in hosts]
    done = run(hosts, *[f"/tmp/{word}" if word in files else word for word in options], *SAY)
    assert (done.status, done.err) == (0, "")
    assert ",".join(sorted(done.out.splitlines())) == expected
    if "node2" in expected:
        assert hosts[1].sent() > before[1]


def test_long_lines_of_several_hosts_are_not_torn(hosts: Hosts):
    say = (
        "r=$OMPI_COMM_WORLD_RANK; for i in $(seq 30); do head -c 9999 /dev/zero | tr '\\0' $r; "
        "done; echo"
    )
    done = run(hosts, "-H", "node1:1,node2:2,node3:1", "--tag-output", "sh", "-c", f"{say}; {say}")
    assert (done.status, done.err) == (0, "")
    expected = [f"[1,{rank}]<stdout>:" + f"{rank}" * 299_970 for rank in range(4) for _ in range(2)]
    assert sorted(done.out.splitlines()) == expected


def test_master_is_met_where_rank_0_runs(hosts: Hosts):
    script = (
        "import os, socket\n"
        "rank, there = int(os.environ['RANK']), (os.environ['MASTER_ADDR'], "
        "int(os.environ['MASTER_PORT']))\n"
        "if rank == 0:\n"
        "    server = socket.create_server(('', there[1]))\n"
        "    print(server.accept()[0].recv(10).decode())\n"
        "while rank == 1:\n"
        "    try: socket.create_connection(there, 5).send(b'hello'); break\n"
        "    except ConnectionRefusedError: pass\n"
    )
    for where in ("node1,node2", "node2,node3", "node2,node1"):
        done = run(hosts, "-H", where, "/usr/bin/python3", "-c", script)
        assert (done.status, done.out) == (0, "hello\n"), (where, done.err)


def test_lines_are_whole_and_tagged_by_their_rank(hosts: Hosts):
    script = (
        "for i in $(seq 400); do echo line $i of $OMPI_COMM_WORLD_RANK; echo error $i >&2; done"
    )
    done = run(hosts, "-H", "node1,node2,node3", "--tag-output", "sh", "-c", script)
    assert done.status == 0
    for rank in range(3):
        wanted = [f"[1,{rank}]<stdout>:line {i} of {rank}" for i in range(1, 401)]
        assert [line for line in done.out.splitlines() if line.startswith(f"[1,{rank}]")] == wanted
    assert sorted(done.err.splitlines()) == sorted(
        f"[1,{rank}]<stderr>:error {i}" for rank in range(3) for i in range(1, 401)
    )


def test_volume_from_another_host_is_whole_and_waits_for_its_reader(hosts: Hosts):
    size = 32 << 20
    script = (
        f"import os\nfor i in range({size >> 16}): os.write(1, b'%07d' % i + b'.' * 65528 + b'\\n')"
    )
    job = start(hosts, "-H", "node2", "/usr/bin/python3", "-c", script)
    time.sleep(1)  # a reader that is late; nothing is decided by it
    for i, line in enumerate(job.stdout):
        assert line == f"{i:07d}" + "." * 65528 + "\n"
    assert (job.wait(DEADLINE_S), i) == (0, (size >> 16) - 1)


@pytest.mark.parametrize("where", ["node2,node1", "node1,node2", "node2,node3"])
def test_standard_input_reaches_the_rank_that_gets_it(hosts: Hosts, where: str):
    text = "".join(f"line {i}\n" for i in range(200_000))
    counted = ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(wc -c)"]
    for rank in (0, 1):
        done = Done(
            start(hosts, "-H", where, "--stdin", str(rank), *counted, stdin=subprocess.PIPE),
            text=text,
        )
        assert sorted(done.out.split()) == sorted(
            [str(rank), str(len(text)), str(1 - rank), "0"]
        ), done.err


@pytest.mark.parametrize("where", ["node1,node2,node3", "node2,node3"])
def test_standard_input_reaches_all_ranks(hosts: Hosts, where: str):
    text = "".join(f"line {i}\n" for i in range(200_000))
    count = where.count(",") + 1
    counted = ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(md5sum)"]
    done = Done(
        start(hosts, "-H", where, "--stdin", "all", *counted, stdin=subprocess.PIPE), text=text
    )
    digest = hashlib.md5(text.encode()).hexdigest()
    assert sorted(done.out.splitlines()) == [f"{rank} {digest} -" for rank in range(count)], (
        done.err
    )


def test_a_rank_that_reads_no_input_holds_nobody_up(hosts: Hosts):
    text = "x" * 3_000_000
    script = "[ $OMPI_COMM_WORLD_RANK = 1 ] && exec 0<&- && exec sleep 0.1; wc -c"
    where = ("-H", "node1,node2,node3")
    done = Done(
        start(hosts, *where, "--stdin", "all", "sh", "-c", script, stdin=subprocess.PIPE), text=text
    )
    assert done.out.split() == ["3000000"] * 2, done.err


def test_exit_status_names_rank_and_host(hosts: Hosts):
    script = "[ $OMPI_COMM_WORLD_RANK = 2 ] && exit 7; sleep 100"
    done = run(hosts, "-H", "node1,node2,node3", "sh", "-c", script)
    assert done.status == 7
    assert re.search(
        r"rank 2 \(pid \d+ on node3\) exited with code 7: ending the other ranks", done.err
    )
    done = run(
        hosts,
        "-H",
        "node1,node2",
        "sh",
        "-c",
        "[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -9 $$; sleep 100",
    )
    assert done.status == 137
    assert re.search(r"rank 1 \(pid \d+ on node2\) was killed by signal 9 \(SIGKILL\)", done.err)


def test_signals_reach_members_on_all_hosts(hosts: Hosts):
    script = (
        "trap 'echo $OMPI_COMM_WORLD_RANK got it; exit 0' USR1; echo ready; while :; do sleep 0.1; "
        "done"
    )
    job = start(hosts, "-H", "node1,node2,node3", "sh", "-c", script)
    assert [job.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    listed = hosts[0].run(["pgrep", "-x", "-o", "regroup"]).stdout
    hosts[0].run(["kill", "-USR1", listed.strip()])
    done = Done(job)
    assert sorted(done.out.splitlines()) == [f"{rank} got it" for rank in range(3)]
    assert done.status == 0


@pytest.mark.no_wire("the job ends before agents come up")
@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["-H", "node2,no-such-host"], "host no-such-host: ssh failed: Could not resolve hostname"),
        (
            ["-H", "node2", "--ssh-command", "false"],
            "node2: false ended with status 1 before the agent started",
        ),
        (["-H", "node2", "--ssh-command", "no-such-ssh"], "no-such-ssh"),
        (
            ["-H", "node2:1,node3:1", "-np", "3"],
            "3 members requested, 2 slots available; --oversubscribe allows more",
        ),
    ],
)
def test_what_cannot_be_is_one_line_soon(hosts: Hosts, options, what):
    done = fails(hosts, *options, "sleep", "100")
    assert done.status == 1
    assert [line for line in done.err.splitlines() if what in line], done.err


def ssh_with_another_key(hosts: Hosts, host: str) -> tuple[str, str]:
    """An option: that host refuses the key, the others do not."""
    other, config = hosts.folder / "other_key", hosts.folder / f"refused_by_{host}"
    if not other.exists():
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other]
        subprocess.run(make, check=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    usual = (hosts.folder / "ssh_config").read_text()
    key = f"IdentityFile {hosts.folder}/user\n"
    keys = f"Host {host}\nIdentityFile {other}\nHost !{host} *\n{key}Host *\n"
    config.write_text(keys + usual.replace(key, ""))
    return "--ssh-command", f"ssh -F {config}"


@pytest.mark.no_wire("no agent is let in")
def test_a_refused_key_is_named_with_its_host(hosts: Hosts):
    done = fails(hosts, *ssh_with_another_key(hosts, "node2"), "-H", "node2", "true")
    assert done.status == 1
    assert re.fullmatch(
        r"regroup: host node2: ssh failed: .*Permission denied \(publickey.*\n", done.err
    )


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_ssh_command_can_be_told_as_to_mpirun(hosts: Hosts, by: str):
    mark, ssh = hosts.folder / f"ssh_by_{by}", hosts.folder / f"marking_ssh_by_{by}"
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {mark}\nexec {" ".join(hosts.ssh)} "$@"\n')
    ssh.chmod(0o755)
    option = ["--mca", "plm_rsh_agent", str(ssh)] if by == "option" else []
    environment = {**os.environ, **({} if option else {"OMPI_MCA_plm_rsh_agent": str(ssh)})}
    done = hosts[0].run([REGROUP, *option, "-H", "node1,node2", "hostname"], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["node1", "node2"]
    assert mark.read_text().startswith("node2 ")


@pytest.mark.no_wire("no ssh gets as far as the wire")
@pytest.mark.parametrize("members", ["2", "1:2"])
def test_it_can_be_ended_while_agents_come_up(hosts: Hosts, members: str):
    called = hosts.folder / f"called-{members[0]}"

    def slow(name: str, first: str = "") -> tuple[str, ...]:
        ssh = hosts.folder / name
        ssh.write_text(f"#!/bin/sh\n{first}\nexec sleep 60\n")
        ssh.chmod(0o755)
        return ("--ssh-command", str(ssh), "-H", "node2,node3", "-np", members)

    done = run(hosts, *slow("slow_ssh"), "--timeout", "1", "true")
    assert done.status == 241, done.err
    assert done.err == "regroup: the job ran longer than --timeout 1 allows: ending it\n"
    assert done.seconds < 15, "it waited for the agents"
    job = start(hosts, *slow("slow_ssh_that_tells", f"echo >> {called}"), "true")
    until(lambda: called.exists() and called.read_text() == "\n\n", "agents are on their way")
    os.kill(hosts[0].inner(job), signal.SIGINT)
    done = Done(job)
    assert done.status == 1
    assert done.err == "regroup: the job was stopped while its agents started\n"
    assert done.seconds < 15, "it waited for the agents"


def test_hosts_are_reached_as_the_user_who_is_named(hosts: Hosts, tmp_path: Path):
    done = run(hosts, "-H", "root@node2", "sh", "-c", "hostname; id -un")
    assert (done.status, done.out) == (0, "node2\nroot\n"), done.err
    done = run(hosts, "-H", "no-such-user@node2", "true")
    assert done.status == 1
    assert "regroup: host node2: ssh failed: no-such-user@" in done.err
    hostfile = hosts.folder / "with_user"
    hostfile.write_text("node2 user=another-one\n")
    done = run(hosts, "--hostfile", str(hostfile), "true")
    assert "regroup: host node2: ssh failed: another-one@" in done.err


def test_an_agent_under_the_prefix_is_taken_where_it_is_there(hosts: Hosts):
    own = hosts.folder / "prefix/bin"
    own.mkdir(parents=True)
    mark = hosts.folder / "used"
    (own / "regroup").write_text(f'#!/bin/sh\nhostname >> {mark}\nexec {REGROUP} "$@"\n')
    (own / "regroup").chmod(0o755)
    for prefix, used in ((own.parent, "node2\nnode3\n"), (hosts.folder / "no-prefix", "")):
        mark.write_text("")
        done = run(hosts, "-H", "node2,node3", "--prefix", str(prefix), "true")
        assert (done.status, done.err) == (0, "")
        assert "".join(sorted(mark.read_text().splitlines(keepends=True))) == used


@pytest.mark.parametrize("members", ["2", "2:2"])
def test_members_on_other_hosts_find_programs_and_libraries_under_the_prefix(
    hosts: Hosts, members: str
):
    prefix = hosts.folder / f"mpi-{members}".replace(":", "-")
    (prefix / "bin").mkdir(parents=True)
    program = prefix / "bin/only-there"
    program.write_text("#!/bin/sh\necho $(hostname) ${PATH%%:*} ${LD_LIBRARY_PATH%%:*}\n")
    program.chmod(0o755)
    done = run(
        hosts, "-H", "node1:1,node2:1", "--prefix", str(prefix), "-np", members, "only-there"
    )
    assert done.status == 0, done.err
    there = f"{prefix}/bin {prefix}/lib"
    assert sorted(done.out.splitlines()) == [f"node1 {there}", f"node2 {there}"], done.err


@pytest.mark.parametrize("other", ["elder", "stranger"])
def test_another_version_is_named_with_its_host(hosts: Hosts, other: str):
    """It is what runs on node2; node1 has only this one. The stranger has the same version, and its
    agents another language. Each says so itself, before anything else is said to it."""
    program, own = ROOT / f"build/tests/bin/regroup_{other}", hosts.folder / f"{other}/bin"
    ours, theirs = (hosts[0].run([it, "--version"]).stdout.split()[-1] for it in (REGROUP, program))
    assert theirs == ("0.0.9" if other == "elder" else ours) and ours != "0.0.9"
    own.mkdir(parents=True)
    (own / "regroup").write_text(
        f'#!/bin/sh\n[ $(hostname) = node2 ] && exec {program} "$@"\nexec {REGROUP} "$@"\n'
    )
    (own / "regroup").chmod(0o755)
    wires = {
        "elder": r"(\S+)\), here it is {} \(wire \1",
        "stranger": r"\d+\.99\.\S+\), here it is {} \(wire \d+\.(?!99)\S+",
    }
    said = (
        rf"regroup: host node2: version mismatch: regroup there is {theirs} \(wire "
        rf"{wires[other]}\)\n"
    )
    said = said.replace("{}", ours)
    for tree in ((), ("--tree-radix", "1")):
        done = fails(hosts, *tree, "-H", "node3,node2", "--prefix", str(own.parent), "true")
        from_where = r" \(from node3\)" if tree else ""
        assert done.status == 1
        assert re.fullmatch(said.replace("\\n", from_where + "\\n"), done.err), done.err
    done = run(hosts, "-H", "node2,node3", "--prefix", str(own.parent), "-np", "1:2", "true")
    assert done.status == 0  # it is done without
    assert re.search(said, done.err), done.err


def test_a_missing_program_or_folder_is_named_with_its_host(hosts: Hosts):
    done = fails(hosts, "-H", "node2,node3", "no-such-program")
    assert done.status == 66
    assert re.search(r"host node[23]: program no-such-program was not found in PATH=", done.err)
    there = f'mkdir -p /tmp/only-here && cd /tmp/only-here && exec {REGROUP} "$@"'
    ssh = ["--ssh-command", " ".join(hosts.ssh)]
    command = ["sh", "-c", there, "sh", *ssh, "-H", "node2", "true"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    done = named_in_time(Done(hosts[0].popen(command, **pipes)))
    assert done.status == 1
    assert "host node2: cannot change to folder /tmp/only-here" in done.err


@pytest.mark.no_wire("no agent comes up on the only other host")
def test_a_host_that_is_full_is_named(own_hosts: Hosts):
    """Its /tmp takes no file more."""
    files, free = map(int, own_hosts[1].run(["stat", "-f", "-c", "%c %d", "/tmp"]).stdout.split())
    remount = ["mount", "-o", f"remount,nr_inodes={files - free}", "/tmp"]
    assert own_hosts[1].run(remount).returncode == 0
    done = fails(own_hosts, "-H", "node1,node2", "true")
    assert done.status == 1
    said = [line for line in done.err.splitlines() if line.startswith("regroup: host node2: ")]
    assert len(said) == 1, done.err
    assert said[0].endswith("No space left on device"), said
    done = run(own_hosts, "-H", "node1,node2", "-np", "1:2", "true")
    assert done.status == 0, done.err  # it is done without
    assert said[0] in done.err


def test_a_host_without_room_for_a_byte_takes_part(own_hosts: Hosts):
    """Nothing that they need is written into the files that agents make in its /tmp, nor is one
    left."""
    fill = "mount -o remount,size=1m /tmp && ! dd if=/dev/zero of=/tmp/fill bs=4k status=none"
    assert own_hosts[1].run(["sh", "-c", fill]).returncode == 0
    assert own_hosts[1].run(["stat", "-f", "-c", "%f", "/tmp"]).stdout == "0\n"
    before = Leftovers(own_hosts)
    for members in ("2", "2:2"):
        done = run(own_hosts, "-H", "node1,node2", "-np", members, "--quiet", "hostname")
        assert (done.status, done.err) == (0, "")
        assert sorted(done.out.split()) == ["node1", "node2"]
    until(lambda: not before.new(), "an end of all files")


@contextlib.contextmanager
def group_around(host: Host, controller: str) -> Iterator[Path]:
    """A control group of the host, of all that it starts from now on."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = [path for _, names, path in lines if names == controller]
    above = Path(f"/sys/fs/cgroup/{controller}{own[0] if own else ''}")
    if not own or not (above / "cgroup.procs").exists():
        pytest.skip(
            f"there is no hierarchy of the controller {controller} of its own (cgroup v1) here"
        )
    until(lambda: len(host.pids()) == 1, "an end of all sessions")
    group = above / f"regroup-full-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(host.pids()[0]))
        yield group
    finally:
        for pid in host.pids():
            with contextlib.suppress(ProcessLookupError):
                (above / "cgroup.procs").write_text(str(pid))
        until(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
        group.rmdir()


def test_a_host_that_takes_no_more_processes_is_named(own_hosts: Hosts):
    """With one more each time, until all is there: reaper, agent, regroup-pmi and its thread, the
    member."""
    refused = re.compile(r"regroup: host node2: .*k\(.+\): Resource temporarily unavailable")
    with group_around(own_hosts[1], "pids") as group:
        seen = []
        for more in range(2, 20):
            until(lambda: (group / "pids.current").read_text() == "1\n", "an end of all sessions")
            (group / "pids.max").write_text(str(1 + more))
            rigid = run(own_hosts, "-H", "node1,node2", "true")
            if rigid.status == 0:
                break
            assert refused.search(rigid.err), rigid.err
            assert rigid.told < NAMED_S
            seen += re.findall(r"k\(([^)]+)\)", rigid.err)
            elastic = run(own_hosts, "-H", "node1,node2", "-np", "1:2", "true")
            assert elastic.status == 0, elastic.err  # it is done without
            assert refused.search(elastic.err) or "unavailable" not in elastic.err, elastic.err
        assert rigid.err == ""
    names = [Path(name).name for name in seen]
    assert set(names) == {"the reaper", "the agent", "regroup-pmi", "true"}, seen


@pytest.mark.parametrize("members", ["1:2", "2:2"])
def test_memory_that_a_host_does_not_have_is_named(own_hosts: Hosts, members: str):
    """The member there has room for its own state, and not for the arena."""
    limit, state = 256 << 20, 150 << 20
    wanted = re.compile(rf"arena: (\d+) bytes requested, (\d+) available \(cgroup .* = {limit}\)\n")
    with group_around(own_hosts[1], "memory") as group:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        options = ["--tag-output", "--min-members-timeout", "5"]
        job = Training(own_hosts, "node1:1,node2:1", members, options, epochs=1, ballast=state)
        try:
            until(lambda: wanted.search(job.text()), "the reason")
            done_without = job.process.wait(4 * DEADLINE_S) == 0  # steps of 150 MiB
            assert done_without == (members == "1:2"), job.text()
        finally:
            job.close()
    text = job.text()
    assert all(state < int(bytes) and int(free) < state for bytes, free in wanted.findall(text)), (
        text
    )
    assert done_without or re.search(r"^regroup: the job failed: ", text, re.M), text


@pytest.mark.parametrize("victim", ["regroup-agent", "regroup"])
def test_nothing_is_left_when_the_launcher_dies(hosts: Hosts, victim):
    job = start(hosts, "-H", "node1,node2,node3", "sh", "-c", "echo ready; exec sleep 1000")
    assert [job.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    hosts[0].run(["pkill", "-KILL", "-x", "-o", victim])
    Done(job)
    until(lambda: not left_on(hosts), "an end of all processes")
    for host in hosts:
        assert host.run(["pgrep", "-x", "sleep"]).returncode == 1


def test_an_agent_that_dies_ends_the_job(hosts: Hosts):
    job = start(hosts, "-H", "node1,node2", "sh", "-c", "echo ready; exec sleep 1000")
    assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    hosts[1].run(["pkill", "-KILL", "-x", "regroup-agent"])
    done = Done(job)
    assert done.status == 1
    assert "host node2: the connection to its agent is lost" in done.err
    # its reaper ends its member, which the launcher does not see
    until(lambda: not left_on(hosts), "an end of all processes")
    assert hosts[1].run(["pgrep", "-x", "sleep"]).returncode == 1


def test_an_agent_that_stops_is_taken_for_lost(hosts: Hosts):
    job = start(hosts, "-H", "node1,node2", "sh", "-c", "echo ready; exec sleep 1000")
    assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    hosts[1].run(["pkill", "-STOP", "-x", "regroup-agent"])
    done = Done(job)
    assert done.status == 1
    assert "host node2: no message from its agent for 5 s" in done.err
    hosts[1].run(["pkill", "-CONT", "-x", "regroup-agent"])


def test_a_host_without_its_link_ends_the_job(hosts: Hosts):
    job = start(hosts, "-H", "node1,node2", "sh", "-c", "echo ready; exec sleep 1000")
    assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    hosts[1].link(False)
    done = Done(job)
    assert done.status == 1
    assert "host node2: " in done.err
    hosts[1].link(True)
