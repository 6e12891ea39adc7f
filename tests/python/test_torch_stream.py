"""An IterableDataset in a loop over steps, in a world of one with four shards: its samples come in
their order, once each, whatever else draws random numbers; and what is refused."""

import random

import pytest
import regroup.torch
import torch
from regroup._torch_cursors import Cursors
from regroup._torch_stream import Stream, check_parts
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SAMPLES = 21


class Numbers(IterableDataset):
    """Each sample has its number and a random number."""

    def __init__(self, samples=SAMPLES):
        self.samples = samples
        self.opened = []

    def set_epoch(self, epoch):
        self.opened.append(epoch)

    def __iter__(self):
        for number in range(self.samples):
            yield number, random.random(), torch.rand(1).item()


class Counted(Numbers):
    def __len__(self):
        return self.samples


def taken(dataset, epochs=2, workers=None, **options):
    """Returns the samples of each step."""
    model = nn.Linear(3, 1)
    data = dataset
    if workers is None:
        options["batch_size"] = 4
    else:
        data = DataLoader(dataset, 4, num_workers=workers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = regroup.torch.join(model, optimizer, data, epochs=epochs, **options)
    steps = []
    for step in session:
        steps.append([])
        for batch in step:
            rows = torch.stack([column.double() for column in batch], 1)
            steps[-1] += rows.tolist()
            random.random(), torch.rand(5)  # what the script draws does not disturb the stream
            step.backward(model(rows.float()).mean())
        step.apply()
    session.finish()
    return steps


def test_the_samples_come_in_their_order_and_the_same_with_a_worker():
    steps = taken(Counted())
    numbers = [[int(row[0]) for row in step] for step in steps]
    epoch = [list(range(at, min(at + 4, SAMPLES))) for at in range(0, SAMPLES, 4)]
    assert numbers == epoch + epoch
    assert steps[0] != steps[6]  # other random numbers in another epoch
    assert taken(Counted(), workers=0) == steps
    assert taken(Counted(), workers=1) == steps


def test_an_epoch_may_take_the_first_samples_only():
    dataset = Numbers()
    steps = taken(dataset, samples=10)
    assert [len(step) for step in steps] == [4, 4, 2] * 2
    assert dataset.opened == [0, 1]
    assert steps[:2] == taken(Counted())[:2]


def stream_of(dataset, **options):
    return Stream(dataset, seed=3, batch_size=4, steps=6, samples=SAMPLES, **options)


def test_samples_that_another_member_had_are_still_there():
    dataset = Numbers()
    stream = stream_of(dataset)
    all_of_it = [stream.take(1, [at])[0] for at in range(4)]
    assert stream.take(1, [0, 1, 2, 3]) == all_of_it  # a regroup brings them
    late = stream.take(5, [17, 18])
    assert [number for number, *_ in late] == [17, 18]
    assert dataset.opened == [0]
    assert stream.take(1, [1, 2]) == all_of_it[1:3]  # read again
    assert stream.take(5, [17, 18]) == late
    assert stream.take(7, [0]) != all_of_it[:1]  # the next epoch
    assert dataset.opened == [0, 0, 1]


def test_a_worker_keeps_what_it_has_read_ahead_of():
    dataset = Numbers()
    stream = stream_of(dataset, kept=2)
    first = stream.take(1, [0, 2])
    stream.take(3, [8, 9])
    assert stream.take(1, [0, 2]) == first
    assert dataset.opened == [0]


def test_substeps_take_the_same_batch():
    stream = Stream(Numbers(), seed=3, batch_size=4, steps=12, samples=SAMPLES, substeps=2)
    assert stream.take(1, [0, 1]) == stream.take(2, [0, 1])
    assert [number for number, *_ in stream.take(3, [4])] == [4]


class Broken(Numbers):
    """Raises once, at sample 5."""

    def __iter__(self):
        for item in super().__iter__():
            if item[0] == 5 and len(self.opened) == 1:
                raise OSError("the connection is lost")
            yield item


def test_a_stream_that_has_raised_is_opened_again():
    dataset = Broken()
    stream = stream_of(dataset)
    first = stream.take(1, [0, 1, 2, 3])
    with pytest.raises(OSError, match="the connection is lost"):
        stream.take(2, [4, 5, 6, 7])
    assert [number for number, *_ in stream.take(2, [4, 5, 6, 7])] == [4, 5, 6, 7]
    assert stream.take(1, [0, 1, 2, 3]) == first
    assert dataset.opened == [0, 0, 0]


class Dealt(Counted):
    """Can be read in parts: sample i is in part i % parts."""

    def __init__(self, samples=SAMPLES, parts=1, index=0, read=None):
        super().__init__(samples)
        self.parts, self.index = parts, index
        self.read = [] if read is None else read  # (part, sample), shared with the parts

    def shard(self, num_shards, index):
        return Dealt(self.samples, num_shards, index, self.read)

    def __iter__(self):
        for number in range(self.index, self.samples, self.parts):
            self.read.append((self.index, number))
            yield number, random.random(), torch.rand(1).item()


@pytest.mark.parametrize("samples", range(12, 21))
def test_each_shard_has_a_part_of_the_stream_and_each_sample_is_used_once(samples):
    dataset = Dealt(samples)
    stream = Stream(dataset, seed=3, batch_size=8, steps=3, samples=samples, parts=4)
    parts_of_leaf: dict[int, set[int]] = {}
    used = []
    for batch in range(-(-samples // 8)):
        begin, end = 8 * batch, min(8 * batch + 8, samples)
        for leaf in range(4):
            size = end - begin
            positions = list(range(begin + size * leaf // 4, begin + size * (leaf + 1) // 4))
            found = stream.take(batch + 1, positions) if positions else []
            assert len(found) == len(positions)
            used += [number for number, *_ in found]
            parts_of_leaf.setdefault(leaf, set()).update(number % 4 for number, *_ in found)
    assert sorted(used) == list(range(samples))
    assert all(len(parts) == 1 for parts in parts_of_leaf.values())
    assert sorted(dataset.read) == sorted((number % 4, number) for number in range(samples))


def test_a_part_is_opened_at_any_place():
    whole = Stream(Dealt(), seed=3, batch_size=8, steps=3, samples=SAMPLES, parts=4)
    late = Stream(dataset := Dealt(), seed=3, batch_size=8, steps=3, samples=SAMPLES, parts=4)
    for step, positions in ((1, [2, 3]), (2, [10, 11])):
        expected = whole.take(step, positions)
    assert late.take(2, [10, 11]) == expected
    assert {part for part, _ in dataset.read} == {expected[0][0] % 4}


class Resumed(Dealt):
    """Its parts have a state."""

    def __init__(self, *args):
        super().__init__(*args)
        self.part, self.more = self.index, 0

    def shard(self, num_shards, index):
        return Resumed(self.samples, num_shards, index, self.read)

    def state_dict(self):
        return {"next": self.index, "more": self.more}

    def load_state_dict(self, state):
        self.index = state["next"]

    def __iter__(self):
        for item in super().__iter__():
            self.index = item[0] + self.parts
            yield item


def test_a_part_goes_on_from_the_cursor_of_another_member():
    """Three members, which change their parts after each step; and one that has the state only."""

    def opened(substeps=1):
        cursors = Cursors(4, 50)
        options = {"batch_size": 8, "steps": 3 * substeps, "samples": SAMPLES, "parts": 4}
        dataset = Resumed()
        return (
            dataset,
            Stream(dataset, seed=3, substeps=substeps, cursors=cursors, **options),
            cursors,
        )

    _, whole, alone = opened()
    members = [opened() for _ in range(3)]
    for step in (1, 2, 3, 4, 5):
        batch = (step - 1) % 3
        size = min(8, SAMPLES - 8 * batch)
        total = [0.0] * alone.elements
        expected, found = {}, {}
        for shard in range(4):
            begin, end = (8 * batch + size * one // 4 for one in (shard, shard + 1))
            positions = list(range(begin, end))
            expected[shard] = whole.take(step, positions)
            dataset, stream, cursors = members[(shard + step) % 3]
            read = len(dataset.read)
            found[shard] = stream.take(step, positions)
            assert len(dataset.read) - read == len(positions)  # nothing again
            section = cursors.section_of(shard, stream.state_after(shard))
            total = [one + other for one, other in zip(total, section, strict=True)]
        assert found == expected
        for _, stream, _ in members:
            stream.take_cursors(step, total)
        saved = members[0][2].saved()
        assert bool(saved) == (step != 3)
        late = opened()
        late[2].adopt(saved)
        if step != 3:
            assert late[2].saved() == saved == members[1][2].saved()
            following = [8 * (batch + 1)]
            assert late[1].take(step + 1, following) == whole.take(step + 1, following)
            assert len(late[0].read) == 1


def test_the_cursor_is_for_the_next_batch_after_its_last_substep_only():
    cursors = Cursors(1, 30)
    stream = Stream(
        Resumed(24), seed=3, batch_size=8, steps=6, samples=24, substeps=2, parts=1, cursors=cursors
    )
    for step, following in ((1, 0), (2, 8), (3, 8), (4, 16), (5, 16), (6, 0)):
        first = 8 * ((step - 1) // 2)
        stream.take(step, list(range(first, first + 8)))
        stream.take_cursors(step, cursors.section_of(0, stream.state_after(0)))
        assert cursors.next == following


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"next": "x" * 40}, r"takes 51 bytes, and part_state=30: pass part_state=76 or more to j"),
        ({"next": torch.zeros(1)}, "more than numbers, strings, lists and dictionaries"),
        ({"next": (1, 2)}, "more than numbers"),
        ({1: 2}, "more than numbers"),
        ({"next": float("nan")}, "more than numbers"),
    ],
)
def test_a_state_that_is_no_cursor_is_refused(state, message):
    with pytest.raises(regroup.Error, match=message):
        Cursors(2, 30).section_of(1, state)


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Resumed(), {"part_state": 40}, "^join: part_state: a stream that is read in parts has it"),
        (
            Dealt(),
            {"part_state": 40, "parts": True},
            r"a part: expected state_dict\(\) and load_st",
        ),
        (Resumed(), {"part_state": -1, "parts": True}, "part_state: expected a whole number >= 0"),
        (
            Resumed(),
            {"part_state": 40, "parts": True, "workers": 1},
            "part_state: expected a DataLoader with num_workers=0, got 1",
        ),
    ],
)
def test_what_has_no_cursors_is_refused(dataset, options, message):
    with pytest.raises(regroup.Refused, match=message):
        taken(dataset, **options)


