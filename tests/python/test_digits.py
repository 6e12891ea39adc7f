"""The PyTorch examples and their plain twins."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/pytorch"


def accuracy_in(output: str) -> float:
    return float(re.search(r"test accuracy ([\d.]+)%", output)[1])


def digest_in(output: str) -> str:
    return re.search(r"weights sha256 ([0-9a-f]{64})", output)[1]


@pytest.mark.parametrize(
    ("plain", "elastic", "most_added", "most_removed"),
    [("digits_plain.py", "digits.py", 8, 8), ("digits_ddp.py", "digits_ddp_elastic.py", 12, 14)],
)
def test_few_lines_are_added_and_removed(plain, elastic, most_added, most_removed):
    """Of the second pair three are of the text at the head."""
    output = subprocess.run(
        ["diff", EXAMPLES / plain, EXAMPLES / elastic], stdout=subprocess.PIPE, text=True
    ).stdout
    added, removed = (sum(line.startswith(sign) for line in output.splitlines()) for sign in "><")
    assert 0 < added <= most_added, output
    assert 0 < removed <= most_removed, output


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


def run_two(options, script, *arguments):
    """With the backend of torch.distributed that tests/torch builds, or for it."""
    done = subprocess.run(
        ["regroup", "--oversubscribe", *options.split(), sys.executable, EXAMPLES / script]
        + [*arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(EXAMPLES.parents[1] / "build/torch-backend")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("options", "script"),
    [("-np 2", "digits_ddp.py"), ("-np 1:2 --initial-size 2", "digits_ddp_elastic.py")],
)
def test_the_ddp_scripts_train_on_two(options, script):
    output = run_two(options, script, "--epochs", "8")
    assert accuracy_in(output) >= 90
    assert output.count("epoch ") == 8


@pytest.mark.parametrize(
    ("options", "script", "epochs", "pattern", "least"),
    [
        ("-np 1:2 --initial-size 2", "residual.py", 5, r"epoch  5 .* accuracy ([\d.]+)%", 80),
        ("-np 2", "fsdp2.py", None, r"test accuracy ([\d.]+)%", 85),
    ],
)
def test_more_scripts_train_on_two(options, script, epochs, pattern, least):
    output = run_two(options, script, *([] if epochs is None else ["--epochs", str(epochs)]))
    assert float(re.search(pattern, output)[1]) >= least, output


def test_the_transformer_learns_and_writes(tmp_path):
    output = run_two(
        "-np 1:2 --initial-size 2", "transformer.py", "--epochs", "4", "--log", str(tmp_path)
    )
    losses = [float(text) for text in re.findall(r"loss ([\d.]+)", output)]
    assert len(losses) == 4
    assert losses[-1] < 3.2 < losses[0]
    assert len(output.splitlines()[-1]) <= 80
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(rows) % 4 == 0
    assert len(rows) > 4
