"""Generates command lines of mpirun.

A command line is a tuple of programs, each a tuple of options, each a tuple of words, so that what
fails can be made smaller by leaving parts out. `{host}` stands for this host's name.
"""

import dataclasses
import random
import socket
from collections.abc import Sequence

from machines import NAMES

Option = tuple[str, ...]
HOST = socket.gethostname()
HOSTS = ["{host}", "a", "b", "c"]
OBJECTS = ["hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "node"]


@dataclasses.dataclass(frozen=True)
class CommandLine:
    machine: str
    programs: tuple[tuple[Option, ...], ...]
    files: tuple[tuple[str, tuple[str, ...]], ...] = ()  # names and rows

    def words(self, dialect: str) -> list[str]:
        """A socket is a package in Open MPI 5."""
        out: list[str] = []
        for options in self.programs:
            out += [":"] if out else []
            out += [word for option in options for word in option] + ["true"]
        if dialect == "openmpi-5":
            out = [w if w.startswith("-") else w.replace("socket", "package") for w in out]
        return [word.replace("{host}", HOST) for word in out]

    def __str__(self) -> str:
        rows = [f"{name}: {row}" for name, lines in self.files for row in lines]
        return "\n".join([f"on {self.machine}: {' '.join(self.words('regroup'))}", *rows])


class Generator:
    """Equal seeds give equal command lines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.later = random.Random(f"later {seed}")  # so that older seeds keep their lines
        self.files: list[tuple[str, tuple[str, ...]]] = []

    def may(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def number(self, most: int) -> int:
        """Small ones more often."""
        return self.random.randint(1, self.random.randint(1, most))

    def some_hosts(self) -> list[str]:
        return self.random.sample(HOSTS, self.random.choice([1, 1, 2, 3]))

    def host_list(self, names: list[str]) -> list[Option]:
        return [("-H", ",".join(self.listed(name) for name in names))]

    def listed(self, name: str) -> str:
        if self.may(0.15):
            return ",".join([name] * self.number(3))
        return f"{name}:{self.number(10)}"

    def host_file(self, names: list[str]) -> list[Option]:
        """With comments, all forms of slots, and now and then a host that is left out."""
        rows = ["# hosts"] if self.may(0.2) else []
        for name in names:
            slots = self.number(8)
            rows.append(
                self.one(
                    [
                        f"{name} slots={slots}",
                        f"{name} slots = {slots}",
                        f"{name} slots={slots} max_slots={slots + self.number(4)}",
                        f"{name} max_slots={slots}",
                        name,
                    ]
                )
            )
        if self.later.random() < 0.08:
            rows.insert(self.later.randint(0, len(rows)), f"^{self.later.choice(HOSTS)}")
        self.files.append(("hosts", tuple(rows)))
        return [("--hostfile", "hosts")]

    def relative_hosts(self, count: int) -> list[Option]:
        """Of a host file with so many hosts."""
        chosen = [f"+n{self.later.randrange(count + 1)}" for _ in range(self.later.choice([1, 2]))]
        words = self.later.choice([chosen, chosen, ["+e"], ["+e:1"], ["{host}", "+n0"]])
        return [("-H", ",".join(words))]

    def places(self, names: list[str]) -> list[Option]:
        """Where hosts come from."""
        if self.may(0.65):
            return self.host_list(names)
        out = self.host_file(names)
        if self.later.random() < 0.1:
            return out + self.relative_hosts(len(names))
        if self.may(0.2):
            chosen = self.random.sample(names, self.number(len(names)))
            out += self.host_list(chosen)
        return out

    def qualifiers(self) -> str:
        out = ""
        if self.may(0.15):
            out += f":PE={self.number(4)}"
        if self.may(0.08):
            out += self.one([":SPAN", ":OVERSUBSCRIBE", ":NOOVERSUBSCRIBE", ":NOLOCAL"])
        if self.may(0.05):
            out += self.one([":HWTCPUS", ":CORECPUS"])
        return out

    def map_by(self) -> list[Option]:
        kind = self.random.random()
        if kind < 0.65:
            return [("--map-by", self.one([*OBJECTS, "slot"]) + self.qualifiers())]
        if kind < 0.85:
            return [("--map-by", f"ppr:{self.number(4)}:{self.one(OBJECTS)}{self.qualifiers()}")]
        if kind < 0.9:
            return [("--map-by", "seq" + self.qualifiers())]
        return [(self.one(["--npernode", "-N", "--npersocket"]), str(self.number(4)))]

    def rank_file(self, names: list[str]) -> list[Option]:
        count = self.number(5)
        rows = []
        for rank in range(count):
            cores = self.one(["{0}", "{0}", "{0}-{1}", "{0},{1}", "0:{0}", "1:{0}", "1:{0}-{1}"])
            first = self.random.randint(0, 4)
            slot = cores.format(first, first + self.number(2))
            rows.append(f"rank {rank}={self.one(names)} slot={slot}")
        if self.may(0.3):
            self.random.shuffle(rows)
        self.files.append(("ranks", tuple(rows)))
        return [("--rankfile", "ranks")]

    def placement(self, names: list[str]) -> list[Option]:
        """What counts for all programs."""
        out: list[Option] = []
        if self.may(0.06):
            out += self.rank_file(names)
        elif self.may(0.75):
            out += self.map_by()
        if self.may(0.2):
            out.append(("--rank-by", self.one(["slot", "node", "fill", "span", "core", "socket"])))
        if self.may(0.35):
            bound = self.one([*OBJECTS[:-1], "none"])
            qualifier = self.one(["", "", "", ":overload-allowed", ":if-supported"])
            out.append(("--bind-to", bound + qualifier))
        if self.may(0.12):
            out.append(("--oversubscribe",))
        if self.may(0.04):
            out.append(("--nooversubscribe",))
        if self.may(0.04):
            out.append(("--nolocal",))
        if self.may(0.08):
            out.append(("--use-hwthread-cpus",))
        if self.may(0.04):
            out.append(("--cpu-set", self.one(["0,1", "0-3", "1", "2,3"])))
        return out

    def make(self) -> CommandLine:
        names = self.some_hosts()
        programs: list[tuple[Option, ...]] = []
        for number in range(self.random.choice([1, 1, 1, 1, 2, 3])):
            options: list[Option] = []
            if number == 0:
                options += self.places(names)
                options += self.placement(names)
            elif self.may(0.15):
                options += self.host_list(self.random.sample(names, self.number(len(names))))
            if self.may(0.85):
                options.append(("-np", str(self.number(10))))
            programs.append(tuple(options))
        return CommandLine(self.one(NAMES), tuple(programs), tuple(self.files))
