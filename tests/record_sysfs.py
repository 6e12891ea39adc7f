#!/usr/bin/env python3
"""Records what `regroup topo` reads of this machine's sysfs: python3 tests/record_sysfs.py >
NAME.sysfs

A line for each file, `PATH = TEXT`, and for each link, `PATH -> PATH`, below /sys. No addresses,
names of hosts or serial numbers are read but the unique_id of AMD's GPUs (kfd), which stands here
as a running number.
"""

import os
import re
from pathlib import Path

SYS = Path("/sys")
DEVICE = ("class", "vendor", "device", "max_link_speed", "max_link_width", "numa_node")
INTERFACE = ("speed", "operstate", "dev_port")
PORT = ("rate", "state", "link_layer")


class Recorder:
    def __init__(self):
        self.seen: set[str] = set()
        self.ids: dict[str, str] = {}

    def line(self, path: str, text: str) -> None:
        if path not in self.seen:
            self.seen.add(path)
            print(f"{path} {text}")

    def file(self, path: Path) -> None:
        try:
            text = path.read_text(errors="replace").strip()
        except OSError:  # sysfs refuses some, such as the speed of what is down
            return
        text = re.sub(r"(?<=unique_id )(\d+)", self.running_number, text).replace("\n", "\\n")
        self.line(str(path.relative_to(SYS)), f"= {text}")

    def running_number(self, found: re.Match) -> str:
        return self.ids.setdefault(found[0], str(len(self.ids) + 1)) if found[0] != "0" else "0"

    def link(self, path: Path) -> Path:
        real = path.resolve()
        if path.is_symlink():
            self.line(str(path.relative_to(SYS)), f"-> {real.relative_to(SYS)}")
        return real

    def device(self, folder: Path) -> None:
        """It and all that it hangs on."""
        while folder.is_relative_to(SYS / "devices") and not folder.name.startswith("pci"):
            for name in DEVICE:
                self.file(folder / name)
            folder = folder.parent

    def processors(self) -> None:
        for node in sorted((SYS / "devices/system/node").glob("node[0-9]*")):
            self.file(node / "cpulist")
        for cpu in sorted((SYS / "devices/system/cpu").glob("cpu[0-9]*")):
            self.file(cpu / "topology/physical_package_id")

    def cards(self) -> None:
        for pci in sorted((SYS / "bus/pci/devices").glob("*")):
            self.device(self.link(pci))
        for one in sorted((SYS / "class/net").glob("*")):
            real = self.link(one)
            for name in INTERFACE:
                self.file(real / name)
            if (real / "device").exists():
                self.device(self.link(real / "device"))
        for one in sorted((SYS / "class/infiniband").glob("*")):
            real = self.link(one)
            if (real / "device").exists():
                self.device(self.link(real / "device"))
            for path in sorted(real.glob("ports/*")):
                for name in PORT:
                    self.file(path / name)

    def kfd(self) -> None:
        for properties in sorted((SYS / "class/kfd/kfd/topology/nodes").glob("**/properties")):
            if properties.parent.parent.name in ("nodes", "io_links"):
                self.file(properties)


def main() -> None:
    print(f"# Recorded by tests/record_sysfs.py; {os.uname().sysname} {os.uname().machine}.")
    recorder = Recorder()
    recorder.processors()
    recorder.cards()
    recorder.kfd()


if __name__ == "__main__":
    main()
