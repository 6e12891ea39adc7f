"""A script that names hosts, and changes its mind: Horovod's contract."""

import re

import pytest
from conftest import TENTH, until, write_whole
from test_elastic import STEPS, assert_finished, members

FORK = ["--launcher", "fork"]


@pytest.fixture
def hosts(tmp_path):
    """The file whose lines the script prints; it fails without it."""
    path = tmp_path / "hosts"
    path.write_text("a:2\n")
    return path


def start(regroup, member, hosts, *options: str):
    """Its steps are there for as long as hosts come and go on any machine."""
    script = ["--host-discovery-script", f"cat {hosts}"]
    words = [*FORK, *script, "--shards", "4", *options, "-np", "1:4", member, STEPS, "150"]
    job = regroup.start(*words)
    job.wait_err("generation 1: 2 members")
    return job


def test_hosts_that_are_named_come_and_those_that_are_not_leave(regroup, member, hosts):
    job = start(regroup, member, hosts)
    write_whole(hosts, "a:2\nb:2\n")
    job.wait_err("host b is listed: starting an agent there")
    until(lambda: len(members(regroup)) == 4, "four members")
    write_whole(hosts, "b:2\n")
    job.wait_err("host a must be returned within 30 s")
    job.wait_err("host a was returned")
    until(lambda: len(members(regroup)) == 2, "two members")
    write_whole(hosts, "b:2\na:1\n")
    until(lambda: len(members(regroup)) == 3, "three members")
    assert_finished(job, 3)
    assert "was lost" not in job.err, job.err


def test_a_host_with_other_slots_keeps_no_more_members_than_those(regroup, member, hosts):
    job = start(regroup, member, hosts)
    write_whole(hosts, "a:1\n")
    until(lambda: len(members(regroup)) == 1, "one member")
    assert_finished(job)


def test_a_job_below_min_holds_its_state_and_goes_on_when_there_is_room(regroup, member, hosts):
    write_whole(hosts, "a:2\nb:2\n")
    words = [
        *FORK,
        "--host-discovery-script",
        f"cat {hosts}",
        "--shards",
        "4",
        "-np",
        "3:4",
        "--initial-size",
        "4",
    ]
    job = regroup.start(*words, member, STEPS, "100")
    job.wait_err("generation 1: 4 members")
    job.wait_out("^step 5 ")
    write_whole(hosts, "a:2\n")
    job.wait_err("2 of at least 3 members: holding the state")
    write_whole(hosts, "a:2\nc:1\n")
    job.wait_err(": 3 members")
    assert_finished(job, 3)


def test_a_script_that_fails_later_is_told_and_asked_again(regroup, member, hosts):
    job = start(regroup, member, hosts)
    hosts.unlink()
    job.wait_err(
        r"--host-discovery-script cat \S+: ended with status 1: cat: .*; the hosts stay unchanged"
    )
    write_whole(hosts, "a:2\nnot one name\n")
    job.wait_err(r"line 2: 'not one name': expected HOST or HOST:SLOTS; the hosts stay unchanged")
    write_whole(hosts, "a:2\nb:1\n")
    until(lambda: len(members(regroup)) == 3, "three members")
    assert_finished(job, 3)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 4", "ended with status 4"),
        ("echo 'a:x'", "line 1: 'a:x': expected HOST or HOST:SLOTS"),
        ("true", "expected at least one host at the start, got none"),
        ("sleep 60", "did not end within 1 s"),
    ],
)
def test_a_script_that_fails_at_first_ends_the_job(regroup, script, expected):
    soon = TENTH if script.startswith("sleep") else {}
    job = regroup.run(*FORK, "--host-discovery-script", script, "-np", "1:2", "true", env=soon)
    assert job.wait() == 1
    assert expected in job.err, job.err


def test_other_lists_of_hosts_are_refused_beside_it(regroup):
    job = regroup.run("--host-discovery-script", "echo a", "-H", "b", "-np", "1:2", "true")
    assert job.wait() == 1
    assert re.search(
        "--host-discovery-script: cannot be combined with -H or --hostfile", job.err
    ), job.err
