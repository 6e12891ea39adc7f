"""Members that fail again and again: which failures are the same, how often one is replaced, what
is said."""

import re
import sys
from pathlib import Path

import pytest
from conftest import elastic, until

LOOP = """
import os, sys, time
import numpy as np
import regroup
elements, samples = int(sys.argv[1]), int(sys.argv[2])
state = regroup.TrackedState(w=(w := np.zeros(elements, np.float32)))
s = regroup.Session(state, elements=elements, samples=samples, batch=4, epochs=1)
me = int(os.environ["REGROUP_MEMBER"])
taken = 0
for step in s:
    if taken >= 2:
        {fault}
    for shard in step: shard.gradient[:] = 1
    w -= step.gradient
    taken += 1
    if not os.path.exists(os.environ["XDG_RUNTIME_DIR"] + "/hurry"): time.sleep(0.01)
s.finish()
print("finished")
"""


@pytest.fixture
def script(tmp_path):
    """Makes the words of a training whose members do `fault` after two steps."""

    def make(fault: str = "pass", elements: int = 4, samples: int = 8000) -> list[str]:
        path = tmp_path / "train.py"
        path.write_text(LOOP.format(fault=fault))
        return [sys.executable, str(path), str(elements), str(samples)]

    return make


def test_an_exception_that_meets_all_members_ends_the_job_with_one_traceback(regroup, script):
    job = regroup.run(
        "--oversubscribe", "-np", "2:2", *script("if s.rank == 0: open('no-such-folder/log', 'w')")
    )
    assert job.wait() == 1
    assert job.err.count("Traceback (most recent call last)") == 1, job.err
    assert re.search(
        r"^regroup: the job failed: 3 members in a row \(0, 1, 2\) failed in the same way: "
        r"FileNotFoundError: .*'no-such-folder/log' at \S*train.py:12 \(exit status 1\)",
        job.err,
        re.MULTILINE,
    ), job.err
    # In one piece: nobody's line is within it.
    assert re.search(
        r'^Traceback .*\n  File ".*train.py", line 12, in <module>\n'
        r"    if s.rank == 0: open.*\n(.*\^\n)?"
        r"FileNotFoundError",
        job.err,
        re.MULTILINE,
    ), job.err


