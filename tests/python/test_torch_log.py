"""The files of join(log=...): a row per step, written once, whichever member is rank 0."""

import csv
import json
import math
import time

import pytest
import regroup
import regroup.torch
import torch
from regroup._torch_log import Log, row_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import TensorDataset

NAMES = ["step", "epoch", "loss", "lr", "samples", "members", "generation", "time"]


class World:
    size, generation = 2, 5


def row(step, loss=0.5):
    return row_of(step, 0, loss, 0.1, 8, World)


def rows_in(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def steps_in(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        in_csv = [int(row["step"]) for row in csv.DictReader(file)]
    in_json = [row["step"] for row in rows_in(folder)]
    assert in_csv == in_json
    return in_json


def write(log, *steps, rank=0):
    for step in steps:
        log.begin_step(row(step))
        log.end_step(rank)


def train(log, *, wrong=None):
    torch.manual_seed(1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    x = torch.randn(10, 3)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    session = regroup.torch.join(model, optimizer, data, batch_size=4, epochs=2, log=log)
    losses = []
    for step in session:
        for inputs, target in step:
            step.backward(nn.functional.mse_loss(model(inputs), target))
        step.apply()
        losses.append(step.loss)
        if step.end_of_epoch:
            session.log(norm=model.weight.norm(), constant=3)
        if wrong is not None:
            wrong(session)
        session.print("step", step.number)
    session.finish()
    return losses


def test_a_row_per_step_has_its_values(tmp_path, capsys):
    folder = tmp_path / "runs" / "a"
    losses = train(folder)
    rows = rows_in(folder)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6] == steps_in(folder)
    assert [row["loss"] for row in rows] == losses
    assert [row["epoch"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert [row["samples"] for row in rows] == [4, 4, 2, 4, 4, 2]
    assert {(row["lr"], row["members"], row["generation"]) for row in rows} == {(0.25, 1, 1)}
    assert [row.get("constant") for row in rows] == [None, None, 3.0, None, None, 3.0]
    with (folder / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == [*NAMES, "norm", "constant"]
    assert [row["constant"] for row in table] == ["", "", "3.0", "", "", "3.0"]
    assert [float(row["loss"]) for row in table] == losses
    assert capsys.readouterr().out == "".join(f"step {n}\n" for n in range(1, 7))


def test_tensorboard_reads_the_values(tmp_path):
    losses = train(tmp_path)
    write(Log(tmp_path, 4, 0), 5)  # resumes after step 4
    read = EventAccumulator(str(tmp_path), purge_orphaned_data=True).Reload()
    found = {event.step: event.value for event in read.Scalars("loss")}
    expected = [*losses[:4], 0.5]
    assert found == {n: pytest.approx(value) for n, value in enumerate(expected, 1)}
    assert [event.value for event in read.Scalars("constant")] == [3.0]
    assert "step" not in read.Tags()["scalars"] and "samples" in read.Tags()["scalars"]


def test_the_next_rank_0_adds_what_a_dead_one_did_not_write(tmp_path):
    dead, heir = Log(tmp_path, 0, 0), Log(tmp_path, 0, 1)
    write(dead, 1, 2)
    write(heir, 1, 2, 3, rank=1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "epo')  # it died here
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("3,0,0.")
    write(heir, 4)
    assert steps_in(tmp_path) == [1, 2, 3, 4]


def test_members_whose_clocks_differ_have_the_same_rows(tmp_path):
    dead, heir = Log(tmp_path, 0, 0), Log(tmp_path, 0, 1)
    write(dead, 1, 2)
    for step in (1, 2):
        heir.begin_step(row(step) | {"time": 5.0})
        heir.end_step(1)
    write(heir, 3)
    assert steps_in(tmp_path) == [1, 2, 3]
    assert not (tmp_path / "metrics.jsonl.1").exists()


def test_a_value_of_a_step_that_is_not_complete_is_refused(tmp_path):
    log = Log(tmp_path, 0, 0)
    write(log, 1)
    log.add({"a": 1}, 0)
    log.begin_shards()
    with pytest.raises(regroup.Refused, match="b: the step is not complete yet"):
        log.add({"b": 1}, 0)


def test_a_row_that_was_written_already_is_not_added(tmp_path):
    """The dead rank 0 was a step ahead."""
    dead, heir = Log(tmp_path, 0, 0), Log(tmp_path, 0, 1)
    write(dead, 1, 2, 3)
    write(heir, 1, 2, rank=1)
    write(heir, 3, 4)
    assert steps_in(tmp_path) == [1, 2, 3, 4]


def test_a_job_that_resumes_cuts_later_rows(tmp_path):
    write(Log(tmp_path, 0, 0), *range(1, 8))
    write(Log(tmp_path, 5, 0), 6)
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert not (tmp_path / "metrics.jsonl.1").exists()


def test_a_job_that_begins_anew_keeps_the_old_rows_in_another_file(tmp_path):
    write(Log(tmp_path, 0, 0), 1, 2, 3)
    write(Log(tmp_path, 0, 0), 1)
    Log(tmp_path, 0, 0)
    assert steps_in(tmp_path) == []
    assert len((tmp_path / "metrics.jsonl.1").read_text().splitlines()) == 3
    assert len((tmp_path / "metrics.csv.1").read_text().splitlines()) == 4
    assert len((tmp_path / "metrics.jsonl.2").read_text().splitlines()) == 1


def test_files_of_other_programs_are_kept(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iter": 1}\n')
    (tmp_path / "metrics.csv").write_text("a,b\n1,2\n")
    write(Log(tmp_path, 5, 0), 6)
    assert steps_in(tmp_path) == [6]
    assert (tmp_path / "metrics.jsonl.1").read_text() == '{"iter": 1}\n'
    assert (tmp_path / "metrics.csv.1").read_text() == "a,b\n1,2\n"


def test_a_new_rank_0_whose_folder_has_another_run_begins_its_own_files(tmp_path):
    """Hosts do not share the folder."""
    write(Log(tmp_path, 0, 0), *range(1, 100))
    heir = Log(tmp_path, 0, 1)
    heir.begin_step(row(3, 0.25))
    heir.end_step(1)
    write(heir, 4)
    assert steps_in(tmp_path) == [3, 4]
    assert len((tmp_path / "metrics.jsonl.1").read_text().splitlines()) == 99


def test_values_are_added_to_a_row_that_is_written_already(tmp_path):
    """The row is written before a collective section, which may end the job."""
    log = Log(tmp_path, 0, 0)
    write(log, 1, 2)
    log.begin_step(row(3))
    log.write(0)
    assert steps_in(tmp_path) == [1, 2, 3]
    log.add({"accuracy": 0.5}, 0)
    assert "accuracy" not in rows_in(tmp_path)[-1]
    log.end_step(0)
    log.add({"test": 0.25, "a,b": 1}, 0)  # after the loop
    assert [row.get("accuracy") for row in rows_in(tmp_path)] == [None, None, 0.5]
    assert rows_in(tmp_path)[-1]["test"] == 0.25
    with (tmp_path / "metrics.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == [*NAMES, "accuracy", "test", "a,b"]
    assert [line[-3:] for line in table[1:]] == [["", "", ""]] * 2 + [["0.5", "0.25", "1.0"]]
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in read.Scalars("accuracy")] == [(3, 0.5)]


def test_a_heir_adds_values_to_the_last_row_of_a_dead_rank_0(tmp_path):
    dead, heir = Log(tmp_path, 0, 0), Log(tmp_path, 0, 1)
    for log, rank in ((dead, 0), (heir, 1)):
        write(log, 1, 2, rank=rank)
        log.begin_step(row(3))
    dead.write(0)
    heir.add({"accuracy": 0.5}, 0)
    heir.end_step(0)
    write(heir, 4)
    assert steps_in(tmp_path) == [1, 2, 3, 4]
    assert rows_in(tmp_path)[2]["accuracy"] == 0.5


def test_each_substep_has_a_curve_of_its_own(tmp_path):
    log = Log(tmp_path, 0, 0)
    for step, substep in ((1, "d"), (2, "g")):
        log.begin_step(row_of(step, 0, step / 2, None, 8, World, substep))
        log.end_step(0)
    assert [(row["substep"], row["lr"]) for row in rows_in(tmp_path)] == [("d", None), ("g", None)]
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in read.Scalars("loss/g")] == [1.0]
    assert "lr" not in read.Tags()["scalars"]


def test_a_clock_that_is_behind_hides_no_event(tmp_path, monkeypatch):
    write(Log(tmp_path, 0, 0), 1, 2, 3)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 60)
    write(Log(tmp_path, 3, 0), 4, 5)
    read = EventAccumulator(str(tmp_path), purge_orphaned_data=True).Reload()
    assert sorted({event.step for event in read.Scalars("loss")}) == [1, 2, 3, 4, 5]


def test_numbers_that_json_does_not_have_are_text(tmp_path):
    log = Log(tmp_path, 0, 0)
    log.begin_step(row(1, math.nan))
    log.end_step(0)
    log.begin_step(row(2, None))
    log.add({"a": -math.inf}, 0)
    log.end_step(0)
    assert [(r["loss"], r.get("a")) for r in rows_in(tmp_path)] == [("nan", None), (None, "-inf")]


def test_what_cannot_be_written_does_not_end_the_training(tmp_path, capsys):
    (tmp_path / "file").touch()
    losses = train(tmp_path / "file" / "log")
    assert len(losses) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"regroup: log: {tmp_path}/file/log: ")
    assert line.endswith(
        "Not a directory: '" + f"{tmp_path}/file/log'; the training goes on without"
    )


def test_without_a_log_values_are_dropped():
    assert len(train(None)) == 6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": "x"}, r"session.log\(\): a: expected a number, got a str"),
        ({"a": torch.ones(2)}, r"session.log\(\): a: expected a number, got a Tensor"),
        ({"a": "3.5"}, r"session.log\(\): a: expected a number, got a str"),
        ({"a": 10**400}, r"session.log\(\): a: expected a number, got an int"),
        ({"substep": 1}, r"session.log\(\): substep: this column is the session's own"),
        ({"loss": 1}, r"session.log\(\): loss: this column is the session's own"),
    ],
)
def test_wrong_values_are_refused(tmp_path, values, message):
    with pytest.raises(regroup.Refused, match=message):
        train(tmp_path, wrong=lambda session: session.log(**values))


def test_a_folder_is_expected():
    with pytest.raises(regroup.Refused, match="join: log: expected a folder, got an int"):
        train(5)


def test_a_value_before_the_first_step_is_refused(tmp_path):
    with pytest.raises(regroup.Refused, match="a: the step is not complete yet"):
        Log(tmp_path, 0, 0).add({"a": 1}, 0)
