"""Plane nccl, over the fake GPU and the fake NCCL, on hosts that are processes of this machine: the
bits of the host's sums, whatever is lost."""

import re
import socket
from pathlib import Path

import pytest
from conftest import BIN, elastic, needs_device_kernels, until
from test_cuda_plane import kill, newest, sizes, wait_for_plane
from test_planes import FAKE, LEAF_MS, STEPS, TWO_HOSTS, alone, digest, status

pytestmark = needs_device_kernels

LINES = ("--shards", "6", "--device-memory", "5")
ONE_EACH = ("--launcher", "fork", "-H", "a:1,b:1")
SOON = {"REGROUP_NCCL_TIMEOUT": "9"}  # an error counts after a third of it, not 10 s
NCCL = "nccl: the members are on 2 hosts (a, b)"


class Fake:
    """The fake NCCL of a job."""

    def __init__(self, folder: Path):
        self.folder = folder

    def env(self, version: str = "2.28.9", faults: str = "", **more: str) -> dict[str, str]:
        library = BIN.parent / "tests/fakes/nccl" / version
        return {
            "LD_LIBRARY_PATH": f"{library}:{FAKE}",
            "REGROUP_FAKE_NCCL": f"folder={self.folder};{faults}",
            **more,
        }

    def groups(self) -> list[tuple[int, int]]:
        """The rank among the hosts and the process of each group that is done: one when a
        communicator starts, two for each sum."""
        file = self.folder / "groups"
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(map(int, line.split())) for line in lines]

    def blocked(self) -> list[str]:
        """Calls that did not return at once."""
        file = self.folder / "blocked"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_sums(self, count: int = 1) -> None:
        """By both hosts, from now on."""
        before = len(self.groups())

        def done() -> bool:
            new = [rank for rank, _ in self.groups()[before:]]
            return min(new.count(0), new.count(1)) >= 1 + 2 * count

        until(done, f"{count} sums by NCCL")


@pytest.fixture
def nccl(tmp_path) -> Fake:
    return Fake(tmp_path)


@pytest.mark.parametrize("version", ["2.19.3", "2.28.9", "2.32.3"])
def test_members_of_two_hosts_sum_their_gradients_by_nccl(regroup, device_member, nccl, version):
    words = elastic("4:4", *LINES, *TWO_HOSTS)
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=nccl.env(version))
    wait_for_plane(regroup, NCCL)
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert len({pid for _, pid in nccl.groups()}) == 2  # one GPU, so one rank of each host
    assert len(nccl.groups()) >= 4 * (int(STEPS) - 20)
    assert f"nccl {version} connects 2 hosts in generation 1, 1 GPU each\n" in job.err


def test_a_member_dies_and_the_next_generation_connects_anew(regroup, device_member, nccl):
    """Meanwhile gradients go through the host: those of the dead member are used."""
    words = elastic("1:4", *LINES, *TWO_HOSTS, initial=4)
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=nccl.env())
    nccl.wait_for_sums()
    for _ in range(2):
        kill(job, [pid for rank, pid in nccl.groups() if rank == 1][-1])
        seen = len(sizes(job))
        until(lambda: sizes(job)[seen:], "a step after the death")  # noqa: B023
        until(lambda: len(job.named("device_member")) == 4, "a newcomer")
        until(lambda: 4 in sizes(job)[seen:], "a step with it")  # noqa: B023
        nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_job_goes_from_one_host_to_two_and_back(regroup, device_member, nccl):
    words = elastic("1:4", *LINES, *TWO_HOSTS, initial=2)
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=nccl.env())
    wait_for_plane(regroup, "cuda: the members are on one host")
    until(lambda: sizes(job), "a step")
    assert regroup.control("resize", "4").returncode == 0
    wait_for_plane(regroup, NCCL)
    nccl.wait_for_sums(2)
    assert regroup.control("resize", "2").returncode == 0
    wait_for_plane(regroup, "cuda: the members are on one host")
    seen = len(sizes(job))
    until(lambda: sizes(job)[seen:], "a step on one host")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.18.3", "libnccl.so.2 is version 2.18.3; expected 2.19 or newer"),
        (
            "2.28.5",
            "libnccl.so.2 is version 2.28.5, which crashes when members restart; expected 2.28.9 "
            "or newer, or 2.27",
        ),
        ("damaged", "libnccl.so.2 of version 2.19.3 has no ncclCommAbort"),
    ],
)
def test_a_library_that_does_not_serve_is_named(regroup, device_member, nccl, version, why):
    words = elastic("4:4", "--shards", "6", "--plane", "nccl", *TWO_HOSTS)
    job = regroup.run(*words, device_member, "device", STEPS, "0", env=nccl.env(version))
    assert job.wait() != 0
    assert f"--plane nccl: it is not viable: {why}; --plane staged fits" in job.err


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("NCCL_COMM_BLOCKING", "1", "with which no call of NCCL has a deadline"),
        ("NCCL_COMM_ID", "10.0.0.1:4000", "one address for all communicators of the job"),
    ],
)
def test_an_environment_that_overrules_calls_is_named(
    regroup, device_member, nccl, name, value, why
):
    words = elastic("4:4", "--shards", "6", "--plane", "nccl", *TWO_HOSTS)
    env = nccl.env(**{name: value})
    job = regroup.run(*words, device_member, "device", STEPS, "0", env=env)
    assert job.wait() != 0
    said = f"--plane nccl: it is not viable: {name} is {value}, {why}; --plane staged fits"
    assert said in job.err


