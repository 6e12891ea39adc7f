"""Agents that have the job's secret and mean harm, at every state of their link: each is given up
for what only others may say, or not heard; the job has the same weights all the same."""

import re

import pytest
from attacks import EPOCHS, Plan, names_of_node2, play
from hosts import Hosts
from training import BIN, weights_alone

HOSTILE = BIN.parent / "tests/bin/hostile_agent"
BYTES = ("frame", "flag", "noise", "empty", "cut")  # no messages
# of others, or too many
WORDS = ("others", "news", "nodes", "agents", "flood", "generations", "long")
OF_OTHERS = (
    "members",
    "id_max",
    "id_flood",
    "ready",
    "reports",
    "peer_addresses",
    "source_status",
    "suspects",
)
UNHEARD = (*OF_OTHERS, "orders", "again")
ATTACKS = (
    *(("linked", what) for what in ("frame", "cut", "orders")),
    *(("hello", what) for what in ("frame", "noise", "empty", "cut", "others", "nodes")),
    *(("setup", what) for what in (*BYTES, *WORDS, *UNHEARD, "endless", "notice")),
    *(("round", what) for what in ("frame", "noise", "nodes", "agents", "generations")),
    *(
        ("round", what)
        for what in ("members", "id_max", "reports", "peer_addresses", "orders", "again")
    ),
)
# "loss" is not among the first: why a member is lost before there is a World is not told.
AT_START = tuple(
    ("start", what)
    for what in ("frame", "noise", "nodes", "members", "ready", "orders", "loss", "again")
)
NEW_COORDINATOR = (("asked", "claims"), ("asked", "generations"), ("asked", "id_max"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), EPOCHS)


def expected(state: str, what: str) -> str:
    """Of the link."""
    heard = what not in (*UNHEARD, "claims", "loss") or state == "linked"  # the first must be Hello
    return "closed" if heard else "open"


def check(
    hosts: Hosts, where: str, attacks: tuple[tuple[str, str], ...], *how: str, **others
) -> str:
    """What the job said."""
    plan = Plan(hosts, attacks, [HOSTILE])
    answers = play(hosts, where, plan, *how, pace_us=150_000, **others)
    wanted = {name: expected(*attack) for name, attack in zip(plan.names, attacks, strict=True)}
    # A controller that keeps pace with a flood sees no fault in it.
    floods = [name for name, (_, what) in zip(plan.names, attacks, strict=True) if what == "flood"]
    assert all(answers[name] in ("open", "closed") for name in floods)
    answers |= {name: wanted[name] for name in floods}
    # Who is heard and answers no round is given up for that, and nothing that it said.
    mute = [name for name in plan.names if wanted[name] == "open" and answers[name] == "closed"]
    assert len(mute) <= len(
        re.findall(r"its agent is heard, but has not answered for 20 s", plan.text)
    )
    answers |= {name: wanted[name] for name in mute}
    assert answers == wanted
    return plan.text


def test_agents_that_have_the_secret_harm_nobody(hosts: Hosts, undisturbed: str):
    # three lives each: a host that is lost again comes back later
    with names_of_node2(hosts, 13) as names:
        where = ",".join(["node1:2", "node3:2", *(f"{name}:1" for name in names)])
        text = check(hosts, where, ATTACKS, undisturbed)
    assert "must be returned within 2 s (gone?regroup: forged?[31m??31m)" in text
    assert "its agent sent a message larger than the limit" in text


def test_agents_that_are_to_start_members_harm_nobody(hosts: Hosts, undisturbed: str):
    with names_of_node2(hosts, 4) as names:
        where = ",".join([*(f"{name}:1" for name in names), "node1:1", "node3:1"])
        text = check(hosts, where, AT_START, undisturbed, "2:6")  # they have the first places
    assert re.search(r"regroup: member \d+: gone\?regroup: forged\?\[31m\?\?31m", text), text


def test_agents_that_lie_to_a_new_coordinator_harm_nobody(hosts: Hosts, undisturbed: str):
    with names_of_node2(hosts) as names:
        where = ",".join(["node1:2", "node3:2", *(f"{name}:1" for name in names)])
        coordinator = (hosts[0], "regroup-coord")
        text = check(hosts, where, NEW_COORDINATOR, undisturbed, victims=coordinator)
    assert "its agent says that it has heard of generation 2097151, the journal knows" in text
