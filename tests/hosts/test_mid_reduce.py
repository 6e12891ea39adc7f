"""Faults that meet a reduction on its way: gradients of megabytes cross a slow link, and what is
lost is lost while they do. The weights, which tell of every byte of every sum, are those of an
undisturbed run."""

import pytest
from hosts import Host, until
from training import SHARDS, WHERE, Start, Training, agent_of, kill, processes, weights_alone

# by halving, in pieces of half a megabyte, several of them on their way at a time
GRADIENT = 16_000_000
RATE = "50mbit"  # one takes seconds
PART = GRADIENT // 8
MEASURED = 8  # steps
FAULTS = {
    "link": lambda host: host.link(up=False),
    "host": lambda host: host.kill(),
    "agent": lambda host: kill(agent_of(host)),
    "member": lambda host: kill(processes(host, "chaos_member")[:1]),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    return weights_alone(tmp_path_factory.mktemp("undisturbed"), 1, gradient=GRADIENT)


def await_reduction(job: Training, host: Host, part: int = PART) -> int:
    """Until all leaves of a step are computed, or about to be, and a part of what the host sends
    and gets for their sum has crossed its link. The step: nobody has begun the next one."""

    def part_way() -> int:
        step = job.trails.furthest()
        begun = {leaf for at, leaf in job.trails.shards() if at == step}
        if len(begun) < SHARDS:
            return 0
        before = host.sent(), host.received()
        until(
            lambda: (
                (host.sent() > before[0] + part and host.received() > before[1] + part)
                or job.trails.furthest() > step
            ),
            "data or a step",
        )
        return step if job.trails.furthest() == step else 0

    return until(part_way, "a reduction on its way", 60)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_lost_in_the_midst_of_a_reduction_changes_no_bit(
    start_own: Start, undisturbed: str, fault: str
):
    job = start_own(WHERE, "2:6", epochs=1, pace_us=0, gradient=GRADIENT)
    job.reach(3)
    stays, goes = job.hosts[0], job.hosts[2]
    goes.slow(RATE)
    step = await_reduction(job, goes)
    FAULTS[fault](goes)
    job.until_lost(6, 5 if fault == "member" else 4)
    if fault != "host":
        goes.slow(None)
        goes.link(up=True)
    before, left = stays.sent(), job.steps - step
    job.expect_weights(undisturbed)
    assert stays.sent() - before > left * GRADIENT // 2


def test_the_rest_of_a_reduction_is_what_is_left_of_it(start_own: Start, undisturbed: str):
    """A member dies when most of the sum has crossed the slow link of its host. Pieces that were on
    their way cross once more, and again if its successor comes before the end; others do not."""
    job = start_own(WHERE, "2:6", epochs=1, pace_us=0, gradient=GRADIENT)
    job.reach(2)
    goes = job.hosts[2]
    # Of several steps: the first and the last may be under way.
    began, first = goes.sent(), job.trails.furthest()
    job.reach(first + MEASURED)
    whole = (goes.sent() - began) // (job.trails.furthest() - first)
    goes.slow(RATE)
    step = await_reduction(job, goes, whole * 3 // 5)
    FAULTS["member"](goes)
    before = goes.sent()
    until(lambda: job.trails.furthest() > step, "the next step", 60)
    again = goes.sent() - before
    goes.slow(None)
    job.expect_weights(undisturbed)
    assert again < whole * 9 // 10, (again, whole)
