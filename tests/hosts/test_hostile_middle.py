"""An agent that has the job's secret, has another below it in the tree, and means harm: what it may
not say ends its link, and that one goes on without it; what it says of that one costs that one at
most. The weights are the same."""

import pytest
from attacks import Plan, names_of_node2
from hosts import Hosts, until
from training import BIN, Start, kill, processes

MIDDLE = BIN.parent / "tests/bin/hostile_middle"
PACE_US = 200_000  # of a shard, until the answer to the attack is known
# What becomes of its link, and who is lost.
ATTACKS = {
    "others": ("closed", "evil0"),
    "both": ("closed", "evil0"),
    "gathered": ("closed", "evil0"),
    "news": ("closed", "evil0"),
    "nodes": ("closed", "evil0"),
    "agents": ("closed", "evil0"),
    "adopt": ("closed", "evil0"),
    "lost": ("open", "node3"),
    "words": ("open", "node3"),
    "child": ("open", "node3"),
    "orders": ("open", ""),
    "silent": ("open", ""),
    "numbers": ("open", ""),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_an_agent_above_another_harms_nobody_else(
    hosts: Hosts, start: Start, undisturbed: str, what: str
):
    answer, victim = ATTACKS[what]
    plan = Plan(hosts, [("round", what)], [MIDDLE])
    with names_of_node2(hosts) as names:
        where = f"node1:2,{names[0]}:1,node3:2"  # each below the one before it
        options = ("--prefix", str(plan.folder), "--tree-radix", "1")
        job = start(where, "2:5", *options, pace_us=PACE_US)
        job.until_said("5 members", 60)
        job.reach(3)
        kill(processes(hosts[0], "chaos_member")[:1])  # a round
        answers = until(plan.answers, "an answer", 60)
        assert answers == {plan.names[0]: answer}, job.text()
        if victim:
            until(lambda: f"host {victim}: " in job.text(), f"the loss of {victim}")
        job.hurry()
        job.expect_weights(undisturbed)
        lost = {name for name in ("node1", "evil0", "node3") if f"host {name}: " in job.text()}
        assert lost == ({victim} if victim else set()), job.text()
        assert "out of turn" not in job.text() and "\x1b" not in job.text()
