"""Agents that have the job's secret and mean harm, at every state of their link: each is given up for what
only others may say, or not heard; the job has the same weights all the same."""

import pytest
from attacks import EPOCHS, Plan, names_of_node2, play
from hosts import Hosts
from training import BIN, weights_alone

HOSTILE = BIN.parent / "tests/bin/hostile_agent"
BYTES = ("frame", "flag", "noise", "empty", "cut")  # no messages
WORDS = ("others", "news", "nodes", "agents", "flood")  # of others, or too many
UNHEARD = ("members", "orders", "again")
ATTACKS = (
    *(("linked", what) for what in ("frame", "cut", "orders")),
    *(("hello", what) for what in ("frame", "noise", "empty", "cut", "others", "nodes")),
    *(("setup", what) for what in (*BYTES, *WORDS, *UNHEARD, "endless")),
    *(("round", what) for what in ("frame", "noise", "nodes", "agents", *UNHEARD)),
)
AT_START = tuple(("start", what) for what in ("frame", "noise", "nodes", *UNHEARD))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), EPOCHS)


def expected(state: str, what: str) -> str:
    """Of the link, three seconds later."""
    return "open" if what in UNHEARD and state != "linked" else "closed"  # the first must be Hello


def check(hosts: Hosts, where: str, attacks: tuple[tuple[str, str], ...], *how: str) -> None:
    plan = Plan(hosts, attacks, [HOSTILE])
    answers = play(hosts, where, plan, *how)
    wanted = {name: expected(*attack) for name, attack in zip(plan.names, attacks, strict=True)}
    # A head that keeps pace with a flood sees no fault in it.
    floods = [name for name, (_, what) in zip(plan.names, attacks, strict=True) if what == "flood"]
    assert all(answers[name] in ("open", "closed") for name in floods)
    answers |= {name: wanted[name] for name in floods}
    assert answers == wanted


def test_agents_that_have_the_secret_harm_nobody(hosts: Hosts, undisturbed: str):
    with names_of_node2(hosts) as names:
        where = ",".join(["node1:2", "node3:2", *(f"{name}:1" for name in names)])
        check(hosts, where, ATTACKS, undisturbed)


def test_agents_that_are_to_start_members_harm_nobody(hosts: Hosts, undisturbed: str):
    with names_of_node2(hosts) as names:
        where = ",".join([*(f"{name}:1" for name in names[:2]), "node1:2", "node3:2"])
        check(hosts, where, AT_START, undisturbed, "2:6")  # they have the last places
