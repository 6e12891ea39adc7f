"""The timeline of the collectives of torch.distributed (regroup --timeline)."""

import json
import subprocess
import sys
from collections import defaultdict

PROGRAM = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("regroup")
rank = dist.get_rank()
dist.all_reduce(torch.ones(256))
dist.broadcast(torch.ones(4), 0, async_op=True).wait()
if rank == 0:
    dist.send(torch.ones(3), 1)
else:
    dist.recv(torch.ones(3), 0)
dist.destroy_process_group()
end = time.monotonic() + 60
while time.monotonic() < end:
    lines = open(sys.argv[1]).read().splitlines()
    if sum('"ph":"e"' in line and f'"pid":{rank},' in line for line in lines) == 4:
        sys.exit()
    time.sleep(0.01)
sys.exit(f"rank {rank}: {lines}")
"""


def test_it_has_the_collectives_and_messages_of_each_rank(tmp_path):
    script, path = tmp_path / "script.py", tmp_path / "t.json"
    script.write_text(PROGRAM)
    words = ["--oversubscribe", "-np", "2", "--timeline", path, sys.executable, script, path]
    done = subprocess.run(["regroup", *words], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    spans = defaultdict(dict)
    for event in json.loads(path.read_text().rstrip()[:-1] + "]"):
        if event["ph"] in "be":
            spans[event["pid"], event["id"]][event["ph"]] = event
    found = defaultdict(dict)
    for (rank, _), span in spans.items():
        assert span["b"]["name"] == span["e"]["name"] and span["b"]["ts"] <= span["e"]["ts"]
        found[rank][span["b"]["name"]] = span["b"]["args"]
    collectives = {
        "init_process_group": {"group": 0, "ranks": 2},
        "all_reduce": {"bytes": 1024, "group": 0, "ranks": 2},
        "broadcast": {"bytes": 16, "group": 0, "ranks": 2},
    }
    assert found == {
        0: collectives | {"send": {"bytes": 12, "to": 1, "group": 0}},
        1: collectives | {"recv": {"bytes": 12, "from": 0, "group": 0}},
    }
