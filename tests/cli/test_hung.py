"""A member that stands still while the others wait for it is named; it is replaced or dropped on demand."""

import json
import re
import time

import pytest
from test_elastic import assert_finished

STEPS = "150"
STEP_MS = "20"  # of a leaf
JOB = ["--oversubscribe", "-np", "1:4", "--start", "3", "--hung-after", "2"]
KEEPS = r"member 1 keeps 2 others waiting for [2-9] s \(a step takes 0\.[0-9]+ s\): it computes step [0-9]+"


@pytest.fixture
def hang(regroup, member, tmp_path):
    """Begins a job with these options, of which member 1 stays in the midst of a leaf as long as there is the
    path that it returns."""

    def start(*options):
        words = [member, STEPS, STEP_MS, "", "sum", "0", "64", f"gates={tmp_path}"]
        job = regroup.start(*JOB, *options, *words)
        job.wait_out("^step 5 ")
        time.sleep(4)  # so that the length of a step is known
        gate = tmp_path / "leaf.1"
        gate.touch()
        return job, gate

    return start


def test_is_named_and_goes_on_when_it_is_let_go(regroup, hang):
    job, gate = hang()
    job.wait_err(KEEPS)
    history = [entry["why"] for entry in json.loads(regroup.control("status", "--json").stdout)["history"]]
    assert any(re.search(KEEPS, sentence) for sentence in history)
    gate.unlink()
    assert_finished(job, 3)
    assert len(re.findall("keeps", job.err)) == 1 and "generation 2" not in job.err


def test_is_replaced(hang):
    job, gate = hang("--hung", "replace")
    job.wait_err(KEEPS + r"; killed \(--hung\)")
    job.wait_err(r"member 1 was lost \(it stood still\)")
    gate.unlink()
    assert_finished(job, 3)


def test_is_dropped(hang):
    job, gate = hang("--hung", "drop")
    job.wait_err(r"member 1 was lost \(it stood still\): 3 -> 2 members")
    assert_finished(job, 2)
    assert "-> 3 members" not in job.err


def test_words_that_are_none(regroup, member):
    job = regroup.run(*JOB, "--hung", "kill", member, STEPS, "0")
    assert job.wait() == 1
    assert "--hung kill: report, replace or drop is wanted" in job.err
