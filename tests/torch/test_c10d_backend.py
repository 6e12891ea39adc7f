"""The torch.distributed backend "regroup": results, errors and what it costs a script that does not
use it."""

import os
import re
import subprocess
import sys

import pytest
import regroup_torch


@pytest.mark.parametrize(("size", "hosts"), [(1, ()), (2, ()), (4, ()), (3, ("2",))])
def test_every_operation_gives_what_each_rank_computes_from_all_inputs(run_ranks, size, hosts):
    out = run_ranks(size, "_operations.py", *hosts)
    assert out.count("all equal") == size, out


@pytest.mark.parametrize(("size", "hosts"), [(3, "1"), (2, "2")])
def test_where_no_binary_can_be_built_a_group_in_python_does_the_same(
    run_ranks, no_binary, size, hosts
):
    no_binary()
    out = run_ranks(size, "_operations.py", hosts, "python")
    assert out.count("all equal") == size, out
    assert out.count("regroup: the process groups of this job are in Python: slower, for CPU") == 1
    assert re.search(r"regroup: building the backend for torch \S+ failed: false", out), out


@pytest.mark.parametrize("python", [False, True], ids=["binary", "python"])
def test_what_nobody_waits_for_advances_and_callbacks_may_wait(run_ranks, no_binary, python):
    """As those of the hook powerSGD do."""
    if python:
        no_binary()
    out = run_ranks(2, "_works.py", *(["python"] if python else []))
    assert out.count("is right") == 2 * (12 if python else 11), out


def test_a_program_may_end_while_a_thread_needs_the_gil(run_ranks):
    """Python 3.11 unwinds such a thread; it aborted the process."""
    out = run_ranks(2, "_exits.py")
    assert out.count("the child's exit status is 0") == 2, out


@pytest.mark.parametrize("words", [(), ("2",), ("1", "python")], ids=["1", "2 hosts", "python"])
def test_a_group_goes_on_without_some_of_its_ranks(run_ranks, no_binary, words):
    """A group in Python says that it cannot."""
    if "python" in words:
        no_binary()
    out = run_ranks(4, "_groups.py", *words)
    assert out.count("all right") == 4, out


@pytest.mark.parametrize(
    ("named", "has_cuda", "expected"),
    [
        ("gloo", False, "regroup"),
        ("undefined", False, "regroup"),
        ("undefined", True, "cpu:regroup,cuda:nccl"),
        ("cpu:gloo,cuda:nccl", True, "cpu:regroup,cuda:nccl"),
        ("cuda:gloo", True, "cuda:gloo"),
        ("nccl", True, "nccl"),
        ("mpi", False, "mpi"),
    ],
)
def test_what_takes_the_place_of_gloo(named, has_cuda, expected):
    assert regroup_torch.replaced(named, has_cuda) == expected


def test_a_script_that_names_gloo_or_nothing_runs_over_regroup(tmp_path):
    program = (
        "import os, sys, torch, torch.distributed as dist\n"
        "for name in sys.argv[1:]:\n"
        "    store = dist.FileStore(f'{sys.argv[0]}-{name}', 2)\n"
        "    rank = int(os.environ['RANK'])\n"
        "    dist.init_process_group(name or None, store=store, rank=rank, world_size=2)\n"
        "    print(type(dist.group.WORLD._get_backend(torch.device('cpu'))).__name__)\n"
        "    assert dist.get_backend() == (name or 'undefined')\n"
        "    x = torch.ones(1); dist.all_reduce(x); assert x.item() == 2\n"
        "    dist.new_group(backend='gloo'); dist.destroy_process_group()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(program)
    done = subprocess.run(
        ["regroup", "--oversubscribe", "-np", "2", "--torch-backend", "replace"]
        + [sys.executable, str(script), "", "gloo"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Backend"] * 4
    assert done.stderr.count("regroup: backend regroup in place of") == 1, done.stderr
    plain = subprocess.run(
        ["regroup", "--oversubscribe", "-np", "2", sys.executable, str(script), "gloo"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert plain.stdout.split() == ["ProcessGroupGloo"] * 2, plain.stderr


def test_importing_torch_loads_nothing_of_regroup_but_the_registration():
    program = (
        "import sys, torch\n"
        "print([name for name in sys.modules if name.startswith('regroup')])\n"
        "print(torch.distributed.is_backend_available('regroup'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "['regroup_torch']\nTrue\n", done.stderr


@pytest.mark.parametrize("python", [False, True], ids=["binary", "python"])
def test_errors_name_the_operation_and_the_cause(run_ranks, no_binary, python):
    if python:
        no_binary()
    expected = {
        "mismatch": r"DistBackendError: .*all_reduce.*allreduce.*broadcast",
        "timeout": r"DistBackendError: .*all_reduce.*rank 1",
        "dtype": r"ValueError: regroup: all_reduce: SUM of [Ff]loat8_e4m3fn is not supported",
        "lists": r"ValueError: regroup: all_gather: expected a list of 2 tensors, .* got 1",
        "aborted": r"DistBackendError: .*all_reduce: the group was aborted",
        "killed": r"DistBackendError: .*all_reduce: rank 1 \(pid \d+\) ended",
        "late": r"DistBackendError: .*init_process_group: .*rank 0 of 2: .* rank 1 has not come",
    }
    out = run_ranks(2, "_errors.py", *expected)
    for case, what in expected.items():
        assert re.search(f"^{case}: {what}", out, re.M), out


def test_without_a_compiler_the_message_says_what_to_install(tmp_path):
    program = "import torch, regroup._torch_backend as b; b.find_binary()"
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), PATH="/nowhere")
    environment.pop("CXX", None)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert "there is no C++ compiler to build one: install g++" in done.stderr


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(tmp_path):
    program = "import torch, regroup._torch_backend as b; b.find_binary()"
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), CXX="false --flag")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert re.search(
        r"RuntimeError: regroup: building the backend for torch \S+ failed: false", done.stderr
    )
    assert not list(tmp_path.rglob("*.so"))


def test_a_build_that_fails_is_tried_once_for_the_job(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho >> {tmp_path}/tries\nexit 1\n")
    compiler.chmod(0o755)
    program = (
        "import os, torch, regroup._torch_backend as b\n"
        "for job in ('one', 'one', 'two', '', ''):\n"
        "    os.environ['REGROUP_JOB'] = job\n"
        "    b._load.cache_clear()  # as in another process\n"
        "    assert 'regroup: building the backend for torch' in b._load()\n"
        f"    print(open({str(tmp_path / 'tries')!r}).read().count('\\n'))\n"
    )
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["1", "1", "2", "3", "4"], done.stderr


def test_a_build_that_does_not_end_leaves_the_group_in_python(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexec sleep 600\n")
    compiler.chmod(0o755)
    program = "import torch, regroup._torch_backend as b; b.BUILD_LIMIT_S = 0.1; print(b._load())"
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert "timed out after 0.1 seconds" in done.stdout, done.stderr
