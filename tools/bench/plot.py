"""Draws what `regroup bench --plot` measured. usage: plot.py DATA.json FILE.png"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def size_text(size: float, _position: object = None) -> str:
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g}"


def curves(rows: list[dict]) -> dict[str, list[tuple[int, float, float]]]:
    """Size, median time in us and algorithm bandwidth in GB/s, by side."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for row in rows:
        sides = []
        for memory, placements in row["memory"].items():
            sides += [
                (f"Regroup, {memory}, {p.replace('_', ' ')}", s) for p, s in placements.items()
            ]
        sides += [(rival["name"], rival) for rival in row.get("rivals", [])]
        for name, series in sides:
            if "p50_us" in series:
                point = (row["size"], series["p50_us"], row["size"] / series["p50_us"] / 1e3)
                found.setdefault(name, []).append(point)
    return found


def main() -> None:
    data, picture = sys.argv[1:]
    with open(data, encoding="utf-8") as file:
        result = json.load(file)
    rows = [row for row in result["rows"] if row["type"] == result["rows"][0]["type"]]
    rows = [row for row in rows if row["redop"] == rows[0]["redop"]]
    figure, (times, rates) = plt.subplots(1, 2, figsize=(13, 5.2), layout="constrained")
    for name, points in curves(rows).items():
        style = {"lw": 2.2} if name.startswith("Regroup") else {"lw": 1.2, "ls": "--"}
        sizes, us, gbs = zip(*points, strict=True)
        times.plot(sizes, us, marker=".", label=name, **style)
        rates.plot(sizes, gbs, marker=".", label=name, **style)
    for axes, what in ((times, "median time (us)"), (rates, "size / median time (GB/s)")):
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xlabel("size")
        axes.set_ylabel(what)
        axes.xaxis.set_major_formatter(size_text)
        axes.tick_params(axis="x", rotation=30)
        axes.grid(alpha=0.3)
    times.set_yscale("log")
    rates.set_ylim(bottom=0)
    rates.legend(fontsize="small")
    machine = result["machine"]
    kind = rows[0]["type"] + (f" {rows[0]['redop']}" if rows[0]["redop"] else "")
    where = f"{machine['model']}, load {machine['load']:.1f}"
    figure.suptitle(f"{result['operation']}, {kind}, {result['ranks']} ranks, {where}")
    figure.savefig(picture, dpi=110, format="png")


if __name__ == "__main__":
    main()
