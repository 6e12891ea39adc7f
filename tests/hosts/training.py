"""An elastic job of the digits model on test hosts, its members' trails, and the verdict on
them."""

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import sklearn
from hosts import ROOT, Host, Hosts, until

sys.path.insert(0, str(ROOT / "tests/chaos"))
from audit import check_epochs  # noqa: E402
from schedule import STEPS_PER_EPOCH  # noqa: E402

BIN = ROOT / "build/bin"
SHARDS = 6
EPOCHS = 6
WHERE = "node1:2,node2:2,node3:2"
JOB_DEADLINE_S = 240.0


def digits_csv(folder: Path) -> Path:
    packed = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
    path = folder / "digits.csv"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def weights_alone(folder: Path, epochs: int, ballast: int = 0, gradient: int = 0) -> str:
    """What one process alone ends with, with the seed and shards of a Training; it writes into
    `folder`."""
    sizes = [str(epochs), "0", str(ballast), str(gradient)]
    member = [BIN / "chaos_member", digits_csv(folder), folder, *sizes]
    job = [BIN / "regroup", "--shards", str(SHARDS), "--seed", "7", "-np", "1:1"]
    subprocess.run([*job, *member], check=True, timeout=600, capture_output=True)
    (weights,) = folder.glob("weights.*")
    return weights.read_text()


