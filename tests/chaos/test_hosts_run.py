"""A run of many faults on hosts can fail for what did not come."""

from collections import Counter

import pytest
from hosts_run import (
    EACH,
    FEW,
    FIRST,
    FROM_STEP,
    KINDS,
    MANY,
    MODEL_BYTES,
    OFTEN,
    absent,
    expect_talk,
    first_kinds,
    status_due,
    too_rare,
)


def test_every_kind_of_fault_must_come():
    assert set(OFTEN) == {*KINDS, "guardian", "two at once", "again"}


@pytest.mark.parametrize("what", OFTEN)
def test_what_came_too_seldom_is_named(what: str):
    totals = Counter({name: -(-MANY // n) for name, n in OFTEN.items()})
    assert too_rare(totals, MANY) == []
    totals[what] -= 1
    assert too_rare(totals, MANY) == [what]
    assert too_rare(totals, MANY - 1) == [], "too few to tell"


@pytest.mark.parametrize("what", OFTEN)
def test_what_has_not_come_among_some_is_waited_for_and_named(what: str):
    totals = Counter(dict.fromkeys(OFTEN, 1))
    assert absent(totals, FEW) == []
    totals[what] = 0
    assert absent(totals, FEW) == too_rare(totals, FEW) == [what]
    assert too_rare(totals, FEW - 1) == [], "too few to tell"


def test_the_first_faults_of_jobs_one_after_another_are_of_each_kind():
    jobs = -(-len(EACH) // FIRST)
    assert jobs * FIRST < FEW
    for seed in range(1000, 1007):
        assert {kind for job in range(jobs) for kind in first_kinds(seed + job)} == set(KINDS)


def test_hosts_of_which_two_have_heard_nothing_have_not_talked():
    expect_talk([[0, 7801, 7801]], FROM_STEP * MODEL_BYTES)
    for heard in ([0, 7801, 7800], [0, 0, 10**9]):
        with pytest.raises(AssertionError, match="no two hosts have talked"):
            expect_talk([heard], FROM_STEP * MODEL_BYTES)


def test_only_who_is_lost_behind_its_finish_gives_the_job_its_status():
    said = "regroup: the job failed: a member ended with status {} after finish() (exit status {})"
    assert status_due(said.format(137, 137), late=True) == 137
    assert status_due(said.format(1, 1), late=True) == 1
    assert status_due(said.format(137, 137), late=False) == 0, "nothing happened that late"
    assert status_due(said.format(3, 3), late=True) == 0, "that is nobody's loss"
    assert status_due("", late=True) == 0
