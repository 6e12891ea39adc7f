"""Parts of machines: the processors of a rank that is mapped and bound to one, those that
hwloc-calc has for it, and those that hwloc-distrib deals out."""

import subprocess
from pathlib import Path

import launchers
from command_lines import CommandLine
from machines import load

TYPES = ["hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket"]
OF_HWLOC = {
    "hwthread": "pu",
    "l1cache": "l1d",
    "l2cache": "l2",
    "l3cache": "l3",
    "socket": "package",
}


# hwloc-distrib gives parts with more processors more shares. It refuses NUMA nodes.
NOT_DEALT = {("uneven", "l3cache"), ("uneven", "socket")}


def hwloc(words: list[str], path: Path, asked: str = "") -> str:
    done = subprocess.run(
        [words[0], "-i", str(path), *words[1:]],
        input=asked,
        capture_output=True,
        text=True,
        timeout=launchers.DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def bits(mask: str) -> frozenset[int]:
    """0x00000001,0x0000000f: words of 32 processors, the highest first."""
    whole = 0
    for word in mask.split(","):
        whole = whole << 32 | int(word or "0", 16)
    return frozenset(i for i in range(whole.bit_length()) if whole >> i & 1)


def masks(output: str) -> list[frozenset[int]]:
    """Without hwloc-calc's word that it waits for its standard input."""
    return [bits(line) for line in output.splitlines() if line.startswith("0x")]


def count(machine: str, kind: str, folder: Path) -> int:
    """How many parts of the kind there are, which hwloc does not say of a kind that it lacks."""
    path = load(folder, machine).path
    found = hwloc(["hwloc-calc", "-q", "-N", OF_HWLOC.get(kind, kind), "all"], path)
    return max(0, int(found or 0))


def compare(machine: str, kind: str, folder: Path) -> str:
    """A sentence; "": they agree, or there are no such parts."""
    name = OF_HWLOC.get(kind, kind)
    parts = count(machine, kind, folder)
    if parts == 0:
        return ""
    loaded = load(folder, machine)
    asked = "".join(f"{name}:{i}\n" for i in range(parts))
    calculated = masks(hwloc(["hwloc-calc", "-q"], loaded.path, asked))
    dealt = calculated
    if (machine, kind) not in NOT_DEALT and kind != "numa":
        dealt = masks(hwloc(["hwloc-distrib", "--at", name, str(parts)], loaded.path))
    options = (("-H", f"a:{parts}"), ("--map-by", kind), ("--bind-to", kind), ("-np", str(parts)))
    answer = launchers.regroup(CommandLine(machine, (options,)), loaded)
    placed = [place.processors for place in answer.places]
    if placed == calculated and placed == dealt:
        return ""
    return (
        f"{machine}, {kind}:\n  regroup: {placed or answer.said}\n  hwloc-calc: {calculated}\n"
        f"  hwloc-distrib: {dealt}"
    )
