"""Importing and exporting many small tensors, beside a bare loop of H5Dcreate.

./dev bench many_tensors [--quick] [--json FILE]. For 25,000, 50,000 and 100,000 tensors (--quick:
5,000 and 10,000) of four floats: seconds of processor, user and system, of `regroup checkpoint
import`, `export` and `diff`, by turns with a program that makes so many datasets with H5Dcreate.
Asked: at most three times as long, and growth in line with the number.
"""

import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import common

FORMATS = ("safetensors", "npz")


def write_tensors(path: Path, count: int) -> None:
    header = {
        f"layer.{i}.weight": {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * (i + 1)]}
        for i in range(count)
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(16 * count))


def seconds(*words: object) -> float:
    """Of processor, of a program that must succeed."""
    before = os.times()
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def sides_of(folder: Path, count: int) -> dict[str, Callable[[], float]]:
    tool = [common.BIN / "regroup-checkpoint"]
    write_tensors(folder / "x.safetensors", count)
    subprocess.run(
        [*tool, "import", folder / "x.safetensors", folder / "x"], check=True, capture_output=True
    )

    def taken(form: str) -> float:
        shutil.rmtree(folder / "y", ignore_errors=True)
        return seconds(*tool, "import", folder / f"x.{form}", folder / "y")

    def given(form: str) -> float:
        return seconds(*tool, "export", folder / "x", folder / f"x.{form}", "--to", form)

    sides = {"H5Dcreate": lambda: seconds(common.BIN / "h5dcreate", folder / "bare.h5", count)}
    for form in FORMATS:
        sides[f"export to {form}"] = lambda form=form: given(form)
        sides[f"import from {form}"] = lambda form=form: taken(form)
    sides["diff"] = lambda: seconds(*tool, "diff", folder / "x", folder / "y")
    return sides


def main() -> None:
    args = common.parser(__doc__).parse_args()
    counts, rounds = ((5_000, 10_000), 3) if args.quick else ((25_000, 50_000, 100_000), 5)
    rows = []
    for count in counts:
        folder = Path(tempfile.mkdtemp(prefix="bench-many-"))
        try:
            sides = sides_of(folder, count)
            found: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(rounds):
                for name, side in sides.items():
                    found[name].append(side())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        bare = common.summarize(found.pop("H5Dcreate"))
        rows += [
            common.Row(
                "many_tensors",
                f"{name}, {count}",
                "s",
                common.summarize(samples),
                {"H5Dcreate": bare},
                ["H5Dcreate"],
            )
            for name, samples in found.items()
        ]
    common.report(rows, args.json)


if __name__ == "__main__":
    common.main(main)
