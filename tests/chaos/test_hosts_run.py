"""A run of many faults on hosts can fail for what did not come."""

from collections import Counter

import pytest
from hosts_run import KINDS, MANY, OFTEN, too_rare


def test_every_kind_of_fault_must_come():
    assert set(OFTEN) == {*KINDS, "guardian", "two at once", "again"}


@pytest.mark.parametrize("what", OFTEN)
def test_what_came_too_seldom_is_named(what: str):
    totals = Counter({name: -(-MANY // n) for name, n in OFTEN.items()})
    assert too_rare(totals, MANY) == []
    totals[what] -= 1
    assert too_rare(totals, MANY) == [what]
    assert too_rare(totals, MANY - 1) == [], "too few to tell"
