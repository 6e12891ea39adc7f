"""The machines that command lines are tried on: hwloc's XML files of the tree, and small synthetic
ones that lstopo writes."""

import dataclasses
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/golden/placement"
# Not dgx2, whose cores Open MPI 5 writes by numbers of the operating system.
RECORDED_NAMES = ["packages", "numa", "uneven", "power8"]
SYNTHETIC = {
    "2p2c": "pack:2 core:2 pu:1",
    "1p4c2t": "pack:1 core:4 pu:2",
    "2p3c": "pack:2 l3:1 core:3 pu:1",
    "2p2n2c2t": "pack:2 numa:2 l2:2 core:1 pu:2",
    "1p1c": "pack:1 core:1 pu:1",
}
NAMES = [*RECORDED_NAMES, *SYNTHETIC]


@dataclasses.dataclass(frozen=True)
class Machine:
    """Processors by their logical numbers."""

    path: Path
    threads: tuple[int, ...]  # the operating system's number of each hardware thread
    cores: tuple[frozenset[int], ...]  # the operating system's numbers of each core's threads
    packages: tuple[tuple[int, ...], ...]  # the logical numbers of each package's cores

    def all(self) -> frozenset[int]:
        return frozenset(self.threads)


def write_synthetic(folder: Path) -> None:
    for name, description in SYNTHETIC.items():
        path = folder / f"{name}.xml"
        if not path.exists():
            command = ["lstopo-no-graphics", "-i", description, "--of", "xml", str(path)]
            subprocess.run(command, check=True, capture_output=True)


def objects(parent: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [item for item in parent.iter("object") if item.get("type") == kind]


@cache
def load(folder: Path, name: str) -> Machine:
    path = (RECORDED if name in RECORDED_NAMES else folder) / f"{name}.xml"
    tree = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", path.read_text()))

    def numbers(parent: ElementTree.Element) -> list[int]:
        return [int(unit.get("os_index", "")) for unit in objects(parent, "PU")]

    cores = objects(tree, "Core")
    index = {id(core): number for number, core in enumerate(cores)}
    packages = [
        tuple(index[id(core)] for core in objects(package, "Core"))
        for package in objects(tree, "Package")
    ]
    return Machine(
        path,
        tuple(numbers(tree)),
        tuple(frozenset(numbers(core)) for core in cores),
        tuple(packages),
    )
