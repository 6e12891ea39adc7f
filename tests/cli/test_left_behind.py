"""Whoever of a job's processes is killed at once with whom: nothing of the job is left.

Each member has a daemon (setsid, parent gone) and a stranger: a daemon whose environment is empty.
What ends is ended by the death of another process. Time limits that could end it instead are longer
than any wait here (NO_LIMIT), but for --orphan-timeout, so no assertion depends on how fast the
machine is.
"""

import contextlib
import itertools
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, DEADLINE_S, elastic, until

ORPHAN_TIMEOUT = ["--orphan-timeout", "1"]
NO_LIMIT = ["--term-grace", "1000"]
KINDS = ("rigid", "elastic")
HELPERS = {"guardian", "agent", "reaper"}
SUBSETS = [
    set(subset)
    for size in range(1, 5)
    for subset in itertools.combinations(["guardian", "agent", "reaper", "member"], size)
]
FAMILY = (
    "(setsid sleep 1000 &)\n"
    "sh -c 'env -i setsid sleep 1000 >/dev/null 2>&1 & echo stranger $!'\n"
    "echo up $$\n"
    "exec "
)


def state(pid: int) -> str:
    """Of a process as in /proc/PID/stat; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def lives(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


def numbers(job, word: str) -> list[int]:
    return [int(pid) for pid in re.findall(rf"^{word} (\d+)$", job.out, re.MULTILINE)]


def steps(job) -> int:
    return len(re.findall(r"^step", job.out, re.MULTILINE))


def start(regroup, kind: str, member: str):
    env = {"REGROUP_TIME_LIMIT_FACTOR": "100"}
    if kind == "rigid":
        words = ["--oversubscribe", "-np", "2", *NO_LIMIT]
        job = regroup.start(*words, "sh", "-c", FAMILY + "sleep 1000", env=env)
    else:
        words = elastic("1:2", *NO_LIMIT, *ORPHAN_TIMEOUT, initial=2)
        job = regroup.start(*words, "sh", "-c", FAMILY + f"{member} 1000000 5", env=env)
        until(lambda: steps(job) > 2, f"steps: {job.err}")
    until(
        lambda: len(numbers(job, "up")) == len(numbers(job, "stranger")) == 2, "both ranks are up"
    )
    # Two sleeps that carry the mark are the daemons.
    until(lambda: sum("sleep 1000" in line for line in job.living().values()) >= 2, "both daemons")
    return job


def kill_at_once(job, victims: set[str], backwards: bool) -> None:
    pids = {"guardian": job.process.pid, "agent": job.agent, "reaper": job.reaper}
    pids["member"] = numbers(job, "up")[0]
    chosen = [pid for name, pid in pids.items() if name in victims]
    for pid in chosen:
        os.kill(pid, signal.SIGSTOP)  # none sees the others die
    for pid in reversed(chosen) if backwards else chosen:
        with contextlib.suppress(ProcessLookupError):  # a member dies with its agent
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(lives, chosen)), "the end of those that were killed")


def runtime_files(regroup) -> list[str]:
    return [path.name for path in (Path(regroup.runtime) / "regroup").iterdir()]


def assert_clean(regroup, job) -> None:
    job.assert_nothing_left(DEADLINE_S)
    until(lambda: not any(map(lives, numbers(job, "stranger"))), "the end of the strangers")
    until(lambda: not runtime_files(regroup), lambda: f"no file is left: {runtime_files(regroup)}")


def assert_goes_on(regroup, job, kind: str) -> None:
    if kind == "elastic":
        before = steps(job)
        until(lambda: steps(job) > before + 2, f"further steps: {job.err}")
    assert job.process.poll() is None
    job.process.terminate()
    job.process.send_signal(signal.SIGTERM)
    job.wait()
    assert_clean(regroup, job)


def assert_next_regroup_ends_it(regroup, job) -> None:
    """All three helpers are dead: direct members die, the next `regroup` on the host ends the
    rest."""
    until(lambda: not any(map(lives, numbers(job, "up"))), "the end of the members")
    until(lambda: len(job.living()) == 2, "the end of all but daemons")
    strangers = numbers(job, "stranger")
    assert len(list(filter(lives, strangers))) == 2
    (record,) = [name for name in runtime_files(regroup) if name.endswith(".job")]
    try:
        following = regroup.run("-np", "1", "true")
        assert following.process.returncode == 0
        expected = (
            f"regroup: job {record[:-4]}, whose launcher was killed, had left 2 processes: ended\n"
        )
        assert following.err == expected
        assert not job.living()
        assert not runtime_files(regroup)
        # Nothing proves that they are the job's.
        assert len(list(filter(lives, strangers))) == 2
    finally:
        for pid in strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def cases():
    for kind, victims, backwards in itertools.product(KINDS, SUBSETS, (False, True)):
        if not backwards or len(victims) > 1:
            name = "-".join([kind, *sorted(victims), *["backwards"] * backwards])
            yield pytest.param(kind, victims, backwards, id=name)


@pytest.mark.parametrize(("kind", "victims", "backwards"), list(cases()))
def test_killed_at_once(regroup, member, kind, victims, backwards):
    job = start(regroup, kind, member)
    kill_at_once(job, victims, backwards)
    if victims >= HELPERS:
        assert_next_regroup_ends_it(regroup, job)
    elif not victims & {"guardian", "agent"} and (kind == "elastic" or "member" not in victims):
        assert_goes_on(regroup, job, kind)
    else:
        assert_clean(regroup, job)
        if "guardian" not in victims:
            assert job.wait() == (1 if "agent" in victims else 137)


def test_guard_that_is_stopped_is_not_waited_for(regroup, member):
    job = start(regroup, "rigid", member)
    os.kill(job.reaper, signal.SIGSTOP)
    os.kill(job.agent, signal.SIGKILL)
    assert job.wait() == 1
    assert_clean(regroup, job)


def test_agent_that_is_stopped_is_ended_by_the_guard(regroup, member):
    job = start(regroup, "rigid", member)
    os.kill(job.agent, signal.SIGSTOP)
    job.process.kill()
    job.wait()
    assert_clean(regroup, job)


@pytest.mark.parametrize(
    "victims",
    [{"guardian"}, {"guardian", "agent"}, {"guardian", "reaper"}, HELPERS],
    ids=lambda v: "-".join(sorted(v)),
)
def test_coordinator_that_is_stopped_does_not_stay(regroup, member, victims):
    """It is the guardian's child, so neither agent nor reaper would find it below them."""
    job = start(regroup, "elastic", member)
    coordinator = job.coordinator
    os.kill(coordinator, signal.SIGSTOP)
    kill_at_once(job, victims, False)
    if victims == HELPERS:
        until(lambda: not any(map(lives, numbers(job, "up"))), "the end of the members")
        assert regroup.run("-np", "1", "true").wait() == 0
        assert not lives(coordinator)
        for pid in numbers(job, "stranger"):
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not lives(pid), "the end of a stranger")
    assert_clean(regroup, job)


