"""Time that a SIGKILL of one of four members costs a training job, against torchrun and TorchFT.

All sides train with the same number of fp32 parameters and the same busy time per shard on the same
cores. They run in alternating blocks; a block starts a job, kills members one after another, ends
the job. Rivals: torchrun restarts every worker; TorchFT goes on with the survivors, once with its
default timeouts (not with --quick) and once with short ones.

With --hosts 3, where no rival goes on, a line below the table stands for each figure of ASKED, and
one that is missed ends the bench with status 1. --quick has too few samples for that.
"""

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import common
from common import Row, Side

sys.path.insert(0, str(Path(__file__).resolve().parent / "rivals"))

Measured = dict[str, list[float]]  # name of a quantity -> seconds
WORK = common.Work()
# Of --hosts, per run and with --quick: events of each kind, links that nobody waits behind.
EVENTS, QUICK_EVENTS = 10, 2
UNNOTICED, QUICK_UNNOTICED = 6, 1
ELSEWHERE = "added delay to two steps of the members elsewhere"
EVENT_TITLES = {
    "agent": f"an agent is killed: {ELSEWHERE}",
    "coordinator": f"the coordinator is killed: {ELSEWHERE}",
    "link": f"a link goes down: {ELSEWHERE}",
    "unnoticed": "a link goes down while all compute: "
    "until the last member elsewhere is in the next generation",
}


@dataclass(frozen=True)
class Case:
    """One row: `key` is what our measure() calls the quantity, `rival_key` what the rivals' call
    it."""

    key: str
    title: str
    rival_key: str | None = None
    bound: bool = False


# In the order of the table. A quantity that our program does not report has no row.
CASES = (
    Case("added_delay", "added delay"),
    Case("added_delay_in_reduce", "added delay, killed in the reduction"),
    Case(
        "added_delay_in_apply", "added delay to both steps, killed between commit and the next step"
    ),
    Case("added_delay_both", "added delay to the open step and the next together, all kills"),
    Case("kill_to_commit", "kill to the last survivor's next commit", "kill_to_regrouped", True),
    Case(
        "kill_to_any_commit",
        "kill to the next committed step, be it without loss",
        "kill_to_commit",
        True,
    ),
    Case("detect", "kill to detected"),
    Case("regroup", "detected to the new generation"),
    Case("recompute", "recompute"),
    Case("reduce", "reduce"),
    Case("commit", "commit"),
    Case("step", "undisturbed step", "step"),
    Case("join_pause", "pause of the running members when one joins"),
    Case("memory_copy", "one memory copy of the state, beside it"),
)


@dataclass(frozen=True)
class Asked:
    """At most so much of a quantity: of its median, its p99 or all of it, in so many samples at
    least."""

    key: str
    title: str
    statistic: str  # a field of common.Stats
    most_ms: float
    samples: int


ASKED_OF = (3, WORK.params_mb)  # hosts, MB of parameters
ASKED = (
    Asked("added_delay", "added delay, a member is killed, p50", "p50", 100, 50),
    Asked("added_delay", "added delay, a member is killed, p99", "p99", 400, 50),
    Asked("agent", "added delay, an agent is killed, p50", "p50", 150, EVENTS),
    Asked("coordinator", "added delay, the coordinator is killed, at most", "max", 1000, EVENTS),
    Asked("link", "added delay, a link goes down, at most", "max", 1500, EVENTS),
    Asked(
        "unnoticed",
        "next World, a link goes down while all compute, at most",
        "max",
        6000,
        UNNOTICED,
    ),
)


def judge(measured: Measured) -> list[common.Figure]:
    """The figures of ASKED, of seconds measured on ASKED_OF."""
    figures = []
    for asked in ASKED:
        samples = measured.get(asked.key, [])
        wanted = f"<= {asked.most_ms:g} ms"
        if not samples:
            figures.append(common.Figure(asked.title, wanted, "not measured", None))
            continue
        took = getattr(milliseconds(samples), asked.statistic)
        found, met = f"measured {took:.1f} ms ({len(samples)} samples)", took <= asked.most_ms
        if len(samples) < asked.samples:
            found, met = f"{found}, not judged: {asked.samples} samples are wanted", None
        figures.append(common.Figure(asked.title, wanted, found, met))
    return figures


def installed(module: str) -> bool:
    if importlib.util.find_spec(module) is None:
        print(f"recovery: no Python module {module}: its side is not measured", file=sys.stderr)
        return False
    return True


def find_rivals(quick: bool) -> dict[str, Callable[..., Measured]]:
    """The measure functions of the installed rivals; each checks the sum of every all-reduce it
    times. Quick: TorchFT with short timeouts only, since by default it waits 5 s for a
    heartbeat."""
    found: dict[str, Callable[..., Measured]] = {}
    if installed("torch"):
        import torchrun_recovery

        found["torchrun"] = torchrun_recovery.measure
        if installed("torchft"):
            import torchft_recovery

            if not quick:
                found["torchft"] = torchft_recovery.measure
            found["torchft-tuned"] = partial(
                torchft_recovery.measure, settings=torchft_recovery.TUNED
            )
    return found


