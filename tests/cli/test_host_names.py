"""Hosts as people write them: in options, files and allocations, with what editors leave. A script stands in
for ssh: it notes the host and runs the command here."""

import socket

import pytest

NAME = socket.gethostname().split(".")[0]


class Ssh:
    def __init__(self, folder):
        self.log, self.program = folder / "log", folder / "ssh-stand-in"
        self.log.touch()
        self.program.write_text(
            f'#!/bin/sh\n[ "$1" = -l ] && shift 2\necho "$1" >> {self.log}\nshift\nexec "$@"\n'
        )
        self.program.chmod(0o755)

    def hosts(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def ssh(tmp_path):
    return Ssh(tmp_path)


@pytest.fixture
def run(regroup, ssh):
    def call(*words, **options):
        return regroup.run("--ssh-command", str(ssh.program), *words, **options)

    return call


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["-H", "hA:0,hB:2", "-np", "2"], ["hB"]),
        (["-H", "hA:0,hB:1", "-np", "2", "--oversubscribe"], ["hA", "hB"]),
        (["--hostfile", "zero", "-np", "2"], ["hB"]),
        (["--hostfile", "most", "-np", "3"], ["hA"]),
    ],
)
def test_a_host_without_slots_takes_no_member(run, ssh, tmp_path, words, hosts):
    (tmp_path / "zero").write_text("hA slots=0\nhB slots=2\n")
    (tmp_path / "most").write_text("hA max_slots=3\n")
    job = run(*words, "true", cwd=tmp_path)
    assert job.wait() == 0, job.err
    assert sorted(ssh.hosts()) == hosts


def test_no_slot_at_all_is_refused(run, ssh):
    job = run("-H", "localhost:0", "-np", "1", "true")
    assert job.wait() == 213
    assert "no slots" in job.err
    assert ssh.hosts() == []


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbfhA slots=1\n", b"hA slots=1\r\n", b"hA slots=1\r", b"hA slots=1\n\x1a"]
)
def test_what_editors_leave_is_no_part_of_a_name(run, ssh, tmp_path, text):
    (tmp_path / "hosts").write_bytes(text)
    job = run("--hostfile", str(tmp_path / "hosts"), "-np", "1", "true")
    assert job.wait() == 0, job.err
    assert ssh.hosts() == ["hA"]


def test_another_encoding_is_refused_by_name(run, tmp_path):
    (tmp_path / "hosts").write_text("hA slots=1\n", encoding="utf-16")
    job = run("--hostfile", str(tmp_path / "hosts"), "-np", "1", "true")
    assert job.wait() == 250
    assert "UTF-16, expected UTF-8" in job.err
