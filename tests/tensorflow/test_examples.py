"""The TensorFlow examples under the launcher, and what the death of each kind of member does to
them."""

import json
import os

import pytest

ENOUGH = 95.0  # per cent
PS = ("python", "examples/tensorflow/parameter_server.py")
ONE_OF_EACH = ("--role", "chief=1", "--role", "worker=1", "--role", "ps=1")


def test_a_job_file_whose_killed_worker_is_replaced_at_its_address_and_training_goes_on(
    tensorflow, tmp_path
):
    """It is the only one: without its replacement there would be no further step."""
    role = (
        "- {{name: {}, taskNumber: {}, command: [python, examples/tensorflow/parameter_server.py]}}"
    )
    roles = "\n".join(role.format(*each) for each in (("chief", 1), ("worker", 1), ("ps", 1)))
    file = tmp_path / "digits.yaml"
    file.write_text(f"jobName: digits\ntaskRoles:\n{roles}\n")
    job = tensorflow("--job", str(file))
    job.wait_epoch(2)
    before = job.kill("worker")
    assert before["PAI_JOB_NAME"] == "digits"
    assert job.job.wait_err(r"rank 1 \(worker 0\) .*SIGKILL\): restarting it \(restart 1 of 3\)")
    _, after = job.member("worker")
    assert (before["REGROUP_RESTART_COUNT"], after["REGROUP_RESTART_COUNT"]) == ("0", "1")
    assert json.loads(after["TF_CONFIG"]) == json.loads(before["TF_CONFIG"])
    assert job.wait() == 0, job.job.err
    assert len(job.accuracies) == 1 and job.accuracies[0] >= ENOUGH, job.job.out


def test_multi_worker_keeps_its_workers_in_step(tensorflow):
    job = tensorflow("--role", "worker=2", "python", "examples/tensorflow/multi_worker.py")
    assert job.wait() == 0, job.job.err
    assert len(job.accuracies) == 2 and min(job.accuracies) >= ENOUGH, job.job.out
    digests = {line.split()[-1] for line in job.job.out.splitlines() if "sha256" in line}
    assert len(digests) == 1, job.job.out


@pytest.mark.skipif(
    "REGROUP_TEST_FULL" not in os.environ, reason="cli/test_roles has it too: --full only"
)
@pytest.mark.parametrize("role", ["chief", "ps"])
def test_the_death_of_the_chief_or_of_a_ps_ends_the_job(tensorflow, role):
    job = tensorflow(*ONE_OF_EACH, *PS)
    job.wait_epoch(1)
    job.kill(role)
    assert job.wait() == 137
    assert f"({role} 0)" in job.job.err and "ending the job" in job.job.err
