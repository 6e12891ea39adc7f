"""What the recovery bench makes of a kill, on timelines with known answers. Times in milliseconds."""

import pytest
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
            *("kill_to_commit", "kill_to_any_commit", "detect", "regroup", "recompute", "reduce", "commit"),
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
    # The victim had committed step 3; A takes it over from the regroup, so the delay is in step 3 itself.
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
