"""The verdict on a schedule. It uses only what the members wrote down: final weights of each, every
shard that was handed to somebody to compute, and where each stood as a step began (generation,
rank, members). Nothing of the runtime's own bookkeeping is asked.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from schedule import BATCH, SAMPLES, STEPS_PER_EPOCH, Broken, Disturber, Schedule, named


def read_trails(folder: Path) -> list[tuple[int, int, tuple[int, ...]]]:
    """(step, leaf, samples) of every shard handed out; a line cut by SIGKILL was not computed."""
    found = []
    for path in named(folder, "computed").values():
        for line in path.read_text().split("\n")[:-1]:
            step, leaf, *samples = map(int, line.split())
            found.append((step, leaf, tuple(samples)))
    return found


def check_epochs(used: Iterable[tuple[int, int]], epochs: int) -> None:
    """`used`: (step, sample), each once. Every sample belongs to exactly one step of each epoch."""
    per_epoch = [Counter() for _ in range(epochs)]
    for step, sample in used:
        if not 1 <= step <= epochs * STEPS_PER_EPOCH:
            raise Broken(f"sample {sample} was used in step {step}")
        per_epoch[(step - 1) // STEPS_PER_EPOCH][sample] += 1
    for epoch, counts in enumerate(per_epoch):
        once = sum(1 for sample, n in counts.items() if n == 1 and sample < SAMPLES)
        if once != SAMPLES or len(counts) != SAMPLES:
            raise Broken(f"epoch {epoch}: {SAMPLES - once} samples not used exactly once")


@dataclass
class Work:
    """Who computed what."""

    excess: int  # shards computed again
    shared: int  # steps in which every one of two or more members had to compute its share, and did


def check_trails(folder: Path, schedule: Schedule, kills: int) -> Work:
    """Every sample once per epoch, no more computed twice than the kills explain, and the work is
    shared."""
    trails = read_trails(folder)
    shards = {(step, leaf): samples for step, leaf, samples in trails}
    if any(shards[step, leaf] != samples for step, leaf, samples in trails):
        raise Broken("two members computed different samples for one shard")
    check_epochs(
        ((step, i) for (step, _), samples in shards.items() for i in samples), schedule.epochs
    )
    excess = len(trails) - len(shards)
    # A kill can cost the one shard that its victim had not sealed yet; leaves and joins cost
    # nothing.
    if excess > kills:
        raise Broken(f"{excess} shards computed again, {kills} kills explain one each")
    return Work(excess, check_shared(folder, schedule, samples_in_trails(folder)))


def check_accesses(folder: Path, schedule: Schedule, kills: int) -> Work:
    """The same of what __getitem__ handed out, over all processes."""
    trails = named(folder, "computed").values()
    lines = [line for path in trails for line in path.read_text().split("\n")[:-1]]
    accesses = Counter(tuple(map(int, line.split())) for line in lines)
    check_epochs(accesses, schedule.epochs)
    largest = -(-BATCH // schedule.shards)
    excess = accesses.total() - len(accesses)
    if excess > kills * largest:
        raise Broken(f"{excess} samples computed again, {kills} kills explain {largest} each")
    return Work(-(-excess // largest), check_shared(folder, schedule, samples_accessed(folder)))


def read_stands(folder: Path) -> dict[int, dict[int, tuple[int, int, int]]]:
    """Per process and step: generation, rank and members as the step began."""
    found: dict[int, dict[int, tuple[int, int, int]]] = {}
    for pid, path in named(folder, "stood").items():
        lines = [tuple(map(int, line.split())) for line in path.read_text().split("\n")[:-1]]
        found[pid] = {step: (generation, rank, size) for step, generation, rank, size in lines}
    return found


def quiet_steps(stands: dict[int, dict[int, tuple[int, int, int]]]) -> dict[int, dict[int, int]]:
    """Steps in the midst of a World of two or more: all its members, and nobody else, began this
    step, the one before and the one after in it. Per step, the process of each rank."""
    worlds: dict[int, dict[int, tuple[int, int, int]]] = {}
    for pid, own in stands.items():
        for step, stand in own.items():
            worlds.setdefault(step, {})[pid] = stand
    quiet = {}
    for step, here in worlds.items():
        sizes = {(generation, size) for generation, _, size in here.values()}
        ranks = {rank: pid for pid, (_, rank, _) in here.items()}
        whole = len(sizes) == 1 and len(ranks) == len(here) == next(iter(sizes))[1] > 1
        if whole and worlds.get(step - 1) == here == worlds.get(step + 1):
            quiet[step] = ranks
    return quiet


def samples_of_share(schedule: Schedule, step: int, rank: int, size: int) -> int:
    """What a member has to compute in a quiet step: its contiguous, balanced share of the
    shards."""
    done = (step - 1) % STEPS_PER_EPOCH * BATCH
    batch = min(BATCH, SAMPLES - done)
    begin, end = (r * schedule.shards // size for r in (rank, rank + 1))
    return end * batch // schedule.shards - begin * batch // schedule.shards


def check_shared(folder: Path, schedule: Schedule, computed: Counter) -> int:
    """The work is really shared: in a quiet step every member computes its share. `computed`:
    samples per (process, step). Returns how many steps that was asked of."""
    quiet = quiet_steps(read_stands(folder))
    for step, ranks in quiet.items():
        for rank, pid in sorted(ranks.items()):
            wanted = samples_of_share(schedule, step, rank, len(ranks))
            if computed[pid, step] != wanted:
                what = f"{computed[pid, step]} samples, its share is {wanted}"
                raise Broken(
                    f"step {step}: rank {rank} of {len(ranks)} (pid {pid}) computed {what}"
                )
    return len(quiet)


def samples_in_trails(folder: Path) -> Counter:
    """Per (process, step), of C++ members."""
    found: Counter = Counter()
    for pid, path in named(folder, "computed").items():
        for line in path.read_text().split("\n")[:-1]:
            step, _, *samples = line.split()
            found[pid, int(step)] += len(samples)
    return found


def samples_accessed(folder: Path) -> Counter:
    """Per (process, step), of PyTorch members."""
    trails = named(folder, "computed").items()
    lines = ((pid, line) for pid, path in trails for line in path.read_text().split("\n")[:-1])
    return Counter((pid, int(line.split()[0])) for pid, line in lines)


def check_ends(folder: Path, disturber: Disturber) -> str:
    """Who computed, or was there at the start, was killed, was let go, or finished with the weights
    of all others who finished. Returns these."""
    weights = {pid: path.read_text() for pid, path in named(folder, "weights").items()}
    trails = named(folder, "computed")
    took_part = {pid for pid, path in trails.items() if path.stat().st_size} | disturber.first
    vanished = took_part - weights.keys() - named(folder, "left").keys() - disturber.killed
    vanished -= named(folder, "faulty").keys()  # as its plane told them to
    vanished -= disturber.noticed  # let go, and perhaps ended with the job before they could say so
    if vanished:
        raise Broken(f"neither finished nor left: {vanished}")
    if not weights:
        raise Broken("nobody wrote down the weights")
    if len(set(weights.values())) > 1:
        raise Broken(f"{len(weights)} members finished with different weights: {sorted(weights)}")
    return next(iter(weights.values()))
