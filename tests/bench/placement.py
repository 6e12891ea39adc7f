"""How long placement takes: 8 ranks on a DGX-2, gangs on clusters of 279 and 12,500 hosts of 8
GPUs; and how long it takes to look at this machine.

Each answer is verified before it is timed (placement_cases.cc), and each sample starts from
nothing.
"""

import common
from common import Row

LIMITS_MS = {
    "8 ranks on a DGX-2": 1,
    "64 ranks on 279": 1,
    "1024 ranks on 12500": 50,
    "discovery of this machine": 20,
}
DISCOVERY = "discovery of this machine"


def main() -> None:
    args = common.parser(__doc__).parse_args()
    found = common.samples_of("placement_cases", 20 if args.quick else 200, "placement")
    fresh = [
        common.samples_of("placement_cases", 1, "placement")[DISCOVERY][0]
        for _ in range(5 if args.quick else 20)
    ]
    found[f"{DISCOVERY}, the first in a process"] = fresh  # which loads hwloc
    rows = [Row("placement", case, "ms", common.summarize(ms)) for case, ms in found.items()]
    common.report(rows, args.json)
    for row in rows:
        asked = next(limit for case, limit in LIMITS_MS.items() if row.case.startswith(case))
        print(f"{row.case}: {row.ours.p50:.3f} ms (less than {asked} asked)")


if __name__ == "__main__":
    common.main(main)
