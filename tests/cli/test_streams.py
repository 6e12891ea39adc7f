"""Output arrives whole and in lines, input goes to rank 0, and nobody who is slow costs memory."""

import collections
import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import LAUNCHERS, rival, rss_kib, until

PYTHON = [sys.executable, "-c"]


def test_lines_of_ranks_are_never_torn(regroup):
    lines, ranks = 1500, 4
    script = (  # writes at odd places, without regard to line ends
        "import os, random\n"
        "r = os.environ['RANK']\n"
        f"t = ''.join(f'rank {{r}} line {{i}} ' + r * (i % 300) + '\\n' for i in "
        f"range({lines})).encode()\n"
        "random.seed(r)\n"
        "while t:\n"
        "    n = random.randint(1, 3000)\n"
        "    os.write(1, t[:n]); t = t[n:]\n"
    )
    job = regroup.run("--oversubscribe", "-np", str(ranks), *PYTHON, script)
    assert job.wait() == 0
    seen = collections.Counter()
    for line in job.out.splitlines():
        match = re.fullmatch(r"rank (\d) line (\d+) (\d*)", line)
        assert match and match[3] == match[1] * (int(match[2]) % 300), line
        assert int(match[2]) == seen[match[1]], "a line is lost or out of order"
        seen[match[1]] += 1
    assert seen == {str(rank): lines for rank in range(ranks)}


# Of rank r, which writes them in twenty parts, with short ones in between.
LONG_LINES = (
    "import os, time\n"
    "r = os.environ['RANK']\n"
    "for i in range(12):\n"
    "    for part in range(20): os.write(1, r.encode() * (200 + 2000 * i)); time.sleep(0.0005)\n"
    "    os.write(1, f'\\nrank {r} line {i}\\n'.encode())\n"
)


def long_lines(rank: int) -> list[str]:
    return [
        line
        for i in range(12)
        for line in (f"{rank}" * 20 * (200 + 2000 * i), f"rank {rank} line {i}")
    ]


@pytest.mark.parametrize("tagged", [False, True])
def test_long_lines_are_not_torn_either(regroup, tagged):
    options = ["--tag-output"] if tagged else []
    job = regroup.run("--oversubscribe", "-np", "3", *options, *PYTHON, LONG_LINES)
    assert (job.wait(), job.err) == (0, "")
    seen = collections.defaultdict(list)
    for line in job.out.splitlines():
        tag, line = (
            (line[: len("[1,0]<stdout>:")], line[len("[1,0]<stdout>:") :]) if tagged else ("", line)
        )
        rank = int(line.split()[1] if line.startswith("rank") else line[0])
        assert tag == (f"[1,{rank}]<stdout>:" if tagged else "")
        seen[rank].append(line)
    assert seen == {rank: long_lines(rank) for rank in range(3)}


def test_a_long_line_without_an_end_is_whole_when_the_rank_ends(regroup):
    script = "import os; os.write(1, os.environ['RANK'].encode() * 300_000)"
    job = regroup.run("--oversubscribe", "-np", "2", *PYTHON, script)
    assert (job.wait(), job.err) == (0, "")
    assert job.out in ("0" * 300_000 + "1" * 300_000, "1" * 300_000 + "0" * 300_000)
    job = regroup.run("--oversubscribe", "-np", "2", "--tag-output", *PYTHON, script)
    assert sorted(job.out.splitlines()) == [
        f"[1,{rank}]<stdout>:" + f"{rank}" * 300_000 for rank in range(2)
    ]


LONG = "import os; os.write(1, os.environ['RANK'].encode() * 300_000 + b'\\nshort\\n')"


def test_a_long_line_is_whole_where_tmpdir_is_not_there(regroup, tmp_path):
    env = {**os.environ, "TMPDIR": str(tmp_path / "lost")}
    job = regroup.run("--oversubscribe", "-np", "2", *PYTHON, LONG, env=env)
    assert (job.wait(), job.err) == (0, "")
    assert sorted(job.out.splitlines()) == ["0" * 300_000, "1" * 300_000, "short", "short"]


