"""torchrun's options for the output and the GPU of each local rank, with and without torchrun
beside them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE_S, ROOT

SAY = "echo out $RANK; echo err $RANK >&2"


def files(folder: Path) -> dict[str, str]:
    """Of the only run, by their place in it."""
    run = next(iter(folder.iterdir()))
    return {str(f.relative_to(run)): f.read_text() for f in run.rglob("*") if f.is_file()}


@pytest.fixture
def run(regroup):
    def call(*words: str, count: int = 2, **options):
        shell = ["--oversubscribe", "--no-python", "sh", "-c", SAY]
        job = regroup.run("--nproc-per-node", str(count), *words, *shell, **options)
        assert job.wait() == 0, job.err
        return job

    return call


def test_redirected_streams_are_in_files_only(run, tmp_path):
    job = run("-r", "0:3,1:1", "--log-dir", str(tmp_path), "--rdzv-id", "mine")
    assert job.out == ""
    assert "err 1" in job.err
    assert "err 0" not in job.err
    assert [f.name.startswith("mine_") for f in tmp_path.iterdir()] == [True]
    assert files(tmp_path) == {
        "attempt_0/0/stdout.log": "out 0\n",
        "attempt_0/0/stderr.log": "err 0\n",
        "attempt_0/1/stdout.log": "out 1\n",
    }


def test_teed_streams_are_in_files_and_have_a_prefix_here(run, tmp_path):
    job = run("-t", "1", "--role", "trainer", "--log-dir", str(tmp_path))
    assert sorted(job.out.splitlines()) == ["[trainer0]:out 0", "[trainer1]:out 1"]
    assert sorted(re.findall(r"^err \d$", job.err, re.M)) == ["err 0", "err 1"]
    assert files(tmp_path) == {
        "attempt_0/0/stdout.log": "out 0\n",
        "attempt_0/1/stdout.log": "out 1\n",
    }


def test_the_prefix_may_be_another(run, tmp_path):
    template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} $rank/${local_rank} $$>"}
    job = run("--tee", "1:1", "--log-dir", str(tmp_path), env=template)
    assert sorted(job.out.splitlines()) == ["<default 1/1 $>out 1", "out 0"]


def test_long_lines_of_teed_streams_are_whole(regroup, tmp_path):
    program = "import sys; sys.stdout.write('x' * 300_000 + '\\nend\\n')"
    words = ["--no-python", sys.executable, "-c", program]
    job = regroup.run("--nproc-per-node", "2", "-t", "1", "--log-dir", str(tmp_path), *words)
    assert job.wait() == 0, job.err
    long = "x" * 300_000
    expected = [f"[default{i}]:{text}" for i in (0, 1) for text in ("end", long)]
    assert sorted(job.out.splitlines()) == expected
    assert set(files(tmp_path).values()) == {f"{long}\nend\n"}


def test_without_a_folder_the_output_is_shown(run, tmp_path):
    job = run("-r", "1", "-t", "2", env={"TMPDIR": str(tmp_path)})
    assert sorted(job.out.splitlines()) == ["out 0", "out 1"]
    assert sorted(re.findall(r"^err \d$", job.err, re.M)) == ["err 0", "err 1"]
    assert "--redirects without --log-dir, --tee without --log-dir" in job.err
    assert list(tmp_path.iterdir()) == []


def test_only_the_local_ranks_that_are_wanted_are_shown(run, tmp_path):
    job = run("--local-ranks-filter", "1,2", count=3)
    assert sorted(job.out.splitlines()) == ["out 1", "out 2"]
    assert "err 0" not in job.err
    job = run("--local_ranks_filter=1", "-t", "0:1", "--log-dir", str(tmp_path))
    assert job.out.splitlines() == ["out 1"]
    assert files(tmp_path) == {"attempt_0/0/stdout.log": "out 0\n"}


@pytest.mark.parametrize("words", [["-r", "4"], ["-t", "0:1,1"], ["--local-ranks-filter", "a"]])
def test_malformed_lists_are_refused(regroup, words):
    job = regroup.run("--nproc-per-node", "1", *words, "--no-python", "true")
    assert job.wait() == 1
    assert f"option {words[0]} {words[1]}: expected" in job.err


def test_a_virtual_local_rank_sees_one_gpu(regroup):
    say = 'echo "$RANK has local rank $LOCAL_RANK of $LOCAL_WORLD_SIZE, GPU $CUDA_VISIBLE_DEVICES"'
    words = ["--nproc-per-node", "2", "--virtual-local-rank", "--no-python", "sh", "-c", say]
    job = regroup.run(*words, env={"CUDA_VISIBLE_DEVICES": "GPU-a, 5"})
    assert job.wait() == 0, job.err
    assert sorted(job.out.splitlines()) == [
        "0 has local rank 0 of 2, GPU GPU-a",
        "1 has local rank 0 of 2, GPU 5",
    ]
    job = regroup.run(*words, env={"CUDA_VISIBLE_DEVICES": "3"})
    assert job.wait() == 1
    assert "local rank 1 needs a device of its own, CUDA_VISIBLE_DEVICES=3 has 1" in job.err


def test_files_and_lines_are_those_of_torchrun(run, tmp_path):
    program = ROOT / ".venv/bin/torchrun"
    assert program.exists(), "torchrun is not installed: ./dev test installs it"
    words = ["-r", "0:1,2:3", "-t", "1:3", "--local-ranks-filter", "1,2"]
    theirs = subprocess.run(
        [program, "--nproc-per-node", "3", *words, "--log-dir", str(tmp_path / "theirs")]
        + ["--no-python", "sh", "-c", SAY],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=True,
    )
    ours = run(*words, "--log-dir", str(tmp_path / "ours"), count=3)

    def written(folder: Path) -> dict[str, str]:
        return {name: text for name, text in files(folder).items() if text}

    def lines(text: str) -> list[str]:
        return sorted(re.findall(r"^(?:\[\w+\]:)?(?:out|err) \d$", text, re.M))

    assert written(tmp_path / "ours") == written(tmp_path / "theirs")
    assert lines(ours.out) == lines(theirs.stdout)
    assert lines(ours.err) == lines(theirs.stderr)
