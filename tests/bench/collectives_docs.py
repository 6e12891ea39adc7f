"""The table of docs/results/collectives.md: algorithm, traffic and time of each operation and size.
`./dev bench collectives --docs` writes the JSON of which it is made.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from collectives_rows import KIB, MIB, ours, ratio_to, rivals_of, size_text, wrong_of
from common import ROOT, BenchError

LEAST_TRAFFIC = 64 * KIB  # less stays in the lines of the caches
FILE = ROOT / "docs/results/collectives.json"
SIZES = (8, 56, 512, 8 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
# Of two ranks and S bytes, the larger of input and output, as nccl-tests counts them: what is read
# and written at least, with buffers in the arena (one result of an all-reduce) and with ordinary
# ones, whose bounce buffers stay in the cache. The first is what `%copy` of regroup bench is of.
TRAFFIC = {
    "allreduce": (3, 4),
    "reduce_scatter": (3, 3),
    "allgather": (3, 3),
    "broadcast": (2, 2),
    "alltoall": (4, 4),
}
IN_PLACE = "arena, in place"  # of an all-reduce: a result in every rank, where its input was
# plan_of() of collective/shm/plan.cc, for two ranks; a test compares these with it.
PAYLOAD, LINE, LINES, LINES_OF_A_ROOT = 56, 48, 32, 2
MOST_COPIED = {"allreduce": 4 * KIB, "broadcast": 32 * KIB, "alltoall": 32 * KIB}
SLICED = 16 * KIB
RIVAL = "best rival's time / ours"


def way(operation: str, size: int, memory: str, amd: bool) -> str:
    """How an operation of two ranks goes, by the names of docs/design/shm.md."""
    is_split = operation in ("reduce_scatter", "alltoall")
    gathers = operation == "allgather"
    whole = size // 2 if gathers else size
    if whole <= PAYLOAD:
        return "arrival"
    if whole <= MOST_COPIED.get(operation, 8 * KIB):
        parts = 2 if is_split else 1
        lines = -(-(whole // parts) // LINE) * parts
        most = (LINES_OF_A_ROOT if operation == "broadcast" else 0) if amd else LINES
        return "inline chunks" if lines <= most else "one chunk"
    if memory == IN_PLACE and size > SLICED:
        return "results"
    if memory == "arena":
        return "direct"
    return "chunks, by slices" if operation == "allreduce" and size > SLICED else "chunks"


def time_text(us: float) -> str:
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def cells_of(operation: str, row: dict, memory: str, figures: dict, amd: bool) -> list[str]:
    size = row["size"]
    factor = TRAFFIC[operation][0 if memory == "arena" else 1]
    percent = figures.get("copy_percent") if size >= MIB else None
    rival = ""
    found = ratio_to(row, memory)
    if memory == IN_PLACE:  # which regroup bench pairs with nothing
        found = min(
            ((r["p50_us"] / figures["p50_us"], n) for n, r in rivals_of(row).items()), default=None
        )
    if found:
        ratio, name = found
        rival = f"{ratio:.2f} ({name}, {time_text(rivals_of(row)[name]['p50_us'])})"
    return [
        way(operation, size, memory, amd),
        f"{factor} S = {size_text(factor * size)}" if size >= LEAST_TRAFFIC else "",
        time_text(figures["p50_us"]),
        f"{percent:.0f} %" if percent else "",
        rival,
    ]


def table(results: Sequence[dict]) -> str:
    """Markdown. Of each size the last result that has it counts."""
    heads = (
        "operation",
        "S",
        "memory",
        "algorithm",
        "traffic",
        "measured, p50",
        "of the copy bound",
        RIVAL,
    )
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for operation in TRAFFIC:
        rows = {
            row["size"]: (row, "AMD" in result["machine"]["model"])
            for result in results
            if result["operation"] == operation and result["ranks"] == 2
            for row in result["rows"]
        }
        for size in sorted(set(rows) & set(SIZES)):
            row, amd = rows[size]
            placements = {memory: ours(row, memory) for memory in ("arena", "ordinary")}
            if operation == "allreduce" and size > SLICED:
                placements[IN_PLACE] = row["memory"].get("arena", {}).get("in_place")
            for memory, figures in placements.items():
                if figures:
                    cells = cells_of(operation, row, memory, figures, amd)
                    lines.append(
                        "| " + " | ".join([operation, size_text(size), memory, *cells]) + " |"
                    )
    return "\n".join(lines) + "\n"


def write(results: Sequence[dict], run: dict, file: Path = FILE) -> None:
    """The JSON of which tools/docs/result_pages.py makes the page. `run`: date, commit and machine.

    Raises BenchError if an operation is missing or has a wrong element.
    """
    missing = set(TRAFFIC) - {result["operation"] for result in results if result["ranks"] == 2}
    if missing:
        raise BenchError(
            f"{file.name} has all operations; not measured: {', '.join(sorted(missing))}"
        )
    wrong = {result["operation"] for result in results if wrong_of(result)}
    if wrong:
        raise BenchError(
            f"{file.name} was not written: wrong elements in {', '.join(sorted(wrong))}"
        )
    head = json.dumps({"bench": "collectives"} | run).removesuffix("}")
    lines = ",\n".join(json.dumps(result) for result in results)
    file.write_text(f'{head},\n"results": [\n{lines}\n]}}\n')
