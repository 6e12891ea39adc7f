"""What a change costs an elastic job of 16 to 16,384 hosts, by simulation, flat and as a tree.

tests/scale runs the shipped coordinator, journal, agents and messages on a virtual clock; what is
counted is in docs/results/scale.md. Every run is verified: each change must end in the right World,
known to all.

What was asked is the next generation of 10,000 members within half a second: below the table stands
a line for each change that makes one, and a figure that is missed ends the bench with status 1.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import common

AGENTS = (16, 64, 256, 1024, 4096, 10000, 16384)
QUICK = (16, 64, 256, 1024)
RADICES = (0, 64)
DEADLINE_S = 3600.0  # of one run: 16,384 agents take 20 to 30 minutes on two busy cores
FLAT_MOST = 10_000  # beyond, flat takes most of an hour and shows nothing new
JOINERS = 1000
ASKED_AGENTS, ASKED_RADIX, ASKED_S = 10_000, 64, 0.5
GENERATIONS = ("one member lost", "a switch lost", "joiners")
DOCS = common.ROOT / "docs/results"
PANELS = {
    "seconds": "time until all have it (s)",
    "coordinator_busy": "time at the coordinator (s)",
    "coordinator_in": "messages to the coordinator",
    "controller_in": "messages to the controller",
    "depth": "messages in a row",
}


def simulate(agents: int, radix: int, samples: int) -> list[dict]:
    """One row for each change: the run with the median time of it, with the least and the most
    beside it."""
    program = common.BIN / "scale_sim"
    runs: list[list[dict]] = []
    for _ in range(samples):
        with tempfile.TemporaryDirectory() as folder:
            joiners = min(JOINERS, agents)
            command = [program, str(agents), str(radix), str(joiners), f"{folder}/journal"]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise common.BenchError(
                    f"{agents} agents, radix {radix}: over {DEADLINE_S:.0f} s"
                ) from None
        if done.returncode != 0:
            raise common.BenchError(f"{agents} agents, radix {radix}: {done.stderr.strip()}")
        runs.append([json.loads(line) for line in done.stdout.splitlines()])
    rows = []
    for same in zip(*runs, strict=True):
        ordered = sorted(same, key=lambda row: row["seconds"])
        spread = {"least_seconds": ordered[0]["seconds"], "most_seconds": ordered[-1]["seconds"]}
        rows.append(ordered[len(ordered) // 2] | spread | {"samples": samples})
    return rows


def table(rows: Iterable[dict]) -> str:
    head = (
        f"{'change':16} {'agents':>6} {'tree':>5} {'time':>9} {'min':>9} {'max':>9} "
        f"{'samples':>7} {'depth':>5} {'coordinator':>14} {'busy':>9} {'ctrl in':>7} "
        f"{'ctrl out':>8} "
        f"{'agent':>6}"
    )
    lines = [head]
    for row in rows:
        tree = f"{row['levels']}" if row["radix"] else "flat"
        told = f"{row['coordinator_in']}/{row['coordinator_out']}"
        lines.append(
            f"{row['change']:16} {row['agents']:6} {tree:>5} {row['seconds'] * 1e3:6.1f} ms "
            f"{row['least_seconds'] * 1e3:6.1f} ms {row['most_seconds'] * 1e3:6.1f} ms "
            f"{row['samples']:7} "
            f"{row['depth']:5} {told:>14} {row['coordinator_busy'] * 1e3:6.1f} ms "
            f"{row['controller_in']:7} "
            f"{row['controller_out']:8} {row['agent_most']:6}"
        )
    return "\n".join(lines)


def judge(rows: Iterable[dict]) -> list[common.Figure]:
    """The next generation of so many, for each change that makes one."""
    found = {
        row["change"]: row["seconds"]
        for row in rows
        if (row["agents"], row["radix"]) == (ASKED_AGENTS, ASKED_RADIX)
    }
    figures = []
    for change in GENERATIONS:
        what, asked = f"{change}, {ASKED_AGENTS:,} agents", f"< {ASKED_S:g} s"
        if (seconds := found.get(change)) is None:
            figures.append(common.Figure(what, asked, "not measured", None))
        else:
            figures.append(
                common.Figure(what, asked, f"measured {seconds:.3f} s", seconds < ASKED_S)
            )
    return figures


def draw(rows: list[dict], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "scale"
    figure, axes = plt.subplots(2, 3, figsize=(15, 9))
    *axes, beside = axes.flat
    changes = list(dict.fromkeys(row["change"] for row in rows))
    for axis, (key, label) in zip(axes, PANELS.items(), strict=True):
        for color, change in enumerate(changes):
            for radix in RADICES:
                line = [row for row in rows if row["change"] == change and row["radix"] == radix]
                points = [row["agents"] for row in line], [row[key] for row in line]
                style = "-o" if radix else "--o"
                name = change if radix else "_"
                axis.plot(*points, style, color=f"C{color}", markersize=3, label=name)
        axis.set_xscale("log", base=2)
        axis.set_yscale("linear" if key == "depth" else "log")
        axis.set_xlabel("agents")
        axis.set_title(label)
        axis.grid(alpha=0.3)
    axes[0].axhline(ASKED_S, color="black", linewidth=0.8)
    beside.axis("off")
    beside.legend(
        *axes[0].get_legend_handles_labels(), loc="center", title="tree of radix 64; dashed: flat"
    )
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--agents", type=int, action="append", metavar="N", help="only with so many"
    )
    parser.add_argument(
        "--samples", type=int, default=3, help="of each up to 1,024 agents; one of more"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write page, JSON and picture of docs/results"
    )
    options = parser.parse_args()
    rows: list[dict] = []
    for agents in options.agents or (QUICK if options.quick else AGENTS):
        for radix in RADICES if agents <= FLAT_MOST else RADICES[1:]:
            found = simulate(agents, radix, options.samples if agents <= 1024 else 1)
            print(table(found), file=sys.stderr, flush=True)
            rows += found
    machine = common.machine()
    rows.sort(key=lambda row: (row["change"], row["radix"], row["agents"]))
    print(table(rows))
    print(common.machine_line(machine))
    told = {"machine": machine} | common.when()
    text = "".join(json.dumps({"bench": "scale"} | row | told) + "\n" for row in rows)
    if options.json:
        Path(options.json).write_text(text)
    if options.docs:
        (DOCS / "scale.json").write_text(text)
        draw(rows, DOCS / "scale.svg")
        subprocess.run([sys.executable, common.ROOT / "tools/docs/result_pages.py"], check=True)
    common.conclude(judge(rows))


if __name__ == "__main__":
    common.main(main)
