"""Reports an exception that ends this process to the agent, so that the same exception in several
members is recognised and its traceback printed once, in one piece. Does nothing without a
launcher."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from regroup import _native
from regroup._errors import Error

_LONGEST = 400  # characters of a message
_before: Callable[..., Any] = sys.__excepthook__
_active = False


def install() -> None:
    """Installs the hook in front of the present one, which is still called."""
    global _before
    if "REGROUP_JOB" in os.environ and sys.excepthook is not _hook:
        _before, sys.excepthook = sys.excepthook, _hook


def _hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    global _active
    if _active:  # the caller's hook calls the hook that it replaced, this one
        sys.__excepthook__(kind, value, trace)
        return
    _active = True
    try:
        with contextlib.suppress(Exception):  # of a __str__ of the script
            if advice := _advice(str(value)):
                value.add_note(advice)
        told = _report(kind, value, trace) if issubclass(kind, Exception) else None
        if _before is not sys.__excepthook__:
            _before(kind, value, trace)
        else:
            _print(_text_of(kind, value, trace) if told is None else told)
    finally:
        _active = False


def _report(kind: type[Exception], value: BaseException, trace: TracebackType | None) -> str | None:
    """Returns the text to print in place of the traceback, or None. Errors in here never hide the
    exception that ends the process."""
    try:
        texts = [kind.__name__, place_of(trace), _message_of(kind, value)]
        final = bool(getattr(value, "final", False)) and isinstance(value, Error)
        if final:  # the message itself explains the error: no traceback
            texts = [kind.__name__, texts[1].partition(", in ")[0], str(value)]
        # Names of files and messages may hold bytes that are not UTF-8, as lone surrogates.
        kind_of, place, message = (t.encode(errors="backslashreplace").decode() for t in texts)
        return _native.report_failure(kind_of, place, message, trace_of(value), final)
    except Exception:
        return None


def _advice(message: str) -> str:
    """Returns what to do about a GPU that torch does not find; otherwise empty."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    setting = "" if visible is None else f' (CUDA_VISIBLE_DEVICES="{visible}")'
    if "Torch not compiled with CUDA enabled" in message:
        return (
            "regroup: cuda was asked for, and the PyTorch of this member is built without CUDA: "
            "install one with CUDA, or leave the model on the CPU"
        )
    if "No CUDA GPUs are available" in message or "Found no NVIDIA driver" in message:
        return (
            f"regroup: cuda was asked for, this member sees no GPU{setting}: start the job on "
            "hosts with GPUs, with --placement best --gpus-per-rank 1"
        )
    if "invalid device ordinal" in message:
        return (
            f"regroup: this member sees fewer GPUs than the script asks for{setting}: with "
            '--placement each rank sees its own as cuda:0, so use .cuda() or "cuda"'
        )
    return ""


def place_of(trace: TracebackType | None) -> str:
    """Returns where the exception was raised: "train.py:6"; in a library: "train.py:6, in
    torch/nn/functional.py:9"."""
    import sysconfig
    import traceback

    libraries = [
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    libraries.append(os.path.dirname(__file__))
    here = ""
    with contextlib.suppress(OSError):  # the working directory may not exist
        here = os.getcwd()

    def absolute(frame: traceback.FrameSummary) -> str:
        return os.path.abspath(frame.filename) if here else frame.filename

    def short(frame: traceback.FrameSummary) -> str:
        path = absolute(frame)
        for root in filter(None, (*sorted(libraries, key=len, reverse=True), here)):
            if path.startswith(root + os.sep):
                path = path[len(root) + 1 :]
                break
        return f"{path}:{frame.lineno}"

    def own(frame: traceback.FrameSummary) -> bool:
        path = absolute(frame)
        return not any(path.startswith(root + os.sep) for root in libraries)

    frames = traceback.extract_tb(trace)
    if not frames:
        return ""
    callers = [frame for frame in frames if own(frame)]
    if not callers or callers[-1] is frames[-1]:
        return short(frames[-1])
    return f"{short(callers[-1])}, in {short(frames[-1])}"


def trace_of(value: BaseException | None) -> int:
    """Returns a digest of all frames of the exception and of its causes. It tells apart two errors
    of one helper function that was called from different lines."""
    import traceback
    import zlib

    out, seen = 0, set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        frames = traceback.walk_tb(value.__traceback__)
        words = [
            type(value).__name__,
            *(f"{frame.f_code.co_filename}:{line}" for frame, line in frames),
        ]
        out = zlib.crc32("\n".join(words).encode(errors="backslashreplace"), out)
        value = value.__cause__ or (None if value.__suppress_context__ else value.__context__)
    return out or 1


def _message_of(kind: type[BaseException], value: BaseException) -> str:
    import traceback

    lines = "".join(traceback.format_exception_only(kind, value)).split("\n")
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _text_of(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> str:
    import traceback

    return "".join(traceback.format_exception(kind, value, trace)).rstrip("\n")


def _print(text: str) -> None:
    """Prints with one write(), so that no other member's lines come between."""
    if text and sys.stderr is not None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
