"""`regroup doctor`: what it finds on this machine, and on one where something is wrong."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
from regroup import _doctor, _native

REGROUP = os.environ.get("REGROUP", "regroup")
DEADLINE_S = 600


def doctor(*words, **variables):
    return subprocess.run(
        [REGROUP, "doctor", "--python", sys.executable, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def lines(found):
    return [each.line() for each in found]


def test_nothing_is_wrong_here():
    done = doctor("--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    levels = {each["subject"]: each["level"] for each in found}
    assert levels["regroup"] == levels["training"] == levels["ranks"] == "ok", found
    assert sum(each["subject"] == "ranks" for each in found) == 3


def test_a_machine_on_which_no_job_runs(tmp_path):
    """The launcher answers --version and nothing else."""
    version = f"[ $1 = --version ] && echo regroup {_native.__version__} && exit 0\n"
    broken = script(tmp_path / "regroup", version + "echo regroup: no memory >&2; exit 1\n")
    command = [sys.executable, "-m", "regroup._doctor", broken]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    bad = [line for line in done.stdout.splitlines() if line.startswith("bad ")]
    for line in (
        "bad   allocation: regroup: no memory",
        "bad   threads: a job of one rank failed: regroup: no memory",
        "bad   ranks: two ranks of torch failed: regroup: no memory",
        "bad   training: a job of 1 failed with 1: regroup: no memory",
    ):
        assert line in bad, done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith(f"{len(bad)} of "), done.stdout


@pytest.mark.parametrize(
    ("release", "autogroups", "cgroups", "said"),
    [
        ("6.18.44-1", "1", "1:cpu:/\n0::/\n", True),
        ("6.18.44-1", "1", "0::/\n", True),
        ("6.18.44-1", "1", "2:cpu,cpuacct:/job\n0::/\n", False),
        ("6.18.44-1", "1", "0::/user.slice\n", False),
        ("6.18.44-1", "0", "0::/\n", False),
        ("6.1.0-41", "1", "0::/\n", False),
        ("6.18.44-1", None, "0::/\n", False),
    ],
)
def test_sessions_that_keep_others_from_the_cores_are_noted(
    tmp_path, monkeypatch, release, autogroups, cgroups, said
):
    monkeypatch.setattr("platform.release", lambda: release)
    for name, text in (("_AUTOGROUPS", autogroups), ("_CGROUPS", cgroups)):
        monkeypatch.setattr(_doctor, name, tmp_path / name)
        if text is not None:
            (tmp_path / name).write_text(text)
    found = [*_doctor.check_sessions(_doctor.Launcher(REGROUP))]
    assert [each.level for each in found] == ["note"] * said


def test_weights_that_differ_are_bad(tmp_path):
    """The launcher gives the second job another seed."""
    other = f"exec {REGROUP} $(echo $* | sed 's/--seed 1/--seed 9/')"
    choice = f'case "$*" in *kill*) {other};; esac\nexec {REGROUP} "$@"\n'
    path = script(tmp_path / "regroup", choice)
    (found,) = _doctor.check_training(_doctor.Launcher(path))
    assert found.level == "bad" and "differ" in found.text, found


def test_a_job_in_which_nobody_is_lost_is_bad(tmp_path):
    """The launcher tells no member to kill itself."""
    path = script(tmp_path / "regroup", f"exec {REGROUP} $(echo $* | sed 's/kill$//')\n")
    (found,) = _doctor.check_training(_doctor.Launcher(path))
    assert found.level == "bad" and "no member was lost" in found.text, found


def test_output_with_tags_is_understood(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_orte_tag_output", "1")
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    launcher = _doctor.Launcher(shutil.which(REGROUP))
    found = [*_doctor.check_threads(launcher), *_doctor.check_ranks(launcher)]
    assert [each.level for each in found] == ["ok"] * 4, found


def test_a_launcher_of_another_release_is_bad(tmp_path):
    other = script(tmp_path / "regroup", "echo regroup 9.8.7\n")
    (found,) = _doctor.check_versions(_doctor.Launcher(other))
    assert found.level == "bad" and "9.8.7" in found.text and "same release" in found.advice


def test_a_job_that_hangs_is_ended(tmp_path):
    hangs = script(tmp_path / "regroup", f"echo $$ > {tmp_path}/pid; exec sleep 600\n")
    launcher = _doctor.Launcher(hangs)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.run("allocation", limit_s=5)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_examination_that_takes_too_long_is_bad(monkeypatch):
    def late(_):
        raise subprocess.TimeoutExpired(["regroup", "-np", "1", "a b"], 60)
        yield

    for name in vars(_doctor):
        if name.startswith("check_"):
            monkeypatch.setattr(_doctor, name, lambda _: iter(()))
    monkeypatch.setattr(_doctor, "check_allocation", late)
    found = list(_doctor.examine(_doctor.Launcher("regroup")))
    assert lines(found) == ["bad   allocation: no result within 60 s: regroup -np 1 'a b'"]


def test_no_compiler_for_the_backend(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (found,) = _doctor.check_torch(_doctor.Launcher("regroup"))
    assert found.level == "note" and "CXX" in found.advice
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    note, found = _doctor.check_torch(_doctor.Launcher("regroup"))
    assert note.level == "note" and "TORCH_DEVICE_BACKEND_AUTOLOAD" in note.text
    assert found.level == "ok" and "20 s" in found.text


def test_gpus_are_counted_and_a_broken_driver_is_bad(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    smi = tmp_path / "nvidia-smi"
    script(smi, "echo 'GPU 0: NVIDIA H100 (UUID: a)'; echo 'GPU 1: NVIDIA H100 (UUID: b)'\n")
    assert lines(_doctor.check_gpus(None)) == ["ok    GPUs: 2, CUDA_VISIBLE_DEVICES='1'"]
    script(smi, "echo 'Failed to initialize NVML: Driver mismatch'; exit 18\n")
    (found,) = _doctor.check_gpus(None)
    assert found.level == "bad" and "Driver mismatch" in found.text


def test_few_descriptors_are_a_note():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "from regroup import _doctor; print(next(_doctor.check_limits(None)).line())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("note  limits: at most 256 open files"), (soft, hard)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_its_job(tmp_path, number):
    """The launcher hangs in its first job."""
    started = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600\n"
    hangs = script(tmp_path / "regroup", started)
    command = [sys.executable, "-m", "regroup._doctor", hangs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < give_up and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_arguments_that_cannot_be():
    done = doctor("--jso")
    assert done.returncode == 1
    assert done.stderr.startswith("regroup doctor: unexpected argument '--jso'\nusage: ")
    command = [REGROUP, "doctor", "--python", "nix"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("regroup doctor: Python nix cannot be started: No such file")