def test_signals_do_not_end_the_guard(regroup, member):
    job = start(regroup, "rigid", member)
    reaper = job.reaper
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE):
        os.kill(reaper, number)
    assert os.getpgid(reaper) == os.getsid(reaper) == reaper  # no terminal, no group reaches it
    job.process.terminate()
    assert job.wait() == 1
    assert "reaper" not in job.err
    assert_clean(regroup, job)


def test_living_jobs_are_left_alone(regroup, member):
    job = start(regroup, "rigid", member)
    before = job.living().keys()
    assert regroup.run("-np", "1", "true").err == ""
    assert job.living().keys() == before
    # its record, its folders for MPI and for `regroup status`
    assert len(runtime_files(regroup)) == 3
    job.process.terminate()
    assert job.wait() == 1
    assert_clean(regroup, job)


def test_only_its_own_processes_are_ended(regroup, member):
    job = start(regroup, "rigid", member)
    job_id = next(name[:-4] for name in runtime_files(regroup) if name.endswith(".job"))
    others = [
        subprocess.Popen(["sleep", "1000"], env=env)
        for env in (
            {"REGROUP_JOB": job_id + "0"},
            {"XREGROUP_JOB": job_id},
            {"A": f"REGROUP_JOB={job_id}"},
        )
    ]
    kill_at_once(job, HELPERS, False)
    until(lambda: not any(map(lives, numbers(job, "up"))), "the end of the members")
    regroup.run("-np", "1", "true")
    assert not job.living()
    assert [other.poll() for other in others] == [None] * 3
    for pid in [other.pid for other in others] + numbers(job, "stranger"):
        os.kill(pid, signal.SIGKILL)
    for other in others:
        other.wait()


def test_inner_job_ends_with_the_outer_one(regroup):
    inner = f"{BIN / 'regroup'} -np 1 sh -c '(setsid sleep 1000 &) ; echo up $$; exec sleep 1000'"
    job = regroup.start("--oversubscribe", "-np", "1", "sh", "-c", f"{inner}; true")
    until(lambda: numbers(job, "up"), "the inner member is up")
    for pid in (job.process.pid, min(job.named("regroup-agent"))):
        os.kill(pid, signal.SIGKILL)
    job.assert_nothing_left()
    until(lambda: not runtime_files(regroup), "no file is left")
