"""The parameter server's store: sparse pulls and pushes with row-wise Adagrad, 1M rows of 64
floats, ids by Zipf's law with exponent 1.05, beside a bare loop over an array.

Both sides get the same batches in turn and are verified before each pair (ps_store_cases.cc). The
bare loop has no log, no CRC, no index and no second version of a row.

  ./dev bench ps --only store
"""

import common
from common import Figure, Row
from pairs import ENOUGH, paired_ratio

ASKED = {"pull": 0.5, "push": 0.35}  # of the bare loop


def store(quick: bool) -> tuple[list[Row], list[Figure]]:
    count = 10 if quick else 60
    found = common.samples_of("ps_store_cases", count, "ps")
    rows, figures = [], []
    for case, asked in ASKED.items():
        ours, bare = found[f"{case}, store"], found[f"{case}, bare"]
        what = f"sparse {case} of up to 8192 rows"
        rows.append(
            Row(
                *("ps", what, "ms", common.summarize(ours)),
                {"bare loop": common.summarize(bare)},
                ("bare loop",),
            )
        )
        ratio = paired_ratio(ours, bare)
        measured = f"measured {ratio:.3f} (median of {len(ours)} paired ratios)"
        met = ratio >= asked if len(ours) >= ENOUGH else None
        figures.append(Figure(what, f">= {asked:g} of a bare loop", measured, met))
    return rows, figures


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--only", choices=["store"], default="store", help="these rows alone")
    args = options.parse_args()
    rows, figures = store(args.quick)
    common.report(rows, args.json)
    common.conclude(figures, args.json)


if __name__ == "__main__":
    common.main(main)
