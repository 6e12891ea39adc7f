"""What a job finds around it: limits of descriptors, and a folder for its sockets that may be
another's."""

import os
import resource
import sys

import pytest

SOFT = 32


def few_files() -> None:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (SOFT, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )


@pytest.mark.parametrize("job", [["-np", "40"], ["--role", "a=20", "--role", "b=20"]], ids=" ".join)
def test_members_may_be_more_than_the_limit_of_files_allows_and_keep_it(regroup, job):
    words = ["sh", "-c", "ulimit -Sn; ulimit -Hn"]
    done = regroup.run("--oversubscribe", *job, *words, preexec_fn=few_files)
    assert done.wait() == 0, done.err
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = [str(SOFT), "unlimited" if hard == resource.RLIM_INFINITY else str(hard)]
    assert sorted(done.out.split()) == sorted(wanted * 40)


def batch() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(7)


@pytest.mark.parametrize("job", [["-np", "1"], ["-np", "1:2"], ["--role", "a=1"]], ids=" ".join)
def test_ranks_have_the_scheduling_policy_and_nice_of_the_caller(regroup, job):
    """As under `nice -n 7 chrt -b 0 regroup`. Launcher processes may prefer to be prompt."""
    script = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"
    done = regroup.run(*job, sys.executable, "-c", script, preexec_fn=batch)
    assert done.wait() == 0, done.err
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert set(done.out.splitlines()) == {f"{os.SCHED_BATCH} {min(own + 7, 19)}"}, done.out


def test_a_runtime_folder_of_another_is_not_used(regroup, tmp_path):
    """A link where our folder should be may lead anywhere."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    mine.mkdir()
    (mine / "regroup").symlink_to(theirs)
    env = {"XDG_RUNTIME_DIR": str(mine), "TMPDIR": str(tmp_path)}
    usual = tmp_path / f"regroup-{os.geteuid()}"
    job = regroup.run("-np", "1", "true", env=env)
    assert job.wait() == 0
    assert job.err.startswith(f"regroup: {mine}/regroup: expected a directory of user ")
    assert job.err.endswith(f": using {usual}\n")
    assert job.err.count("\n") == 1
    assert list(theirs.iterdir()) == []
    assert regroup.run("-q", "-np", "1", "true", env=env).err == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_directory_of_another_is_not_used(regroup, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    env = {"XDG_RUNTIME_DIR": str(theirs), "TMPDIR": str(tmp_path)}
    job = regroup.run("-np", "1", "true", env=env)
    assert (
        job.err == f"regroup: XDG_RUNTIME_DIR={theirs}: expected a directory of this user: "
        f"using {tmp_path}/regroup-0\n"
    )
    assert list(theirs.iterdir()) == []
