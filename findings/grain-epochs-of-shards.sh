#!/usr/bin/env bash
# grain's sharded IndexSampler reads some records more often than the epochs asked for, others less often, or never.
# Versions: grain 0.2.18, array-record 0.8.6, numpy 2.4.6 (PyPI), Python 3.11.
#
# IndexSampler(num_records, ShardOptions(i, n), num_epochs=e) in each of n processes should read every record e times. It
# does only if n divides the number of records. Each process reads as many records as any other, the mean of all shards
# over all epochs, rounded down; one with a larger shard does not come to the end of its epochs, one with a smaller shard
# begins epochs that nobody has asked for. So the weight of a record depends on its shard, in each run alike: with 5
# records in 4 processes those of one process count half as much as the others, with and without shuffle.
# With drop_remainder=True the same records are left out in every epoch, also with shuffle=True, since records are dealt
# out to shards before they are shuffled: they are never trained on. (torch's DistributedSampler leaves out others each
# epoch.) Nothing warns.
#
# Output seen (10 epochs, 4 processes):
#   5 records: read 6 to 12 times
#   23 records: read 9 to 12 times
#   24 records: read 10 to 10 times
#   23 records, drop_remainder: read 0 to 10 times
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 1800 "$dir/venv/bin/pip" install --quiet grain==0.2.18 array-record==0.8.6 numpy==2.4.6 2>"$dir/pip"

cat >"$dir/epochs.py" <<'PY'
import collections

import grain.python as grain

EPOCHS, PROCESSES = 10, 4


def read(records, process, shuffle, drop):
    shard = grain.ShardOptions(process, PROCESSES, drop_remainder=drop)
    sampler = grain.IndexSampler(records, shard, shuffle=shuffle, num_epochs=EPOCHS, seed=3)
    return [int(x) for x in grain.DataLoader(data_source=range(records), sampler=sampler, worker_count=0)]


for records, drop in ((5, False), (23, False), (24, False), (23, True)):
    found = set()
    for shuffle in (False, True):
        times = collections.Counter({record: 0 for record in range(records)})
        for process in range(PROCESSES):
            times.update(read(records, process, shuffle, drop))
        found.add((min(times.values()), max(times.values())))
    (least, most), = found  # shuffle changes neither
    print(f"{records} records{', drop_remainder' * drop}: read {least} to {most} times")
PY
timeout 300 "$dir/venv/bin/python" "$dir/epochs.py" >"$dir/out" 2>"$dir/errors" || { cat "$dir/errors" >&2; exit 1; }
cat "$dir/out"
diff "$dir/out" - <<'TXT'
5 records: read 6 to 12 times
23 records: read 9 to 12 times
24 records: read 10 to 10 times
23 records, drop_remainder: read 0 to 10 times
TXT
echo "seen: in 10 epochs of 4 processes, grain reads each of 5 records 6 to 12 times"