def test_a_requested_plane_nccl_serves_one_host_too(regroup, device_member, nccl):
    """Within a host it is plane cuda."""
    words = elastic("2:2", "--shards", "6", "--plane", "nccl")
    job = regroup.start(*words, device_member, "device", STEPS, LEAF_MS, env=nccl.env())
    wait_for_plane(regroup, "nccl: requested (--plane)")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert nccl.groups() == []


def wait_for_host(regroup, job, why: str, generation: str = "1") -> None:
    """Until the gradients go through the host since NCCL did not start: both are expressions."""
    shown = rf"staged in place of nccl: host [abc]: {why}"

    def lost() -> dict:
        return status(regroup)

    until(lambda: re.fullmatch(shown, lost().get("plane_why", "")), lambda: f"{shown}: {lost()}")
    assert lost()["plane"] == "staged"
    job.wait_err(
        rf"nccl: generation {generation} is not connected: {why}; gradients go through the host"
    )


@pytest.mark.parametrize("fault", ["init-hang", "peers-hang"])
def test_a_start_that_hangs_leaves_the_gradients_to_the_host(regroup, device_member, nccl, fault):
    words = elastic("2:2", *LINES, *ONE_EACH)
    job = regroup.start(
        *words, device_member, "device", STEPS, LEAF_MS,
        env=nccl.env(faults=fault, REGROUP_NCCL_TIMEOUT="1"),
    )  # fmt: skip
    calls = (
        "ncclCommInitRankConfig" if fault == "init-hang" else "nccl(CommInitRankConfig|GroupEnd)"
    )
    wait_for_host(regroup, job, f"{calls}: not done after 1 s")
    text = regroup.control("status", "--prometheus").stdout
    assert re.search(r'^regroup_plane_info\{job="[^"]+",plane="staged"\} 1$', text, re.MULTILINE)
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert nccl.groups() == []


