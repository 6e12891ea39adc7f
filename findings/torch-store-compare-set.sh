#!/usr/bin/env bash
# compare_set of torch.distributed's stores returns the expected value of a key that does not exist, and stores nothing.
# Versions: torch 2.13.0 (PyPI, CPU), Python 3.11, one process.
#
# compare_set(key, expected, desired) returns the value that the key has afterwards, so a caller takes an answer equal
# to what it wanted for success. If the key is missing and `expected` is not empty, the answer is `expected`, with no
# error. A member that renews a claim by compare_set("leader", me, me) is told for ever that it holds it, also after
# the key was deleted, and so is each other member that asks in this way. TCPStore, FileStore and HashStore agree.
#
# Output seen:
#   TCPStore: a renews b'a', b renews b'b', key exists: False
#   FileStore: a renews b'a', b renews b'b', key exists: False
#   HashStore: a renews b'a', b renews b'b', key exists: False
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 900 "$dir/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6

cat >"$dir/claim.py" <<'PY'
import sys

import torch.distributed as dist

stores = (
    dist.TCPStore("127.0.0.1", 0, 1, True),
    dist.FileStore(sys.argv[1], 1),
    dist.HashStore(),
)
for store in stores:
    store.set("leader", "a")
    store.delete_key("leader")
    first = store.compare_set("leader", "a", "a")
    second = store.compare_set("leader", "b", "b")
    exists = store.check(["leader"])
    print(f"{type(store).__name__}: a renews {first}, b renews {second}, key exists: {exists}")
PY
timeout 300 "$dir/venv/bin/python" "$dir/claim.py" "$dir/store" >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out")"
for store in TCPStore FileStore HashStore; do
  grep -qxF "$store: a renews b'a', b renews b'b', key exists: False" "$dir/out"
done
