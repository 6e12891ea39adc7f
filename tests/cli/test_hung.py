"""A member that stands still while the others wait for it is named; it is replaced or dropped on demand."""

import json
import os
import re
import signal

import pytest
from test_elastic import assert_finished, pid_of

STEPS = "150"
JOB = ["--oversubscribe", "-np", "1:4", "--start", "3", "--hung-after", "2"]
KEEPS = r"member 1 keeps 2 others waiting for [23] s \(a step takes 0?\.?[0-9.]+ s\): it "


@pytest.fixture
def hang(regroup, member):
    """Begins a job with these options, of which member 1 is stopped in the midst of a step."""

    def start(*options):
        job = regroup.start(*JOB, *options, member, STEPS, "5")
        job.wait_out("^step 5 ")
        pid = pid_of(job, 1)
        os.kill(pid, signal.SIGSTOP)
        return job, pid

    return start


def test_is_named_and_goes_on_when_it_is_let_go(regroup, hang):
    job, pid = hang()
    job.wait_err(KEEPS)
    history = [entry["why"] for entry in json.loads(regroup.control("status", "--json").stdout)["history"]]
    assert any(re.search(KEEPS, sentence) for sentence in history)
    os.kill(pid, signal.SIGCONT)
    assert_finished(job, 3)
    assert len(re.findall("keeps", job.err)) == 1 and "generation 2" not in job.err


def test_is_replaced(hang):
    job, _ = hang("--hung", "replace")
    job.wait_err(KEEPS + r".*; killed \(--hung\)")
    job.wait_err(r"member 1 was lost \(it stood still\)")
    job.wait_err(r"2 -> 3 members|3 -> 3 members")
    assert_finished(job, 3)


def test_is_dropped(hang):
    job, _ = hang("--hung", "drop")
    job.wait_err(r"member 1 was lost \(it stood still\): 3 -> 2 members")
    assert_finished(job, 2)
    assert "3 members" not in job.err.split("it stood still")[1].replace("3 -> 2", "")


def test_words_that_are_none(regroup, member):
    job = regroup.run(*JOB, "--hung", "kill", member, STEPS, "0")
    assert job.wait() == 1
    assert "--hung kill: report, replace or drop is wanted" in job.err