def dealt(pieces, shard=None):
    dataset = Dealt()
    dataset.num_shards = pieces
    if shard is not None:
        dataset.shard = shard
    return dataset


@pytest.mark.parametrize("dataset", [Dealt(), dealt(4), dealt(8)])
def test_a_stream_whose_pieces_divide_evenly_has_parts(dataset, monkeypatch):
    check_parts(dataset, 8, 4)
    monkeypatch.setenv("REGROUP_AUDIT", "50")
    with pytest.raises(regroup.Refused, match=r"with --audit a member computes shards of other"):
        check_parts(dataset, 8, 4)


@pytest.mark.parametrize(
    ("dataset", "batch", "message"),
    [
        (
            Dealt(),
            6,
            "parts: expected a batch size that is a multiple of the job's 4 shards, got 6",
        ),
        (Numbers(), 8, r"a stream with shard\(num_shards, index\), got a Numbers without"),
        (dealt(4, lambda rank, world: None), 8, r"shard\(num_shards, index\), got a Dealt without"),
        (dealt(3), 8, "num_shards is a multiple of the job's 4 shards, got a Dealt with 3; leave"),
        (dealt(5), 8, "num_shards is a multiple of the job's 4 shards, got a Dealt with 5; leave"),
    ],
)
def test_a_stream_that_has_no_equal_parts_is_refused(dataset, batch, message):
    with pytest.raises(regroup.Refused, match=message):
        check_parts(dataset, batch, 4)


