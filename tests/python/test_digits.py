"""The PyTorch example and its plain twin."""

import os
import pathlib
import re
import subprocess

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/pytorch"


def accuracy_in(output: str) -> float:
    return float(re.search(r"test accuracy ([\d.]+)%", output)[1])


def digest_in(output: str) -> str:
    return re.search(r"weights sha256 ([0-9a-f]{64})", output)[1]


def test_at_most_eight_lines_are_added_and_eight_removed():
    output = subprocess.run(
        ["diff", EXAMPLES / "digits_plain.py", EXAMPLES / "digits.py"],
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    added, removed = (sum(line.startswith(sign) for line in output.splitlines()) for sign in "><")
    assert 0 < added <= 8, output
    assert 0 < removed <= 8, output


def test_the_plain_script_runs_without_regroup(run_python, tmp_path):
    (tmp_path / "regroup.py").write_text("raise ImportError('regroup is not installed')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    output = run_python(str(EXAMPLES / "digits_plain.py"), "--epochs", "5", PYTHONPATH=path)
    assert accuracy_in(output) >= 95


def test_the_elastic_script_alone_trains_with_reproducible_weights(run_python):
    script = str(EXAMPLES / "digits.py")
    first = run_python(script, "--epochs", "5")
    assert accuracy_in(first) >= 95
    assert first.count("epoch ") == 5
    if "REGROUP_TEST_FULL" in os.environ:  # test_demo.py compares two runs as well
        assert run_python(script, "--epochs", "5") == first
    other = run_python(script, "--epochs", "5", REGROUP_SHARDS="3")
    assert digest_in(other) != digest_in(first)  # the number of shards is part of the promise
