"""Tags, times, files and volume of members' output; the same bytes as mpirun where there is one."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import rival, rss_kib, stdin_for, until

PYTHON = [sys.executable, "-c"]
FULL = bool(os.environ.get("REGROUP_TEST_FULL"))
TWO = ["--oversubscribe", "-np", "2"]
SAY = ["sh", "-c", "echo a; echo b >&2; printf c"]
TIME = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"


def files_below(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_time_stands_before_each_line(regroup):
    job = regroup.run(*TWO, "--timestamp-output", *SAY)
    assert len(job.out.splitlines()) == 4
    assert all(re.fullmatch(TIME + "<stdout>:[ac]", line) for line in job.out.splitlines()), job.out
    job = regroup.run(*TWO, "--timestamp-output", "--tag-output", *SAY)
    assert all(
        re.fullmatch(TIME + r"\[1,[01]\]<stdout>:[ac]", line) for line in job.out.splitlines()
    )
    assert all(re.fullmatch(TIME + r"\[1,[01]\]<stderr>:b", line) for line in job.err.splitlines())


def test_rank_stands_before_each_line_as_in_hydra(regroup):
    job = regroup.run(*TWO, "-l", *SAY)
    assert sorted(job.out.splitlines()) == ["[0] a", "[0] c", "[1] a", "[1] c"]
    real = subprocess.run(
        [*rival("hydra"), "-l", "-n", "2", "echo", "a"],
        capture_output=True,
        text=True,
        **stdin_for("hydra"),
    )
    assert sorted(real.stdout.splitlines()) == ["[0] a", "[1] a"]


def test_merged_error_keeps_its_place_in_the_output(regroup):
    script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
    job = regroup.run("-np", "1", "--merge-stderr-to-stdout", "sh", "-c", script)
    assert job.out == "".join(f"out {i}\nerr {i}\n" for i in range(1, 6))
    assert job.err == ""


@pytest.mark.parametrize(
    ("ranks", "folder", "options"),
    [
        (2, "d", []),
        (11, "d", []),
        (2, "d:nojobid", []),
        (2, "d:nocopy", []),
        (2, "d:nojobid,nocopy", ["--tag-output"]),
        (2, "d", ["--merge-stderr-to-stdout"]),
    ],
)
def test_files_are_those_of_mpirun(regroup, tmp_path, ranks, folder, options):
    found = {}
    say = ["sh", "-c", "echo a; echo b >&2; echo c"]
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        target = ["--output-filename", str(tmp_path / name / folder)]
        arguments = ["-np", str(ranks), *target, *options, *say]
        if name == "ours":
            job = regroup.run("--oversubscribe", *arguments)
            assert job.process.returncode == 0, job.err
            assert bool(job.out) == ("nocopy" not in folder)
        else:
            subprocess.run(
                [*rival("openmpi-4"), *arguments], check=True, capture_output=True, timeout=60
            )
        found[name] = files_below(tmp_path / name)
    if "--merge-stderr-to-stdout" in options:  # mpirun's pty and pipe race: compare what is in them
        found = {
            name: {p: sorted(text.splitlines()) for p, text in files.items()}
            for name, files in found.items()
        }
    assert found["ours"] == found["theirs"]
    assert found["ours"]


def test_patterns_name_files(regroup, tmp_path):
    options = [
        "-outfile-pattern",
        str(tmp_path / "o.%r.%%"),
        "-errfile-pattern",
        str(tmp_path / "all.err"),
    ]
    job = regroup.run(*TWO, *options, "sh", "-c", "echo $RANK; echo e$RANK >&2")
    assert job.process.returncode == 0, job.err
    assert (job.out, job.err) == ("", "")
    found = files_below(tmp_path)
    assert sorted(found.pop("all.err").split()) == ["e0", "e1"]  # both ranks, one file, whole lines
    assert found == {"o.0.%": "0\n", "o.1.%": "1\n"}


def test_folder_that_cannot_be_made_is_said_once(regroup):
    job = regroup.run(*TWO, "--output-filename", "/dev/null/x", *SAY)
    assert job.process.returncode == 213
    assert job.err.count("/dev/null/x") == 1
    assert "mkdir" in job.err and "Not a directory" in job.err
    assert job.out == ""


def test_full_disk_is_said_once_and_the_other_path_loses_nothing(regroup, tmp_path):
    """/dev/full as a file beside our output, and as our output beside a file."""
    count = 20_000
    folder = tmp_path / "d/1/rank.0"
    folder.mkdir(parents=True)
    (folder / "stdout").symlink_to("/dev/full")
    job = regroup.run("-np", "1", "--output-filename", str(tmp_path / "d"), "seq", str(count))
    assert job.out.split() == [str(i) for i in range(1, count + 1)]
    assert job.err.count("No space left on device") == 1
    assert f"{folder}/stdout" in job.err
    assert job.process.returncode == 1

    with open("/dev/full", "wb") as full:
        job = regroup.run(
            "-np", "1", "--output-filename", str(tmp_path / "e"), "seq", str(count), stdout=full
        )
    assert (tmp_path / "e/1/rank.0/stdout").read_text().split() == [
        str(i) for i in range(1, count + 1)
    ]
    assert job.err.count("No space left on device") == 1
    assert job.process.returncode == 1


def test_full_disk_does_not_end_the_members(regroup):
    with open("/dev/full", "wb") as full:
        job = regroup.run("-np", "1", "sh", "-c", "seq 100000; echo went on >&2", stdout=full)
    assert "went on" in job.err
    assert job.process.returncode == 1


def test_small_disk_that_fills_up(regroup, tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mount is not permitted here")
    try:
        line = "z" * 99
        job = regroup.run(
            "-np",
            "1",
            "--output-filename",
            str(tmp_path / "d"),
            "sh",
            "-c",
            f"yes {line} | head -50000",
        )
        assert job.out == (line + "\n") * 50_000
        assert job.err.count("No space left on device") == 1
        assert job.process.returncode == 1
        assert (tmp_path / "d/1/rank.0/stdout").stat().st_size > 900_000
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_reader_that_goes_away_does_not_take_the_file_with_it(regroup, tmp_path):
    read, write = os.pipe()
    os.close(read)
    job = regroup.run(
        "-np", "1", "--output-filename", str(tmp_path / "d"), "seq", "200000", stdout=write
    )
    os.close(write)
    assert (tmp_path / "d/1/rank.0/stdout").read_text().split()[-1] == "200000"
    assert job.process.returncode == 0


VOLUME = (  # lines of every length up to 200, written in pieces of odd sizes
    "import os, sys\n"
    "r, total = os.environ['RANK'], int(sys.argv[1])\n"
    "i = done = 0\n"
    "rest = b''\n"
    "while done < total:\n"
    "    lines = [b'%s %d %s' % (r.encode(), n, b'.' * (n * 7 % 190)) for n in range(i, i + "
    "2000)]\n"
    "    i += 2000\n"
    "    rest += b'\\n'.join(lines) + b'\\n'\n"
    "    while len(rest) > 50001:\n"
    "        n = os.write(1, rest[:50001]); rest = rest[n:]; done += n\n"
    "while rest: rest = rest[os.write(1, rest):]\n"
    "sys.stderr.write(f'rank {r} wrote {i}\\n')\n"
)


@pytest.mark.parametrize("options", [[], ["--tag-output"]])
def test_volume_is_whole_in_order_and_takes_no_memory(regroup, options):
    size = (100 if FULL else 8) << 20
    read, write = os.pipe()
    job = regroup.start(
        "--oversubscribe", "-np", "4", *options, *PYTHON, VOLUME, str(size), stdout=write
    )
    os.close(write)
    agent = job.agent
    seen = dict.fromkeys("0123", 0)
    most, total = 0, 0
    with open(read, "rb", buffering=1 << 20) as lines:
        for number, raw in enumerate(lines):
            tag, _, line = raw.decode().rstrip("\n").rpartition(":")
            rank, at, dots = line.split(" ")
            assert tag == (f"[1,{rank}]<stdout>" if options else ""), raw
            assert int(at) == seen[rank] and len(dots) == int(at) * 7 % 190, raw
            seen[rank] += 1
            total += len(line) + 1
            if number % 20_000 == 10_000:
                most = max(most, rss_kib(agent))
    assert job.wait() == 0
    wrote = dict(re.findall(r"rank (\d) wrote (\d+)", job.err))
    assert {rank: str(count) for rank, count in seen.items()} == wrote
    assert total >= 4 * size
    assert 0 < most < 40_000


def test_line_without_end_is_not_kept(regroup):
    size = (1000 if FULL else 100) << 20
    script = f"import os\nfor i in range({size >> 16}): os.write(1, b'x' * 65536)"
    read, write = os.pipe()
    job = regroup.start("-np", "1", *PYTHON, script, stdout=write)
    os.close(write)
    agent = job.agent
    total = most = 0
    while block := os.read(read, 1 << 20):
        if total == 0 or total // (10 << 20) != (total + len(block)) // (10 << 20):
            most = max(most, rss_kib(agent))
        assert block.count(b"x") == len(block)
        total += len(block)
    os.close(read)
    assert job.wait() == 0
    assert total == size >> 16 << 16
    assert 0 < most < 40_000


@pytest.mark.parametrize("append", [False, True])
def test_bytes_of_all_kinds_arrive_as_they_are(regroup, tmp_path, append):
    data = os.urandom(8 << 20)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"before" if append else b"")
    with open(tmp_path / "out", "ab" if append else "wb") as out:
        job = regroup.run("-np", "1", "cat", str(tmp_path / "in"), stdout=out)
    assert job.process.returncode == 0
    assert (tmp_path / "out").read_bytes() == (b"before" if append else b"") + data


def test_one_who_writes_without_pause_does_not_keep_the_others_waiting(regroup, tmp_path):
    script = 'if [ "$RANK" = 0 ]; then exec yes; else sleep 0.2; echo here >&2; fi'
    with open("/dev/null", "wb") as null:
        job = regroup.start(*TWO, "sh", "-c", script, stdout=null)
        job.wait_err("here")
        start = time.monotonic()
        job.process.terminate()
        assert job.wait() != 0
    assert time.monotonic() - start < 20
    until(lambda: not job.living(), "end of all")