@pytest.mark.parametrize(
    ("fault", "call"),
    [("init-block", "ncclCommInitRankConfig"), ("group-block", "ncclGroupEnd")],
)
def test_a_start_that_blocks_in_a_call_leaves_the_gradients_to_the_host(
    regroup, device_member, nccl, fault, call
):
    """No generation starts another communicator until the call returns."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    job = regroup.start(
        *words, device_member, "device", STEPS, LEAF_MS,
        env=nccl.env(faults=f"{fault};abort-slow=0", REGROUP_NCCL_TIMEOUT="3"),
    )  # fmt: skip
    wait_for_host(regroup, job, f"{call}: did not return within 3 s")
    first = job.member("device_member", 0)
    late = f"{call} of generation 1 did not return within 3 s"
    for _ in range(2):
        told = job.err.count(f"is not connected: {late}")
        kill(job, newest(job))
        until(lambda: job.err.count(f"is not connected: {late}") > told, late)  # noqa: B023
        seen = len(sizes(job))
        until(lambda: sizes(job)[seen:], "a step over the host")  # noqa: B023
    wait_for_host(regroup, job, late, generation=r"\d+")
    assert f"nccl: {late}: its memory on the GPU stays in use" in job.err
    assert len(nccl.blocked()) == 2
    (nccl.folder / "return").touch()
    until((nccl.folder / "aborts").exists, "the abort after the return")
    seen = len(sizes(job))
    until(lambda: sizes(job)[seen + 1 :], "steps after the abort")
    kill(job, newest(job))
    nccl.wait_for_sums()
    assert job.member("device_member", 0) == first
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_generation_starts_nothing_while_a_start_of_the_last_one_is_in_a_call(
    regroup, device_member, nccl
):
    words = elastic("2:2", *LINES, *ONE_EACH)
    job = regroup.start(
        *words, device_member, "device", STEPS, LEAF_MS,
        env=nccl.env(faults="init-block", REGROUP_NCCL_TIMEOUT="600"),
    )  # fmt: skip
    until(lambda: len(nccl.blocked()) == 2, "two starts")
    kill(job, newest(job))
    until(lambda: len(job.named("device_member")) == 2, "a newcomer")
    seen = len(sizes(job))
    until(lambda: sizes(job)[seen + 3 :], "steps with it")
    assert len(nccl.blocked()) == 2
    (nccl.folder / "return").touch()
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_communicator_that_still_connects_is_aborted_at_the_end(regroup, device_member, nccl):
    words = elastic("2:2", *LINES, *ONE_EACH)
    job = regroup.start(
        *words, device_member, "device", STEPS, LEAF_MS,
        env=nccl.env(faults="init-hang;abort-slow=2000", REGROUP_NCCL_TIMEOUT="600"),
    )  # fmt: skip
    wait_for_plane(regroup, NCCL)
    until(lambda: sizes(job)[4:], "steps after the vote to connect")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert len(set((nccl.folder / "aborts").read_text().split())) == 2


def test_a_member_that_gets_no_id_leaves_the_gradients_to_the_host(regroup, device_member, nccl):
    """As where NCCL_SOCKET_IFNAME names no interface."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    words += faulty(nccl, 0, "no-id", device_member)
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env())
    why = "ncclGetUniqueId: unhandled system error (said by the fake)"
    wait_for_host(regroup, job, re.escape(why))
    until(lambda: sizes(job), "a step")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert nccl.groups() == []


def test_members_with_unequal_versions_leave_the_gradients_to_the_host(
    regroup, device_member, nccl
):
    words = elastic("2:2", *LINES, *ONE_EACH)
    other = nccl.env("2.32.3")["LD_LIBRARY_PATH"]
    script = f"[ \"$REGROUP_MEMBER\" != 1 ] || export LD_LIBRARY_PATH='{other}'; "
    words += ["sh", "-c", script + 'exec "$0" "$@"', device_member]
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env())
    host = rf"\(host {re.escape(socket.gethostname())}\)"
    versions = (r"2\.28\.9", r"2\.32\.3")
    either = [
        f"member {a} {host} has NCCL {versions[a]}, member {b} {host} has {versions[b]}"
        for a, b in [(0, 1), (1, 0)]
    ]
    wait_for_host(regroup, job, f"({'|'.join(either)})")
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert nccl.groups() == []


def test_an_id_is_published_until_it_may_be_used(regroup, device_member, nccl):
    """Members 1 and 2 have another version. NCCL keeps a thread and a socket for each unused id."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    other = nccl.env("2.32.3")["LD_LIBRARY_PATH"]
    script = f"case $REGROUP_MEMBER in 1|2) export LD_LIBRARY_PATH='{other}';; esac; "
    words += ["sh", "-c", script + 'exec "$0" "$@"', device_member]
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env())
    job.wait_err(r"generation 1 is not connected: member \d")
    kill(job, newest(job))
    job.wait_err(r"generation [2-9] is not connected: member \d")
    kill(job, newest(job))
    nccl.wait_for_sums()
    ids = (nccl.folder / "ids").read_text().split()
    assert len(set(ids)) == len(ids), "a process has made two"
    kill(job, newest(job))
    until(lambda: job.err.count("connects 2 hosts") == 2, "the next generation")
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_member_whose_gpu_lacks_memory_leaves_the_gradients_to_the_host(
    regroup, device_member, nccl
):
    """Before NCCL starts, so that no step fails for want of it."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    script = "[ \"$REGROUP_MEMBER\" != 1 ] || export REGROUP_FAKE_CUDA_FAULTS='at=4 oom'; "
    words += ["sh", "-c", script + 'exec "$0" "$@"', device_member]
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env())
    why = r"sum of gradients: cuMemAlloc of \d+ bytes: CUDA_ERROR_OUT_OF_MEMORY \(out of memory\)"
    wait_for_host(regroup, job, why)
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert nccl.groups() == []


def faulty(nccl: Fake, member: int, faults: str, device_member: str) -> list[str]:
    """A program whose member `member` has these faults of NCCL."""
    own = f"folder={nccl.folder};{faults}"
    script = f"[ \"$REGROUP_MEMBER\" != {member} ] || export REGROUP_FAKE_NCCL='{own}'; "
    return ["sh", "-c", script + 'exec "$0" "$@"', device_member]


