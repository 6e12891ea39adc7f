"""What join() changes in the process of the script, and how to switch it off: docs/guide/python.md,
"What join() changes in your process"."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys
import regroup.torch, torch

own = "own" in sys.argv
if own:
    signal.signal(signal.SIGTERM, lambda number, frame: print("own handler", flush=True))
torch.set_num_threads(2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.ones(8, 2), torch.ones(8, 1))
session = regroup.torch.join(model, optimizer, data, batch_size=4, epochs=2)
if own:
    sys.excepthook = sys.__excepthook__
print("threads", torch.get_num_threads(), flush=True)
for step in session:
    for x, y in step:
        model(x).mean().backward()
    optimizer.step()
    if own and step.number == 2:
        signal.raise_signal(signal.SIGTERM)
session.finish()
print("steps", session.last_step, "hook", sys.excepthook is sys.__excepthook__, flush=True)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the program, as an elastic job if `launcher` says so, and returns its output."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS")

    def run(*arguments: str, launcher: bool = False, **environment: str) -> list[str]:
        job = ["regroup", "-np", "1:1"] if launcher else []
        done = subprocess.run(
            [*job, sys.executable, "-c", PROGRAM, *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_without_a_launcher_a_member_has_one_thread_and_no_hook(run):
    assert run() == ["threads 1", "steps 4 hook True"]
    assert run(OMP_NUM_THREADS="3") == ["threads 2", "steps 4 hook True"]  # as the script says


def test_threads_sigterm_and_the_hook_may_be_the_scripts_own(run):
    output = run("own", launcher=True)
    assert output == ["threads 2", "own handler", "steps 4 hook True"]


def test_under_a_launcher_exceptions_are_reported(run):
    assert run(launcher=True)[-1] == "steps 4 hook False"
