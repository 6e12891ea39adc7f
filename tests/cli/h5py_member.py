"""A member that writes an HDF5 file of its own while its job keeps checkpoints.

usage: h5py_member.py FOLDER STEPS; FOLDER/own.PID.h5: dataset "seen", the number of each step.
"""

import os
import sys
import time

import h5py
import numpy as np
import regroup

folder, steps = sys.argv[1], int(sys.argv[2])
weight = np.zeros(100_000)
session = regroup.Session(
    regroup.TrackedState(weight=weight), elements=1, samples=steps, batch=1, epochs=1
)
with h5py.File(f"{folder}/own.{os.getpid()}.h5", "w") as file:
    seen = file.create_dataset("seen", (0,), "i8", maxshape=(None,))
    for step in session:
        for shard in step:
            shard.gradient[:] = len(shard.samples)
        weight += step.gradient[0]
        seen.resize(len(seen) + 1, 0)
        seen[-1] = step.number
        file.flush()
        time.sleep(0.005)
session.finish()
print(f"finished {weight.min()} {weight.max()}", flush=True)