class Trails:
    """What members of all hosts wrote down, each host in a folder of its own: process numbers
    repeat."""

    def __init__(self, folder: Path):
        self.folder = folder

    def files(self, kind: str) -> list[Path]:
        return sorted(self.folder.glob(f"*/{kind}.[0-9]*"))

    def weights(self) -> list[str]:
        return [
            path.read_text() for path in self.files("weights") if not path.name.endswith(".part")
        ]

    def furthest(self) -> int:
        """The highest step of which somebody has begun a shard."""
        step = 0
        for path in self.files("computed"):
            lines = path.read_bytes()[-4096:].split(b"\n")
            if len(lines) > 1 and lines[-2]:
                step = max(step, int(lines[-2].split()[0]))
        return step

    def shards(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Samples of each (step, leaf) that somebody began to compute: the same, whoever and how
        often."""
        shards: dict[tuple[int, int], tuple[int, ...]] = {}
        for path in self.files("computed"):
            for line in path.read_text().split("\n")[:-1]:
                step, leaf, *samples = map(int, line.split())
                assert shards.setdefault((step, leaf), tuple(samples)) == tuple(samples)
        return shards

    def check(self, epochs: int) -> None:
        """Every sample was used in exactly one step of each epoch."""
        used = ((step, i) for (step, _), samples in self.shards().items() for i in samples)
        check_epochs(used, epochs)


class Training:
    """A job that runs, started on the first of the hosts; each shard takes `pace_us` until hurry().
    `ballast`, `gradient`: bytes of the state and of each gradient beside the model's. `before`:
    words in front of the command."""

    def __init__(
        self,
        hosts: Hosts,
        where: str,
        members: str,
        options: Sequence[str] = (),
        *,
        epochs: int = 6,
        pace_us: int = 2000,
        ballast: int = 0,
        gradient: int = 0,
        before: Sequence[str] = (),
    ):
        self.hosts, self.epochs = hosts, epochs
        self.folder = Path(hosts.folder) / f"training-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.trails = Trails(self.folder)
        csv = digits_csv(self.folder)
        own = f"{self.folder}/$(hostname)"
        sizes = f"{epochs} {pace_us} {ballast} {gradient}"
        member = f"mkdir -p {own}; exec {BIN}/chaos_member {csv} {own} {sizes}"
        self.out = (self.folder / "output").open("w+")
        self.process = hosts[0].popen(
            [
                *(*before, str(BIN / "regroup"), "--ssh-command", " ".join(hosts.ssh), "-H", where),
                *(
                    "--shards",
                    str(SHARDS),
                    "--seed",
                    "7",
                    *options,
                    "-np",
                    members,
                    "sh",
                    "-c",
                    member,
                ),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.out,
        )

    @property
    def steps(self) -> int:
        return self.epochs * STEPS_PER_EPOCH

    def text(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def reach(self, step: int) -> None:
        """Until somebody has begun this step."""
        until(
            lambda: self.trails.furthest() >= step or self.process.poll() is not None,
            f"step {step}",
            60,
        )
        assert self.process.poll() is None, self.text()

    def control(self, *words: str) -> str:
        done = self.hosts[0].run([BIN / "regroup", *words])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict:
        return json.loads(self.control("status", "--json"))

    def until_size(self, size: int) -> None:
        until(lambda: self.status()["size"] == size, f"{size} members", 60)

    def until_said(self, text: str, deadline_s: float) -> None:
        self.until_found(re.escape(text), deadline_s)

    def until_found(self, pattern: str, deadline_s: float) -> None:
        until(
            lambda: re.search(pattern, self.text()) or self.process.poll() is not None,
            f"'{pattern}'",
            deadline_s,
        )
        assert re.search(pattern, self.text()), f"the job is over before '{pattern}'"

    def until_lost(self, before: int, after: int) -> None:
        """The World goes on with `after` of its `before` members. Where the survivors are slow,
        those who replace the lost ones come in the same generation."""
        self.until_found(f"was lost.*: {before} -> [{after}-{before}] members?\\b", 60)

    def hurry(self) -> None:
        """Members no longer take their time: what was to be seen has been."""
        (self.folder / "hurry").touch()

    def wait(self, deadline_s: float = JOB_DEADLINE_S) -> int:
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on for ever\n{self.status()}\n{self.text()}") from None

    def expect_weights(self, undisturbed: str, status: int = 0) -> None:
        """It ends so, every sample was used once in each epoch, and all who finished have these
        weights."""
        assert self.wait() == status, self.text()
        self.trails.check(self.epochs)
        weights = self.trails.weights()
        assert weights, self.text()
        assert set(weights) == {undisturbed}, self.text()

    def close(self, *, shown: bool = True) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.out.close()
        if shown:
            print(self.text())  # pytest shows it of a test that failed


Start = Callable[..., Training]


@contextlib.contextmanager
def starter(hosts: Hosts) -> Iterator[Start]:
    """Begins jobs of EPOCHS epochs, and ends those that are left; then nothing of them may be."""
    jobs = []

    def start(where: str = WHERE, members: str = "2:6", *options: str, **how) -> Training:
        jobs.append(Training(hosts, where, members, options, **{"epochs": EPOCHS} | how))
        return jobs[-1]

    try:
        yield start
    finally:
        for job in jobs:
            job.close()
    until(lambda: not left_on(hosts), "an end of all processes of regroup")


def processes(host: Host, name: str) -> list[int]:
    """Those of that command name on the host, by their numbers out here."""
    if name not in host.names():
        return []
    found = []
    for pid in host.pids():
        try:
            comm = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if comm == name:
            found.append(pid)
    return sorted(found)


def _started_by(pid: int) -> str:
    """The command name of the process's parent; "" where it has ended."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        return Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return ""


def agent_of(host: Host) -> list[int]:
    """The process whose end is that of the agent, where the host has one. What it starts just now
    has its name, too."""
    agents = processes(host, "regroup-agent")
    return [pid for pid in agents if _started_by(pid) == "regroup-reaper"][-1:]


def ports(pid: int) -> list[int]:
    """On which the process listens for TCP."""
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd)):
                sockets.add(found[1])
    listening = []
    lines = [
        Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")
    ]
    for line in lines[0] + lines[1]:
        words = line.split()
        if words[3] == "0A" and words[9] in sockets:
            listening.append(int(words[1].split(":")[1], 16))
    return listening


def kill(pids: Sequence[int]) -> None:
    assert pids, "nobody is there to be killed"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def left_on(hosts: Hosts) -> list[str]:
    """Members and processes of regroup on any host; once a job is over there is none."""
    names = ("regroup-control", "regroup-agent", "regroup-reaper", "regroup-coord", "chaos_member")
    return [f"{host.name}: {name}" for host in hosts for name in host.names() if name in names]
