"""--timeline: the spans of each member, whoever dies or joins."""

import json
import os
import signal
from collections import defaultdict

from conftest import until
from test_elastic import QUICK, STEPS, assert_finished, members, pid_of


class Track:
    """The spans of a member: name, begin, end (None: open), arguments and depth."""

    def __init__(self, events):
        self.spans, stack, last = [], [], 0.0
        for event in events:
            assert event["ts"] >= last, "in the order of time"
            last = event["ts"]
            if event["ph"] == "B":
                span = {"name": event["name"], "begin": event["ts"], "end": None}
                span |= {"args": event.get("args", {}), "depth": len(stack)}
                self.spans.append(span)
                stack.append(span)
            elif event["ph"] == "E":
                span = stack.pop()
                span["end"] = event["ts"]
                span["args"] |= event.get("args", {})
        self.open = stack

    def named(self, begin):
        return [span for span in self.spans if span["name"].split()[0] == begin]


def tracks(path):
    """The array of the file has no end, as both viewers allow."""
    text = path.read_text()
    assert text.startswith("[\n") and text.endswith("\n")
    events = defaultdict(list)
    for event in json.loads(text.rstrip()[:-1] + "]"):
        if event["ph"] != "M":
            events[event["pid"]].append(event)
    return {member: Track(found) for member, found in events.items()}


def test_it_has_the_spans_of_all_members_also_of_a_killed_one(regroup, member, tmp_path):
    path = tmp_path / "t.json"
    path.write_text("of an earlier job\n")
    words = ["--timeline", path, "--initial-size", "2", "--replace", "never", "--learner-steps"]
    job = regroup.start(*QUICK, *words, "0", member, STEPS, "50")
    job.wait_out("^step 5 ")
    assert regroup.control("resize", "3").returncode == 0
    until(lambda: len(members(regroup)) == 3, "three members")
    os.kill(pid_of(job, 1), signal.SIGKILL)
    job.wait_err("member 1 was lost")
    assert_finished(job, 2)
    found = tracks(path)
    assert sorted(found) == [0, 1, 2]
    steps = [int(span["name"].split()[1]) for span in found[0].named("step")]
    assert steps == list(range(1, int(STEPS) + 1))
    for number, track in found.items():
        assert track.spans[0]["name"] == "join"
        assert not track.open or number == 1, track.open
        for kind in ("shard", "reduce", "vote", "apply"):
            assert {span["depth"] for span in track.named(kind)} == {1}, kind
        assert {span["depth"] for span in track.named("step")} == {0}
    assert found[0].named("finish")
    reduced = found[0].named("reduce")
    assert reduced[0]["args"] == {"bytes": 256}
    changes = [span["args"] for span in found[0].named("regroup") if "why" in span["args"]]
    assert any("member 1 was lost" in change["why"] for change in changes), changes
    waited = {
        (number, other)
        for number, track in found.items()
        for span in track.named("wait")
        for other in span["args"]["of"]
    }
    assert waited and all(number != other for number, other in waited)


def test_a_world_of_fixed_size_has_one_too(regroup, member, tmp_path):
    path = tmp_path / "t.json"
    job = regroup.run("--oversubscribe", "-np", "2", "--timeline", path, member, "3", "1")
    assert job.wait() == 0, job.err
    found = tracks(path)
    assert sorted(found) == [0, 1]
    for track in found.values():
        assert [span["name"] for span in track.named("step")] == ["step 1", "step 2", "step 3"]
        assert not track.open


def test_a_file_that_cannot_be_written_is_said_and_the_training_goes_on(regroup, member, tmp_path):
    path = tmp_path / "none" / "t.json"
    job = regroup.run("-np", "1:1", "--timeline", path, member, "3", "1")
    assert job.wait() == 0, job.err
    assert f"regroup: timeline: open({path}): No such file" in job.err
    assert job.err.count("timeline") == 1


def test_a_file_without_a_name_is_refused(regroup, member):
    job = regroup.run("-np", "1:1", "--timeline", "", member, "3", "1")
    assert job.wait() != 0
    assert "--timeline" in job.err and "expected a file" in job.err
