"""Jobs on several hosts that keep checkpoints: whoever snapshots is lost, with member, agent, host
or link, and others make them; started again elsewhere a job ends with the bits of an undisturbed
one."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import training
from hosts import ROOT, Host, Hosts, until
from training import BIN, EPOCHS, Start, Training, agent_of, kill, left_on, processes, weights_alone

BALLAST = 16 << 20  # bytes more of state, so that writing takes a while
# Of a shard, so that what a test does meets a job that trains, however late it is: it hurries once
# it has seen that.
PACE_US = 50_000
COMMITTED = re.compile(r"checkpoint of step (\d+): in \S+ after .* MiB/s, by host (\S+)\)")


def keep(folder: Path, every: int = 5) -> list[str]:
    return ["--checkpoint", str(folder), "--checkpoint-interval", str(every)]


def committed(job: Training) -> list[tuple[int, str]]:
    """Steps that a line has promised, and by which host, as they came."""
    return [(int(step), host) for step, host in COMMITTED.findall(job.text())]


def newest(job: Training) -> int:
    return max((step for step, _ in committed(job)), default=0)


def by_name(job: Training, name: str) -> Host:
    return next(host for host in job.hosts if host.name == name)


def until_newer(job: Training, than: int) -> None:
    until(lambda: newest(job) > than or job.process.poll() is not None, "a newer checkpoint", 60)
    assert newest(job) > than, job.text()


def kill_everything(job: Training) -> None:
    """The power of the whole room fails."""
    job.process.kill()
    for host in job.hosts:
        for pid in host.pids():
            name = Path(f"/proc/{pid}/comm")
            with contextlib.suppress(OSError):
                if name.read_text().startswith(("regroup", "chaos_member")):
                    os.kill(pid, signal.SIGKILL)
    job.process.wait(60)
    until(lambda: not left_on(job.hosts), "an end of all processes", 60)
    # and of launchers and writers: until then the directory is that job's
    until(
        lambda: not any(name.startswith("regroup") for host in job.hosts for name in host.names()),
        "an end of all other processes",
    )


def expect_resumed(job: Training, at_least: int, undisturbed: str, status: int = 0) -> None:
    """It went on after a step that is at least that one, computed all that follow, and has the same
    bits."""
    assert job.wait() == status, job.text()
    resumed = int(re.search(r"the job resumes after step (\d+) from", job.text())[1])
    assert resumed >= at_least
    computed = {step for step, _ in job.trails.shards()}
    assert computed == set(range(resumed + 1, job.steps + 1))  # none if the last step was kept
    assert set(job.trails.weights()) == {undisturbed}, job.text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("node1:2,node2:2", "2:4"), ("node3:1", "1:3")),
        (("node2:1,node3:1", "1:2"), ("node1:2,node2:2,node3:2", "2:6")),
    ],
)
def test_a_job_goes_on_elsewhere_with_another_number_of_members(
    hosts, start, undisturbed, before, after
):
    folder = Path(hosts.folder) / f"ckpt-{after[1].replace(':', '-')}"
    job = start(*before, *keep(folder), pace_us=4000)
    until_newer(job, 20)
    kill_everything(job)
    again = start(*after, *keep(folder), pace_us=0)
    expect_resumed(again, newest(job), undisturbed)
    done = hosts[2].run([BIN / "regroup", "checkpoint", "verify", folder])
    assert done.returncode == 0, done.stderr


def lose_members(host: Host) -> None:
    kill(processes(host, "chaos_member"))


def lose_agent(host: Host) -> None:
    kill(agent_of(host))


def lose_power(host: Host) -> None:
    host.kill()


def lose_link(host: Host) -> None:
    host.link(up=False)


@pytest.mark.parametrize("loss", [lose_members, lose_agent, lose_power, lose_link])
def test_who_makes_checkpoints_is_lost_and_others_make_them(
    own_trio: Hosts, start_own: Start, undisturbed: str, loss
):
    # The controller stays: without it the job is over. So no member is on its host.
    folder = Path(own_trio.folder) / "ckpt"
    job = start_own("node2:2,node3:2", "2:4", *keep(folder), pace_us=PACE_US)
    until_newer(job, 10)
    promised, name = committed(job)[-1]
    loss(by_name(job, name))
    if loss in (lose_power, lose_link):
        other = ({"node2", "node3"} - {name}).pop()
        until(lambda: committed(job)[-1][1] == other, f"a checkpoint by {other}", 60)
    until_newer(job, promised)
    job.hurry()
    job.expect_weights(undisturbed)
    assert newest(job) > promised
    assert not re.search(r"checkpoint of step \d+ failed", job.text()), job.text()
    done = job.hosts[0].run([BIN / "regroup", "checkpoint", "verify", folder])
    assert done.returncode == 0, done.stderr
    again = start_own("node1:1", "1:1", *keep(folder), pace_us=0)
    expect_resumed(again, newest(job), undisturbed)


def test_a_folder_that_is_not_shared_is_told(hosts: Hosts, start: Start, undisturbed: str):
    job = start("node1:1,node2:1", "2:2", *keep(Path("/tmp/private")), pace_us=PACE_US)
    job.until_found(
        r"host node2: no checkpoints are written or read here: /tmp/private: not the directory "
        r"that job \S+ has locked: LOCK is missing",
        60,
    )
    until_newer(job, 0)
    job.hurry()
    job.expect_weights(undisturbed)
    assert {host for _, host in committed(job)} == {"node1"}


def test_a_writer_that_outlives_its_job_changes_nothing(hosts: Hosts, start: Start, tmp_path: Path):
    undisturbed = weights_alone(tmp_path, EPOCHS, BALLAST)
    folder = Path(hosts.folder) / "ckpt-fence"
    job = start("node2:1,node3:1", "2:2", *keep(folder, 20), pace_us=PACE_US, ballast=BALLAST)
    until_newer(job, 0)
    writer = until(lambda: processes(hosts[1], "regroup-persist"), "a writer", 60)[0]
    os.kill(writer, signal.SIGSTOP)
    job.process.kill()
    names = ("regroup", "regroup-control", "regroup-coord")
    for name in names:
        for pid in processes(hosts[0], name):
            with contextlib.suppress(ProcessLookupError):  # the first may have ended the others
                os.kill(pid, signal.SIGKILL)
    # While the launcher lives the directory is its job's, and the next one is refused.
    until(lambda: not set(names) & set(hosts[0].names()), "the end of the launcher")
    promised = newest(job)
    again = start("node1:1", "1:1", *keep(folder, 20), pace_us=0, ballast=BALLAST)
    again.until_said("the job resumes after step", 60)
    with contextlib.suppress(ProcessLookupError):  # on busy cores its agent has ended it by now
        os.kill(writer, signal.SIGCONT)
    expect_resumed(again, promised, undisturbed)
    until(lambda: not processes(hosts[1], "regroup-persist"), "an end of the old writer", 60)
    done = hosts[0].run([BIN / "regroup", "checkpoint", "verify", folder])
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob(".stage*"))


def tiers(own: Path, shared: Path) -> list[str]:
    return [
        "--checkpoint",
        str(own),
        "--checkpoint-shared",
        str(shared),
        "--checkpoint-interval",
        "5",
        "--checkpoint-keep",
        "99",
    ]


def copied(job: Training) -> int:
    """The newest that a line has called copied."""
    return max(map(int, re.findall(r"checkpoint of step (\d+): copied to", job.text())), default=0)


def steps_in(folder: Path) -> list[int]:
    """Of the shared directory, where the manifest is the commit."""
    return sorted(int(path.parent.name[5:]) for path in folder.glob("step-*/MANIFEST"))


def python_on(host: Host, code: str, *words: object) -> str:
    done = host.run(["python3", "-c", f"import os, sys\n{code}", *map(str, words)])
    assert done.returncode == 0, done.stderr
    return done.stdout


def own_steps(host: Host, folder: Path) -> list[int]:
    names = python_on(host, "print(*os.listdir(sys.argv[1]))", folder).split()
    return sorted(int(name[5:]) for name in names if name.startswith("step-"))


def test_hosts_keep_their_own_checkpoints_and_all_of_them_are_in_the_shared_directory(
    own_trio: Hosts, start_own: Start, undisturbed: str
):
    own, shared = Path("/tmp/own"), Path(own_trio.folder) / "shared"
    job = start_own("node2:2,node3:2", "2:4", *tiers(own, shared), pace_us=2 * PACE_US)
    until(lambda: copied(job) >= 10 or job.process.poll() is not None, "copies", 120)
    name = committed(job)[-1][1]
    lose_power(by_name(job, name))
    other = ({"node2", "node3"} - {name}).pop()
    until(lambda: committed(job)[-1][1] == other, f"a checkpoint by {other}", 120)
    job.hurry()
    job.expect_weights(undisturbed)
    theirs = {step for step, host in committed(job) if host == other}
    kept = own_steps(by_name(job, other), own)
    assert kept and set(kept) <= theirs
    assert steps_in(shared)[-1] == kept[-1] == newest(job)
    done = job.hosts[0].run([BIN / "regroup", "checkpoint", "verify", shared])
    assert done.returncode == 0, done.stderr
    again = start_own("node1:1", "1:1", *tiers(own, shared), pace_us=0)
    expect_resumed(again, newest(job), undisturbed)
    assert f"from {shared}/step-" in again.text()


def forget(shared: Path, after: int) -> None:
    """As if what is newer had not been copied yet."""
    for step in steps_in(shared):
        if step > after:
            (shared / f"step-{step:08d}" / "MANIFEST").unlink()


def unmake(host: Host, own: Path, after: int) -> None:
    """As if what is newer had not been made."""
    for step in own_steps(host, own):
        if step > after:
            python_on(host, "import shutil; shutil.rmtree(sys.argv[1])", own / f"step-{step:08d}")


def ahead(job: Training, own: Path, shared: Path) -> list[int]:
    """Kills the job, whose writer is node2: of its steps, which this returns, the last two are its
    alone."""
    until(lambda: len(steps_in(shared)) >= 4 or job.process.poll() is not None, "copies", 120)
    kill_everything(job)
    assert {host for _, host in committed(job)} == {"node2"}
    mine = own_steps(job.hosts[1], own)
    forget(shared, mine[-3])
    assert steps_in(shared), "nothing was copied"
    return mine


IS_NEWEST = "host node2: its checkpoint of step {} in {} is the newest and is copied to {}"


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_a_job_goes_on_from_the_newest_that_any_host_has_of_its_own(
    hosts: Hosts, start: Start, undisturbed: str, damaged: bool
):
    own, shared = Path(f"/tmp/newest-{damaged}"), Path(hosts.folder) / f"shared-newest-{damaged}"
    mine = ahead(start("node2:1,node3:1", "2:2", *tiers(own, shared), pace_us=10_000), own, shared)
    step = mine[-2] if damaged else mine[-1]
    if damaged:
        code = "with open(sys.argv[1], 'r+b') as f: f.seek(9000); f.write(b'damage')"
        python_on(hosts[1], code, own / f"step-{mine[-1]:08d}" / "shard-0000-of-0001.h5")
    again = start("node3:1,node2:1", "2:2", *tiers(own, shared), pace_us=0)
    expect_resumed(again, step, undisturbed)
    assert IS_NEWEST.format(step, own, shared) in again.text()
    assert f"the job resumes after step {step} from {shared}/step-{step:08d}" in again.text()
    assert step in steps_in(shared)
    told = f"host node2: checkpoint {own}/step-{mine[-1]:08d} is damaged and not used"
    assert (told in again.text()) == damaged, again.text()
    aside = f"the checkpoint of step {mine[-1]} is newer than that of step {step}"
    assert (aside in again.text()) == damaged, again.text()


def resumed_after(job: Training) -> int:
    text = job.text()
    return int(re.search(r"the job resumes after step (\d+) from", text)[1])


def test_a_host_that_does_not_answer_for_its_own_directory_is_passed_over(
    hosts: Hosts, start: Start, undisturbed: str, monkeypatch
):
    folder = Path(hosts.folder)
    own, shared, go = Path("/tmp/mute"), folder / "shared-mute", folder / "never"
    mine = ahead(start("node2:1,node3:1", "2:2", *tiers(own, shared), pace_us=10_000), own, shared)
    where = '"$(hostname) $1" != "node2 newer"'
    monkeypatch.setattr(training, "BIN", hanging_programs(folder / "hanging-mute", go, where))
    again = start("node3:1,node2:1", "2:2", *tiers(own, shared), pace_us=2000)
    before = steps_in(shared)[-1]
    expect_resumed(again, before, undisturbed)
    assert resumed_after(again) == before < mine[-2]
    told = f"host node2: its checkpoints in {own} are ignored: {own}: no answer for 10 s"
    assert told in again.text()
    assert not re.search(r"host node3: its checkpoints", again.text())
    # and set aside
    assert f"{own}: the checkpoint of step {mine[-1]} is newer than" in again.text()


def test_a_host_that_is_lost_while_it_copies_its_checkpoint_is_passed_over(
    hosts: Hosts, start: Start, undisturbed: str, monkeypatch
):
    folder = Path(hosts.folder)
    own, shared, go = Path("/tmp/lost"), folder / "shared-lost", folder / "go-lost"
    mine = ahead(start("node2:1,node3:1", "2:2", *tiers(own, shared), pace_us=10_000), own, shared)
    before = steps_in(shared)[-1]
    where = '"$(hostname) $1" != "node2 copy"'
    monkeypatch.setattr(training, "BIN", hanging_programs(folder / "hanging-lost", go, where))
    again = start("node3:1,node2:1", "1:2", *tiers(own, shared), pace_us=2000)
    again.until_said(IS_NEWEST.format(mine[-1], own, shared), 60)
    lose_agent(hosts[1])
    again.until_said("the job resumes after step", 60)
    go.touch()  # the next copies are free to be made
    expect_resumed(again, before, undisturbed)
    assert resumed_after(again) == before
    assert (
        f"host node2: the job does not resume from its checkpoint of step {mine[-1]}: "
        in again.text()
    )


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_a_host_reads_its_own_copy_where_it_is_whole(
    hosts: Hosts, start: Start, undisturbed: str, damaged
):
    own = Path(f"/tmp/own-{damaged}")
    shared = Path(hosts.folder) / f"shared-{damaged}"
    job = start("node2:2", "1:2", *tiers(own, shared), pace_us=10_000)
    until(lambda: len(steps_in(shared)) >= 4 or job.process.poll() is not None, "copies", 120)
    kill_everything(job)
    node2 = job.hosts[1]
    mine = own_steps(node2, own)
    both = [step for step in steps_in(shared) if step in mine and step < mine[-1]]
    forget(shared, both[-1])
    unmake(node2, own, both[-1])
    shard = own / f"step-{both[-1]:08d}" / "shard-0000-of-0001.h5"
    if damaged:
        python_on(
            node2, "with open(sys.argv[1], 'r+b') as f: f.seek(9000); f.write(b'damage')", shard
        )
    python_on(node2, "os.utime(sys.argv[1], ns=(0, os.stat(sys.argv[1]).st_mtime_ns))", shard)
    again = start("node2:2", "1:2", *tiers(own, shared), pace_us=0)
    expect_resumed(again, both[-1], undisturbed)
    assert f"the job resumes after step {both[-1]} from {shared}/step-" in again.text()
    aside = own / f"damaged-step-{both[-1]:08d}"
    there = aside / shard.name if damaged else shard
    # it was read
    assert int(python_on(node2, "print(os.stat(sys.argv[1]).st_atime_ns)", there)) > 0
    passed_over = re.search(
        rf"checkpoint {own}/step-{both[-1]:08d} of this host is not used; reading {shared}/\S+: "
        rf"(.*)",
        again.text(),
    )
    assert (passed_over is not None) == damaged, again.text()
    assert not damaged or f"{shard}: bytes " in passed_over[1]
    assert (
        aside.name in python_on(node2, "print(*os.listdir(sys.argv[1]))", own).split()
    ) == damaged
    if damaged:
        assert f"{shard}: bytes " in python_on(
            node2, "print(open(sys.argv[1]).read())", aside / "REASON"
        )


def test_a_launcher_that_is_no_host_needs_no_directory_of_its_own(
    hosts: Hosts, start: Start, undisturbed: str
):
    own, shared = Path("/tmp/blocked/own"), Path(hosts.folder) / "shared-blocked"
    python_on(hosts[0], "open(sys.argv[1], 'w').close()", own.parent)  # nobody can make it there
    job = start("node2:2", "1:2", *tiers(own, shared), pace_us=10_000)
    until(lambda: copied(job) >= 10 or job.process.poll() is not None, "copies", 120)
    kill_everything(job)
    again = start("node2:2", "1:2", *tiers(own, shared), pace_us=0)
    expect_resumed(again, copied(job), undisturbed)
    assert own_steps(hosts[1], own)[-1] == steps_in(shared)[-1] == newest(again)


def hanging_programs(folder: Path, go: Path, free: str = '"$1" != hold') -> Path:
    """Programs of which the one that takes a host's own directory hangs, as on a dead server, until
    `go`; or those of which the shell finds that `free` is wrong."""
    folder.mkdir()
    for name in ("regroup", "regroup-persist", "chaos_member"):
        try:  # no symbolic links: helpers are looked for beside what runs
            os.link(BIN / name, folder / name)
        except OSError:  # another file system
            shutil.copy(BIN / name, folder)
    persist = folder / "regroup-persist"
    persist.rename(folder / "real-persist")
    wait = f"[ {free} ] || while [ ! -e {go} ]; do sleep 0.1; done"
    persist.write_text(f'#!/bin/sh\n{wait}\nexec {folder}/real-persist "$@"\n')
    persist.chmod(0o755)
    return folder


def test_a_directory_that_hangs_holds_up_nobody(
    hosts: Hosts, start: Start, undisturbed: str, monkeypatch
):
    folder = Path(hosts.folder)
    own, shared, go = Path("/tmp/hangs"), folder / "shared-hangs", folder / "go"
    monkeypatch.setattr(training, "BIN", hanging_programs(folder / "hanging", go))
    late = rf"no checkpoints are made here yet: {own}: no answer for \d+ s"
    # It waits as long as the other: beside it.
    over = start("node3:2", "1:2", *tiers(own, folder / "shared-over"), pace_us=2000)
    job = start("node2:2", "1:2", *tiers(own, shared), pace_us=2 * PACE_US)
    over.expect_weights(undisturbed, status=1)  # what was due at the end is not there
    assert re.search(f"host node3: {late}", over.text()) and not committed(over), over.text()
    assert "is lost: /tmp/hangs: no answer" in over.text()
    until(
        lambda: re.search(f"host node2: {late}", job.text()) or job.process.poll() is not None,
        "a line that says so",
        60,
    )
    assert not committed(job)
    go.touch()
    until_newer(job, 0)
    job.hurry()
    job.expect_weights(undisturbed)


HOLD = """
import fcntl, time
os.makedirs(sys.argv[1], exist_ok=True)
lock = open(sys.argv[1] + "/LOCK", "w")
lock.write("job before (process 1 on node2)")
lock.flush()
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
"""


def test_a_directory_that_the_job_before_has_not_given_back_yet_is_taken_later(
    hosts: Hosts, start: Start, undisturbed: str
):
    own, shared = Path("/tmp/held"), Path(hosts.folder) / "shared-held"
    go = Path(hosts.folder) / "given-back"
    words = ["python3", "-c", f"import os, sys{HOLD}", str(own), str(go)]
    with hosts[1].popen(words, stdout=subprocess.PIPE, text=True) as before:
        assert before.stdout.readline() == "held\n"
        job = start("node2:2", "1:2", *tiers(own, shared), pace_us=2 * PACE_US)
        told = (
            rf'host node2: no checkpoints are made here yet: {own}/LOCK: "job before .*" has it, '
            rf"not job"
        )
        until(
            lambda: re.search(told, job.text()) or job.process.poll() is not None,
            "a line of it",
            60,
        )
        assert not committed(job)
        go.touch()
        until_newer(job, 0)
        job.hurry()
        job.expect_weights(undisturbed)
        assert len(re.findall(told, job.text())) == 1  # however often it was tried
        assert before.wait(60) == 0


@contextlib.contextmanager
def served(host: Host, own: Path, real: Path) -> Iterator[subprocess.Popen]:
    """What the host has in `own` is in `real` from now on, and `own` a file system that shows it
    while its server runs: the first process of what this yields."""
    python_on(host, "os.rename(sys.argv[1], sys.argv[2]); os.mkdir(sys.argv[1])", own, real)
    server = ROOT / "tests/checkpoint/late_fs.py"
    with host.popen([sys.executable, server, real, own, "0"]) as file_system:
        try:
            there = "print(os.path.ismount(sys.argv[1]))"
            until(lambda: python_on(host, there, own) == "True\n", "the file system", 60)
            yield file_system
        finally:
            file_system.kill()
            host.run(["umount", "--lazy", own])


needs_fuse = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="mounts: /dev/fuse")


@needs_fuse
def test_a_hosts_own_directory_that_hangs_does_not_hold_up_who_resumes(
    hosts: Hosts, start: Start, undisturbed: str
):
    own, shared = Path("/tmp/stuck"), Path(hosts.folder) / "shared-stuck"
    job = start("node2:2", "1:2", *tiers(own, shared), pace_us=10_000)
    until(lambda: copied(job) >= 10 or job.process.poll() is not None, "copies", 120)
    kill_everything(job)
    with served(hosts[1], own, Path("/tmp/real-stuck")) as file_system:
        os.kill(Host.inner(file_system), signal.SIGSTOP)
        again = start("node2:2", "1:2", *tiers(own, shared), pace_us=0)
        expect_resumed(again, copied(job), undisturbed, status=1)  # nothing could be written
        assert re.search(
            rf"checkpoint {own}/step-\d+ of this host is not used; reading {shared}/\S+: "
            rf"{own}/\S+: no answer for 10 s",
            again.text(),
        )
        told = f"host node2: its checkpoints in {own} are ignored: {own}: no answer for 10 s"
        assert told in again.text()


@needs_fuse
def test_a_copy_that_begins_to_hang_while_it_is_read_is_left_and_the_shared_one_read(
    hosts: Hosts, start: Start, tmp_path: Path
):
    short = {"epochs": 2, "ballast": BALLAST}
    undisturbed = weights_alone(tmp_path, *short.values())
    own, shared, real = (
        Path("/tmp/begins"),
        Path(hosts.folder) / "shared-begins",
        Path("/tmp/real-begins"),
    )
    job = start("node2:2", "1:2", *tiers(own, shared), pace_us=PACE_US, **short)
    until(lambda: copied(job) >= 10 or job.process.poll() is not None, "copies", 120)
    kill_everything(job)
    unmake(hosts[1], own, steps_in(shared)[-1])  # so that nobody reads it but who resumes
    with served(hosts[1], own, real) as file_system:
        server = Host.inner(file_system)
        words = f"shard-0000-of-0001.h5 {BALLAST // 2}"  # both ends of it answer
        python_on(
            hosts[1], "print(sys.argv[2], file=open(sys.argv[1], 'w'))", f"{real}.hang", words
        )
        again = start("node2:2", "1:2", *tiers(own, shared), pace_us=0, **short)
        passed_over = (
            rf"checkpoint {own}/step-\d+ of this host is not used; reading {shared}/\S+: "
            rf"{own}/\S+: no data received for 10 s"
        )
        until(
            lambda: re.search(passed_over, again.text()) or again.process.poll() is not None,
            "a line",
            90,
        )
        # it was in the middle of a read
        assert Path(f"/proc/{server}/stat").read_text().split()[2] == "T"
        until(
            lambda: again.trails.furthest() == again.steps or again.process.poll() is not None,
            "trained members",
            90,
        )
        file_system.kill()  # no process ends while the kernel waits for its read
        os.kill(server, signal.SIGKILL)
        expect_resumed(again, copied(job), undisturbed, status=1)  # nothing could be written
    assert re.search(passed_over, again.text()), again.text()


def test_all_members_are_lost_and_the_job_goes_on_from_its_newest_checkpoint(
    hosts: Hosts, start: Start, undisturbed: str
):
    folder = Path(hosts.folder) / "ckpt-all-lost"
    job = start("node2:2,node3:2", "2:4", *keep(folder), pace_us=PACE_US)
    until_newer(job, 20)
    kill([pid for host in job.hosts for pid in processes(host, "chaos_member")])
    job.hurry()
    assert job.wait() == 0, job.text()
    assert "all members of generation" in job.text(), job.text()
    assert "the job resumes from its newest checkpoint in 1 s (restart 1 of 3)" in job.text()
    assert int(re.search(r"the job resumes after step (\d+) from", job.text())[1]) >= 20
    assert set(job.trails.weights()) == {undisturbed}, job.text()
    assert not left_on(job.hosts)


def test_the_only_host_with_members_is_lost_and_the_job_goes_on_elsewhere(
    own_trio: Hosts, start_own: Start, undisturbed: str
):
    own_trio.give_up_dead_hosts_soon()
    folder = Path(own_trio.folder) / "ckpt"
    job = start_own("node2:2,node3:2", "1:2", *keep(folder), pace_us=PACE_US)
    until_newer(job, 10)
    assert {host for _, host in committed(job)} == {"node2"}
    by_name(job, "node2").kill()
    job.hurry()
    assert job.wait() == 0, job.text()
    # Nobody saw its members die: so long they may live on.
    assert "the job resumes from its newest checkpoint in 6 s (restart 1 of 3)" in job.text(), (
        job.text()
    )
    assert {host for _, host in committed(job)} == {"node2", "node3"}
    assert set(job.trails.weights()) == {undisturbed}, job.text()


def test_the_controller_is_killed_and_the_job_goes_on_from_its_newest_checkpoint(
    hosts: Hosts, start: Start, undisturbed: str
):
    folder = Path(hosts.folder) / "ckpt-no-controller"
    job = start("node2:2,node3:2", "2:4", *keep(folder), "--orphan-timeout", "2", pace_us=PACE_US)
    until_newer(job, 20)
    kill(processes(hosts[0], "regroup-control"))
    job.hurry()
    assert job.wait() == 0, job.text()
    # Nobody is left who has seen the end of its agents: they have all the time that they take.
    assert "the job resumes from its newest checkpoint in 8 s (restart 1 of 3)" in job.text(), (
        job.text()
    )
    assert int(re.search(r"the job resumes after step (\d+) from", job.text())[1]) >= 20
    assert set(job.trails.weights()) == {undisturbed}, job.text()
    assert not left_on(job.hosts)


@pytest.mark.parametrize("members", ["1:2", "2"])
def test_a_job_whose_last_checkpoint_another_host_cannot_write_fails(
    hosts: Hosts, start: Start, members: str
):
    folder = Path(hosts.folder) / f"full-{members[1:]}"
    job = start("node2:1,node3:1", members, *keep(folder, 20), pace_us=20_000)
    until_newer(job, 0)
    folder.rename(f"{folder}.gone")  # seen by all hosts
    folder.write_text("a file now")
    job.hurry()
    assert job.wait() == 1, job.text()
    found = re.search(
        r"the training is complete, but host node2: the checkpoint of step (\d+), which was due at "
        r"the end, "
        rf"is not in {folder}: open\({folder}/LOCK\): Not a directory \(exit status 1\)",
        job.text(),
    )
    assert found and int(found[1]) >= job.steps // 20 * 20, job.text()
    assert job.trails.weights()
