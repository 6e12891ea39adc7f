"""A member that stands still while the others wait for it is named; it is replaced or dropped on
demand."""

import json
import re
import signal
import sys

import pytest
from conftest import BIN, Launcher, elastic, until
from test_elastic import assert_finished

STEPS = "150"
STEP_MS = "40"  # of a leaf
HANG_TIMEOUT_S = 2
JOB = elastic("1:4", "--hang-timeout", str(HANG_TIMEOUT_S), initial=3)
KEEPS = (
    r"member 1 keeps 2 others waiting for ([0-9.]+) s \(a step takes ([0-9.]+) s\): it computes "
    r"step (\d+)"
)


def wait_for_its_name(job, then: str = "") -> str:
    """What is said of member 1, once it is said: it has kept the others waiting for --hang-timeout
    and for ten steps (both numbers have two digits), in the step after the last one that was
    completed. How soon it is said after that: progress_watch_test.cc in tests/membership, where the
    time is the test's."""
    found = job.wait_err(KEEPS + then)
    waiting, step = float(found[1]), float(found[2])
    assert waiting >= HANG_TIMEOUT_S and waiting >= 10 * step * 0.9, found[0]
    completed = int(found[3]) - 1
    job.wait_out(rf"^step {completed} ")
    assert completed >= 70, found[0]
    return found[0]


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    """A job for each answer, beside each other: its launcher, itself, and the path of which member
    1 stays in the midst of a leaf as long as it is there."""
    member = str(BIN.parent / "tests/bin/elastic_member")
    launchers, jobs = [], {}
    for answer in ("report", "replace", "drop"):
        launchers.append(Launcher())
        folder = tmp_path_factory.mktemp(answer)
        words = [member, STEPS, STEP_MS, "", "sum", "0", "64", f"gates={folder}"]
        job = launchers[-1].start(*JOB, "--on-hang", answer, *words)
        jobs[answer] = (launchers[-1], job, folder / "leaf.1")
    waiting = list(jobs.values())

    def all_stopped() -> bool:
        """Each at its own time: one may be done before another is there."""
        for one in list(waiting):
            _, job, gate = one
            # A step takes 80 ms or more, so these 70 take over 5 s: the agent, which asks once a
            # second, has measured the three steps without which nothing is certain.
            if re.search("^step 70 ", job.out, re.MULTILINE):
                gate.touch()
                waiting.remove(one)
        return not waiting

    until(all_stopped, lambda: f"70 steps: {[job.err for _, job, _ in waiting]}")
    yield jobs
    for launcher in launchers:
        launcher.close()


def test_is_named_and_goes_on_when_it_is_let_go(hanging):
    regroup, job, gate = hanging["report"]
    said = wait_for_its_name(job)
    history = [
        entry["why"] for entry in json.loads(regroup.control("status", "--json").stdout)["history"]
    ]
    assert [sentence for sentence in history if said in sentence], history
    last = max(map(int, re.findall(r"^step (\d+) ", job.out, re.MULTILINE)))
    assert said.endswith(f"computes step {last + 1}")
    gate.unlink()
    assert_finished(job, 3)
    assert len(re.findall("keeps", job.err)) == 1 and "generation 2" not in job.err


def test_is_replaced(hanging):
    _, job, gate = hanging["replace"]
    wait_for_its_name(job, r"; killed \(--on-hang\)")
    job.wait_err(r"member 1 was lost \(hung\)")
    job.wait_err("2 -> 3 members")
    gate.unlink()
    assert_finished(job, 3)


def test_is_dropped(hanging):
    _, job, _ = hanging["drop"]
    job.wait_err(r"member 1 was lost \(hung\): 3 -> 2 members")
    assert_finished(job, 2)
    assert "-> 3 members" not in job.err


def test_words_that_are_none(regroup, member):
    job = regroup.run(*JOB, "--on-hang", "kill", member, STEPS, "0")
    assert job.wait() == 1
    assert "--on-hang kill: expected report, replace or drop" in job.err


FINISHES = """
import threading, time
import numpy as np, regroup
w = np.zeros(4, np.float32)
s = regroup.Session(regroup.TrackedState(w=w), elements=4, samples=40, batch=4, epochs=1)
for step in s:
    for shard in step:
        shard.gradient[:] = 1
s.finish()
if s.rank == 1:
    threading.Thread(target=time.sleep, args=(600,), name="uploads").start()
"""


def test_one_that_has_finished_and_does_not_end_is_named_with_its_threads(regroup):
    words = elastic("2:2", "--term-grace", "0.5", "--hang-timeout", "2", initial=2)
    job = regroup.start(*words, sys.executable, "-c", FINISHES)
    job.wait_err(
        r"member 1 \(pid \d+\) has finished, but its process has not ended for \d+ s: its threads "
        r".*uploads"
    )
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 0, job.err  # all had finished
    job.assert_nothing_left()
