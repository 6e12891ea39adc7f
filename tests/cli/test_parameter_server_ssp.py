"""A job with a parameter server in mode ssp: the status shows the clocks and names who holds the
others up; modes that differ are refused."""

import os
import re
import signal

from conftest import BIN, told_of, until

MEMBER = BIN.parent / "tests/bin/ps_ssp_member"
SERVED = ["--role", "ps=2", "--role", "worker=3", "--ps-memory", "128M"]


def clocks_of(regroup) -> dict[str, dict]:
    return {one["name"]: one for one in told_of(regroup).get("clocks", [])}


def test_a_stopped_worker_holds_the_others_up_by_name_until_it_is_killed(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start(*SERVED, str(MEMBER), str(end), "2")
    workers = {"worker 0", "worker 1", "worker 2"}

    def turns(count: int) -> bool:
        clocks = clocks_of(regroup)
        return clocks.keys() == workers and min(one["clock"] for one in clocks.values()) > count

    until(lambda: turns(20), "turns of all workers")
    stopped = until(lambda: clocks_of(regroup).get("worker 1"), "worker 1")["pid"]
    os.kill(stopped, signal.SIGSTOP)

    def held_up() -> dict | None:
        clocks = clocks_of(regroup)
        others = [clocks.get(name, {}) for name in ("worker 0", "worker 2")]
        waits = all(one.get("waits_for") == "worker 1" for one in others)
        return clocks if waits and others[0]["clock"] == others[1]["clock"] else None

    clocks = until(held_up, "the others to wait for worker 1")
    # They have ended the last turn whose pull was within the bound, and no more.
    assert clocks["worker 0"]["clock"] == clocks["worker 1"]["clock"] + 2 + 1
    told = until(lambda: told_of(regroup), "the status")
    assert told["staleness"] == 2 and sum(told["turns_by_staleness"]) > 20
    assert sum(told["turns_by_staleness"][3:]) == 0, "beyond the bound"
    shown = re.compile(
        r"^mode ssp, staleness 2: 3 clients, clocks \d+ to \d+\n"
        r"turns by clocks that the slowest client was behind:(  \d+: \d+ %)+\n"
        r"client .*waits for\n(worker .*\n){3}",
        re.MULTILINE,
    )
    text = until(lambda: regroup.control("status").stdout, "the status")
    assert shown.search(text), text
    assert re.search(r"^worker 0 +\S+ +\d+ +\d+ +\d+\.\d s worker 1$", text, re.MULTILINE), text
    held_up_for = re.compile(
        r"^regroup_ps_held_up_others_seconds_total\{job=\"[^\"]+\",client=\"\d+\","
        r"name=\"worker 1\"\} ([\d.e+-]+)$",
        re.MULTILINE,
    )
    until(
        lambda: (
            (found := held_up_for.search(regroup.control("status", "--prometheus").stdout))
            and float(found[1]) > 0
        ),
        "the time in which others waited for worker 1",
    )
    before = clocks["worker 0"]["clock"]
    os.kill(stopped, signal.SIGKILL)
    # It is started again, begins where the others are, and all go on.
    until(lambda: turns(before + 20), "turns of all workers")
    end.touch()
    assert job.wait() == 0, job.out + job.err
    begun = [int(n) for n in re.findall(r"began at (\d+), \d+ turns", job.out)]
    assert len(begun) == 3 and max(begun) >= before, job.out


def test_a_pull_that_waits_too_long_names_the_worker_and_its_host(regroup, tmp_path):
    job = regroup.start(
        "--max-restarts", "0", *SERVED, str(MEMBER), str(tmp_path / "end"), "0", "20"
    )
    clocks = until(
        lambda: found if len(found := clocks_of(regroup)) == 3 else None,
        "all workers",
    )
    pid = clocks["worker 1"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    late = re.compile(
        rf"pull of table turns at clock \d+: worker 1 \(process {pid} on host "
        rf"{re.escape(os.uname().nodename)}\) has clock \d+; staleness=0 needs clock \d+ of it"
    )
    until(lambda: late.search(job.err), "a pull that has waited for 20 s")
    # The job ends with the worker that gives up, and the stopped one with it.
    assert job.wait() != 0


def test_modes_that_differ_are_refused_with_both(regroup, tmp_path):
    end = tmp_path / "end"

    def refusal(workers: int, *command: str) -> str:
        roles = ["--role", "ps=1", "--role", f"worker={workers}", "--ps-memory", "64M"]
        job = regroup.start("--max-restarts", "0", *roles, *command)
        assert job.wait() != 0
        return job.err

    script = f"exec {MEMBER} {end} $((REGROUP_ROLE_RANK == 0 ? 3 : $1))"
    for other, told in (
        ("4", "staleness 4 here, 3 at worker 0|staleness 3 here, 4 at worker 1"),
        ("-2", 'mode "async" here, "ssp" at worker 0|mode "ssp" here, "async" at worker 1'),
    ):
        said = refusal(2, "sh", "-c", script, "sh", other)
        assert re.search(told, said), said
    said = refusal(1, str(MEMBER), str(end), "-1")
    assert "staleness=-1: expected 0 to 1000000000 clocks" in said
