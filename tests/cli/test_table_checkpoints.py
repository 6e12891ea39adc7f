"""Checkpoints of a parameter server's tables: at the end, on request, by time; whatever is killed
meanwhile; resumed with other numbers of servers."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

from conftest import BIN, ONCE, until

TABLES = BIN.parent / "tests/bin/ps_tables"
COUNTER = BIN.parent / "tests/bin/ps_member"


def served(
    directory: Path | None, servers: str = "1", workers: int = 1, memory="256M"
) -> list[str]:
    words = ["--role", f"ps={servers}", "--role", f"worker={workers}", "--ps-memory", memory]
    return words if directory is None else [*words, "--checkpoint", str(directory)]


def digest(job) -> str:
    return re.search(r"digest (\w+)", job.out)[1]


def trained(regroup, words: list[str], *arguments: object) -> str:
    job = regroup.run(*words, str(TABLES), *map(str, arguments))
    assert job.process.returncode == 0, job.out + job.err
    return digest(job)


def steps(directory: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in directory.glob("step-*"))


def verified(regroup, directory: Path) -> None:
    done = regroup.control("checkpoint", "verify", str(directory))
    assert done.returncode == 0, done.stdout + done.stderr


def saved(regroup) -> str:
    done = regroup.control("checkpoint", "save")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_other_numbers_of_servers_go_on_with_the_same_bits(regroup, tmp_path):
    whole = trained(regroup, served(None), 0, 24)
    first = trained(regroup, served(tmp_path), 0, 8)
    assert steps(tmp_path) == [1]
    assert trained(regroup, served(tmp_path, "3"), 8, 8) == first
    assert steps(tmp_path) == [1], "nothing has changed"
    second = trained(regroup, served(tmp_path, "3"), 8, 16)
    assert steps(tmp_path) == [1, 2]
    assert trained(regroup, served(tmp_path, "1:2"), 16, 16) == second
    assert trained(regroup, served(tmp_path), 16, 24) == whole
    verified(regroup, tmp_path)


def test_content_does_not_depend_on_the_number_of_servers(regroup, tmp_path):
    for servers in ("1", "3"):
        trained(regroup, served(tmp_path / servers, servers), 0, 8)
    done = regroup.control("checkpoint", "diff", str(tmp_path / "1"), str(tmp_path / "3"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_was_saved_before_all_were_killed_is_there(regroup, tmp_path):
    job = regroup.start(*served(tmp_path, "2"), str(TABLES), "0", "8", str(tmp_path / "never"))
    job.wait_out("digest")
    assert re.fullmatch(r"checkpoint of step 1: in \S+ after \d+\.\d\d s\n", saved(regroup))
    status = json.loads(regroup.control("status", "--json").stdout)
    assert status["parameter_server"]["checkpoint"] == 1
    assert "newest checkpoint: 1\n" in regroup.control("status").stdout
    for pid in (job.agent, job.process.pid):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    job.assert_nothing_left()
    resumed = regroup.run(*served(tmp_path, "1"), str(TABLES), "8", "8")
    assert resumed.process.returncode == 0, resumed.err
    assert digest(resumed) == digest(job)
    assert re.search(r"begins with the tables of checkpoint 1, \S+step-00000001", resumed.err)


def test_a_failed_job_and_one_that_is_interrupted_save_what_they_have(regroup, tmp_path):
    job = regroup.start(*served(tmp_path), str(TABLES), "0", "8", str(tmp_path / "never"))
    job.wait_out("digest")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() != 0
    assert steps(tmp_path) == [1], job.err
    failed = regroup.run(*served(tmp_path), "sh", "-c", f"{TABLES} 8 9; exit 3")
    assert failed.process.returncode == 3
    assert steps(tmp_path) == [1, 2], failed.err


def test_a_writer_that_is_killed_costs_its_checkpoint_only(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start(*served(tmp_path / "d", "2"), str(TABLES), "0", "8", str(end))
    job.wait_out("digest")
    saved(regroup)
    asking = regroup.start("checkpoint", "save")
    os.kill(job.stop_one("regroup-persist"), signal.SIGKILL)
    assert asking.wait() != 0
    assert "regroup-persist: killed by signal 9" in asking.err
    assert "the checkpoint of step 2 failed, the previous one is kept" in job.err
    assert steps(tmp_path / "d") == [1]
    verified(regroup, tmp_path / "d")
    saved(regroup)
    assert steps(tmp_path / "d") == [1, 3], "the one that was killed may have committed step 2"
    end.touch()
    assert job.wait() == 0, job.err
    assert trained(regroup, served(tmp_path / "d"), 8, 8) == digest(job)


def test_signals_of_allocators_do_not_end_the_writer():
    """It saves the tables once the job has ended."""
    writer = subprocess.Popen(
        [BIN / "regroup-persist", "save-tables", "0:1"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    sent = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    every = sum(1 << number - 1 for number in sent)

    def ignored() -> int:
        status = Path(f"/proc/{writer.pid}/status").read_text()
        return int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)

    try:
        until(lambda: ignored() & every == every, "ignored signals", deadline_s=30)
        for number in sent:
            writer.send_signal(number)
        assert "description" in writer.communicate("{}\n", timeout=30)[1]
        assert writer.returncode == 1
    finally:
        writer.kill()
        writer.wait()


def listed(regroup, directory: Path) -> dict[int, dict]:
    done = regroup.control("checkpoint", "ls", "--json", str(directory))
    return {row["step"]: row for row in json.loads(done.stdout)}


def in_turn(regroup, directory: Path, ends: list[int], *options: str):
    """A worker that trains to the first of `ends`, and to the next one with each call of `on()`."""
    files = [directory.parent / f"to-{end}" for end in ends]
    words = [str(word) for pair in zip(ends, files, strict=True) for word in pair]
    job = regroup.start(*served(directory, "2"), *options, str(TABLES), "0", *words)

    def digests(count: int) -> str:
        until(lambda: job.out.count("digest") == count, lambda: f"digest {count}: {job.err}")
        return job.out.split()[-1]

    passed = iter(range(len(ends)))

    def on() -> str:
        if number := next(passed):
            files[number - 1].touch()
        return digests(number + 1)

    return job, on


def test_changes_are_saved_by_themselves_and_loaded_with_their_base(regroup, tmp_path):
    """Steps 0 and 8 push to the dense table, the others to few rows."""
    whole = trained(regroup, served(None), 0, 24)
    directory = tmp_path / "d"
    job, on = in_turn(regroup, directory, [2, 3, 4, 5])
    for _ in range(3):
        on()
        saved(regroup)
    rows = listed(regroup, directory)
    assert [rows[step].get("base") for step in (1, 2, 3)] == [None, 1, 2]
    assert rows[3]["bytes"] < rows[1]["bytes"] / 10
    assert "changes since step 2" in regroup.control("checkpoint", "ls", str(directory)).stdout
    verified(regroup, directory)
    shown = regroup.control("checkpoint", "show", str(directory)).stdout
    assert "base         2: has only what changed since that step" in shown
    done = regroup.control(
        "checkpoint", "export", str(directory), str(tmp_path / "x"), "--to", "npz"
    )
    assert "step-00000003 has only what changed since step 2" in done.stderr
    # A writer that dies, perhaps between its commit and its word, is no base.
    asking = regroup.start("checkpoint", "save")
    os.kill(job.stop_one("regroup-persist"), signal.SIGKILL)
    assert asking.wait() != 0
    last = on()
    saved(regroup)
    rows = listed(regroup, directory)
    assert 4 in rows or rows[5]["base"] == 3
    for pid in (job.agent, job.process.pid):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    assert trained(regroup, served(directory, "3"), 5, 5) == last
    assert trained(regroup, served(directory, "1"), 5, 24) == whole
    # The last one of a job is whole, so others can read it.
    assert "base" not in listed(regroup, directory)[6]
    done = regroup.control(
        "checkpoint", "export", str(directory), str(tmp_path / "x"), "--to", "npz"
    )
    assert done.returncode == 0, done.stderr


def test_changes_behind_a_damaged_base_are_not_used(regroup, tmp_path):
    directory = tmp_path / "d"
    job, on = in_turn(regroup, directory, [2, 3, 4, 5])
    digests = []
    for _ in range(4):
        digests.append(on())
        saved(regroup)
    for pid in (job.agent, job.process.pid):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    shard = next((directory / "step-00000003").glob("shard-*.h5"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    done = regroup.control("checkpoint", "verify", str(directory / "step-00000004"))
    assert done.returncode == 1, done.stdout
    assert f"step-00000004 needs {directory}/step-00000003" in done.stdout
    done = regroup.control("checkpoint", "verify", str(directory))
    assert re.findall(r"step-\d+: (\w+)", done.stdout) == ["damaged", "damaged", "good", "good"]
    resumed = regroup.run(*served(directory), str(TABLES), "3", "3")
    assert digest(resumed) == digests[1], resumed.err
    assert "has what changed since step 3, which cannot be read" in resumed.err
    assert steps(directory) == [1, 2]
    (directory / "step-00000001").rename(tmp_path / "away")
    nothing = regroup.run(*served(directory), str(TABLES), "0", "0")
    assert "no other one is left" in nothing.err


def test_after_eight_checkpoints_of_changes_comes_a_whole_one(regroup, tmp_path):
    directory = tmp_path / "d"
    job, on = in_turn(regroup, directory, [2, 3], "--checkpoint-keep", "2")
    on()
    for _ in range(9):
        saved(regroup)
    assert steps(directory) == list(range(1, 10)), "the last two need all before them"
    assert [row.get("base") for row in listed(regroup, directory).values()] == [
        *range(8, 0, -1),
        None,
    ]
    saved(regroup)
    on()
    saved(regroup)
    rows = listed(regroup, directory)
    assert [rows[step].get("base") for step in (10, 11)] == [None, 10]
    assert sorted(rows) == list(range(1, 12)), "one damaged file of step 10 must not lose all"
    (tmp_path / "to-3").touch()
    assert job.wait() == 0, job.err
    rows = listed(regroup, directory)
    assert [rows[step].get("base") for step in sorted(rows)] == [None, 10, None]


def counted(job) -> tuple[int, int]:
    return tuple(map(int, re.search(r"all (\d+), counted (\d+)", job.out).groups()))


def test_checkpoints_under_load_have_each_push_once_though_servers_are_killed(regroup, tmp_path):
    """Workers add one to eight keys with each push. What they have pushed by the end is in the
    last checkpoint, exactly; those before are whole."""
    end, directory = tmp_path / "end", tmp_path / "d"
    job = regroup.start(*served(directory, "2", 3), str(COUNTER), str(end))

    def server(number: int, *killed: int) -> int:
        told = json.loads(regroup.control("status", "--json").stdout or "{}")
        for one in told.get("parameter_server", {}).get("servers", []):
            if one["server"] == number and one["pid"] > 0 and one["pid"] not in killed:
                return one["pid"] if one["updates"] > 0 else 0
        return 0

    for number in (0, 1, 0):
        pid = until(lambda: server(number), "a server")  # noqa: B023
        asking = regroup.start("checkpoint", "save")
        until(lambda: job.named("regroup-persist") or asking.process.poll() is not None, "a save")  # noqa: B023
        os.kill(pid, signal.SIGKILL)
        assert asking.wait() == 0, asking.err
        until(lambda: server(number, pid), "a successor")  # noqa: B023
    assert steps(directory) == [1, 2, 3]
    verified(regroup, directory)
    end.touch()
    assert job.wait() == 0, job.out + job.err
    pushes, sum_of_keys = counted(job)
    assert sum_of_keys == 8 * pushes > 0
    resumed = regroup.run(*served(directory, "3", 3), str(COUNTER), str(end))
    # The totals of both jobs: nobody has pushed in this one.
    assert resumed.process.returncode == 0, resumed.out + resumed.err
    assert counted(resumed) == (pushes, sum_of_keys)


def test_a_period_saves_what_has_changed(regroup, tmp_path):
    end = tmp_path / "end"
    words = [*served(tmp_path / "d"), "--checkpoint-interval", "1s"]
    job = regroup.start(*words, str(TABLES), "0", "8", str(end))
    job.wait_out("digest")
    until(lambda: steps(tmp_path / "d"), "a checkpoint")
    saved(regroup)  # after the last push
    last = steps(tmp_path / "d")
    whole = "base" not in listed(regroup, tmp_path / "d")[last[-1]]
    end.touch()
    assert job.wait() == 0, job.err
    if not whole:
        last.append(last[-1] + 1)
    assert steps(tmp_path / "d") == last, "nothing has changed"
    again = regroup.run(*words, "--checkpoint-interval", "0", str(TABLES), "8", "9")
    assert again.process.returncode == 0
    assert steps(tmp_path / "d") == last, "0 only resumes"


def test_damaged_checkpoints_are_set_aside(regroup, tmp_path):
    first = trained(regroup, served(tmp_path), 0, 8)
    trained(regroup, served(tmp_path), 8, 16)
    shard = next((tmp_path / "step-00000002").glob("shard-*.h5"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    job = regroup.run(*served(tmp_path), str(TABLES), "8", "8")
    assert digest(job) == first
    assert re.search(r"step-00000002.*(damaged|set aside)", job.err), job.err
    assert (tmp_path / "damaged-step-00000002/REASON").exists()


def test_another_spec_is_refused_and_both_are_named(regroup, tmp_path):
    trained(regroup, served(tmp_path, "3"), 0, 8)
    for variable, value, expected in (
        ("PS_DIM", "8", "table users: expected dim 4 as the checkpoint of step 1 has it, got 8"),
        (
            "PS_DTYPE",
            "float16",
            "table users: expected dtype float32 as the checkpoint of step 1 has it, got float16",
        ),
        (
            "PS_OPTIMIZER",
            "sgd",
            "table users: expected optimizer lazy_adam as the checkpoint of step 1 has it, got sgd",
        ),
    ):
        words = [*ONCE, *served(tmp_path, "2"), str(TABLES), "8", "8"]
        job = regroup.start(*words, env={variable: value})
        assert job.wait() == 3
        assert expected in job.err
        assert steps(tmp_path) == [1]


def test_what_is_wrong_is_refused(regroup, tmp_path):
    def refused(*words: str) -> str:
        job = regroup.run(*words, "true")
        assert job.wait() != 0
        return job.err

    for interval in ("7", "100"):
        assert (
            f"--checkpoint-interval {interval}: a parameter server has no steps: expected seconds"
            in refused(*served(tmp_path), "--checkpoint-interval", interval)
        )
    for interval in ("0s", "0.1s", "s"):
        assert "expected a number of steps, or of seconds" in refused(
            *served(tmp_path), "--checkpoint-interval", interval
        )
    assert "seconds are for --ps-memory" in refused("-np", "1", "--checkpoint-interval", "5s")
    assert "--checkpoint-shared: not with --ps-memory" in refused(
        *served(tmp_path), "--checkpoint-shared", str(tmp_path)
    )
    end = tmp_path / "end"
    job = regroup.start(*served(None), str(TABLES), "0", "1", str(end))
    job.wait_out("digest")
    assert "this job has no directory" in regroup.control("checkpoint", "save").stderr
    end.touch()
    assert job.wait() == 0
    assert regroup.control("checkpoint", "save").returncode != 0


def test_checkpoints_of_other_jobs_and_too_little_memory_are_refused(regroup, tmp_path):
    trained(regroup, served(tmp_path / "tables"), 0, 8)
    little = served(tmp_path / "tables", memory="64M")
    small = regroup.run(*ONCE, *little, str(TABLES), "8", "8")
    assert small.process.returncode != 0
    assert "--ps-memory is the limit" in small.err
    other = regroup.run("-np", "1", "--checkpoint", str(tmp_path / "tables"), "true")
    assert other.process.returncode != 0
    assert "was made by a job with --ps-memory, this job is one without it" in other.err


def test_parts_of_changes_are_not_joined_without_their_base(tmp_path):
    (tmp_path / "LOCK").write_text("job test of nobody\n")
    about = {"directory": str(tmp_path), "uuid": "test-1", "step": 2, "job": "test", "seed": 1}
    about |= {"shards": 1, "keep_last": 3, "keep_every": 0, "base": 1, "writer": 1, "writers": 2}
    ranges = {"tables": [], "ranges": {}, "changes": True, "step": 0}
    stage = tmp_path / ".stage-2-test-1"
    stage.mkdir()
    (stage / "RANGES-0000").write_text(json.dumps(ranges))
    done = subprocess.run(
        [BIN / "regroup-persist", "join-tables"],
        input=json.dumps(about | {"commit": True, "tensors": []}) + "\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0 and "step-00000001" in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["LOCK"]
