"""Where an exception that ends a member was raised: two with the same type and place are the same
failure."""

import json
import os
import re
import sys

import pytest
from regroup import _arguments, _failure
from regroup._failure import place_of, trace_of


def test_the_place_is_the_callers_line_and_that_of_a_library_beside_it():
    def place(call) -> str:
        try:
            call()
        except Exception as error:
            return place_of(error.__traceback__)
        return "nothing was raised"

    own, library = place(lambda: 1 / 0), place(lambda: json.loads("{"))
    assert re.fullmatch(r"\S*test_failure\.py:\d+", own), own
    assert re.fullmatch(r"\S*test_failure\.py:\d+, in json/decoder\.py:\d+", library), library
    assert place_of(None) == ""


@pytest.fixture
def hook(monkeypatch):
    """Calls the hook with what `call` raises; gives what the agent was told. It answers
    `answer`."""
    told: list[tuple[str, ...]] = []

    def with_answer(call, answer: str | None, before=sys.__excepthook__) -> list[tuple[str, ...]]:
        monkeypatch.setattr(_failure, "_before", before)
        monkeypatch.setattr(
            _failure._native, "report_failure", lambda *texts: told.append(texts) or answer
        )
        try:
            call()
        except Exception as error:
            _failure._hook(type(error), error, error.__traceback__)
        return told

    return with_answer


def raise_it(error: Exception) -> None:
    raise error


def test_an_exception_is_told_and_printed_once(hook, capsys):
    (told,) = hook(lambda: raise_it(ValueError("mine")), None)
    assert (
        told[0] == "ValueError" and "test_failure.py:" in told[1] and told[2] == "ValueError: mine"
    )
    said = capsys.readouterr().err
    assert said.startswith("Traceback") and said.count("ValueError: mine") == 1


def test_what_the_agent_answers_stands_in_place_of_the_traceback(hook, capsys):
    hook(lambda: raise_it(ValueError("mine")), "as before")
    assert capsys.readouterr().err == "as before\n"
    hook(lambda: raise_it(ValueError("mine")), "")
    assert capsys.readouterr().err == ""


def test_only_what_follows_from_the_program_is_final(hook):
    """A data set may be empty on one host alone; another host's members can go on."""
    hook(lambda: _arguments.refuse("join", "extra is None"), "")
    hook(lambda: _arguments.refuse("join", "no sample", final=False), "")
    told = hook(lambda: raise_it(ValueError("mine")), "")
    assert [(one[2], one[4]) for one in told] == [
        ("join: extra is None", True),
        ("regroup._errors.Refused: join: no sample", False),
        ("ValueError: mine", False),
    ]
    assert re.fullmatch(r"\S*test_failure\.py:\d+", told[0][1]), told[0]


def test_the_hook_of_the_caller_is_called_and_may_call_ours(hook, capsys):
    def own(*exception) -> None:
        print("own hook", file=sys.stderr)
        _failure._hook(*exception)

    assert len(hook(lambda: raise_it(ValueError("mine")), "as before", own)) == 1
    said = capsys.readouterr().err
    assert said.startswith("own hook\nTraceback") and said.count("ValueError: mine") == 1


def test_a_message_that_is_not_utf_8_is_told(hook):
    """As that of a file name with other bytes: nanobind takes no lone surrogate."""
    (told,) = hook(lambda: raise_it(ValueError("file \udcff")), None)
    assert told[2] == r"ValueError: file \udcff"


def test_it_is_told_where_the_working_directory_is_removed(hook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    (told,) = hook(lambda: raise_it(ValueError("mine")), None)
    assert "test_failure.py:" in told[1]


def test_a_report_that_fails_hides_no_exception(hook, capsys, monkeypatch):
    monkeypatch.setattr(_failure, "place_of", lambda trace: 1 / 0)
    assert hook(lambda: raise_it(ValueError("mine")), None) == []
    said = capsys.readouterr().err
    assert said.count("ValueError: mine") == 1 and "ZeroDivisionError" not in said


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_an_exception_without_a_text_is_told_and_given_to_the_callers_hook(hook):
    called = []
    (told,) = hook(lambda: raise_it(Unprintable()), None, lambda *error: called.append(error[0]))
    assert told[0] == "Unprintable" and called == [Unprintable]


def test_errors_of_one_helper_function_have_traces_of_their_own():
    def check(what: str) -> None:
        raise OSError(what)

    def load(what: str) -> None:
        check(what)

    def save(what: str) -> None:
        check(what)

    def trace(call, what: str, cause: Exception | None = None) -> tuple[str, int]:
        try:
            try:
                call(what)
            except OSError as error:
                raise error from cause
        except OSError as error:
            return place_of(error.__traceback__), trace_of(error)
        return "nothing was raised", 0

    assert trace(load, "bad file") == trace(load, "bad disk")
    assert trace(load, "bad file")[0] == trace(save, "disk full")[0]
    assert trace(load, "bad file")[1] != trace(save, "disk full")[1]
    assert trace(load, "bad file")[1] != trace(load, "bad file", ValueError())[1]


NO_GPU = "cuda was asked for, this member sees no GPU"


@pytest.mark.parametrize(
    ("message", "visible", "advice"),
    [
        ("No CUDA GPUs are available", "", rf'{NO_GPU} \(CUDA_VISIBLE_DEVICES=""\): start the job'),
        ("Found no NVIDIA driver on your system.", None, f"{NO_GPU}: start .* --gpus-per-rank 1"),
        ("CUDA error: invalid device ordinal", "3", r'"3"\): with --placement each rank sees its'),
    ],
)
def test_a_gpu_that_is_not_there_is_explained(hook, monkeypatch, message, visible, advice):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (told,) = hook(lambda: raise_it(RuntimeError(message)), "")
    assert re.search(rf"{re.escape(message)} regroup: .*{advice}", told[2]), told[2]


def test_a_pytorch_without_cuda_is_explained(hook, capsys):
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this PyTorch has CUDA")
    (told,) = hook(lambda: torch.zeros(1).cuda(), None)
    assert "the PyTorch of this member is built without CUDA: install one" in told[2]
    assert "built without CUDA" in capsys.readouterr().err
