"""Command lines of hydra, the launcher of MPICH: the hosts of ranks, their processors where they
are bound, and the exit status.

hydra has no option that only shows a placement, so it runs: its ranks say where they are, before
them its processes how they are bound (HYDRA_TOPO_DEBUG), and a script stands for ssh to hosts that
do not exist.
"""

import dataclasses
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import launchers
from launchers import HOST
from machines import NAMES, load

HOSTS = ["a", "b", "c"]
OBJECTS = ["hwthread", "core", "l2cache", "l3cache", "numa", "socket"]
SIGNALS = ["KILL", "TERM", "SEGV", "ABRT", "USR1"]
REMOTE = """\
#!/bin/bash
# usage: [option ...] HOST COMMAND
while [[ $1 == -* ]]; do [[ $1 == -l ]] && shift; shift; done
export RD_HOST=$1; shift
exec sh -c "$*"
"""
SAYS = "echo rank $PMI_RANK on ${RD_HOST-here}"


@dataclasses.dataclass(frozen=True)
class HydraLine:
    machine: str
    programs: tuple[tuple[str, ...], ...]  # the options of each
    hosts: tuple[str, ...] = ()  # rows of a host file
    ends: tuple[str, ...] = ()  # what the ranks of each program do at last; empty: nothing

    def words(self) -> list[str]:
        out: list[str] = []
        for number, options in enumerate(self.programs):
            script = "; ".join([SAYS, *self.ends[number : number + 1]])
            out += [":"] if out else []
            out += [*options, "sh", "-c", script]
        return out

    def bound_to(self, kind: str) -> bool:
        return f"-bind-to {kind}" in " ".join(self.programs[0])

    def unbound(self) -> "HydraLine":
        """For this machine, which has other processors."""
        first = list(self.programs[0])
        for option in ("-bind-to", "-map-by"):
            if option in first:
                del first[first.index(option) : first.index(option) + 2]
        return dataclasses.replace(self, programs=(tuple(first), *self.programs[1:]))

    def __str__(self) -> str:
        words = [f"'{word}'" if " " in word else word for word in self.words()]
        return "\n".join([f"on {self.machine}: {' '.join(words)}", *self.hosts])


