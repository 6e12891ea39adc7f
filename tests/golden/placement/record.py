"""Records where Open MPI's mpirun puts and binds ranks on the machines of this folder, into
mpirun5.txt.

usage: record.py MPIRUN    (5.0.11 made the file; it reads a machine from hwloc's XML)
"""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
MACHINES = ["packages", "numa", "uneven", "power8"]


def spots(output: str) -> list[str]:
    parts = output.split("Data for proc:")[1:]
    return [m[1].strip() for part in parts if (m := re.search(r"Binding: ([^\n]*)", part))]


def record(mpirun: str, machine: str, words: list[str]) -> str:
    topology = ["--prtemca", "hwloc_use_topo_file", f"{machine}.xml"]
    shown = ["--display", "map", "--do-not-launch", "--allow-run-as-root"]
    end = [] if words[-1] == "true" else ["true"]
    job = subprocess.run(
        [mpirun, *topology, *shown, *words, *end],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = spots(job.stdout)
    if found:
        return " | ".join(found)
    lines = [
        line
        for line in (job.stdout + job.stderr).splitlines()
        if line and not line.startswith("---")
    ]
    return "error: " + (lines[0] if lines else f"status {job.returncode}")


def main() -> None:
    cases = [
        c for c in (FOLDER / "cases.txt").read_text().splitlines() if c and not c.startswith("#")
    ]
    with (FOLDER / "mpirun5.txt").open("w") as out:
        out.write(
            "# Made by record.py: a machine, its command lines, the bindings of the ranks in "
            "order.\n"
        )
        for machine in MACHINES:
            out.write(f"machine {machine}\n")
            for case in cases:
                answer = record(sys.argv[1], machine, case.split())
                if "not enough slots" not in answer:  # the allocation's matter, not the placement's
                    out.write(f"> {case}\n{answer}\n")


if __name__ == "__main__":
    main()
