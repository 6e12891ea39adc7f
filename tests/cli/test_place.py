"""`regroup place`: where ranks would go on machines that are not here."""

import json
import subprocess

import pytest
from conftest import BIN, DEADLINE_S, ROOT

DGX_1V = str(ROOT / "tests/machines/dgx-1v.topo")


def place(*words: str, machine: str = DGX_1V) -> subprocess.CompletedProcess:
    command = [str(BIN / "regroup"), "place", "--machine", machine, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def test_explains_itself():
    answer = place("-np", "4", "--explain")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "GPUs 0-3 of the 8 free GPUs of DGX-1V" in answer.stdout
    assert "GPUs 4-7 remain free; rings over them would carry" in answer.stdout
    assert "every rank can send and receive" in answer.stdout
    assert "the bottleneck is" in answer.stdout
    lines = answer.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["rank", "host"])
    assert [line.split()[0] for line in lines[first + 1 :]] == ["0", "1", "2", "3"]


def test_json_and_free_gpus():
    answer = place("-np", "2", "--free", "0,4-6", "--json")
    told = json.loads(answer.stdout)
    assert sorted(gpu for rank in told["ranks"] for gpu in rank["gpus"]) == [5, 6]
    assert told["gbytes"] == pytest.approx(40)


def test_several_hosts_by_every_policy():
    hosts = {}
    for policy in ("best", "pack", "spread"):
        told = json.loads(place("-np", "8", "--hosts", "8", "--placement", policy, "--json").stdout)
        hosts[policy] = len({rank["host"] for rank in told["ranks"]})
    assert hosts == {"best": 1, "pack": 1, "spread": 8}


def test_mpiruns_words_go_to_the_same_function():
    words = ("-np", "4", "-g", "0", "--map-by", "package", "--bind-to", "core", "--json")
    told = json.loads(place(*words).stdout)["ranks"]
    assert [(rank["on"], rank["cpus"]) for rank in told] == [
        ("package 0", [0]),
        ("package 0", [1]),
        ("package 1", [20]),
        ("package 1", [21]),
    ]
    hosts = json.loads(place("-np", "4", "--hosts", "2", "--map-by", "node", "--json").stdout)[
        "ranks"
    ]
    assert [rank["host"] for rank in hosts] == ["DGX-1V-0", "DGX-1V-1"] * 2
    assert all(rank["gpus"] for rank in hosts)
    assert (
        "--map-by of members with GPUs: expected slot"
        in place("-np", "4", "--map-by", "package").stderr
    )
    near = json.loads(place("-np", "1", "--bind-to", "core", "--json").stdout)["ranks"][0]
    assert len(near["cpus"]) == 1 and near["gpus"]


def test_predicts_a_step():
    answer = place("-np", "2", "--gradient", "438e6", "--step", "0.7")
    assert "a step of 0.700 s on one GPU takes 0.700 s, 1.00 times as long" in answer.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-np", "9"], "the nearest fit is 8"),
        (["-np", "2", "--keep", "7", "--free", "0-3"], "--keep: GPU 7 of DGX-1V is not free"),
        (["--plcement", "pack"], "did you mean --placement?"),
        (["--placement", "tight"], "expected best, pack, spread or any"),
        (["-np"], "N is missing"),
        (["--free", "0-99"], "GPU 64: expected at most 63"),
        (["--free", "0,7-9"], "dgx-1v.topo has no GPU 8-9; it has 0-7"),
        (["--keep", "12"], "--keep: "),
        (["--step", "nan"], "expected a positive number"),
        (["--map-by", "device=mlx5_9"], "which has mlx5_0, mlx5_1"),
    ],
)  # fmt: skip
def test_refusals(words, says):
    answer = place(*words)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert says in answer.stderr


def test_machines_without_gpu_or_file(tmp_path):
    (tmp_path / "cpu.topo").write_text("numa 0 cpus=0-3\n")
    words = ("-np", "1", "--placement", "best")
    assert "has no GPU" in place(*words, machine=str(tmp_path / "cpu.topo")).stderr
    assert "none.topo" in place("-np", "1", machine=str(tmp_path / "none.topo")).stderr
