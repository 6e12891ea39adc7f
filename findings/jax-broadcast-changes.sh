#!/usr/bin/env bash
# JAX's broadcast_one_to_all() gives all processes, the sender too, another number than was sent, if there are several.
# Versions: jax 0.10.2, numpy 2.4.6 (PyPI), Python 3.11.
#
# multihost_utils sends host data between processes: a step, a seed, a time, an id. With one process the value comes back
# as it is; with two it goes through a sum on devices, whose integers have 32 bits unless jax_enable_x64 is set. 64-bit
# integers lose their upper half, without the error that jax.numpy raises for such a Python integer, float64 loses
# digits, and -0.0 becomes 0.0, as the others add zeros to it. process_allgather() cuts in the same way. All processes
# get the same wrong value, so no check between them finds it, and tests with one process do not either. Send bytes
# (np.frombuffer) instead, which stay as they are.
#
# Output seen:
#   1 process: 1099511627781 arrives as 1099511627781, gathered [1099511627781], sign of -0.0 kept
#   2 processes: 1099511627781 arrives as 5, gathered [5, 5], sign of -0.0 lost
#   2 processes, as bytes: 1099511627781
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH JAX_ENABLE_X64
export JAX_PLATFORMS=cpu
python3 -m venv "$dir/venv"
timeout 1200 "$dir/venv/bin/pip" install --quiet jax==0.10.2 numpy==2.4.6

cat >"$dir/send.py" <<'PY'
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

rank, processes, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if processes > 1:
    jax.distributed.initialize(address, processes, rank)
number = np.array(2**40 + 5)
arrived = multihost_utils.broadcast_one_to_all(number)
gathered = np.atleast_1d(multihost_utils.process_allgather(number)).tolist()
zero = multihost_utils.broadcast_one_to_all(np.array(-0.0, dtype=np.float32))
octets = multihost_utils.broadcast_one_to_all(np.frombuffer(number.tobytes(), dtype=np.uint8))
if rank == 0:
    who = "1 process" if processes == 1 else f"{processes} processes"
    sign = "kept" if np.signbit(zero) else "lost"
    print(f"{who}: {number} arrives as {arrived}, gathered {gathered}, sign of -0.0 {sign}")
    if processes > 1:
        print(f"{who}, as bytes: {np.frombuffer(np.asarray(octets).tobytes(), dtype=np.int64).item()}")
PY
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
timeout 120 "$dir/venv/bin/python" "$dir/send.py" 0 1 none 2>"$dir/log" | grep process >"$dir/out"
timeout 120 "$dir/venv/bin/python" "$dir/send.py" 1 2 "127.0.0.1:$port" >/dev/null 2>&1 &
timeout 120 "$dir/venv/bin/python" "$dir/send.py" 0 2 "127.0.0.1:$port" 2>>"$dir/log" | grep process >>"$dir/out"
wait $!
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qxF '1 process: 1099511627781 arrives as 1099511627781, gathered [1099511627781], sign of -0.0 kept' "$dir/out"
grep -qxF '2 processes: 1099511627781 arrives as 5, gathered [5, 5], sign of -0.0 lost' "$dir/out"
grep -qxF '2 processes, as bytes: 1099511627781' "$dir/out"
