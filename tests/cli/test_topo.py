"""`regroup topo`: this machine, recorded ones, pictures, and what is refused."""

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import pytest
from conftest import BIN, DEADLINE_S

MACHINES = Path(__file__).parents[1] / "machines"


def topo(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(BIN / "regroup"), "topo", *words], capture_output=True, text=True, timeout=DEADLINE_S
    )


def test_this_machine_is_shown_and_remembered() -> None:
    first, second, fresh = topo(), topo(), topo("--fresh")
    assert first.returncode == 0, first.stderr
    assert "NUMA node 0" in first.stdout
    assert first.stdout == second.stdout == fresh.stdout


def test_a_recorded_machine_has_its_tree_and_matrix() -> None:
    out = topo("--machine", str(MACHINES / "hwloc-dgx2.xml"), "--ranks", "3,0")
    assert out.returncode == 0, out.stderr
    assert "NVIDIA DGX-2H: 16 GPUs, 0 NICs, 2 NUMA nodes" in out.stdout
    assert "NVLink: GPU 0-15 to 12 NVSwitches, 6 links, 120 GB/s each way" in out.stdout
    assert out.stdout.count("NVL 120") == 16 * 15
    assert "GPU 3  Tesla V100-SXM3-32GB-H  sm70  0000:3b:00.0  <- rank 0" in out.stdout
    assert "\x1b" not in out.stdout


def test_colours_are_for_terminals_or_on_demand() -> None:
    machine = str(MACHINES / "dgx-1v.topo")
    assert "\x1b[1;32m" in topo("--machine", machine, "--colour", "always").stdout
    assert "\x1b" not in topo("--machine", machine).stdout


def test_pictures_are_pictures(tmp_path: Path) -> None:
    svg, png = tmp_path / "m.svg", tmp_path / "m.png"
    out = topo("--machine", str(MACHINES / "dgx-1v.topo"), f"--svg={svg}", "--png", str(png))
    assert out.returncode == 0, out.stderr
    assert out.stdout == ""
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    height, width = matplotlib.image.imread(png).shape[:2]
    assert width > height > 300


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.topo"
    bad.write_text("numa 0\ngpu 0 at=nowhere\n")
    for words, message in (
        (["--machine", str(bad)], f"{bad}:2: 'nowhere' is not defined above this line"),
        (["--machine", "/none"], "/none"),
        (["--frobnicate"], "unknown option '--frobnicate'"),
        (["--machine", str(MACHINES / "dgx-1v.topo"), "--ranks", "9"], "GPU 9 does not exist"),
        (["--machine", str(MACHINES / "dgx-1v.topo"), "--png", "/none/x.png"], "/none/x.png"),
    ):
        out = topo(*words)
        assert out.returncode == 1
        assert message in out.stderr, out.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"HWLOC_XMLFILE": "no\x1b[31m.xml"},
            "HWLOC_XMLFILE=no?[31m.xml: No such file or directory",
        ),
        ({"HWLOC_SYNTHETIC": "pu:two"}, "HWLOC_SYNTHETIC=pu:two: not understood"),
        ({"HWLOC_FSROOT": "/none"}, "HWLOC_FSROOT=/none: No such file or directory"),
        (
            {"HWLOC_FSROOT": "/etc/passwd", "HWLOC_XMLFILE": ""},
            "HWLOC_FSROOT=/etc/passwd: Not a directory",
        ),
        ({"HWLOC_SYNTHETIC": "pu:2"}, None),
        ({}, None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_hwloc_passes_over_is_said_in_one_line(variables, said, tmp_path) -> None:
    """hwloc describes this machine then, without a word: the job goes on as it did."""
    env = {**os.environ, **variables, "XDG_RUNTIME_DIR": str(tmp_path)}
    for words, name in (
        (["--do-not-launch", "-np", "1", "true"], "regroup"),
        (["topo"], "regroup topo"),
    ):
        command = [str(BIN / "regroup"), *words]
        out = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=env)
        lines = [line for line in out.stderr.splitlines() if "ignored by hwloc" in line]
        wanted = f"{name}: {said}: ignored by hwloc, which describes this machine instead"
        assert lines == ([wanted] if said else []), out.stderr
        assert out.returncode == 0, out.stderr
    words = ["--bind-to", "none", "-np", "1", "echo", "up"]
    quiet = subprocess.run(
        [str(BIN / "regroup"), *words], capture_output=True, text=True, timeout=60, env=env
    )
    assert (quiet.stdout, quiet.stderr) == ("up\n", "")


DIES = {**os.environ, "LD_LIBRARY_PATH": str(BIN.parent / "tests/lib/dying_hwloc")}
PLACED = ["--topology", str(MACHINES / "hwloc-dgx2.xml"), "--placement", "best"]


@pytest.mark.parametrize(
    ("variables", "words", "named", "expected"),
    [
        ({"HWLOC_XMLFILE": "m.xml"}, ["-np", "1", "echo", "up"], "HWLOC_XMLFILE=m.xml", 0),
        (
            {"HWLOC_XMLFILE": "m.xml"},
            ["--bind-to", "core", "-np", "1", "true"],
            "HWLOC_XMLFILE=m.xml",
            213,
        ),
        (
            {"HWLOC_SYNTHETIC": "pu:2"},
            ["--do-not-launch", "-np", "1", "true"],
            "HWLOC_SYNTHETIC=pu:2",
            1,
        ),
        ({"HWLOC_XMLFILE": "m.xml"}, ["topo"], "HWLOC_XMLFILE=m.xml", 1),
        ({}, ["topo", "--machine", PLACED[1]], PLACED[1], 1),
        ({}, ["place", "--machine", PLACED[1], "-np", "2"], PLACED[1], 1),
        ({}, [*PLACED, "-np", "1", "true"], "this machine", 213),
        (
            {},
            ["--launcher", "fork", "-H", "a:1,b:1", *PLACED, "-np", "2", "true"],
            "host a: this machine",
            213,
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_a_library_that_dies_of_what_it_reads_ends_nobody(
    variables, words, named, expected, tmp_path
) -> None:
    """On every path on which something reaches libhwloc, in whose place one is found that dies."""
    env = {**DIES, **variables, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [str(BIN / "regroup"), *words]
    out = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=env)
    assert out.returncode == expected, out.stderr
    assert re.search(
        rf"{re.escape(named)}: .* was killed by SIGSEGV \(.*\) while reading it", out.stderr
    )
    assert not list(tmp_path.glob("core*"))
