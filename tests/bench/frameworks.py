"""torch.distributed over Regroup beside Gloo: collectives from Python, DDP and FSDP2.

Two ranks on this host; each case is one job with a process group of each backend, which take turns.
Results are compared first.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import common
from common import BIN, BenchError, Figure, Row
from pairs import ENOUGH, paired_ratio

MEMBER = common.ROOT / "tests/bench/ours_frameworks.py"
RANKS = 2
SCALE = {"us": 1e6, "ms": 1e3}


@dataclass(frozen=True)
class Case:
    """One row. `most`: the asked median, in `unit`; `times`: how many times as fast as Gloo; None:
    not asked. `blocks`: turns of each side, and those of a quick run."""

    name: str
    unit: str
    blocks: tuple[int, int]
    most: float | None = None
    times: float | None = None


CASES = (
    Case("all_reduce 64 B", "us", (50, 5), most=15),
    Case("all_reduce 96 MiB, a bucket of DDP", "ms", (40, 3), most=15),
    Case("all_reduce 96 MiB, ordinary memory", "ms", (40, 3)),
    Case("DDP, 24 M parameters", "ms", (40, 3), times=1.7),
    Case("FSDP2, 24 layers, 19 M parameters", "ms", (40, 3), times=2),
)


def judge(case: Case, samples: Mapping[str, Sequence[float]]) -> Figure:
    """What was asked of the case; too few samples are not judged."""
    ours, rival = (samples[side] for side in ("regroup", "gloo"))
    ratio = paired_ratio(ours, rival)
    median = common.summarize(ours).p50
    found = f"measured {median:.3g} {case.unit}, {ratio:.2f}x as fast as Gloo"
    asked, met = "", None
    if case.most is not None:
        asked, met = f"<= {case.most:g} {case.unit}", median <= case.most
    elif case.times is not None:
        asked, met = f">= {case.times:g}x Gloo", ratio >= case.times
    if asked and len(ours) < ENOUGH:
        return Figure(case.name, asked, f"{found}, not judged: only {len(ours)} pairs", None)
    return Figure(case.name, asked, found, met)


def run(case: Case, blocks: int) -> dict[str, list[float]]:
    """The samples of both sides, in the unit of the case."""
    with tempfile.TemporaryDirectory(prefix="regroup-frameworks-") as folder:
        file = Path(folder) / "samples.json"
        paths = [str(BIN.parent / "python"), str(MEMBER.parent), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [str(BIN / "regroup"), "--oversubscribe", "-np", str(RANKS), sys.executable]
            + [str(MEMBER), case.name, str(blocks), str(file)],
            env=dict(os.environ, PYTHONPATH=":".join(filter(None, paths)), OMP_NUM_THREADS="1"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        if done.returncode != 0:
            raise BenchError(f"{case.name}: {done.stderr.strip()[-2000:]}")
        samples = json.loads(file.read_text())
    return {side: [s * SCALE[case.unit] for s in values] for side, values in samples.items()}


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--only", action="append", metavar="WORD", help="cases with this word")
    args = options.parse_args()
    rows, figures = [], []
    for case in CASES:
        if args.only and not any(word in case.name for word in args.only):
            continue
        samples = run(case, case.blocks[args.quick])
        ours, gloo = (common.summarize(samples[side]) for side in ("regroup", "gloo"))
        rows.append(Row("frameworks", case.name, case.unit, ours, {"gloo": gloo}, ["gloo"]))
        figures.append(judge(case, samples))
    if not rows:
        raise BenchError(f"no case has one of these words: {', '.join(args.only)}")
    common.report(rows, args.json)
    common.conclude(figures, args.json)


if __name__ == "__main__":
    common.main(main)
