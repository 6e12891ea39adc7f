"""Asks a launcher where it would run the ranks of a command line, and reads its answer.

All of them read the machine from HWLOC_XMLFILE and start nothing. Each has a folder of its own for
temporary files: the mpiruns of several jobs remove each other's.
"""

import dataclasses
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from command_lines import CommandLine
from machines import ROOT, Machine

DEADLINE_S = 60.0
DOES_NOT_END = 124  # as timeout(1)
BIN = Path(
    os.environ.get("REGROUP_BIN_DIR")
    or Path(shutil.which("regroup") or ROOT / "build/bin/regroup").parent
)
ROOT_MAY = ["--allow-run-as-root"] if os.geteuid() == 0 else []
HOST = socket.gethostname()


@dataclasses.dataclass(frozen=True)
class Place:
    """A version of Open MPI writes a binding in its own form, and `regroup` in that of 5."""

    host: str
    processors: frozenset[int] | None  # None: not bound, or not known
    binding: str  # of Open MPI 5: package[0][core:L0-3,5] package[1][hwt:L4]; else ""


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    places: tuple[Place, ...]  # by rank; empty: refused
    said: str

    @property
    def accepted(self) -> bool:
        return bool(self.places)


def program_environment() -> dict[str, str]:
    """Nothing of an allocation, and no parameters of MPI."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def environment(machine: Machine, folder: str, **more: str) -> dict[str, str]:
    """Where HWLOC_COMPONENTS is set, hwloc reads this machine instead of the file."""
    description = {"HWLOC_XMLFILE": str(machine.path)}
    places = dict.fromkeys(("TMPDIR", "PRTE_MCA_prte_tmpdir_base", "XDG_RUNTIME_DIR"), folder)
    return program_environment() | description | places | more


def run(words: list[str], line: CommandLine, machine: Machine, dialect: str, **more: str):
    """Runs in a folder with the files of the command line."""
    with tempfile.TemporaryDirectory(prefix="rd") as folder:
        for name, rows in line.files:
            Path(folder, name).write_text(
                "".join(f"{row}\n" for row in rows).replace("{host}", HOST)
            )
        command = [*words, *line.words(dialect)]
        try:
            return subprocess.run(
                command,
                cwd=folder,
                env=environment(machine, folder, **more),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=DEADLINE_S,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, DOES_NOT_END, "", "does not end")


def numbers(text: str) -> list[int]:
    """0-2,5 -> 0 1 2 5"""
    out = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def place_of_4(host: str, text: str, machine: Machine) -> Place:
    """[BB/../..][../../..]: a letter for each hardware thread."""
    letters = re.sub(r"[^B.]", "", text)
    if len(letters) != len(machine.threads):
        return Place(host, None, "")
    bound = frozenset(
        os for os, letter in zip(machine.threads, letters, strict=True) if letter == "B"
    )
    return Place(host, bound or None, "")


def place_of_5(host: str, text: str, machine: Machine) -> Place:
    """Where cores have one thread, a core and its thread are one."""
    one = len(machine.cores) == len(machine.threads)
    return Place(host, None, text.replace("hwt:", "core:") if one else text)


def ordered(found: list[tuple[int, Place]]) -> tuple[Place, ...]:
    return tuple(place for _, place in sorted(found, key=lambda pair: pair[0]))


def mpirun(
    words: list[str], line: CommandLine, machine: Machine, dialect: str, read, **more: str
) -> Answer:
    done = run(words, line, machine, dialect, **more)
    found, host, rank = [], "", -1
    for row in done.stdout.splitlines():
        if match := re.search(r"Data for node: (\S+)", row):
            host = match[1]
        elif match := re.search(r"Data for proc: \[.*,(\d+)\]", row):
            rank = int(match[1])
        elif match := re.search(r"^\s*Binding: (.*)", row):
            found.append((rank, read(host, match[1].strip(), machine)))
    return Answer(done.returncode, ordered(found), done.stderr + done.stdout)


def openmpi_4(line: CommandLine, machine: Machine) -> Answer:
    words = ["/usr/bin/mpirun.openmpi", *ROOT_MAY, "--display-devel-map", "--do-not-launch"]
    able_to_bind = {"HWLOC_THISSYSTEM": "1"}
    return mpirun(words, line, machine, "openmpi-4", place_of_4, **able_to_bind)


def openmpi_5(line: CommandLine, machine: Machine) -> Answer:
    program = str(ROOT / ".venv/bin/mpirun")
    words = [program, *ROOT_MAY, "--display", "map", "--do-not-launch"]
    return mpirun(words, line, machine, "openmpi-5", place_of_5)


def regroup(line: CommandLine, machine: Machine, *options: str) -> Answer:
    program = str(BIN / "regroup")
    done = run([program, "--do-not-launch", *options], line, machine, "regroup")
    several = " hosts, " in done.stdout.partition("\n")[0]
    alone = re.match(r"map: \d+ members? on (\S+),", done.stdout)
    found = []
    for row in done.stdout.splitlines():
        if match := re.match(r"\s*(\d+)\s+true\s+(.*?)\s\s+(any|[\d,-]+)\s\s+(\S.*?)\s*$", row):
            host = match[2].split()[0] if several else alone[1]
            bound = None if match[3] == "any" else frozenset(numbers(match[3]))
            same = place_of_5(host, match[4], machine)
            found.append((int(match[1]), Place(host, bound, same.binding)))
    return Answer(done.returncode, ordered(found), done.stderr)
