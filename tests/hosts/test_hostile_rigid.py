"""Agents of a job of N members that have its secret and mean harm, at every state of their link.
One that is given up ends the job, as any lost host does: with one line that names it, and nothing
left behind. What is not its to say is not heard: the job goes on until that agent leaves."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from attacks import Plan, names_of_node2
from hosts import ROOT, Hosts, until
from test_mpi import COMPILERS
from training import BIN, left_on

HOSTILE = BIN.parent / "tests/bin/hostile_agent"
# reported once
LIMITED = {"guesses": "incomplete PMI fences", "questions": "unanswered PMI requests"}
UNHEARD = ("orders", "again", "ranks", "spaces", "spawn", "none", "ready", *LIMITED)
ATTACKS = (
    *(("linked", what) for what in ("frame", "again", "leave", "slots")),
    *(("hello", what) for what in ("noise", "others", "leave", "swollen")),
    *(("setup", what) for what in ("flag", "empty", "cut", "nodes")),
    ("mute", "nodes"),  # for what its host has nobody waits longer than 10 s
    *(("space", what) for what in ("noise", "news", "leave", "again")),
    *(
        ("running", what)
        for what in ("frame", "endless", "swollen", "others", "nodes", "agents", "leave", *UNHEARD)
    ),
)
DEADLINE_S = 180.0
GRACE_S = 150  # longer than a job may take, whose members end as soon as they are told to
# HOLD: as of Plan.hold(), where the job shall not be over before the member is up
MEMBER = ["sh", "-c", "echo up; ${HOLD:+rm $HOLD/$OMPI_COMM_WORLD_RANK}; exec sleep 600"]


def play(
    hosts: Hosts,
    where: str,
    state: str,
    what: str,
    members: Sequence[str] = ("-np", "3", *MEMBER),
    held_by: Sequence[int] = (),
) -> tuple[str, subprocess.CompletedProcess]:
    """What became of the link, and how the job ended. `held_by`: ranks of MEMBER that are up before
    the attacker leaves."""
    plan = Plan(hosts, [(state, what)], [HOSTILE])
    if held_by:
        members = ("-x", f"HOLD={plan.hold(held_by)}", *members)
    command = [
        *(str(BIN / "regroup"), "--ssh-command", " ".join(hosts.ssh), "-H", where),
        *("--prefix", str(plan.folder), "--term-grace", str(GRACE_S), *members),
    ]
    began = time.monotonic()
    done = hosts[0].run(command, timeout=DEADLINE_S)
    assert time.monotonic() - began < GRACE_S, done
    until(plan.answers, f"an answer to the attack of {done}", 90)
    return plan.answers()[plan.names[0]], done


@pytest.mark.parametrize(("state", "what"), ATTACKS)
def test_an_agent_that_means_harm_ends_its_job_and_nothing_else(
    hosts: Hosts, state: str, what: str
):
    heard = what not in UNHEARD or state == "linked"  # the first must be Hello
    goes_on = not heard and state == "running"
    with names_of_node2(hosts) as names:
        where = f"node1:1,{names[0]}:1,node3:1"
        answer, done = play(hosts, where, state, what, held_by=(0, 2) if goes_on else ())
    assert done.returncode == 1, done
    lines = [line for line in done.stderr.splitlines() if line.startswith("regroup:")]
    assert answer == ("closed" if heard else "open"), lines
    named = [line for line in lines if names[0] in line]
    if state == "mute":
        assert named.pop(0).endswith(
            ": no host inventory received within 10 s: ranks are not bound"
        ), lines
    assert len(named) == (2 if what in LIMITED else 1), lines
    assert LIMITED.get(what, "") in named[0], lines
    assert "forged" not in done.stderr
    if state == "running" and what not in ("spawn", "none"):
        assert lines[-1].endswith(": ending the job"), lines
    if goes_on:
        assert done.stdout.split() == ["up", "up"]
    until(lambda: not left_on(hosts), "an end of all processes of regroup")


@pytest.mark.parametrize("mpi", ["openmpi-4", "mpich"])
def test_who_guesses_what_ranks_of_others_say_to_each_other_harms_none(hosts: Hosts, mpi: str):
    program = hosts.folder / f"guessed.{mpi}"
    subprocess.run(
        [COMPILERS[mpi], "-O1", "-o", program, ROOT / "tests/pmi/mpi_program.c"],
        check=True,
        timeout=DEADLINE_S,
    )
    with names_of_node2(hosts) as names:
        where = f"node1:1,node3:1,{names[0]}:1"  # nobody runs there
        members = ("-np", "2", str(program), "hello")
        answer, done = play(hosts, where, "running", "fences", members)
    assert answer == "closed"  # at the end of the job
    assert (done.returncode, done.stderr) == (0, ""), done
    lines = [f"rank {rank} of 2 app 0 universe 3 sum 2" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == lines
    until(lambda: not left_on(hosts), "an end of all processes of regroup")


@pytest.mark.parametrize(
    ("mpi", "what"),
    [
        *(
            ("openmpi-4", what)
            for what in ("own_none", "own_noise", "own_half", "own_large", "own_huge")
        ),
        *(("openmpi-5", what) for what in ("own_noise", "own_half")),
    ],
)
def test_what_no_libpmix_can_read_harms_those_who_wait_for_it_at_most(
    hosts: Hosts, mpi: str, what: str
):
    """It is the part of a host of its own in the fences of MPI_Init, where two others wait. A job
    beside that one, on the same hosts, goes on."""
    program = hosts.folder / f"waiting.{mpi}"
    build = [COMPILERS[mpi], "-O1", "-o", program, ROOT / "tests/pmi/mpi_program.c"]
    subprocess.run(build, check=True, timeout=DEADLINE_S)
    beside = [
        BIN / "regroup",
        "--ssh-command",
        " ".join(hosts.ssh),
        "-H",
        "node1:1,node3:1",
        "-np",
        "2",
    ]
    say = ["sh", "-c", "echo up; [ $OMPI_COMM_WORLD_RANK = 0 ] && read line; echo well"]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }

    def fences() -> set[Path]:
        return set(hosts.folder.glob("plan-*/done/*.gathered"))

    before = fences()
    with names_of_node2(hosts) as names, hosts[0].popen([*beside, *say], **pipes) as other:
        try:
            assert other.stdout.readline() == "up\n"
            where = f"node1:1,{names[0]}:1,node3:1"
            answer, done = play(hosts, where, "running", what, ("-np", "3", str(program), "hello"))
            other.stdin.close()
            assert other.wait(DEADLINE_S) == 0
        finally:
            other.kill()
        assert (sorted(other.stdout.read().split()), other.stderr.read()) == (
            ["up", "well", "well"],
            "",
        )
    assert answer == ("closed" if what == "own_huge" else "open"), done
    assert bool(fences() - before) == (what != "own_huge")  # the others were there, and have got it
    assert done.returncode == 1, done
    lines = [line for line in done.stderr.splitlines() if line.startswith("regroup:")]
    assert len(lines) == 1 and lines[0].startswith(f"regroup: host {names[0]}: "), done.stderr
    assert lines[0].endswith(": ending the job"), lines
    until(lambda: not left_on(hosts), "an end of all processes of regroup")


def test_a_child_that_another_host_says_has_parted_has_not(hosts: Hosts):
    with names_of_node2(hosts) as names:
        where = f"node1:1,{names[0]}:1,node3:1"
        members = ("--oversubscribe", "-np", "3", *MEMBER)
        answer, done = play(hosts, where, "running", "parted", members)
    assert answer in ("open", "closed")  # it is waited for: it has not said that its rank has ended
    assert done.returncode == 3, done
    assert "rank 0 of spawn 1" in done.stderr and "ending the other ranks" in done.stderr, (
        done.stderr
    )
    until(lambda: not left_on(hosts), "an end of all processes of regroup")
