"""What the transaction costs per step when nothing happens: an empty step against the bare
Communicator.

Four members on the cores that are there, 4 KiB of parameters, no compute. Each member times its own
operations in alternating blocks; the difference of the medians is the cost of open, seal, vote and
commit.
"""

import statistics
import subprocess
import tempfile
from pathlib import Path

import common
from common import BIN, BenchError, Row

MEMBERS = 4
BYTES = 4096
STEPS_PER_BLOCK = 500


def run(blocks: int) -> dict[str, list[list[float]]]:
    """Microseconds by side ("session", "communicator") and member. Members check every sum."""
    with tempfile.TemporaryDirectory(prefix="regroup-overhead-") as folder:
        command = [
            *(str(BIN / "regroup"), "--oversubscribe", "--shards", str(MEMBERS)),
            *("-np", f"{MEMBERS}:{MEMBERS}", str(BIN / "overhead_member")),
            *(folder, str(blocks), str(STEPS_PER_BLOCK), str(BYTES)),
        ]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
        if done.returncode != 0:
            raise BenchError(
                f"overhead: regroup ended with {done.returncode}: {done.stderr[-2000:]}"
            )
        sides: dict[str, list[list[float]]] = {"session": [], "communicator": []}
        for path in sorted(Path(folder).glob("overhead.*")):
            lines = [line.split() for line in path.read_text().splitlines()]
            for side, members in sides.items():
                members.append([int(ns) / 1e3 for name, ns in lines if name == side])
    if len(sides["session"]) != MEMBERS or not all(sides["session"] + sides["communicator"]):
        raise BenchError(f"overhead: {len(sides['session'])} of {MEMBERS} members reported")
    return sides


def blockwise(members: list[list[float]]) -> list[float]:
    """Median of each block of each member."""
    return [
        statistics.median(one[i : i + STEPS_PER_BLOCK])
        for one in members
        for i in range(0, len(one), STEPS_PER_BLOCK)
    ]


def main() -> None:
    args = common.parser(__doc__).parse_args()
    sides = run(10 if args.quick else 40)
    session = [us for one in sides["session"] for us in one]
    bare = [us for one in sides["communicator"] for us in one]
    pairs = zip(blockwise(sides["session"]), blockwise(sides["communicator"]), strict=True)
    added = common.summarize([a - b for a, b in pairs])
    asked = [
        common.summarize(a).p50 - common.summarize(b).p50
        for a, b in zip(sides["session"], sides["communicator"], strict=True)
    ]
    rows = [
        Row(
            "overhead",
            "empty step, 4 KiB",
            "us",
            common.summarize(session),
            {"communicator": common.summarize(bare)},
        ),
        Row(
            "overhead",
            "added by the transaction: difference of a member's p50s",
            "us",
            common.summarize(asked),
        ),
        Row("overhead", "added by the transaction: difference of a block's medians", "us", added),
    ]
    common.report(rows, args.json)
    difference = common.summarize(session).p50 - common.summarize(bare).p50
    print(f"difference of the p50s: {difference:.1f} us per step (at most 50 asked)")


if __name__ == "__main__":
    common.main(main)
