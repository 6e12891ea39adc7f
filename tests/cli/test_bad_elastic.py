"""What an elastic job says to bad input of its members: each message names the object and the cause."""

import re

from test_elastic import QUICK, STEPS, assert_finished

ODD = 'if [ "$RANK" = 1 ]; then exec "$0" "$1" "$2" "" {}; fi; exec "$0" "$1" "$2"'


def test_script_that_is_not_there(regroup):
    job = regroup.run(*QUICK, "--start", "2", "python3", "/nonexistent/train.py")
    assert job.wait() == 2
    assert "/nonexistent/train.py" in job.err
    assert re.search(r"regroup: the job failed: member \d+ \(pid \d+\): exited with status 2", job.err)
    job.assert_nothing_left(2)


def test_member_with_another_model_is_refused(regroup, member):
    options = ["--start", "2", "--replace", "never", "--ready-timeout", "20"]
    job = regroup.run(*QUICK, *options, "sh", "-c", ODD.format("other"), member, STEPS, "1")
    models = r"is refused: its model is '(sum|other) .*', that of the job is '(sum|other) .*'"
    assert re.search(models, job.err), job.err


def test_member_with_other_data_is_refused(regroup, member):
    script = 'exec "$0" $((150 + RANK)) 1'
    job = regroup.run(*QUICK, "--start", "2", "--replace", "never", "sh", "-c", script, member)
    assert re.search(r"is refused: its model is 'sum samples=\d+ batch=16 epochs=1'", job.err), job.err


def test_member_that_exits_0_before_finish_is_a_lost_member(regroup, member):
    script = ODD.format("sum 7")
    job = regroup.run(*QUICK, "--start", "3", "--replace", "never", "sh", "-c", script, member, STEPS, "1")
    assert "exited with status 0 before finish()" in job.err
    assert_finished(job, 2)


def test_too_little_memory_names_what_is_wanted_and_there(regroup, member):
    job = regroup.run(*QUICK, "--start", "2", member, STEPS, "1", "", "sum", "0", str(10**11))
    assert job.wait() == 3
    found = re.search(r"arena: (\d+) bytes wanted, (\d+) available \((\S.*)\)", job.err)
    assert found, job.err
    assert int(found[1]) > 10**11 > int(found[2]) > 0
    job.assert_nothing_left(2)


def test_resize_during_a_regroup_is_answered_at_once(regroup, member):
    job = regroup.start(*QUICK, "--start", "3", member, STEPS, "5")
    job.wait_out("^step 5 ")
    assert regroup.control("kill-member", "1").returncode == 0
    answers = [regroup.control("resize", n) for n in ("2", "4", "1", "3")]
    assert [a.returncode for a in answers] == [0, 0, 0, 0], [a.stderr for a in answers]
    assert_finished(job)


def test_resize_outside_the_range_names_it(regroup, member):
    job = regroup.start(*QUICK, "--start", "2", member, STEPS, "5")
    job.wait_out("^step 5 ")
    done = regroup.control("resize", "9")
    assert done.returncode != 0
    assert "9" in done.stderr and "1" in done.stderr and "4" in done.stderr
    assert_finished(job)


def test_member_whose_copy_of_the_state_is_damaged_never_votes(regroup, member):
    script = ODD.format("sum 0 64 bad")
    job = regroup.run(*QUICK, "--start", "3", "--replace", "never", "sh", "-c", script, member, STEPS, "1")
    assert "state: chunk 0 differs from the donors' after loading" in job.err
    assert_finished(job, 2)
