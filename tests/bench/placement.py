"""How long placement takes: 8 ranks on a DGX-2, gangs on clusters of 279 and 12,500 hosts of 8 GPUs;
and how long it takes to look at this machine.

Each answer is verified before it is timed (placement_cases.cc), and each sample starts from nothing.
"""

import subprocess

import common
from common import BIN, BenchError, Row

LIMITS_MS = {
    "8 ranks on a DGX-2": 1,
    "64 ranks on 279": 1,
    "1024 ranks on 12500": 50,
    "discovery of this machine": 20,
}


def samples(count: int) -> dict[str, list[float]]:
    """Milliseconds by case."""
    done = subprocess.run(
        [str(BIN / "placement_cases"), str(count)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise BenchError(f"placement: {done.stderr.strip() or f'ended with {done.returncode}'}")
    out: dict[str, list[float]] = {}
    for line in done.stdout.splitlines():
        case, nanoseconds = line.split("\t")
        out.setdefault(case, []).append(int(nanoseconds) / 1e6)
    return out


def main() -> None:
    args = common.parser(__doc__).parse_args()
    rows = [
        Row("placement", case, "ms", common.summarize(ms))
        for case, ms in samples(20 if args.quick else 200).items()
    ]
    common.report(rows, args.json)
    for row in rows:
        asked = next(limit for case, limit in LIMITS_MS.items() if row.case.startswith(case))
        print(f"{row.case}: {row.ours.p50:.3f} ms (less than {asked} asked)")


if __name__ == "__main__":
    common.main(main)
