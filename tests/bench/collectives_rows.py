"""What a row and a result of `regroup bench --compare --json` say (docs/guide/collectives.md,
Measuring)."""

KIB, MIB = 1 << 10, 1 << 20


def size_text(size: float) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size:g} B"


def rivals_of(row: dict, default_only: bool = False) -> dict[str, dict]:
    """Those that were measured, by name. Open MPI with a tuning has it behind a comma."""
    found = {rival["name"]: rival for rival in row.get("rivals", []) if "ratio" in rival}
    return {name: r for name, r in found.items() if not default_only or ", " not in name}


def ratio_to(row: dict, memory: str, default_only: bool = False) -> tuple[float, str] | None:
    """The smallest paired ratio of a rival's time to ours, and whose it is."""
    ratios = [
        (rival["ratio"][memory], name)
        for name, rival in rivals_of(row, default_only).items()
        if memory in rival["ratio"]
    ]
    return min(ratios, default=None)


def ours(row: dict, memory: str) -> dict | None:
    """Our figures: out of place, or in place for an operation that has no other."""
    placements = row["memory"].get(memory, {})
    figures = placements.get("out_of_place") or placements.get("in_place")
    return figures if figures and "p50_us" in figures else None


def wrong_of(result: dict) -> dict[str, int]:
    """Elements of our results that are wrong, by where; nothing where none is."""
    return {
        f"{size_text(row['size'])} {memory} {placement.replace('_', ' ')}": figures["wrong"]
        for row in result["rows"]
        for memory, placements in row["memory"].items()
        for placement, figures in placements.items()
        if figures["wrong"]
    }
