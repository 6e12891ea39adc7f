"""How two sides compare pair by pair: what the machine did to both at one moment drops out."""

from collections.abc import Sequence
from statistics import median

from common import Figure

ENOUGH = 30  # pairs that a verdict needs
NOT_SLOWER = 0.97  # a median of paired ratios from here on


def paired_ratio(ours: Sequence[float], rival: Sequence[float]) -> float:
    """Median of rival / ours of times, the i-th of each being a pair: above 1, ours is faster."""
    return median(theirs / mine for mine, theirs in zip(ours, rival, strict=True))


def compare(what: str, ours: Sequence[float], rival: Sequence[float], asked: bool = True) -> Figure:
    """Whether ours is not slower, if that was `asked` and there are pairs enough."""
    ratio = paired_ratio(ours, rival)
    found = f"measured {ratio:.3f} (median of {len(ours)} paired ratios)"
    if not asked:
        return Figure(what, "", found, None)
    wanted = f">= {NOT_SLOWER:g}"
    if len(ours) < ENOUGH:
        return Figure(what, wanted, f"{found}, not judged: only {len(ours)} pairs", None)
    return Figure(what, wanted, found, ratio >= NOT_SLOWER)


def verdict(case: str, name: str, ours: Sequence[float], rival: Sequence[float]) -> str:
    """One line for people."""
    return str(compare(f"{case}, to {name}", ours, rival))
