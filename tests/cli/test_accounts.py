"""What the launcher tells of itself and of its members when it is asked to."""

import pytest

EXIT = ["sh", "-c", "echo $$; exit $RANK"]


@pytest.mark.parametrize("to", ["-", "+", "file"])
def test_report_pid(regroup, tmp_path, to):
    path = tmp_path / "pid"
    job = regroup.run("-np", "1", "--report-pid", str(path) if to == "file" else to, "true")
    told = {"-": job.out, "+": job.err, "file": path.read_text() if to == "file" else ""}
    assert told[to] == f"{job.process.pid}\n"


@pytest.mark.parametrize("members", ["2", "2:2"])
def test_report_pid_of_a_job_on_several_hosts(regroup, members):
    hosts = ("--launcher", "fork", "-H", "a:1,b:1")
    job = regroup.run(*hosts, "-np", members, "--report-pid", "-", "true")
    assert (job.wait(), job.out) == (0, f"{job.process.pid}\n"), job.err


def test_report_pid_into_nowhere(regroup):
    job = regroup.run("-np", "1", "--report-pid", "/no/such/folder/pid", "true")
    assert job.wait() == 1
    assert "write(/no/such/folder/pid): No such file or directory" in job.err


def test_exit_codes(regroup, tmp_path):
    pid = tmp_path / "pid"  # of rank 0, behind whose end rank 1 fails
    script = (
        f"[ $RANK = 0 ] && echo $$ > {pid}.new && mv {pid}.new {pid} && exit 0\n"
        f"until [ -e {pid} ] && ! kill -0 $(cat {pid}) 2>/dev/null; do sleep 0.01; done\n"
        "exit 1"
    )
    options = ("--oversubscribe", "--enable-recovery", "--print-all-exitcodes")
    job = regroup.run("-np", "2", *options, "sh", "-c", script)
    assert "regroup: exit codes, by member: 0:0 1:1\n" in job.err


@pytest.mark.parametrize("job", ["-np 1", "-np 1:2 --initial-size 1", "--role a=1"])
def test_verbose(regroup, job, tmp_path):
    told = regroup.run(*job.split(), "-v", "-wdir", str(tmp_path), *EXIT)
    pid = told.out.strip()
    assert f"(rank 0, pid {pid}) runs /" in told.err
    assert f" in {tmp_path}" in told.err
    assert f"(rank 0, pid {pid}) exited with code 0\n" in told.err
    assert "runs" not in regroup.run(*job.split(), *EXIT).err
