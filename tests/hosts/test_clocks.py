"""Wall clocks that are an hour off, and that step by hours in the middle of a job: links,
deadlines, timers and checkpoints go by none of them. libfaketime gives each host its own; the
monotonic clock stays true, as it does where somebody sets the time."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, Hosts, until
from test_checkpoints import expect_resumed, keep, kill_everything, newest, until_newer
from training import BIN, WHERE, Start, Training, agent_of, kill, left_on, processes

HOUR = 3600
CLOCK = "/run/clock"  # of each host: by how many seconds its clock is wrong
SILENCE_S = 5.0  # after so long a host is given up that says nothing
PROGRAMS = ("regroup-control", "regroup-coord", "regroup-agent", "regroup-reaper", "chaos_member")


def faked() -> list[str]:
    """Words before a command that is to go by the clock of its host, and whatever it starts,
    wherever."""
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")  # Debian package faketime
    return [
        "env",
        f"LD_PRELOAD={library}",
        f"FAKETIME_TIMESTAMP_FILE={CLOCK}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "NO_FAKE_STAT=1",  # files keep the times that they have
        "FAKETIME_SHARED=/none /none",  # it leaves nothing in /dev/shm
    ]


def set_clock(host: Host, offset: int) -> None:
    run = Path(f"/proc/{host.pid}/root/run")
    (run / "clock.new").write_text(f"{offset:+d}\n")
    (run / "clock.new").replace(run / "clock")


def offset_of(host: Host) -> int:
    return round(int(host.run([*faked(), "date", "+%s"]).stdout) - time.time())


@pytest.fixture
def clocks(hosts: Hosts) -> Iterator[list[str]]:
    """The second host is an hour late, the others are right. Gives options by which agents go by
    them."""
    for host, offset in zip(hosts, (0, -HOUR, 0), strict=True):
        set_clock(host, offset)
    folder = hosts.folder / "faked"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    words = " ".join(f"'{word}'" for word in (*faked(), BIN / "regroup"))
    (folder / "bin/regroup").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (folder / "bin/regroup").chmod(0o755)
    yield ["--prefix", str(folder), "--timeout", "1800"]


def expect_faked(hosts: Hosts) -> None:
    """No process of the job goes by the machine's clock."""
    for host in hosts:
        for name in PROGRAMS:
            for pid in processes(host, name):
                assert "libfaketime" in Path(f"/proc/{pid}/maps").read_text(), (
                    f"{name} of {host.name}"
                )
        assert processes(host, "regroup-agent") and processes(host, "chaos_member")
    assert abs(offset_of(hosts[1]) + HOUR) < HOUR / 10


def step_clock(job: Training, host: Host, offset: int, then_s: float) -> None:
    """The clock is that much off from now on, and for so long the job goes on."""
    set_clock(host, offset)
    assert abs(offset_of(host) - offset) < HOUR / 10
    step, end = job.trails.furthest(), time.monotonic() + then_s
    until(lambda: time.monotonic() > end or job.process.poll() is not None, "time passes", 60)
    job.reach(step + 5)


def expect_nobody_lost(job: Training) -> None:
    sizes = [int(size) for size in re.findall(r"(\d+) members", job.text())]
    assert sizes == sorted(sizes) and sizes[-1] == 6, job.text()
    assert " lost" not in job.text(), job.text()


# That of the launcher and the coordinator; that of an agent and members only.
@pytest.mark.parametrize("jumps", [0, 2])
def test_clocks_that_step_lose_nobody(hosts, start: Start, undisturbed: str, clocks, jumps: int):
    folder = hosts.folder / f"ckpt-{jumps}"
    job = start(WHERE, "2:6", *clocks, "-v", *keep(folder), pace_us=300_000, before=faked())
    job.reach(5)
    job.until_size(6)
    expect_faked(hosts)
    # what goes by it, and is due within the hour, comes at once
    step_clock(job, hosts[jumps], HOUR, 1)
    step_clock(job, hosts[jumps], -HOUR, SILENCE_S + 2)  # or not for two hours
    saved = newest(job)
    step_clock(job, hosts[jumps], 0, 1)
    expect_nobody_lost(job)
    until_newer(job, saved)
    job.hurry()
    job.expect_weights(undisturbed)
    assert len(job.trails.weights()) == 6
    done = hosts[1].run([*faked(), BIN / "regroup", "checkpoint", "verify", folder])
    assert done.returncode == 0, done.stderr


def test_a_host_comes_back_whose_clock_and_the_launchers_have_stepped(
    hosts: Hosts, start: Start, undisturbed: str, clocks
):
    """Whatever waits for it, and its new links, go by other clocks than those of the beginning."""
    job = start(WHERE, "2:6", *clocks, pace_us=300_000, before=faked())
    job.reach(3)
    job.until_size(6)
    set_clock(hosts[2], HOUR)
    kill(agent_of(hosts[2]))
    set_clock(hosts[0], -HOUR)
    job.until_said("its host was lost): 6 -> 4 members", 60)
    job.until_said("-> 6 members", 60)
    job.hurry()
    job.expect_weights(undisturbed)


def test_a_job_goes_on_from_its_newest_checkpoint_before_it_was_made(
    hosts: Hosts, start: Start, undisturbed: str, clocks
):
    """By the clocks of the hosts, which have gone back since."""
    folder = hosts.folder / "ckpt"
    for host in hosts:
        set_clock(host, HOUR)
    job = start(WHERE, "2:6", *clocks, *keep(folder), pace_us=10_000, before=faked())
    until_newer(job, 20)
    kill_everything(job)
    for host in hosts:
        set_clock(host, -HOUR)
    again = start(WHERE, "2:6", *clocks, *keep(folder), pace_us=0, before=faked())
    expect_resumed(again, newest(job), undisturbed)
    until(lambda: not left_on(hosts), "an end of all processes")
