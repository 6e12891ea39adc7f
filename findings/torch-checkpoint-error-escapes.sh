#!/usr/bin/env bash
# What a failed dcp.save() or dcp.load() raises is no Exception: `except Exception` does not catch it.
# Versions: torch 2.13.0 (PyPI, CPU), Python 3.11, one process.
#
# torch.distributed.checkpoint raises CheckpointException, which names the ranks and their errors and derives from
# BaseException, as KeyboardInterrupt and SystemExit do. A training loop that means to go on without this checkpoint (a
# full disk, a key that a newer model has) ends all the same, and so does a thread that logs what it catches. The cause, an
# Exception, is inside. The same errors of torch.load() and torch.save() are Exceptions.
#
# Output seen:
#   dcp.load, a key is missing: CheckpointException, an Exception: False, its cause: RuntimeError
#   dcp.save, the path is a file: CheckpointException, an Exception: False, its cause: FileExistsError
#   torch.load, no such file: FileNotFoundError, an Exception: True
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/fail.py" <<'PY'
import os
import sys

import torch
import torch.distributed.checkpoint as dcp


def tell(what, call):
    try:
        call()
    except BaseException as error:
        line = f"{what}: {type(error).__name__}, an Exception: {isinstance(error, Exception)}"
        if hasattr(error, "failures"):
            cause, _ = error.failures[0]
            line += f", its cause: {type(cause).__name__}"
        print(line)


folder = sys.argv[1]
dcp.save({"weight": torch.ones(2)}, checkpoint_id=f"{folder}/step1")
open(f"{folder}/file", "w").close()
tell("dcp.load, a key is missing",
     lambda: dcp.load({"weight": torch.zeros(2), "bias": torch.zeros(2)}, checkpoint_id=f"{folder}/step1"))
tell("dcp.save, the path is a file", lambda: dcp.save({"weight": torch.ones(2)}, checkpoint_id=f"{folder}/file"))
tell("torch.load, no such file", lambda: torch.load(os.path.join(folder, "none")))
PY
timeout 200 "$dir/venv/bin/python" "$dir/fail.py" "$dir" 2>"$dir/err" >"$dir/out" || { cat "$dir/err" >&2; exit 1; }
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
grep -qxF 'dcp.load, a key is missing: CheckpointException, an Exception: False, its cause: RuntimeError' "$dir/out"
grep -qxF 'dcp.save, the path is a file: CheckpointException, an Exception: False, its cause: FileExistsError' "$dir/out"
grep -qxF 'torch.load, no such file: FileNotFoundError, an Exception: True' "$dir/out"
