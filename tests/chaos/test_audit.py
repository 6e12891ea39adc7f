"""The audit of the random schedules can fail: made-up trails of two members that share work, or do
not."""

from pathlib import Path

import pytest
from audit import check_shared, samples_accessed, samples_in_trails
from schedule import BATCH, Broken, Schedule

V = 4
SHARES = {11: range(2), 12: range(2, 4)}  # by process: what ranks 0 and 1 of two are to compute


def trail(
    folder: Path, step: int, pid: int, generation: int, size: int, leaves, torch: bool = False
) -> None:
    with (folder / f"stood.{pid}").open("a") as stood:
        print(step, generation, pid - 11, size, file=stood)
    with (folder / f"computed.{pid}").open("a") as computed:
        for leaf in leaves:
            samples = range(leaf * BATCH // V, (leaf + 1) * BATCH // V)
            lines = (
                [f"{step} {i}" for i in samples]
                if torch
                else [" ".join(map(str, (step, leaf, *samples)))]
            )
            print(*lines, sep="\n", file=computed)


def train(folder: Path, torch: bool = False, shares=SHARES, odd_step: int = 3) -> None:
    """Steps 1 to 5 of generation 1; what is computed in `odd_step` is the caller's."""
    for step in range(1, 6):
        for pid in SHARES:
            leaves = shares[pid] if step == odd_step else SHARES[pid]
            trail(folder, step, pid, generation=1, size=2, leaves=leaves, torch=torch)


def shared(folder: Path, torch: bool = False) -> int:
    computed = samples_accessed(folder) if torch else samples_in_trails(folder)
    return check_shared(folder, Schedule(1, shards=V, start=2), computed)


@pytest.mark.parametrize("torch", [False, True])
def test_shared_work_is_seen_in_every_step_between_two(tmp_path, torch):
    train(tmp_path, torch)
    assert shared(tmp_path, torch) == 3  # the first and the last have no neighbour


@pytest.mark.parametrize("torch", [False, True])
@pytest.mark.parametrize("shares", [{11: range(4), 12: ()}, {11: range(3), 12: range(3, 4)}])
def test_a_member_that_leaves_its_work_to_another_is_found(tmp_path, torch, shares):
    train(tmp_path, torch, shares)
    with pytest.raises(
        Broken, match=r"step 3: rank 0 of 2 \(pid 11\) computed .* samples, its share is 32"
    ):
        shared(tmp_path, torch)


def test_work_that_two_members_do_is_found(tmp_path):
    train(tmp_path, shares={11: range(2), 12: range(1, 4)})
    with pytest.raises(
        Broken, match=r"rank 1 of 2 \(pid 12\) computed 48 samples, its share is 32"
    ):
        shared(tmp_path)


def test_a_step_beside_an_event_is_excused(tmp_path):
    train(tmp_path, shares={11: range(4), 12: ()}, odd_step=5)
    for step in (6, 7, 8):
        trail(tmp_path, step, 11, generation=2, size=1, leaves=range(4))
    assert shared(tmp_path) == 3  # one member alone shares with nobody


def test_the_short_last_batch_is_shared_too(tmp_path):
    for step in (28, 29, 30):  # of step 29, five samples: shards of 1, 1, 1 and 2
        for pid, leaves in SHARES.items():
            trail(tmp_path, step, pid, generation=1, size=2, leaves=leaves if step != 29 else ())
    with (
        (tmp_path / "computed.11").open("a") as first,
        (tmp_path / "computed.12").open("a") as second,
    ):
        print("29 0 1792\n29 1 1793", file=first)
        print("29 2 1794\n29 3 1795 1796", file=second)
    assert shared(tmp_path) == 1
