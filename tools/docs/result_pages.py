"""Writes docs/results/NAME.md, and a picture, from docs/results/NAME.json.

usage: python3 tools/docs/result_pages.py [--check]     --check: fails if a page is not current
`./dev bench NAME --json docs/results/NAME.json` writes the JSON: a line for each row of the bench's
table and
each figure that was asked for. A first line {"bench", "date", "commit", "machine", "recorded"}
holds for all.
Titles and introductions: result_pages.toml.
"""

import json
import math
import sys
import textwrap
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))

import collectives_docs  # noqa: E402

ABOUT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
OF_A_LOSS = {  # rows of tests/gpu/results
    "added_delay": "added delay to the open step",
    "added_delay_both": "added delay to this step and the next",
    "detect": "kill to detected by a first survivor",
    "regroup": "detected to the new generation",
    "kill_to_process_gone": "kill to the process reaped, with its CUDA context",
    "step": "undisturbed step",
    "join_pause": "pause of the others when a member joins",
}
CHANGES = {  # of scale.json: the columns of its table
    "launch": "launch", "fence": "fence", "one member lost": "one member lost",
    "a switch lost": "a switch of 64 lost", "joiners": "1,000 joiners",
}  # fmt: skip


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"


def distribution(stats: dict) -> str:
    """p50, and what else is known of it."""
    more = [f"{key} {number(stats[key])}" for key in ("min", "p99", "max") if key in stats]
    more += [f"{stats['samples']:,} samples"] if "samples" in stats else []
    return number(stats["p50"]) + (f" ({', '.join(more)})" if more else "")


def machine_of(head: dict) -> str:
    machine = head["machine"]
    load = f", load {machine['load']:.1f}" if "load" in machine else ""
    said = f" Recorded by hand {head['recorded']}." if "recorded" in head else ""
    line = (
        f"{head['date']}, commit {head['commit']}; {machine['cores']} cores, "
        f"{machine['model']}{load}.{said}"
    )
    return wrapped(line)


def machines_of(head: dict, rows: list[dict]) -> str:
    """One line, or one for each part of the rows that was measured at a time of its own."""
    measured: dict[str, list[str]] = {}
    for row in rows:
        if "commit" in row:
            measured.setdefault(machine_of(row), []).append(row["case"])
    if len(measured) < 2 or "recorded" in head:
        return machine_of(head)
    return "\n".join(
        f"- {wrapped('; '.join(cases))}:\n  {line}" for line, cases in measured.items()
    )


def markdown_table(lines: list[list[str]]) -> str:
    """Without the columns that only have a head."""
    used = [i for i in range(len(lines[0])) if any(line[i] for line in lines[1:])]
    rows = ["| " + " | ".join(line[i] for i in used) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(used), *rows[1:]]) + "\n"


def rows_tables(rows: list[dict]) -> str:
    """Rows that have rivals in a table of their own, with a column for each."""
    compared = [row for row in rows if "rivals" in row and row["rivals"]]
    alone = [row for row in rows if row not in compared]
    return "\n".join(rows_table(part) for part in (alone, compared) if part)


def rows_table(rows: list[dict]) -> str:
    rivals = list(dict.fromkeys(name for row in rows for name in row.get("rivals", {})))
    against = list(dict.fromkeys(name for row in rows for name in row.get("ratios", {})))
    head = [
        "case",
        "unit",
        "target",
        "ours",
        *rivals,
        "ratio",
        *(f"against {name}" for name in against),
    ]
    lines = [head]
    for row in rows:
        ours = distribution(row["ours"]) if "ours" in row else ""
        theirs = row.get("rivals", {})
        ratio = row.get("ratio")
        lines.append([
            row["case"], row.get("unit", ""), row.get("target", ""), ours,
            *(distribution(theirs[name]) if name in theirs else "" for name in rivals),
            f"{ratio:.2f}" if ratio is not None else "",
            *(
                f"{row['ratios'][name]:.2f}" if name in row.get("ratios", {}) else ""
                for name in against
            ),
        ])  # fmt: skip
    return markdown_table(lines)


def figures_table(figures: list[dict]) -> str:
    verdict = {True: "met", False: "missed", None: ""}
    lines = [[f["figure"], f["asked"], f["found"], verdict[f["met"]]] for f in figures]
    return markdown_table([["figure", "target", "measured", "verdict"], *lines])


