"""Allocators: how long it takes to read an allocation of 10,000 hosts, of each kind
(allocator_cases.cc, which looks at its answer first), and the story of an elastic job on a real
Slurm of four nodes (tests/allocators/story.py), in each run beside a plain job that is preempted.

--only reading|story, --runs N: stories.

What is asked, and how it is measured:
  an allocation of each kind   its median
  steps/s with a second node   in relation to those on one; members are pinned to a core each
  notice to host given back    from Slurm's signal on that node, which
                               another step there notes, until
                               `regroup join` has ended there; less a step of then
  preemptor, no later          from its submission until it runs,
                               against where the node has the plain job: an
                               srun whose process ends as soon as it gets that signal, the quickest
                               that there is. Slurm looks for free nodes once a second
                               (sched_interval=1 in the tests' slurm.conf): less than that is no
                               difference
  steps lost                   in a good run every sample was used once
                               in each epoch, the weights are those
                               of an undisturbed one, nobody was lost, and who was on the node was
                               let go at the end of a step
"""

import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import common
from common import BIN, BenchError, Row

sys.path.insert(0, str(common.ROOT / "tests/allocators"))
from slurm import Slurm, missing  # noqa: E402
from story import Figures, Story, preempt_a_plain_job  # noqa: E402

ASKED_MS = 20
ASKED_RISE = 1.5
ASKED_BEYOND_STEP_S = 1.0
SCHEDULER_S = 1.0  # between two looks of Slurm


def verdict(what: str, measured: str, asked: str, met: bool) -> None:
    print(f"{'met   ' if met else 'MISSED'}  {what}: {measured} ({asked} asked)", flush=True)


def reading(quick: bool) -> list[Row]:
    found = common.samples_of("allocator_cases", 20 if quick else 200, "allocators")
    rows = [Row("allocators", case, "ms", common.summarize(ms)) for case, ms in found.items()]
    for row in rows:
        verdict(
            f"10,000 hosts, {row.case}",
            f"{row.ours.p50:.3f} ms",
            f"< {ASKED_MS}",
            row.ours.p50 < ASKED_MS,
        )
    return rows


@dataclass
class Stories:
    figures: list[Figures] = field(default_factory=list)
    # how long a preemptor waits for a plain job's node
    plain: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # why, of runs that went wrong


def stories(runs: int) -> Stories:
    """Each beside a plain job, whose turn it is first in every other run."""
    if why := missing():
        raise BenchError(why)
    found = Stories()
    with tempfile.TemporaryDirectory(prefix="story") as name:
        folder = Path(name)
        (folder / "slurm").mkdir()
        with Slurm(folder / "slurm") as slurm:
            for run in range(runs):
                own = folder / str(run)
                own.mkdir()
                if run % 2:
                    found.plain.append(preempt_a_plain_job(slurm))
                try:
                    found.figures.append(Story(slurm, own, BIN).measure())
                    said = str(found.figures[-1])
                except (AssertionError, TimeoutError, RuntimeError) as error:
                    found.lost.append(f"story {run + 1}: {error}")
                    said = f"LOST: {error}"
                    slurm.end_jobs()
                if not run % 2:
                    found.plain.append(preempt_a_plain_job(slurm))
                print(
                    f"story {run + 1} of {runs}: {said}; a plain job's {found.plain[-1]:.2f} s",
                    flush=True,
                )
    return found


def story_rows(runs: int) -> list[Row]:
    found = stories(runs)
    figures, plain = found.figures, found.plain
    verdict(
        "stories without a lost step", f"{len(figures)} of {runs}", "all, of 20", not found.lost
    )
    if not figures:
        raise BenchError("no story came to its end")

    def row(case: str, unit: str, samples: list[float], **rivals: list[float]) -> Row:
        others = {name: common.summarize(values) for name, values in rivals.items()}
        return Row("allocators", case, unit, common.summarize(samples), others, list(others))

    rows = [
        row(
            "steps on two nodes", "1/s", [f.both for f in figures], alone=[f.alone for f in figures]
        ),
        row("notice to host given back", "s", [f.given_back_s for f in figures]),
        row("... less a step", "s", [f.given_back_s - f.step_s for f in figures]),
        row("preemptor runs", "s", [f.preemptor_s for f in figures], plain=plain),
    ]
    rise = statistics.median(f.both / f.alone for f in figures)
    verdict(
        "steps/s with a second node",
        f"{rise:.2f} times",
        f"at least {ASKED_RISE}",
        rise >= ASKED_RISE,
    )
    beyond = rows[2].ours.max
    verdict(
        "notice to host given back, the slowest run",
        f"a step + {beyond:.2f} s",
        f"a step + {ASKED_BEYOND_STEP_S:g} s",
        beyond <= ASKED_BEYOND_STEP_S,
    )
    late = rows[3].ours.p50 - rows[3].rivals["plain"].p50
    verdict(
        "the preemptor runs later than without us by",
        f"{late:+.2f} s ({rows[3].ours.p50:.2f} s, a plain job's node "
        f"{rows[3].rivals['plain'].p50:.2f} s)",
        f"0 s, of a scheduler that looks every {SCHEDULER_S:g} s",
        late < SCHEDULER_S,
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