class Generator:
    """Equal seeds give equal command lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"hydra {seed}")

    def may(self, probability: float) -> bool:
        return self.random.random() < probability

    def number(self, most: int) -> int:
        return self.random.randint(1, self.random.randint(1, most))

    def host(self, name: str) -> str:
        return name if self.may(0.3) else f"{name}:{self.number(4)}"

    def places(self) -> tuple[list[str], tuple[str, ...]]:
        names = [
            self.host(name) for name in self.random.sample(HOSTS, self.random.choice([1, 2, 3]))
        ]
        options = ["-ppn", str(self.number(3))] if self.may(0.2) else []
        if self.may(0.5):
            return ["-hosts", ",".join(names), *options], ()
        return ["-f", "hosts", *options], tuple(names)

    def binding(self) -> list[str]:
        if self.may(0.4):
            return []
        kind = self.random.choice(
            [*OBJECTS, "core:2", "hwthread:2", "none", "user:0,2", "user:1+3"]
        )
        out = ["-bind-to", kind]
        if ":" not in kind and kind != "none" and self.may(0.5):
            out += ["-map-by", self.random.choice(OBJECTS)]
        return out

    def end(self) -> str:
        if self.may(0.7):
            return f"exit {self.random.choice([0, 0, 1, 2, 3, 7, 42, 127, 128, 255])}"
        return f"kill -{self.random.choice(SIGNALS)} $$"

    def make(self) -> HydraLine:
        """Of one program all ranks exit alike, or the only one dies of a signal: whom a first end
        ends differs from run to run."""
        options, rows = self.places()
        count = self.random.choice([1, 1, 1, 2, 3])
        programs = []
        for number in range(count):
            own = options + self.binding() if number == 0 else []
            programs.append((*own, *(["-n", str(self.number(9))] if self.may(0.9) else [])))
        ends = (self.end(),) if count == 1 and self.may(0.4) else ()
        if ends and "kill" in ends[0]:
            programs = [(*options, *self.binding(), "-n", "1")]
        return HydraLine(self.random.choice(NAMES), tuple(programs), rows, ends)


@dataclasses.dataclass(frozen=True)
class Ran:
    status: int
    hosts: tuple[str, ...]  # by rank
    bound: tuple[tuple[int, ...], ...]  # the processors of each rank; empty: not bound
    said: str
    shown: int = 0  # hydra shows so many of the processors, those with the lowest numbers


def run(words: list[str], line: HydraLine, folder: Path, **more: str) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory(prefix="rd") as name:
        Path(name, "hosts").write_text("".join(f"{row}\n" for row in line.hosts))
        Path(name, "remote").write_text(REMOTE)
        Path(name, "remote").chmod(0o700)
        environment = launchers.environment(load(folder, line.machine), name, **more)
        command = [word.replace("{folder}", name) for word in words] + line.words()
        try:
            done = subprocess.run(
                command,
                cwd=name,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=launchers.DEADLINE_S,
            )
        except subprocess.TimeoutExpired:
            return launchers.DOES_NOT_END, "", "does not end"
        return done.returncode, done.stdout, done.stderr


def by_hydra(line: HydraLine, folder: Path) -> Ran:
    """Before a rank runs, its process writes how it is bound."""
    words = [shutil.which("mpiexec.hydra"), "-prepend-rank", "-launcher", "ssh"]
    words += ["-launcher-exec", "{folder}/remote"]
    status, out, said = run(words, line, folder, HYDRA_TOPO_DEBUG="1")
    found = {int(rank): host for rank, host in re.findall(r"rank (\d+) on (\S+)$", out, re.M)}
    masks = dict(re.findall(r"^\[(\d+)\] process \d+ binding: ([01]+)$", out, re.M))
    bound = []
    for rank in sorted(found):
        mask = masks.get(str(rank), "")
        bound.append(tuple(bit for bit, digit in enumerate(mask) if digit == "1"))
    hosts = tuple(HOST if found[rank] == "here" else found[rank] for rank in sorted(found))
    shown = max(map(len, masks.values()), default=0)
    return Ran(status, hosts, tuple(bound), said, shown)


def by_regroup(line: HydraLine, folder: Path) -> Ran:
    """Shows the placement on the machine of the file, and runs on this one for the status."""
    program = str(launchers.BIN / "regroup")
    status, out, said = run([program, "--compat=mpich", "--do-not-launch"], line, folder)
    alone = re.match(r"map: \d+ members? on (\S+),", out)
    several = " hosts, " in out.partition("\n")[0]
    places = []
    for row in out.splitlines():
        if match := re.match(r"\s*\d+\s+sh\s+(.*?)\s\s+(any|[\d,-]+)(?:\s\s+\S.*)?$", row):
            host = match[1].split()[0] if several or not alone else alone[1]
            places.append((host, "" if match[2] == "any" else match[2]))
    hosts = tuple(host for host, _ in places)
    bound = tuple(tuple(launchers.numbers(cpus)) if cpus else () for _, cpus in places)
    if line.ends and places:
        words = [program, "--compat=mpich", "--ssh-command", "{folder}/remote"]
        status, _, said = run(words, line.unbound(), folder, HWLOC_XMLFILE="")
    return Ran(status, hosts, bound, said)


def visible(ran: Ran, shown: int) -> list[list[int]]:
    return [[cpu for cpu in cpus if cpu < shown] for cpus in ran.bound]


def reason(line: HydraLine, theirs: Ran, ours: Ran) -> str:
    """Why `regroup` means to differ; "": it does not."""
    words = " ".join(line.programs[0])
    if "control_cb" in theirs.said and "assert (!closed) failed" in theirs.said:
        return "hydra 4.0.2 ends the job now and then when a proxy ends: assert (!closed) failed"
    if len(line.programs) > 1 and any("-n" not in program for program in line.programs):
        return "of several programs one without -n has one rank (docs/guide/mpirun.md)"
    if theirs.status == 255 and ours.hosts and not line.bound_to("none"):
        if "object not found" in theirs.said and "-map-by" in words:
            return "-map-by of an object within that of -bind-to does not matter"
        if "larger than total system size" in theirs.said:
            return "-bind-to OBJECT:N takes what the machine has"
    if line.bound_to("user"):
        length = len(words.partition("user:")[2].split()[0].split(","))
        if len(ours.hosts) > length and theirs.hosts == ours.hosts:
            return "the lists of -bind-to user are used in turn; hydra leaves later ranks unbound"
        if not ours.hosts and "are available to this job" in ours.said:
            return "-bind-to user with a processor that the machine lacks is refused"
    return ""


def difference(theirs: Ran, ours: Ran) -> str:
    if theirs.hosts != ours.hosts:
        return "hosts"
    if visible(theirs, theirs.shown) != visible(ours, theirs.shown):
        return "processors"
    return "status" if theirs.status != ours.status else ""


def shown(ran: Ran) -> str:
    pairs = zip(ran.hosts, ran.bound, strict=False)
    where = " | ".join(f"{host} {list(cpus) if cpus else 'any'}" for host, cpus in pairs)
    return f"status {ran.status}: {where or ran.said.strip()[:300]}"


def compare(line: HydraLine, folder: Path) -> tuple[str, str] | None:
    """What differs, and the reason, "" if there is none."""
    theirs, ours = by_hydra(line, folder), by_regroup(line, folder)
    kind = difference(theirs, ours)
    if not kind:
        return None
    said = f"{kind}: {line}\n  regroup: {shown(ours)}\n  hydra:   {shown(theirs)}"
    return said, reason(line, theirs, ours)