REFUSED = {
    "batch": r"Session: batch: expected a whole number >= 0, got a str",
    "state": r"TrackedState: w must be contiguous and writable",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_an_argument_that_no_member_can_have_ends_the_job_at_the_first_try(
    regroup, tmp_path, argument
):
    given = {"batch": ("w=w", "'4'"), "state": ("w=w[::2]", "4")}[argument]
    path = tmp_path / "train.py"
    made = f"regroup.TrackedState({given[0]}), elements=4, samples=8, batch={given[1]}, epochs=1"
    path.write_text(f"import numpy as np, regroup\nw = np.zeros(4)\nregroup.Session({made})\n")
    job = regroup.run("--oversubscribe", "-np", "1:2", sys.executable, str(path))
    assert job.wait() == 1
    assert re.fullmatch(
        rf"regroup: the job failed: {REFUSED[argument]} at \S*train.py:3 \(exit status 1\); it ran "
        rf".*\n",
        job.err,
    ), job.err


def test_an_argument_that_only_a_later_member_has_ends_no_job(regroup, script):
    """As that of a script that was changed while the job runs."""
    words = script()
    path = Path(words[1])
    path.write_text(
        path.read_text().replace(
            "batch=4", "batch=4 if os.environ['REGROUP_MEMBER'] == '0' else '4'"
        )
    )
    job = regroup.start("--oversubscribe", "-np", "1:2", "--initial-size", "1", *words)
    until(lambda: regroup.control("status").stdout.count("generation 1"), "the first World")
    assert regroup.control("resize", "2").returncode == 0
    job.wait_err(
        r"^regroup: slot 1: 3 members in a row ended .*, the last: "
        r"Session: batch: expected a whole number >= 0, got a str"
    )
    job.hurry()
    assert job.wait() == 0, job.err
    assert job.err.count("Traceback") == 1


def test_a_slot_whose_members_always_raise_is_given_up_and_the_others_finish(regroup, script):
    fault = "if me != 0: raise ValueError(f'bad {me}')"
    job = regroup.start("--oversubscribe", "--initial-size", "2", "-np", "1:2", *script(fault))
    job.wait_err(
        r"^regroup: slot 1: 3 members in a row failed in the same way: ValueError: bad 3 at "
        r"\S*train.py:12: "
        r"the slot is disabled, `regroup resize` enables it again$"
    )
    job.hurry()
    assert job.wait() == 0, job.err
    assert job.out == "finished\n"
    assert job.err.count("Traceback") == 1
    assert "regroup: member 2 ended by ValueError: bad 2 at" in job.err
    job.assert_nothing_left()


def test_members_that_always_exit_are_replaced_as_often_as_max_restarts_says(regroup, script):
    fault = "if os.environ['RANK'] == '1': sys.exit(3)"
    job = regroup.run("--oversubscribe", "-np", "2:2", "--max-restarts", "1", *script(fault))
    assert job.wait() == 3
    assert re.search(
        r"^regroup: the job failed: slot 1: its member was replaced once without progress "
        r"\(--max-restarts\), the last: exited with status 3: 1 of at least 2 members left "
        r"\(exit status 3\)",
        job.err,
        re.MULTILINE,
    ), job.err


def test_a_checkpoint_of_another_model_is_refused_once_by_the_names_that_differ(
    regroup, script, tmp_path
):
    words = elastic("2:2", "--max-restarts", "1", checkpoint=tmp_path / "ck", interval=20)
    first = regroup.start(*words, *script(samples=400))
    first.hurry()
    assert first.wait() == 0, first.err
    job = regroup.run(*words, *script(elements=5, samples=408))
    assert job.wait() == 1
    assert re.search(
        r"^regroup: the job failed: checkpoint \S*/step-00000\d+ belongs to another training: "
        r"tensor w is float32 \[4\] in the checkpoint, float32 \[5\] in this program; "
        r"samples is 400 in the checkpoint, 408 in this program\.",
        job.err,
        re.MULTILINE,
    ), job.err
    assert job.err.count("belongs to another training") == 1
    assert "Traceback" not in job.err
    assert "generation 2" not in job.err


def test_an_exception_after_each_checkpoint_ends_the_job_at_the_third_launch(
    regroup, script, tmp_path
):
    words = elastic("1:1", checkpoint=tmp_path / "ck", interval=1)
    # A launch takes two steps, and one of their checkpoints is there before it fails.
    newest = (
        f"max([0] + [int(d[5:]) for d in os.listdir({str(tmp_path / 'ck')!r}) if d[:5] == 'step-'])"
    )
    fault = (
        f"while {newest} < step.number - 2: time.sleep(0.01)\n        raise ValueError(f'bad "
        f"{{taken}}')"
    )
    job = regroup.run(*words, *script(fault))
    assert job.wait() == 1, job.err
    assert re.search(
        r"^regroup: the job failed: 3 members in a row, in 3 launches of the job, failed in the "
        r"same way: "
        r"ValueError: bad 2 at \S*train.py:13 \(exit status 1\)",
        job.err,
        re.MULTILINE,
    ), job.err
    assert job.err.count("Traceback (most recent call last)") == 1, job.err
    assert job.err.count("as member 0 of an earlier launch did: its traceback is above") == 2, (
        job.err
    )
    assert job.err.count("the job resumes from its newest checkpoint") == 2, job.err


HIDDEN = """
import os
import numpy as np
import regroup
hidden = 8 + int(os.environ.get("REGROUP_MEMBER") or os.environ["RANK"])
state = regroup.TrackedState(first=np.zeros((hidden, 4), np.float32), last=np.zeros(3, np.float64))
regroup.Session(state, elements=4, samples=80, batch=4, epochs=1)
"""


@pytest.mark.parametrize("members", ["2", "2:2"])
def test_a_model_that_depends_on_the_member_is_refused_by_name_and_ends_the_job(
    regroup, tmp_path, members
):
    path = tmp_path / "train.py"
    path.write_text(HIDDEN)
    job = regroup.run("--oversubscribe", "-np", members, sys.executable, str(path))
    assert job.wait() == 1
    refused = re.findall(
        r"member (\d) is refused: its model differs from that of member (\d): (.*)", job.err
    )
    assert refused, job.err
    its, ours, what = refused[0]
    assert {its, ours} == {"0", "1"}
    shapes = [f"float32 [{8 + int(member)}, 4] in member {member}" for member in (its, ours)]
    assert what.startswith(f"tensor first is {shapes[0]}, {shapes[1]}"), job.err
    assert "samples=80 batch" not in job.err
    assert "member 2" not in job.err  # none is started in its place