def test_a_stream_is_read_as_a_whole_unless_the_script_asks_for_parts():
    numbers = [int(row[0]) for row in taken(Dealt(16), epochs=1)[0]]
    assert numbers == [0, 1, 2, 3]
    dataset = Dealt(16)
    taken(dataset, epochs=1, parts=True)
    assert {part for part, _ in dataset.read} == {0, 1, 2, 3}
    assert len(taken(dealt(5), epochs=1)) == 6  # as a whole it needs no equal parts
    with pytest.raises(regroup.Refused, match="got a Dealt with 5"):
        taken(dealt(5), parts=True)


def test_a_part_that_ends_early_is_named():
    stream = Stream(Dealt(7), seed=3, batch_size=4, steps=2, samples=8, parts=4)
    with pytest.raises(
        regroup.Refused,
        match=r"part 3 of 4 of the stream \(a Dealt\) ended after 1 samples of epoch 0, .* "
        r"pass samples=4 or fewer to join\(\), or leave out parts=True",
    ):
        for step in (1, 2):
            stream.take(step, list(range(4 * step - 4, 4 * step)))


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Numbers(), {}, r"a Numbers has no len\(\); pass samples=, how many of them an epoch"),
        (Numbers(), {"samples": 0}, r"samples: expected a whole number >= 1, got 0"),
        (Counted(0), {}, "expected at least one sample, got a Counted without"),
        (Counted(), {"workers": 2}, "num_workers=2 of the DataLoader: each would read the whole"),
        (
            Numbers(9),
            {"samples": 10},
            r"the stream \(a Numbers\) ended after 9 samples of epoch 0, .* pass samples=9 or",
        ),
        ([1.0], {"parts": True}, "parts: only an IterableDataset is read in parts, got a list"),
        (Counted(), {"parts": 1}, "parts: expected True or False, got an int"),
        ([1.0], {"samples": 1}, "samples: only an IterableDataset takes it, got a list"),
    ],
)
def test_what_is_refused(dataset, options, message):
    with pytest.raises(regroup.Refused, match=message):
        taken(dataset, **options)
