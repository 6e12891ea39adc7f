"""digits.py for test_demo.py. It waits in the middle of three steps for what the demo does to the
job: a few epochs are enough however slow the machine is. usage: as digits.py
"""

import json
import pathlib
import runpy
import subprocess
import sys
import time

import _no_compiler  # noqa: F401
import regroup.torch

EPOCHS = int(sys.argv[sys.argv.index("--epochs") + 1])
STEPS = EPOCHS * 23
LEAVE = 4
# step -> generation to wait for
HOLDS = {STEPS * 3 // 10: 2, STEPS // 2: 3, STEPS * 9 // 10: LEAVE}
DEADLINE_S = 400.0

shards = regroup.torch.Step.__iter__


def happened(generation: int) -> bool:
    done = subprocess.run(
        ["regroup", "status", "--json"], capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        return False
    status = json.loads(done.stdout)
    asked = generation == LEAVE and any("leave_wanted" in m for m in status["members"])
    return status["max"] == 1 or status["generation"] >= generation or asked


def held(step):
    """The shards of the step; behind the first, a wait: the step is open then."""
    wanted = HOLDS.get(step.number)
    for batch in shards(step):
        yield batch
        end = time.monotonic() + DEADLINE_S
        while wanted is not None and not happened(wanted):
            if time.monotonic() > end:
                raise TimeoutError(f"step {step.number}: no generation {wanted} in {DEADLINE_S} s")
            time.sleep(0.05)
        wanted = None


regroup.torch.Step.__iter__ = held
runpy.run_path(
    str(pathlib.Path(__file__).parents[2] / "examples/pytorch/digits.py"), run_name="__main__"
)
