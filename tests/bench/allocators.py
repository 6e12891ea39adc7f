"""Allocators: how long it takes to read an allocation of 10,000 hosts, of each kind (allocator_cases.cc), and
the story of an elastic job on a real Slurm of four nodes (tests/allocators/story.py).

--only reading|story, --runs N: stories; a run whose weights, samples or steps are wrong ends the bench.
"""

import sys
import tempfile
from pathlib import Path

import common
from common import BIN, BenchError, Row

sys.path.insert(0, str(common.ROOT / "tests/allocators"))
from slurm import Slurm, missing  # noqa: E402
from story import Figures, Story, preempt_a_plain_job  # noqa: E402

ASKED_MS = 20
ASKED_RISE = 1.5


def reading(quick: bool) -> list[Row]:
    found = common.samples_of("allocator_cases", 20 if quick else 200, "allocators")
    rows = [Row("allocators", case, "ms", common.summarize(ms)) for case, ms in found.items()]
    for row in rows:
        print(f"{row.case}: {row.ours.p50:.3f} ms (less than {ASKED_MS} asked)")
    return rows


def stories(runs: int) -> tuple[list[Figures], list[float]]:
    """And how long a preemptor waits for a node that a plain job has."""
    if why := missing():
        raise BenchError(why)
    figures, plain = [], []
    with tempfile.TemporaryDirectory(prefix="story") as name:
        folder = Path(name)
        (folder / "slurm").mkdir()
        with Slurm(folder / "slurm") as slurm:
            for run in range(runs):
                own = folder / str(run)
                own.mkdir()
                try:
                    figures.append(Story(slurm, own, BIN).run())
                except (AssertionError, TimeoutError) as error:
                    raise BenchError(f"story {run + 1} of {runs}: {error}") from error
                plain.append(preempt_a_plain_job(slurm))
                print(f"story {run + 1}: {figures[-1]}, a plain job's {plain[-1]:.2f} s", flush=True)
    return figures, plain


def story_rows(runs: int) -> list[Row]:
    figures, plain = stories(runs)

    def row(case: str, unit: str, samples: list[float], **rivals: list[float]) -> Row:
        others = {name: common.summarize(values) for name, values in rivals.items()}
        return Row("allocators", case, unit, common.summarize(samples), others, list(others))

    rows = [
        row("steps on two nodes", "1/s", [f.both for f in figures], alone=[f.alone for f in figures]),
        row("notice to host given back", "s", [f.given_back_s for f in figures]),
        row("preemptor runs", "s", [f.preemptor_s for f in figures], plain=plain),
    ]
    print(f"steps/s rose {rows[0].ratio():.2f} times (at least {ASKED_RISE} asked)")
    late = max(f.given_back_s - f.step_s for f in figures)
    print(f"a host was given back within a step and {late:.2f} s at most (1 s asked)")
    print(
        f"{len(figures)} of {runs} runs: every sample once in each epoch, the weights of an undisturbed run"
    )
    return rows


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--only", choices=("reading", "story"))
    options.add_argument("--runs", type=int)
    args = options.parse_args()
    rows = reading(args.quick) if args.only != "story" else []
    if args.only != "reading":
        rows += story_rows(args.runs or (1 if args.quick else 20))
    common.report(rows, args.json)


if __name__ == "__main__":
    common.main(main)