def test_a_long_line_is_cut_where_there_is_no_room_for_it(regroup, tmp_path):
    """TMPDIR has 64 KiB."""
    mounted = 'mount -t tmpfs -o size=64k small "$TMPDIR" && exec "$@"'
    words = [*LAUNCHERS["regroup"], "-np", "2", *PYTHON, LONG]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", *words],
        env={**regroup.env, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [
        f"regroup: a long line of rank {r} is cut: write(a file in $TMPDIR): No space left on "
        f"device"
        for r in (0, 1)
    ]
    assert sorted(done.stderr.splitlines()) == said
    assert collections.Counter(done.stdout) == {
        "0": 300_000,
        "1": 300_000,
        **collections.Counter("\nshort\n" * 2),
    }


def test_a_long_line_is_kept_on_the_disk_and_holds_up_nobody(regroup, tmp_path):
    """The rank that has it waits for another, whose lines come meanwhile."""
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "at = Path(sys.argv[1])\n"
        "if os.environ['RANK'] == '0':\n"
        "    for i in range(50 << 4): os.write(1, b'0' * 65536)\n"
        "    at.touch()\n"
        "    while at.exists(): time.sleep(0.01)\n"
        "    os.write(1, b'\\n')\n"
        "else:\n"
        "    while not at.exists(): time.sleep(0.01)\n"
        "    for i in range(1000): os.write(1, b'1\\n')\n"
    )
    read, write = os.pipe()
    at = tmp_path / "at"
    job = regroup.start("--oversubscribe", "-np", "2", *PYTHON, script, str(at), stdout=write)
    os.close(write)
    with open(read, "rb") as lines:
        assert [lines.readline() for _ in range(1000)] == [b"1\n"] * 1000
        assert rss_kib(job.agent) < 40_000
        at.unlink()
        assert lines.readline() == b"0" * (50 << 20) + b"\n"
    assert job.wait() == 0


def test_tags(regroup):
    job = regroup.run(
        "--oversubscribe", "-np", "2", "--tag-output", "sh", "-c", "echo a; echo b >&2; printf c"
    )
    assert sorted(job.out.splitlines()) == [
        "[1,0]<stdout>:a", "[1,0]<stdout>:c", "[1,1]<stdout>:a", "[1,1]<stdout>:c",
    ]  # fmt: skip
    assert sorted(job.err.splitlines()) == ["[1,0]<stderr>:b", "[1,1]<stderr>:b"]


def test_a_line_that_comes_in_parts_has_one_tag(regroup):
    """Open MPI 4 puts one before each part, in the middle of the line."""
    slow = "printf a; sleep 0.3; printf 'b\\tc'; sleep 0.3; printf 'd\\n'"
    job = regroup.run("-np", "1", "--tag-output", "sh", "-c", slow)
    assert (job.wait(), job.out) == (0, "[1,0]<stdout>:ab\tcd\n")


def test_partial_last_line_and_long_lines_keep_their_bytes(regroup):
    job = regroup.run("-np", "1", *PYTHON, "import os; os.write(1, b'x' * 300000 + b'\\nend')")
    assert job.out == "x" * 300000 + "\nend"


def test_stdin_goes_to_rank_0_alone(regroup, tmp_path):
    text = os.urandom(1 << 20)
    (tmp_path / "input").write_bytes(text)
    script = (
        "import os, sys, hashlib\n"
        "d = sys.stdin.buffer.read()\n"
        "print(os.environ['RANK'], len(d), hashlib.sha256(d).hexdigest()[:8])\n"
    )
    digest = hashlib.sha256(text).hexdigest()[:8]
    empty = hashlib.sha256(b"").hexdigest()[:8]
    wanted = [f"0 {len(text)} {digest}", f"1 0 {empty}"]
    with open(tmp_path / "input", "rb") as file:
        job = regroup.run("--oversubscribe", "-np", "2", *PYTHON, script, stdin=file)
    assert sorted(job.out.splitlines()) == wanted
    read, write = os.pipe()
    with subprocess.Popen(["cat", str(tmp_path / "input")], stdout=write):
        os.close(write)
        job = regroup.run("--oversubscribe", "-np", "2", *PYTHON, script, stdin=read)
        os.close(read)
    assert sorted(job.out.splitlines()) == wanted


