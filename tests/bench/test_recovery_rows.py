"""What the recovery bench makes of a kill, on timelines with known answers. Times in
milliseconds."""

import hosts_recovery
import pytest
import recovery
from common import BenchError
from ours_recovery import Kill, Moment, measure_kill

STEP_MS = 10
VICTIM, A, B = 1, 2, 3


def moments(*entries: tuple[float, str, int]) -> list[Moment]:
    return [Moment(int(ms * 1e6), what, step, 1, 3) for ms, what, step in entries]


def survivor(*commits: float, revoked: float, joined: float) -> list[Moment]:
    """Commits of the steps 1, 2, ..."""
    listed = [(ms, "committed", step) for step, ms in enumerate(commits, 1)]
    listed += [(revoked, "revoked", 0), (joined, "joined", 0)]
    return moments(*sorted(listed))


def measured(kill: Kill, a: list[Moment], b: list[Moment]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {
        key: []
        for key in (
            *("added_delay", "added_delay_in_reduce", "added_delay_in_apply", "added_delay_both"),
            *(
                "kill_to_commit",
                "kill_to_any_commit",
                "detect",
                "regroup",
                "recompute",
                "reduce",
                "commit",
            ),
        )
    }
    timelines = {VICTIM: moments((0, "open", 1), (20, "open", 3)), A: a, B: b}
    measure_kill(kill, timelines, STEP_MS / 1e3, out)
    return {key: [pytest.approx(1e3 * s) for s in values] for key, values in out.items()}


def test_the_step_open_at_the_kill_is_delayed_by_its_last_survivor():
    a = survivor(10, 20, 37, 47, revoked=26, joined=28)
    b = survivor(10, 20, 36, 46, revoked=27, joined=29)
    out = measured(Kill(25_000_000, VICTIM, 3, in_apply=False, in_reduction=True), a, b)
    assert out["added_delay"] == out["added_delay_in_reduce"] == [7]
    assert out["added_delay_both"] == [7]
    assert out["added_delay_in_apply"] == []
    assert (out["kill_to_commit"], out["kill_to_any_commit"]) == ([12], [11])
    assert (out["detect"], out["regroup"]) == ([1], [3])


def test_a_delay_after_the_victims_commit_is_not_lost_between_two_steps():
    # The victim had committed step 3; A takes it over from the regroup, so the delay is in step 3
    # itself.
    a = survivor(10, 20, 38, 48, revoked=32, joined=36)
    b = survivor(10, 20, 30, 40, revoked=33, joined=35)
    out = measured(Kill(31_000_000, VICTIM, 3, in_apply=True, in_reduction=False), a, b)
    assert out["added_delay_in_apply"] == [8]
    assert out["added_delay"] == []


def test_a_delay_that_falls_into_the_next_step_is_in_the_row_of_both():
    a = survivor(10, 20, 30, 49, revoked=32, joined=36)
    out = measured(Kill(29_900_000, VICTIM, 3, in_apply=False, in_reduction=False), a, a)
    assert out["added_delay"] == [0]
    assert out["added_delay_both"] == [9]
    assert out["recompute"] == []  # the open step was committed without loss


def on_hosts(**entries: list[Moment]) -> dict[str, list[Moment]]:
    """Timelines by "HOST/PROCESS", from HOST=moments."""
    return {f"{host}/1": found for host, found in entries.items()}


def computing(*joined: float) -> list[Moment]:
    """One that computes from the start on, and enters Worlds at these times."""
    return moments((0, "joined", 0), (1, "sealed", 1), *((ms, "joined", 1) for ms in joined))


AT = 10_000_000
SILENT = "host node3: no message from its agent for 5 s"


def test_who_regroups_last_counts_and_nobody_of_the_host_that_is_gone():
    found = on_hosts(node1=computing(5010, 6000), node2=computing(5040), node3=computing(9000))
    assert hosts_recovery.regrouped(found, AT, "node3") == pytest.approx(5.03)
    assert hosts_recovery.regrouped(found, AT, "node2") == pytest.approx(8.99)


def test_nobody_has_regrouped_until_all_have():
    found = on_hosts(node1=computing(5010), node2=computing(), node3=computing())
    assert hosts_recovery.regrouped(found, AT, "node3") is None
    assert hosts_recovery.regrouped({}, AT, "node3") is None
    before = on_hosts(node1=computing(9), node2=computing(5040))
    assert hosts_recovery.regrouped(before, AT, "node3") is None


def test_a_newcomer_is_not_waited_for():
    found = on_hosts(node1=computing(5010), node2=moments((6000, "open", 1)))
    assert hosts_recovery.regrouped(found, AT, "node3") == pytest.approx(5.0)


def test_a_link_that_somebody_noticed_is_no_sample():
    found = on_hosts(node1=computing(5010))
    hosts_recovery.check_unnoticed(f"regroup: {SILENT}\n", found, AT, "node3")
    untaken = (
        "host node3: the connection to its agent is lost: 10.77.0.3:53716: no acknowledgement for "
        "5.0 s"
    )
    hosts_recovery.check_unnoticed(untaken, found, AT, "node3")
    with pytest.raises(BenchError, match="another reason"):
        hosts_recovery.check_unnoticed(untaken.split(":")[0] + ": closed", found, AT, "node3")
    noticed = "host node3: neither its agent nor its members are heard any more"
    with pytest.raises(BenchError, match="another reason"):
        hosts_recovery.check_unnoticed(noticed, found, AT, "node3")
    with pytest.raises(BenchError, match="another reason"):
        hosts_recovery.check_unnoticed(SILENT, found, AT, "node2")
    waits = on_hosts(node1=moments((5, "gathered", 1), (5010, "joined", 2), (5020, "gathered", 2)))
    with pytest.raises(BenchError, match="outlast"):
        hosts_recovery.check_unnoticed(SILENT, waits, AT, "node3")


def test_two_steps_of_the_slowest_member_elsewhere_are_the_stall():
    slow = moments(*((ms, "committed", 1) for ms in (5, 1225, 1240)))
    quick = moments(*((ms, "committed", 1) for ms in (6, 1200, 1210)))
    gone = moments((5, "committed", 1), (9000, "committed", 2), (9900, "committed", 3))
    found = on_hosts(node1=slow, node2=quick, node3=gone)
    assert hosts_recovery.stall(found, AT, STEP_MS / 1e3, "node3") == pytest.approx(1.215)
    with pytest.raises(BenchError, match="nobody went on"):
        hosts_recovery.stall(on_hosts(node3=gone), AT, STEP_MS / 1e3, "node3")


CALM_MS = {"added_delay": 90, "agent": 120, "coordinator": 50, "link": 1300, "unnoticed": 5000}


def judged(**changed_ms: list[float]) -> dict[tuple[str, str], bool | None]:
    """Verdicts by quantity and statistic, where all other samples are as on a calm machine."""
    samples = {
        key: [ms] * (100 if key == "added_delay" else 10) for key, ms in CALM_MS.items()
    } | changed_ms
    figures = recovery.judge({key: [ms / 1e3 for ms in found] for key, found in samples.items()})
    names = [(asked.key, asked.statistic) for asked in recovery.ASKED]
    return dict(zip(names, [figure.met for figure in figures], strict=True))


def missed(**changed_ms: list[float]) -> list[tuple[str, str]]:
    return [name for name, met in judged(**changed_ms).items() if met is False]


def test_a_calm_run_meets_all():
    assert list(judged().values()) == [True] * 6


@pytest.mark.parametrize(
    ("key", "samples", "figure"),
    [
        ("added_delay", [101] * 60 + [50] * 40, ("added_delay", "p50")),
        ("added_delay", [90] * 98 + [401] * 2, ("added_delay", "p99")),
        ("agent", [151] * 6 + [90] * 4, ("agent", "p50")),
        ("coordinator", [50] * 9 + [1001], ("coordinator", "max")),
        ("link", [1300] * 9 + [1501], ("link", "max")),
        ("unnoticed", [5000] * 9 + [6001], ("unnoticed", "max")),
    ],
)
def test_a_figure_that_is_late_is_missed_alone(
    key: str, samples: list[float], figure: tuple[str, str]
):
    assert missed(**{key: samples}) == [figure]


def test_exactly_what_was_asked_is_met():
    on_the_line = {"agent": [150] * 10, "coordinator": [1000] * 10, "link": [1500] * 10}
    assert missed(added_delay=[100] * 98 + [400] * 2, unnoticed=[6000] * 10, **on_the_line) == []


def test_few_samples_are_told_and_not_judged():
    quick = {key: [1e9] * recovery.QUICK_EVENTS for key in ("agent", "coordinator", "link")}
    found = judged(added_delay=[1e9] * 24, unnoticed=[1e9] * recovery.QUICK_UNNOTICED, **quick)
    assert list(found.values()) == [None] * 6
    first, *_, last = map(str, recovery.judge({"added_delay": [0.09] * 24}))
    assert first == (
        "added delay, a member is killed, p50: asked <= 100 ms, measured 90.0 ms (24 samples), "
        "not judged: 50 samples are wanted"
    )
    assert last.endswith("asked <= 6000 ms, not measured")
