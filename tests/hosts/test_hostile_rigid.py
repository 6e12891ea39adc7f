"""Agents of a job of N members that have its secret and mean harm, at every state of their link. One that is
given up ends the job, as any lost host does: with one line that names it, and nothing left behind. What is
not its to say is not heard: the job goes on until that agent leaves."""

import subprocess

import pytest
from attacks import Plan, names_of_node2
from hosts import Hosts, until
from training import BIN, left_on

HOSTILE = BIN.parent / "tests/bin/hostile_agent"
UNHEARD = ("orders", "again", "ranks", "spawn")
ATTACKS = (
    *(("linked", what) for what in ("frame", "again", "leave")),
    *(("hello", what) for what in ("noise", "others", "leave")),
    *(("setup", what) for what in ("flag", "empty", "cut", "nodes")),
    *(("space", what) for what in ("noise", "news", "leave", "again")),
    *(("running", what) for what in ("frame", "endless", "others", "nodes", "leave", *UNHEARD)),
)
DEADLINE_S = 60.0
MEMBER = ["sh", "-c", "echo up; exec sleep 600"]


def play(hosts: Hosts, where: str, state: str, what: str) -> tuple[str, subprocess.CompletedProcess]:
    """What became of the link, and how the job ended."""
    plan = Plan(hosts, [(state, what)], [HOSTILE])
    command = [
        *(str(BIN / "regroup"), "--ssh-command", " ".join(hosts.ssh), "-H", where, "-np", "3"),
        *("--prefix", str(plan.folder), *MEMBER),
    ]
    done = hosts[0].run(command, timeout=DEADLINE_S)
    until(plan.answers, "an answer to the attack", 20)
    return plan.answers()[plan.names[0]], done


@pytest.mark.parametrize(("state", "what"), ATTACKS)
def test_an_agent_that_means_harm_ends_its_job_and_nothing_else(hosts: Hosts, state: str, what: str):
    with names_of_node2(hosts) as names:
        answer, done = play(hosts, f"node1:1,{names[0]}:1,node3:1", state, what)
    assert done.returncode == 1, done
    lines = [line for line in done.stderr.splitlines() if line.startswith("regroup:")]
    heard = what not in UNHEARD or state == "linked"  # the first must be Hello
    assert answer == ("closed" if heard else "open"), lines
    assert sum(names[0] in line for line in lines) == 1, lines
    assert "forged" not in done.stderr
    if state == "running" and what != "spawn":
        assert lines[-1].endswith(": ending the job"), lines
    if not heard and state == "running":
        assert done.stdout.split() == ["up", "up"]
    until(lambda: not left_on(hosts), "an end of all processes of regroup", 20)
