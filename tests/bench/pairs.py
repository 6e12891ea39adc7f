"""How two sides compare pair by pair: what the machine did to both at one moment drops out."""

from collections.abc import Sequence
from statistics import median

ENOUGH = 30  # pairs that a verdict needs
NOT_SLOWER = 0.97  # a median of paired ratios from here on


def paired_ratio(ours: Sequence[float], rival: Sequence[float]) -> float:
    """Median of rival / ours of times, the i-th of each being a pair: above 1, ours is faster."""
    return median(theirs / mine for mine, theirs in zip(ours, rival, strict=True))


def verdict(case: str, name: str, ours: Sequence[float], rival: Sequence[float]) -> str:
    """One line for people."""
    ratio = paired_ratio(ours, rival)
    if len(ours) < ENOUGH:
        told = f"too few for a verdict, which needs {ENOUGH}"
    else:
        told = "not slower" if ratio >= NOT_SLOWER else "SLOWER"
    return f"{case}: median of {len(ours)} paired ratios to {name}: {ratio:.3f} ({told})"