def bars(rows: list[dict]) -> str:
    """An SVG: for each row a bar for ours and each rival, on a logarithmic scale; "" without
    rivals."""
    groups = [row for row in rows if row.get("rivals")]
    if not groups:
        return ""
    values = [side["p50"] for row in groups for side in (row["ours"], *row["rivals"].values())]
    least, most = math.log10(min(values)) - 0.1, math.log10(max(values))
    drawn, y = [], 8
    for row in groups:
        drawn.append(
            f'<text x="8" y="{y + 14}" font-weight="bold">'
            f"{escape(row['case'])}, {row['unit']}</text>"
        )
        y += 22
        for name, side in {"Regroup": row["ours"], **row["rivals"]}.items():
            width = 12 + 400 * (math.log10(side["p50"]) - least) / max(most - least, 0.1)
            color = "#3f51b5" if name == "Regroup" else "#b0b0b0"
            drawn.append(f'<text x="228" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
            drawn.append(f'<rect x="236" y="{y}" width="{width:.0f}" height="15" fill="{color}"/>')
            drawn.append(f'<text x="{242 + width:.0f}" y="{y + 12}">{number(side["p50"])}</text>')
            y += 19
        y += 8
    size = f'width="740" height="{y}" font-family="sans-serif" font-size="13"'
    drawn.insert(0, '<rect width="100%" height="100%" fill="white"/>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(drawn) + "\n</svg>\n"


def page(name: str, body: str) -> str:
    said = ABOUT[name]
    source = "tests/gpu/results" if name == "gpu" else f"{name}.json"
    note = f"\n<!-- tools/docs/result_pages.py makes this page of {source}. -->\n"
    about = wrapped(f"{said['about']} Command: `{said['command']}`.")
    return f"# {said['title']}\n\n{about}\n\n{body}{note}"


def wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


def of_rows(name: str, text: str) -> dict[str, str]:
    """Files by name."""
    lines = [json.loads(line) for line in text.splitlines()]
    rows = [line for line in lines if "case" in line]
    figures = [line for line in lines if "figure" in line]
    body = machines_of(lines[0], rows) + "\n\n"
    picture = bars(rows)
    body += rows_tables(rows)
    body += ("\n" if rows and figures else "") + (figures_table(figures) if figures else "")
    if picture:
        body += f"\n![p50 of Regroup and the rivals, on a logarithmic scale]({name}.svg)\n"
    return {f"{name}.md": page(name, body)} | ({f"{name}.svg": picture} if picture else {})


def of_collectives(text: str) -> dict[str, str]:
    found = json.loads(text)
    picture = "![Time of an all-reduce over its size, ours and the rivals'](allreduce.png)"
    body = f"{machine_of(found)}\n\n{picture}\n\n"
    body += collectives_docs.table(found["results"])
    return {"collectives.md": page("collectives", body)}


def of_scale(text: str) -> dict[str, str]:
    rows = [json.loads(line) for line in text.splitlines()]
    head = rows[0]
    lines = [["agents", *CHANGES.values(), "most messages in a row", "flat: one member lost"]]
    for agents in sorted({row["agents"] for row in rows}):
        tree = {row["change"]: row for row in rows if row["agents"] == agents and row["radix"]}
        flat = {row["change"]: row for row in rows if row["agents"] == agents and not row["radix"]}
        depth = max(row["depth"] for row in tree.values())
        times = [number(tree[change]["seconds"] * 1e3) for change in CHANGES]
        alone = number(flat["one member lost"]["seconds"] * 1e3) if flat else ""
        lines.append([f"{agents:,}", *times, str(depth), alone])
    body = machine_of(head) + "\n\n" + markdown_table(lines)
    body += "\n![time, time at the coordinator, messages and their depth, by agents; "
    body += "dashed: flat](scale.svg)\n"
    return {"scale.md": page("scale", body)}


def of_gpu(text: str) -> dict[str, str]:
    found = json.loads(text)
    machine, checks = found["machine"], found["checks"]
    said = (
        f"{found['date']}, commit {machine['commit']}; {machine['gpu']}, driver "
        f"{machine['driver']},"
        f" {machine['cores']} cores, {machine['model']}, load {machine['load']:.1f}. Checks passed:"
        f" {', '.join(name for name, check in checks.items() if check['passed'])}."
        f" {found.get('note', '')}"
    )
    parts = [wrapped(said.strip())]
    runs = {name: check for name, check in checks.items() if name.startswith("recovery")}
    lines = [["loss of a member, ms", *(_case(name, run) for name, run in runs.items())]]
    lines += [
        [words, *(distribution(run["rows"][key]) for run in runs.values())]
        for key, words in OF_A_LOSS.items()
    ]
    parts.append(markdown_table(lines))
    for name, tables in (
        ("pytorch", _of_torch),
        ("kernels", _of_kernels),
        ("truths", _of_truths),
        ("nccl", _of_nccl),
    ):
        if name in checks:
            parts += tables(checks[name]["report"])
    return {"gpu.md": page("gpu", "\n\n".join(part.strip() for part in parts))}


def _case(name: str, run: dict) -> str:
    where = "gradients stay on the GPU" if "in memory of" in name else "gradients copied by hand"
    return f"{where}, {run['held_gib']:g} GiB held by each"


def _of_torch(report: dict) -> list[str]:
    parts = report["parts"]
    bits, recovery, cost = parts["bits"], parts["recovery"], parts["overhead"]
    step = cost["ms per step"]
    ours = [value * 1e3 for value in recovery["ours"]["committed"]]
    torchrun = recovery["torchrun"]["kill to next step"] * 1e3
    lines = [
        ["PyTorch " + report["machine"]["torch"], "ours", "rival"],
        ["weights after kills and joins", f"{bits['kills']} kills: SHA-256 of one member", "-"],
        [
            "SIGKILL of one of three members to the next committed step, ms",
            ", ".join(map(number, ours)),
            f"torchrun, Gloo: {number(torchrun)}",
        ],
        [
            f"step of a GPT of {cost['parameters'] / 1e6:.0f} M parameters, {cost['shards']} "
            "shards of one member, ms",
            distribution(step["elastic"]),
            f"plain loop, deterministic: {distribution(step['plain, deterministic'])}",
        ],
    ]
    return [markdown_table(lines)]


def _of_kernels(report: list[dict]) -> list[str]:
    cases = sum(row["cases"] for row in report if row["what"] == "bits")
    wrong = sum(row["wrong"] for row in report if row["what"] == "bits")
    trees = [row for row in report if row["what"] == "tree"]
    sizes = sorted({row["bytes"] for row in trees})
    lines = [["canonical tree, GB/s (part of a copy)", *(f"{size >> 20} MiB" for size in sizes)]]
    for dtype in ("float32", "bfloat16"):
        for inputs in sorted({row["inputs"] for row in trees}):
            of = {
                row["bytes"]: row
                for row in trees
                if (row["dtype"], row["inputs"]) == (dtype, inputs)
            }
            cells = [f"{number(of[size]['gbps'])} ({of[size]['ratio']:.2f})" for size in sizes]
            lines.append([f"{inputs} inputs of {dtype}", *cells])
    copies = {row["bytes"]: row["gbps"] for row in report if row["what"] == "copy"}
    lines.append(["copy on the device", *(number(copies[size]) for size in sizes)])
    said = f"Bits of the kernels against those of the CPU: {cases:,} cases, {wrong} wrong."
    return [said, markdown_table(lines)]


def _of_truths(report: list[dict]) -> list[str]:
    lines = [["what the design assumes", "what was seen", "figures"]]
    for row in report:
        figures = [f"{name} {number(value)}" for name, value in row["figures"].items()]
        lines.append([row["assumed"], row["seen"], ", ".join(figures) or "-"])
    return [markdown_table(lines)]


def _of_nccl(report: dict) -> list[str]:
    have = [name for name, there in report["functions"].items() if there]
    lines = [["NCCL " + str(report["version"]), "seen"], ["functions", ", ".join(have)]]
    lines += [[name, distribution(of)] for name, of in report["one rank"].items()]
    lines.append(["two ranks on one GPU", report["two ranks"][0][3]])
    return [markdown_table(lines)]


def files(folder: Path) -> dict[str, str]:
    """All generated files of docs/results, by name."""
    made: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        special = {"collectives": of_collectives, "scale": of_scale}.get(path.stem)
        made |= special(path.read_text()) if special else of_rows(path.stem, path.read_text())
    newest = max((ROOT / "tests/gpu/results").glob("*.json"))  # named by their dates
    return made | of_gpu(newest.read_text())


def main() -> None:
    folder = ROOT / "docs/results"
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = []
    for name, text in files(folder).items():
        path = folder / name
        if path.exists() and path.read_text() == text:
            continue
        if sys.argv[1:]:
            stale.append(
                f"{path.relative_to(ROOT)}: not current; run python3 tools/docs/result_pages.py"
            )
        else:
            path.write_text(text)
            print(path.relative_to(ROOT))
    if stale:
        sys.exit("\n".join(stale))


if __name__ == "__main__":
    main()
