"""Kills the writers of a large checkpoint at random moments: what was acknowledged always loads,
whole.

./dev chaos checkpoint [--kills N] [--mib M] [--seed S] [--folder DIR]: N times (default 500; the
full run is 10,000) two writers save a step one after the other, and one of them is killed. Then the
newest checkpoint must be at least the last acknowledged one, good in every byte, and hold the
numbers of its step.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "checkpoint"))
import reader
from saving import BIN, Save, newest


class Broken(Exception):
    """A promise was not kept."""


def tensors_of(step: int, mib: int) -> dict:
    rows = mib << 8  # of 1,024 floats
    return {
        "large": ("float32", np.full((rows, 1024), step, np.float32)),
        "small": ("float32", np.full((3,), step, np.float32)),
        "step": ("int64", np.array(step, np.int64)),
    }


def run_part(
    directory: Path, step: int, tensors: dict, writer: int, after_s: float | None, uuid: str
) -> bytes:
    """What the writer printed; killed after so many seconds, if it still runs."""
    with Save(directory, step, tensors, writer, 2, uuid=uuid, keep_last=2) as part:
        process = subprocess.Popen(
            [str(BIN / "regroup-persist"), "write", str(part.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[part.memory],
        )
        if after_s is not None:
            process.stdin.write(json.dumps(part.description).encode())
            process.stdin.close()
            process.stdin = None
            time.sleep(after_s)
            process.kill()
            return process.communicate(timeout=60)[0]
        return process.communicate(json.dumps(part.description).encode(), timeout=120)[0]


def check(directory: Path, acknowledged: int) -> int:
    """The newest step."""
    done = newest(directory)  # verifies every byte, and clears what the kill left
    if done.returncode != 0 or "damaged" in done.stderr:
        raise Broken(f"newest: {done.stderr}")
    found = json.loads(done.stdout)
    if found.get("step", 0) < acknowledged:
        raise Broken(f"step {acknowledged} was acknowledged, {found} is there")
    if not found:
        return 0
    path, step = found["path"], found["step"]
    for tensor in reader.read_manifest(path)["tensors"]:
        if tensor["name"] != "large" and not np.all(reader.read_tensor(path, tensor) == step):
            raise Broken(f"step {step}: {tensor['name']} holds other numbers")
    return step


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    directory = Path(tempfile.mkdtemp(prefix="chaos-checkpoint-", dir=args.folder))
    begin = time.monotonic()
    acknowledged, step, killed, survived = 0, 0, 0, 0
    took = [0.05, 0.05]  # a writer, undisturbed
    try:
        while killed < args.kills:
            step += 1
            tensors = tensors_of(step, args.mib)
            victim, uuid = chance.randrange(2), f"try{step}"
            # now and then one is let through, and the time it takes is taken
            disturb = step % 10 != 0
            for writer in range(2):
                at = chance.uniform(0, 1.1 * took[writer]) if disturb and writer == victim else None
                since = time.monotonic()
                said = run_part(directory, step, tensors, writer, at, uuid)
                if not disturb:
                    took[writer] = time.monotonic() - since
                if writer == 1 and said.split() == [str(step).encode()]:
                    acknowledged = step
            killed += disturb
            found = check(directory, acknowledged)
            survived += found == step
        print(
            f"{killed} kills, {survived} saves came through, nothing acknowledged lost, "
            f"{time.monotonic() - begin:.0f} s, {args.mib} MiB each, seed {args.seed}"
        )
        return 0 if survived * 50 >= killed and survived < step else 1
    except Broken as broken:
        print(f"seed {args.seed}, step {step}: {broken}; {directory} is kept", file=sys.stderr)
        os._exit(1)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
