"""A JAX program of several processes, unmodified: it finds ranks and coordinator itself."""

import re
import sys
from pathlib import Path

PROGRAM = """
import os

import jax

jax.distributed.initialize(initialization_timeout=120)
from jax.experimental import multihost_utils

ranks = multihost_utils.process_allgather(jax.numpy.array([jax.process_index()]))
line = f"rank {jax.process_index()} of {jax.process_count()} sees {ranks.ravel().tolist()}"
os.write(1, f"{line}\\n".encode())
"""


def test_processes_of_a_job_find_each_other(tmp_path: Path, regroup):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    job = regroup.run(
        "--oversubscribe", "-np", "3", sys.executable, program, env={"JAX_PLATFORMS": "cpu"}
    )
    assert job.process.returncode == 0, job.err
    assert sorted(re.findall(r"(?m)^rank .*", job.out)) == [
        f"rank {r} of 3 sees [0, 1, 2]" for r in range(3)
    ]
