"""--ledger: one line per committed step, whoever dies, leaves or joins; and `regroup ledger
verify`."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, until
from test_elastic import QUICK, assert_finished, members, pid_of

STEPS = "150"
LEAF_MS = "100"  # 20 s and more of training, unless it is told to hurry


def verify(folder, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [BIN / "regroup", "ledger", "verify", *words, str(folder)], capture_output=True, text=True
    )


def lines(folder) -> list[str]:
    return (Path(folder) / "ledger.jsonl").read_text().splitlines(keepends=True)


def assert_whole(folder, like=None) -> None:
    """`like`: the ledger of an undisturbed run, of which only the job may differ."""
    done = verify(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nok\n")
    assert f"steps 1 to {STEPS}: {STEPS} lines, 1 complete epoch, 2400 samples used" in done.stdout
    assert sorted(os.listdir(folder)) == ["ledger.jsonl", "ledger.lock"]
    if like:
        assert lines(folder)[1:] == lines(like)[1:]
        headers = [json.loads(lines(one)[0]) for one in (folder, like)]
        jobs = [header.pop("job") for header in headers]
        assert headers[0] == headers[1]
        assert jobs[0] != jobs[1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, request):
    """The ledger of a run of one member."""
    return tmp_path_factory.mktemp("undisturbed") / "ledger"


@pytest.fixture
def calm(regroup, member, undisturbed):
    if not undisturbed.exists():
        done = regroup.run("-np", "1:1", "--shards", "4", "--ledger", undisturbed, member, STEPS,
                           "0")  # fmt: skip
        assert done.wait() == 0, done.err
    return undisturbed


def start(regroup, folder, *words, size="3"):
    return regroup.start(
        *QUICK, "--shards", "4", "--initial-size", size, "--ledger", folder, *words
    )


def test_the_ledger_of_one_member_verifies(calm):
    assert_whole(calm)


def test_kills_leaves_and_joins_leave_no_trace(regroup, member, calm, tmp_path):
    job = start(regroup, tmp_path / "l", member, STEPS, LEAF_MS)
    job.wait_out("^step 5 ")
    os.kill(pid_of(job, 0), signal.SIGKILL)  # rank 0
    until(lambda: members(regroup) and 0 not in members(regroup), "member 0 is gone")
    until(lambda: len(members(regroup)) == 3, "its replacement")
    assert regroup.control("resize", "4").returncode == 0
    until(lambda: len(members(regroup)) == 4, "four members")
    assert regroup.control("notice", str(members(regroup)[0])).returncode == 0
    until(lambda: 1 not in members(regroup), "member 1 has left")
    os.kill(job.coordinator, signal.SIGKILL)
    assert_finished(job, 3, unsaid=2)
    assert_whole(tmp_path / "l", calm)


@pytest.mark.parametrize("event", ["sealed", "gathered", "reduced", "committed"])
def test_rank_0_dies_at_each_event_of_a_step(regroup, member, calm, tmp_path, event):
    """After "committed", the line of the step is not written yet."""
    job = start(regroup, tmp_path / "l", member, STEPS, "1", "", "sum", "0", "64", f"die={event}@9")
    assert_finished(job, 2, unsaid=1)  # the replacement may come too late
    assert "killed by signal 9" in job.err
    assert_whole(tmp_path / "l", calm)


def test_hosts_share_a_ledger_whose_writer_dies(regroup, member, calm, tmp_path):
    hosts = ["--launcher", "fork", "-H", "a:2,b:2", "--replace", "never"]
    job = start(regroup, tmp_path / "l", *hosts, member, STEPS, LEAF_MS, size="4")
    for victim, step in ((0, 5), (1, 20)):  # then rank 0 is on the other host
        job.wait_out(f"^step {step} ")
        os.kill(pid_of(job, victim), signal.SIGKILL)
    assert_finished(job, 2, unsaid=2)
    assert_whole(tmp_path / "l", calm)


def test_a_new_host_copies_the_state_from_another_than_the_writer_of_the_ledger(
    regroup, member, calm, tmp_path
):
    """Rank 0 permits it when its line is written."""
    hosts = ["--launcher", "fork", "-H", "a:1,b:1,c:1,d:1", "--learner-steps", "0"]
    job = start(regroup, tmp_path / "l", *hosts, member, STEPS, LEAF_MS, size="2")
    job.wait_out("^step 5 ")
    assert regroup.control("resize", "4").returncode == 0
    until(lambda: len(members(regroup)) == 4, "four members")
    job.wait_out("^step .* size 4$")
    os.kill(pid_of(job, 0), signal.SIGKILL)
    assert_finished(job, 3, unsaid=1)
    assert_whole(tmp_path / "l", calm)


def test_all_but_a_new_member_die(regroup, member, calm, tmp_path):
    """The last one to join writes what it has not seen itself."""
    job = start(regroup, tmp_path / "l", "--learner-steps", "0", member, STEPS, LEAF_MS, size="2")
    job.wait_out("^step 5 ")
    assert regroup.control("resize", "3").returncode == 0
    until(lambda: 2 in members(regroup), "member 2")
    job.wait_out("^step .* size 3$")
    pids = [pid_of(job, member_id) for member_id in (0, 1)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    job.wait_err("generation [0-9]+: 1 member")
    assert_finished(job, 1, unsaid=1)
    assert_whole(tmp_path / "l", calm)


def test_a_new_run_refuses_the_ledger_of_another(regroup, member, calm):
    before = lines(calm)
    job = start(regroup, calm, "--seed", "8", member, STEPS, "0")
    assert job.wait() != 0
    assert "it is of another run (seed 0, expected 8)" in job.err
    assert "give another folder with --ledger" in job.err
    assert lines(calm) == before
    job.assert_nothing_left()


def test_a_job_started_again_before_its_first_checkpoint(regroup, member, calm, tmp_path):
    """As a scheduler does that requeues it: the launcher gives it another id."""
    folder = tmp_path / "l"
    killed = start(regroup, folder, member, STEPS, LEAF_MS)
    killed.wait_out("^step 5 ")
    os.kill(killed.process.pid, signal.SIGTERM)
    killed.wait()
    job = start(regroup, folder, member, STEPS, "0")
    assert_finished(job, 3)
    assert "it is of an earlier training (job " in job.err
    assert "a new file begins with step 1, the old one is " in job.err
    old = (folder / "ledger.jsonl.1").read_text().splitlines()
    assert len(old) > 5
    assert verify(folder).returncode == 0
    (folder / "ledger.jsonl.1").unlink()
    assert_whole(folder, calm)


def test_two_jobs_do_not_write_to_one_folder(regroup, member, calm, tmp_path):
    """The second one waits for the end of the first, longer than one member does."""
    folder = tmp_path / "l"
    first = start(regroup, folder, member, STEPS, LEAF_MS)
    first.wait_out("^step 5 ")
    second = start(regroup, folder, member, STEPS, "0")
    held = f"{folder}/ledger.jsonl: another job writes there: {folder}/ledger.lock: job "
    second.wait_err(f"^regroup: ledger: {re.escape(held)}.*; waiting for its end$")
    assert_finished(first, 3)
    assert "another job writes there" not in first.err
    assert_finished(second)
    assert "a new file begins with step 1, the old one is " in second.err
    assert verify(folder).returncode == 0
    for name in ("ledger.jsonl", "ledger.jsonl.1"):
        written = (folder / name).read_text().splitlines(keepends=True)
        assert written[1:] == lines(calm)[1:]


def test_a_tampered_ledger_fails(calm, tmp_path):
    whole = lines(calm)

    def differs(*changed: str) -> str:
        (tmp_path / "ledger.jsonl").write_text("".join(changed))
        done = verify(tmp_path)
        assert done.returncode == 1, done.stdout
        assert "\ndifferences: " in done.stdout
        return done.stdout.splitlines()[0]

    line = json.loads(whole[40])
    line["leaves"][1][1] = "00000000"
    changed = json.dumps(line, separators=(",", ":")) + "\n"
    assert differs(*whole[:40], changed, *whole[41:]).startswith("line 41: step 40: leaf 1: ")
    assert differs(*whole[:40], *whole[41:]).startswith("line 41: step 41: the line of step 40 is")
    assert differs(*whole[:40], whole[39], *whole[40:]).startswith("line 41: step 39 comes after")


def test_verify_is_not_content_with_a_part(calm, tmp_path):
    whole = lines(calm)
    file = tmp_path / "ledger.jsonl"

    def says(expected: str, *words: str) -> None:
        done = verify(tmp_path, *words)
        assert done.stdout.splitlines()[-1] == expected
        assert done.returncode == (0 if expected.startswith("ok") else 1)

    file.write_text("".join(whole[:41]))
    says("incomplete: it ends with step 40 of 150")
    says("ok, in part: it ends with step 40 of 150", "--partial")
    header = json.loads(whole[0])
    late = json.dumps({**header, "first": 41}, separators=(",", ":")) + "\n"
    file.rename(tmp_path / "ledger.jsonl.1")
    file.write_text(late + "".join(whole[41:]))
    other = f"{tmp_path}/ledger.jsonl.1 has other lines, verify it by its name"
    says(f"incomplete: it begins with step 41; {other}")
    says(f"ok, in part: it begins with step 41; {other}", "--partial")
    assert verify(tmp_path / "ledger.jsonl.1", "--partial").returncode == 0
    file.write_text("".join(whole))
    says("ok")
    assert other in verify(tmp_path).stdout.splitlines()
    assert verify(file).returncode == 0
    says(
        "not checked from step 4 on: more than 100 samples; give --max-samples",
        *("--partial", "--max-samples", "100"),
    )


def test_what_verify_says_of_other_files_and_words(tmp_path):
    missing = verify(tmp_path)
    assert missing.returncode == 1
    assert "No such file or directory" in missing.stderr
    (tmp_path / "notes").write_text("hello\n")
    assert "no ledger: line 1: it is not a JSON object" in verify(tmp_path / "notes").stderr
    for words in ([], ["verfy", "x"], ["verify"], ["verify", "a", "b"], ["verify", "--x"],
                  ["verify", "--partial"], ["verify", "a", "--max-samples"],
                  ["verify", "a", "--max-samples", "many"]):  # fmt: skip
        done = subprocess.run([BIN / "regroup", "ledger", *words], capture_output=True, text=True)
        assert done.returncode == 2, words
        assert done.stderr
    done = subprocess.run(
        [BIN / "regroup", "ledger", "verify", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: regroup ledger verify [--partial] [--max-samples N] DIR")


def test_a_fixed_size_job_has_a_ledger(regroup, member, calm, tmp_path):
    job = regroup.run("-np", "2", "--oversubscribe", "--shards", "4", "--ledger", tmp_path / "l",
                      member, STEPS, "0")  # fmt: skip
    assert job.wait() == 0, job.err
    assert_whole(tmp_path / "l", calm)


def test_a_folder_that_cannot_be_made_does_not_end_the_training(regroup, member, tmp_path):
    job = start(regroup, "/dev/full", member, STEPS, "0")
    assert_finished(job, 3)
    assert job.err.count("regroup: ledger: mkdir(/dev/full): ") == 1
    assert "the ledger ends with step 0, the training goes on without" in job.err


def test_a_write_that_fails_does_not_end_the_training(regroup, member, tmp_path):
    """Members may write files of 4 KB: the file ends in the midst of the run, with a whole line.
    On a disk without space: LedgerDeathTest."""
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 4; exec "$0" "$@"']
    job = start(regroup, tmp_path / "l", *limited, member, STEPS, "0")
    assert_finished(job, 3)
    said = re.findall(r"ledger.jsonl\): File too large; the ledger ends with step (\d+), ", job.err)
    assert len(said) == 1
    last = json.loads(lines(tmp_path / "l")[-1])
    assert last["step"] == int(said[0]) < int(STEPS)
