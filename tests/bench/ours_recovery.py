"""Our side of the recovery bench: recovery_member under regroup, one member killing itself per
generation.

A member is killed by its own kernel timer at a random moment of a step; a third of the kills is set
inside the reduction. Every member writes its moments down at once, so nothing here depends on when
somebody looks.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from common import BIN, BenchError, Work

# about 20 settled ones, the regroup, and the time in which the replacement starts
STEPS_PER_KILL = 45
Measured = dict[str, list[float]]


@dataclass(frozen=True)
class Moment:
    at: int  # ns
    what: str
    step: int
    generation: int
    size: int


@dataclass
class Kill:
    # ns, when the kernel's timer was to fire; what the victim still wrote later is lag, not life
    at: int
    pid: int
    step: int  # the one that was open to it, or whose result it was to apply, or had just applied
    in_apply: bool  # after its commit, before it opened the next step
    in_reduction: bool


def read_timelines(folder: Path) -> dict[int, list[Moment]]:
    timelines = {}
    for path in folder.glob("timeline.*"):
        moments = []
        text = path.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():  # the last may be being written
            at, what, step, generation, size = line.split()
            moments.append(Moment(int(at), what, int(step), int(generation), int(size)))
        timelines[int(path.suffix[1:])] = moments
    return timelines


def kill_during(at: int, pid: int, last: Moment) -> Kill:
    """The kill of a victim that wrote `last` last."""
    in_apply = last.what in ("committed", "applied")
    return Kill(at, pid, last.step, in_apply, last.what in ("gathered", "reduced"))


def kills_in(timelines: dict[int, list[Moment]]) -> Iterable[Kill]:
    """Every kill, by what its victim was doing last: a timer may fire a step later than it was set
    for."""
    for pid, moments in timelines.items():
        planned = [m for m in moments if m.what.startswith("kill")]
        if not planned:
            continue
        last = [m for m in moments if not m.what.startswith("kill")][-1]
        yield kill_during(planned[-1].at, pid, last)


def undisturbed_steps(timelines: dict[int, list[Moment]], workers: int) -> list[float]:
    """Commit to commit, of full-size generations, without the first steps after a change."""
    steps = []
    for moments in timelines.values():
        commits = [m for m in moments if m.what == "committed"]
        for i in range(3, len(commits)):
            window = commits[i - 3 : i + 1]
            if len({m.generation for m in window}) == 1 and window[-1].size == workers:
                steps.append((window[-1].at - window[-2].at) / 1e9)
    return steps


def first_after(moments: list[Moment], what: str, at: int) -> Moment | None:
    return next((m for m in moments if m.what == what and m.at > at), None)


def last_between(all_moments: list[list[Moment]], what: str, begin: int, end: int) -> int | None:
    found = [
        m.at for moments in all_moments for m in moments if m.what == what and begin <= m.at <= end
    ]
    return max(found, default=None)


def commits_around(kill: Kill, survivors: list[list[Moment]]) -> tuple[Moment, Moment, Moment]:
    """Of the survivor that committed kill.step last: that commit, the one before, and the one
    after."""
    found = []
    for moments in survivors:
        mine = [m for m in moments if m.what == "committed"]
        this = next((i for i, m in enumerate(mine) if m.step == kill.step), None)
        if this and this + 1 < len(mine):
            found.append((mine[this], mine[this - 1], mine[this + 1]))
    if not found:
        raise BenchError(
            f"recovery: nobody committed step {kill.step}, its neighbours and what follows"
        )
    return max(found, key=lambda commits: commits[0].at)


def measure_kill(
    kill: Kill, timelines: dict[int, list[Moment]], normal: float, out: Measured
) -> None:
    survivors = [
        m for pid, m in timelines.items() if pid != kill.pid and m[0].at < kill.at < m[-1].at
    ]
    revoked = [m.at for moments in survivors if (m := first_after(moments, "revoked", kill.at))]
    joined = [m.at for moments in survivors if (m := first_after(moments, "joined", kill.at))]
    if not revoked or not joined:
        raise BenchError(f"recovery: nothing follows the kill in step {kill.step}")
    this, before, after = commits_around(kill, survivors)
    # Whoever survives may commit the open step without loss and stumble in the next one: both
    # together hide nothing.
    both = (after.at - before.at) / 1e9 - 2 * normal
    out["added_delay_both"].append(both)
    if kill.in_apply:
        out["added_delay_in_apply"].append(both)
    else:
        delay = (this.at - before.at) / 1e9 - normal
        out["added_delay"].append(delay)
        if kill.in_reduction:
            out["added_delay_in_reduce"].append(delay)
    last = next(c for c in (this, after) if c.at > kill.at).at
    out["kill_to_commit"].append((last - kill.at) / 1e9)
    first_commits = [c.at for m in survivors if (c := first_after(m, "committed", kill.at))]
    out["kill_to_any_commit"].append((min(first_commits) - kill.at) / 1e9)
    out["detect"].append((min(revoked) - kill.at) / 1e9)
    out["regroup"].append((max(joined) - min(revoked)) / 1e9)
    if last < max(joined):  # committed without loss before anybody knew
        return
    sealed = last_between(survivors, "sealed", max(joined), last)
    computed = sealed or max(joined)
    out["recompute"].append((computed - max(joined)) / 1e9)
    reduced = last_between(survivors, "reduced", computed, last)
    if reduced:
        out["reduce"].append((reduced - computed) / 1e9)
        out["commit"].append((last - reduced) / 1e9)


def join_pauses(timelines: dict[int, list[Moment]], normal: float) -> list[float]:
    """Commit to commit over the regroup that admits a newcomer, less an undisturbed step, worst
    survivor."""
    entered = {
        m.generation for moments in timelines.values() for m in moments if m.what == "entered"
    }
    pauses: dict[int, list[float]] = defaultdict(list)
    for moments in timelines.values():
        commits = [m for m in moments if m.what == "committed"]
        for joined in (m for m in moments if m.what == "joined" and m.generation in entered):
            before = [c.at for c in commits if c.at < joined.at]
            after = [c.at for c in commits if c.at > joined.at]
            if before and after:
                pauses[joined.generation].append((after[0] - before[-1]) / 1e9 - normal)
    return [max(of_members) for of_members in pauses.values()]


def memory_copies(megabytes: float) -> list[float]:
    """Seconds that one plain copy of as many bytes takes here and now."""
    source = bytearray(int(megabytes * 1e6))
    target = bytearray(len(source))
    seconds = []
    for _ in range(30):
        began = time.perf_counter()
        target[:] = source
        seconds.append(time.perf_counter() - began)
    return seconds[5:]


def run_job(folder: Path, kills: int, work: Work, seed: int) -> None:
    steps = kills * STEPS_PER_KILL + 60
    command = [
        *(str(BIN / "regroup"), "--oversubscribe", "--initial-size", str(work.workers)),
        *("--shards", str(work.workers)),
        *("-np", f"{work.workers - 1}:{work.workers}", str(BIN / "recovery_member"), str(folder)),
        *(str(steps), str(seed), str(work.params_mb), str(work.compute_ms), str(work.workers)),
    ]
    deadline = 60 + 3 * kills
    with (folder / "output").open("wb") as output:
        status = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=deadline,
            check=False,
        ).returncode
    if status != 0:
        raise BenchError(
            f"recovery: regroup ended with {status}: {(folder / 'output').read_text()[-2000:]}"
        )


def measure(kills: int, work: Work, seed: int = 1) -> Measured:
    """Seconds by quantity (the keys of recovery.CASES); members check every sum that they apply."""
    folder = Path(tempfile.mkdtemp(prefix="regroup-recovery-"))
    try:
        run_job(folder, kills, work, seed)
        timelines = read_timelines(folder)
    finally:
        if not os.environ.get("REGROUP_BENCH_KEEP"):
            shutil.rmtree(folder)
    found = list(kills_in(timelines))
    if len(found) < kills:
        raise BenchError(
            f"recovery: {len(found)} of {kills} kills happened in the steps that there were"
        )
    out = quantities(timelines, found, work)
    out["memory_copy"] = memory_copies(work.params_mb)
    return out


def quantities(timelines: dict[int, list[Moment]], kills: list[Kill], work: Work) -> Measured:
    """Seconds by quantity."""
    out: Measured = defaultdict(list)
    out["step"] = undisturbed_steps(timelines, work.workers)
    normal = statistics.median(out["step"])
    out["join_pause"] = join_pauses(timelines, normal)
    for kill in kills:
        measure_kill(kill, timelines, normal, out)
    return dict(out)
