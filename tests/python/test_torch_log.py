"""The files of join(log=...): a row per step, written once, whoever is rank 0."""

import csv
import json
import math

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
    assert not (tmp_path / "metrics.jsonl.before").exists()


def test_a_job_that_begins_anew_keeps_the_old_rows_in_another_file(tmp_path):
    write(Log(tmp_path, 0, 0), 1, 2, 3)
    write(Log(tmp_path, 0, 0), 1)
    assert steps_in(tmp_path) == [1]
    assert len((tmp_path / "metrics.jsonl.before").read_text().splitlines()) == 3
    assert len((tmp_path / "metrics.csv.before").read_text().splitlines()) == 4


def test_numbers_that_json_does_not_have_are_text(tmp_path):
    log = Log(tmp_path, 0, 0)
    log.begin_step(row(1, math.nan))
    log.end_step(0)
    log.begin_step(row(2, None))
    log.add({"a": -math.inf})
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
    with pytest.raises(regroup.Refused, match="a: no step is open"):
        Log(tmp_path, 0, 0).add({"a": 1})
