"""The parameter server beside a bare loop over an array: sparse pulls and pushes with row-wise
Adagrad, 1M rows of 64 floats, ids by Zipf's law with exponent 1.05; a dense push and pull of 100 MB
with SGD; four clients in mode ssp, of which each is slow now and then; four in mode sync, one of
which is always slow.

Both sides get the same batches in turn and are verified before each pair. `store` calls the store's
functions in one process (ps_store_cases.cc). `client` pushes through a lane until a server process
has applied it, and pulls without the server (ps_client_cases.cc). The bare loop has no log, no CRC,
no index and no second version of a row. `ssp` runs the same turns, whose work is sleep, with
staleness 4 and with 0 (ps_ssp_cases.cc); the simulation costs nothing but the sleep. A client that
is slow in all turns holds the others up whatever the staleness is: no row is about that. `sync`
runs steps of 16 leaves, whose work is sleep, with a client at a quarter of the others' speed, and
checks that all runs end with the same bits (ps_sync_cases.cc); fixed shares are simulated.

  ./dev bench ps --only store
"""

import common
from common import Figure, Row
from pairs import ENOUGH, paired_ratio

ROWS = "up to 8192 rows"
CASES = {  # by program: the case, what it is, and what is asked of it, as a part of the bare loop
    "store": [("pull", f"sparse pull of {ROWS}", 0.5), ("push", f"sparse push of {ROWS}", 0.35)],
    "client": [
        ("dense", "dense push and pull of 100 MB by a client", 0.7),
        ("pull", f"sparse pull of {ROWS} by a client", 0.5),
        ("push", f"sparse push of {ROWS} by a client, until it is applied", 0.35),
    ],
}


STALE, STRICT = "staleness 4", "staleness 0"
ASKED_OF_SSP = 1.4  # of the turns per second with staleness 0


def ssp_rows(quick: bool) -> tuple[list[Row], list[Figure]]:
    found = common.samples_of("ps_ssp_cases", 10 if quick else 60, "ps")
    what = "100 turns of 4 clients in mode ssp, slow ones change"
    ours = found[STALE]
    rivals = [STRICT, f"{STALE}, simulated", f"{STRICT}, simulated", "no bound, simulated"]
    row = Row(
        *("ps", what, "ms", common.summarize(ours)),
        {name: common.summarize(found[name]) for name in rivals},
        (STRICT,),
    )
    ratio = paired_ratio(ours, found[STRICT])
    ideal = paired_ratio(found[f"{STALE}, simulated"], found[f"{STRICT}, simulated"])
    free = paired_ratio(found["no bound, simulated"], found[f"{STRICT}, simulated"])
    measured = (
        f"measured {ratio:.3f} (median of {len(ours)} paired ratios); simulated {ideal:.3f}, and "
        f"{free:.3f} without a bound"
    )
    met = ratio >= ASKED_OF_SSP if len(ours) >= ENOUGH else None
    asked = f">= {ASKED_OF_SSP:g} of the speed with staleness 0"
    return [row], [Figure(f"{what}: {STALE}", asked, measured, met)]


ON_DEMAND, SHARES = "leaves on demand", "fixed shares, simulated"
ASKED_OF_SYNC = 2.0  # of the steps per second with fixed shares


def sync_rows(quick: bool) -> tuple[list[Row], list[Figure]]:
    found = common.samples_of("ps_sync_cases", 10 if quick else 60, "ps")
    what = "20 steps of 16 leaves in mode sync, 1 of 4 clients at a quarter of the speed"
    ours, ideal = found[ON_DEMAND], found[f"{ON_DEMAND}, simulated"]
    row = Row(
        *("ps", what, "ms", common.summarize(ours)),
        {name: common.summarize(found[name]) for name in (SHARES, f"{ON_DEMAND}, simulated")},
        (SHARES,),
    )
    ratio = paired_ratio(ours, found[SHARES])
    measured = (
        f"measured {ratio:.3f} (median of {len(ours)} paired ratios); simulated "
        f"{paired_ratio(ideal, found[SHARES]):.3f}"
    )
    met = ratio >= ASKED_OF_SYNC if len(ours) >= ENOUGH else None
    asked = f">= {ASKED_OF_SYNC:g} of the speed with fixed shares, simulated"
    return [row], [Figure(what, asked, measured, met)]


def rows_of(side: str, quick: bool) -> tuple[list[Row], list[Figure]]:
    found = common.samples_of(f"ps_{side}_cases", 10 if quick else 60, "ps")
    rows, figures = [], []
    for case, what, asked in CASES[side]:
        ours, bare = found[f"{case}, {side}"], found[f"{case}, bare"]
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
    of_modes = {"ssp": ssp_rows, "sync": sync_rows}
    sides = [*CASES, *of_modes]
    options.add_argument("--only", choices=sides, help="these rows alone")
    args = options.parse_args()
    rows, figures = [], []
    for side in [args.only] if args.only else sides:
        more_rows, more_figures = (
            of_modes[side](args.quick) if side in of_modes else rows_of(side, args.quick)
        )
        rows += more_rows
        figures += more_figures
    common.report(rows, args.json)
    common.conclude(figures, args.json)


if __name__ == "__main__":
    common.main(main)