@pytest.mark.parametrize(
    ("version", "faults"),
    [
        ("2.19.3", ""),
        ("2.28.9", "abort-hang=1"),
        ("2.28.9", "abort-hang=1;async=9"),
        ("2.28.9", "abort-hang=1;revoke-in-progress"),
    ],
    ids=["aborts", "revokes", "revokes-after-an-error", "revokes-slowly"],
)
def test_a_member_dies_in_the_midst_of_a_sum(regroup, device_member, nccl, version, faults):
    """The other's work waits for it on the GPU until it is revoked, or aborted in 2.19."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    folder = f"export REGROUP_FAKE_NCCL='folder={nccl.folder}"
    script = f"case $REGROUP_MEMBER in 0) {folder};{faults}';; 1) {folder};die=8';; esac; "
    words += ["sh", "-c", script + 'exec "$0" "$@"', device_member]
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env(version))
    job.wait_err(r"connects 2 hosts in generation [2-9]")
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_member_whose_nccl_fails_is_replaced(regroup, device_member, nccl):
    """No death explains the error of NCCL, so the member fails a while later."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    words += faulty(nccl, 0, "async=8", device_member)
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env(**SOON))
    job.wait_err(r"device_member: .*remote process exited or there was a network error")
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_an_error_that_all_members_see_ends_one_of_them(regroup, device_member, nccl):
    """As of the network: the others have the state."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    own = f"folder={nccl.folder};async=8"
    script = f"[ \"$REGROUP_MEMBER\" -gt 1 ] || export REGROUP_FAKE_NCCL='{own}'; "
    words += ["sh", "-c", script + 'exec "$0" "$@"', device_member]
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env(**SOON))
    job.wait_err(r"connects 2 hosts in generation [2-9]")
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
    assert job.err.count("remote process exited or there was a network error") == 1


def test_a_member_whose_abort_hangs_is_replaced(regroup, device_member, nccl):
    """Member 0 cannot end the work that waits for member 1."""
    words = elastic("3:3", *LINES, "--launcher", "fork", "-H", "a:1,b:1,c:1")
    script = f"""case $REGROUP_MEMBER in
      0) export REGROUP_FAKE_NCCL='folder={nccl.folder};abort-hang';;
      1) export REGROUP_FAKE_NCCL='folder={nccl.folder};die=8';;
    esac; exec "$0" "$@" """
    words += ["sh", "-c", script, device_member]
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env("2.19.3"))
    job.wait_err(r"device_member: .*nccl: ncclCommAbort did not return within 5 s")
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_an_abort_in_the_background_that_hangs_leaves_later_generations_to_the_host(
    regroup, device_member, nccl
):
    """Its work has ended, so the member goes on."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    words += faulty(nccl, 0, "abort-hang=1", device_member)
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env(REGROUP_NCCL_TIMEOUT="8"))
    nccl.wait_for_sums()
    first = job.member("device_member", 0)
    kill(job, job.member("device_member", 1))
    late = "ncclCommAbort of generation 1 did not return within 8 s"
    job.wait_err(f"nccl: {late}: its memory on the GPU stays in use, and gradients of later")
    seen = len(sizes(job))
    until(lambda: sizes(job)[seen:], "a step with the newcomer")
    kill(job, newest(job))
    wait_for_host(regroup, job, late, generation=r"\d+")
    assert job.member("device_member", 0) == first
    job.hurry()
    assert digest(job) == alone(regroup, device_member)


def test_a_job_changes_between_nccl_and_the_host_as_members_die(regroup, device_member, nccl):
    """Member 2 cannot start NCCL, the others can."""
    words = elastic("2:2", *LINES, *ONE_EACH)
    words += faulty(nccl, 2, "init-fails", device_member)
    job = regroup.start(*words, "device", STEPS, LEAF_MS, env=nccl.env())
    nccl.wait_for_sums()
    kill(job, newest(job))
    why = r"ncclCommInitRankConfig: unhandled system error \(said by the fake\)"
    wait_for_host(regroup, job, why, generation="[2-9]")
    seen = len(sizes(job))
    until(lambda: sizes(job)[seen:], "a step over the host")
    kill(job, newest(job))
    wait_for_plane(regroup, NCCL)
    nccl.wait_for_sums()
    job.hurry()
    assert digest(job) == alone(regroup, device_member)