def test_stdin_that_nobody_reads_is_not_swallowed(regroup):
    read, write = os.pipe()
    job = regroup.start("-np", "1", "sh", "-c", "echo up; exec sleep 60", stdin=read)
    os.close(read)
    job.wait_out("up")
    os.set_blocking(write, False)
    taken = 0

    def full() -> bool:
        nonlocal taken
        try:
            taken += os.write(write, b"x" * 65536)
            return False
        except BlockingIOError:
            return True

    until(full, "the launcher stops reading")
    assert taken < 1 << 20
    os.close(write)


def test_slow_reader_holds_the_members_back(regroup):
    size = 48 << 20
    script = (
        "import os, sys\n"
        "line = b'y' * 1023 + b'\\n'\n"
        f"for i in range({size} // 1024): os.write(1, line)\n"
        "sys.stderr.write('all written\\n')\n"
    )
    read, write = os.pipe()
    job = regroup.start("-np", "1", *PYTHON, script, stdout=write)
    os.close(write)
    blocked = f"/proc/{job.process.pid}/task/{job.process.pid}/children"
    until(lambda: Path(blocked).read_text().split(), "agent")
    agent = job.agent
    start = rss_kib(agent)
    got = os.read(read, 1 << 16)  # it runs; and now we stop reading
    member = int(Path(f"/proc/{agent}/task/{agent}/children").read_text().split()[0])

    def written() -> int:
        return int(re.search(r"wchar: (\d+)", Path(f"/proc/{member}/io").read_text())[1])

    def stands_still() -> bool:
        before = written()
        time.sleep(0.2)  # the span of the observation
        return written() == before

    until(stands_still, "the member is held back")
    assert written() < 4 << 20
    assert rss_kib(agent) < start + 16_000
    assert "all written" not in job.err
    total = len(got)
    while block := os.read(read, 1 << 20):
        total += len(block)
    os.close(read)
    assert total == size
    assert job.wait() == 0
    assert "all written" in job.err


def test_reader_that_goes_away_ends_the_job(regroup):
    read, write = os.pipe()
    job = regroup.start("--oversubscribe", "-np", "2", "yes", stdout=write)
    os.close(write)
    assert os.read(read, 2) == b"y\n"
    os.close(read)
    assert job.wait() == 128 + 13
    job.assert_nothing_left()


def test_flags_of_borrowed_descriptors_stay(regroup):
    read, write = os.pipe()
    job = regroup.start("-np", "1", "sh", "-c", "echo x; cat", stdin=read, stdout=write)
    assert os.read(read, 2) == b"x\n"  # a loop through the job: its input is its output
    assert os.get_blocking(read)
    assert os.get_blocking(write)
    os.close(read)
    os.close(write)
    job.close()


def test_environment_of_ranks(regroup):
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR OMP_NUM_THREADS REGROUP_AGENT"
    show = "echo " + " ".join(f"${{{name}-none}}" for name in names.split())
    job = regroup.run("--oversubscribe", "-np", "2", "sh", "-c", show)
    assert sorted(job.out.splitlines()) == ["0 2 0 2 127.0.0.1 1 none", "1 2 1 2 127.0.0.1 1 none"]
    job = regroup.run(
        "-np",
        "1",
        "-x",
        "A=b c",
        "sh",
        "-c",
        'echo "$A $OMP_NUM_THREADS"',
        env={"OMP_NUM_THREADS": "3"},
    )
    assert job.out == "b c 3\n"


OUTER = {
    "MASTER_ADDR": "outer",
    "RANK": "7",
    "PMI_PORT": "9",
    "PMIX_RANK": "7",
    "REGROUP_AGENT": "outer",
    "GROUP_RANK": "7",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "REGROUP_TIMELINE": "outer",
    "REGROUP_PS": "outer",
    "JAX_COORDINATOR_PORT": "outer",
}
SHOW_OUTER = [
    "sh",
    "-c",
    'echo "$MASTER_ADDR $RANK ${PMI_PORT-none} ${PMIX_RANK-none} ${REGROUP_AGENT-none} $GROUP_RANK '
    "${TORCHELASTIC_USE_AGENT_STORE-none}${REGROUP_TIMELINE-}${REGROUP_PS-} "
    '$JAX_COORDINATOR_PORT"',
]