def side(name: str, measure: Callable[..., Measured], kills: int) -> Side:
    """A side whose block returns one Measured; each block kills at other moments."""
    blocks = iter(range(1, 1_000_000))
    return Side(name, lambda: None, lambda: [measure(kills, WORK, seed=next(blocks))])


def merge(blocks: list[Measured]) -> Measured:
    merged: Measured = {}
    for block in blocks:
        for key, seconds in block.items():
            merged.setdefault(key, []).extend(seconds)
    return merged


def milliseconds(seconds: list[float]) -> common.Stats:
    return common.summarize([1e3 * value for value in seconds])


def torch_rows(ours: Measured, rivals: dict[str, Measured]) -> list[Row]:
    """Our side through PyTorch: against the rivals by their own measure, then by its own
    timelines."""
    table = []
    for key, title in (
        ("kill_to_regrouped", "kill to the first step without the victim"),
        ("step", "step"),
    ):
        shown = {name: milliseconds(found[key]) for name, found in rivals.items() if found.get(key)}
        bound = list(shown) if key == "kill_to_regrouped" else []
        table.append(
            Row("recovery", f"PyTorch: {title}", "ms", milliseconds(ours[key]), shown, bound)
        )
    for case in CASES:
        if case.rival_key is None and ours.get(case.key):
            table.append(
                Row("recovery", f"PyTorch: {case.title}", "ms", milliseconds(ours[case.key]))
            )
    return table


def rows(measured: dict[str, Measured]) -> list[Row]:
    """`measured` holds "ours", "ours-torch" and the rivals by name."""
    ours = measured["ours"]
    rivals = {name: found for name, found in measured.items() if not name.startswith("ours")}
    table = torch_rows(measured["ours-torch"], rivals) if "ours-torch" in measured else []
    for case in CASES:
        if not ours.get(case.key):
            continue
        shown = {
            n: milliseconds(m[case.rival_key]) for n, m in rivals.items() if m.get(case.rival_key)
        }
        bound = list(shown) if case.bound else []
        table.append(Row("recovery", case.title, "ms", milliseconds(ours[case.key]), shown, bound))
    return table


def on_hosts(count: int, kills: int, megabytes: float, quick: bool, json: str | None) -> None:
    """Our side alone, on so many test hosts with two members each; no rival survives the loss of a
    host."""
    import hosts_recovery

    work = common.Work(params_mb=megabytes)
    with hosts_recovery.Hosts(count) as hosts:
        measured = hosts_recovery.measure(hosts, kills, work)
        lost = hosts_recovery.events(hosts, QUICK_EVENTS if quick else EVENTS, work)
        lost["unnoticed"] = hosts_recovery.unnoticed(hosts, QUICK_UNNOTICED if quick else UNNOTICED)
    table = rows({"ours": measured})
    for kind, title in EVENT_TITLES.items():
        table.append(Row("recovery", title, "ms", milliseconds(lost[kind])))
    common.report(
        [dataclasses.replace(row, case=f"{count} hosts: {row.case}") for row in table], json
    )
    if (count, megabytes) != ASKED_OF:
        print("nothing was asked of so many hosts and parameters")
        return
    common.conclude(judge(measured | lost), json)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument(
        "--hosts", type=int, help="on so many test hosts, two members each, without rivals"
    )
    options.add_argument(
        "--megabytes", type=float, default=25.0, help="of parameters, with --hosts"
    )
    options.add_argument("--kills", type=int, help="kills of our members (default 60, quick 12)")
    options.add_argument(
        "--rival-kills", type=int, help="kills of each rival's workers (default 12, quick 1)"
    )
    args = options.parse_args()
    blocks = 1 if args.quick else 4
    kills = args.kills or (12 if args.quick else 60)
    rival_kills = args.rival_kills or (1 if args.quick else 12)
    if args.hosts:
        on_hosts(args.hosts, kills, args.megabytes, args.quick, args.json)
        return

    if not installed("ours_recovery"):
        raise common.BenchError(
            "tests/bench/ours_recovery.py, which measures our side, is not there"
        )
    import ours_recovery

    sides = [side("ours", ours_recovery.measure, -(-kills // blocks))]
    if installed("torch"):
        import ours_torch_recovery

        sides.append(side("ours-torch", ours_torch_recovery.measure, -(-rival_kills // blocks)))
    sides += [
        side(name, measure, -(-rival_kills // blocks))
        for name, measure in find_rivals(args.quick).items()
    ]
    measured = common.alternate(sides, blocks)
    common.report(rows({name: merge(found) for name, found in measured.items()}), args.json)
    if os.geteuid() == 0:
        print(
            "note: as root, the launcher's agent and coordinator ask for nice -10; the rivals' do "
            "not"
        )


if __name__ == "__main__":
    common.main(main)