def test_members_are_none_of_the_job_around(regroup):
    job = regroup.run("-np", "1", *SHOW_OUTER, env=OUTER)
    assert re.fullmatch(r"127\.0\.0\.1 0 none (none|0) none 0 none \d+\n", job.out)


@pytest.mark.parametrize("launcher", ["regroup", "openmpi-4", "openmpi-5"])
def test_what_the_command_line_says_of_a_place_is_kept(regroup, launcher):
    said = ["-x", "MASTER_ADDR=10.0.0.1", "-x", "MASTER_PORT", "-x", "PMI_ODD=3"]
    show = ["sh", "-c", 'echo "$MASTER_ADDR $MASTER_PORT $PMI_ODD"']
    env = {**regroup.env, "MASTER_PORT": "4711"}
    job = subprocess.run(
        [*rival(launcher), "-np", "1", *said, *show],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert job.stdout == "10.0.0.1 4711 3\n"


CORES = len(os.sched_getaffinity(0))


def test_hosts_of_hydra_do_not_limit_threads(regroup, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text(os.uname().nodename + "\n")  # one member a turn
    show = ["sh", "-c", 'echo "$OMP_NUM_THREADS"']
    job = regroup.run("--compat=mpich", "-f", hosts, "-n", "1", *show)
    assert job.out == f"{CORES}\n"


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        (["-np", "1"], 1),  # bound to a core
        (["-np", "1", "--bind-to", "none"], CORES),
        (["-np", "1", "--map-by", "slot:PE=2"], 2),
        (["-np", "1", "--bind-to", "package"], CORES),
        (["-np", "2", "--bind-to", "package"], CORES // 2),
        (["-np", str(2 * CORES), "--oversubscribe"], 1),
        (["-np", "1:1", "--bind-to", "none"], 1),  # more may come, and weights depend on it
        (["-np", "1", "--bind-to", "none", "-x", "OMP_NUM_THREADS=9"], 9),
    ],
)
@pytest.mark.skipif(CORES < 2, reason="two processors are needed")
def test_threads_are_the_share_of_the_cores(regroup, options, threads):
    job = regroup.run(*options, "printenv", "OMP_NUM_THREADS")
    assert set(job.out.split()) == {str(threads)}, job.err


def test_master_port_is_free_and_the_same_for_all(regroup):
    script = (
        "import os, socket, time\n"
        "p = int(os.environ['MASTER_PORT'])\n"
        "print(p)\n"
        "if os.environ['RANK'] == '0':\n"
        "    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "    s.bind(('127.0.0.1', p)); s.listen(); s.accept()\n"
        "else:\n"
        "    end = time.monotonic() + 50\n"
        "    while socket.socket().connect_ex(('127.0.0.1', p)): assert time.monotonic() < end\n"
    )
    job = regroup.run("--oversubscribe", "-np", "2", *PYTHON, script)
    assert job.wait() == 0, job.err
    assert len(set(job.out.split())) == 1


def test_members_of_an_elastic_job_on_several_hosts_have_one_master_port(regroup):
    hosts = ("--launcher", "fork", "-H", "a:1,b:1")
    job = regroup.run(*hosts, "-np", "2:2", "sh", "-c", 'echo "$MASTER_PORT"')
    ports = job.out.split()
    assert len(ports) == 2 and len(set(ports)) == 1 and int(ports[0]) > 0, (job.out, job.err)


def test_members_get_their_streams_and_pmi(regroup):
    """Nothing of the launcher's leaks into a member; 3 is its connection to regroup-pmi."""
    leaked = os.open("/dev/null", os.O_RDONLY)
    job = regroup.run(
        "-np", "1", "sh", "-c", "ls /proc/$$/fd; readlink /proc/$$/fd/$PMI_FD", pass_fds=[leaked]
    )
    os.close(leaked)
    *descriptors, pmi = job.out.split()
    assert descriptors == ["0", "1", "2", "3"]
    assert pmi.startswith("socket:")
