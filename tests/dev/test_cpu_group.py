"""That ./dev runs tests in one group of the processor's scheduler."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = next(
    (
        folder
        for folder in map(Path, ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"))
        if os.access(folder / "cgroup.procs", os.W_OK)
    ),
    None,
)
BEGIN = "AT_EXIT=(); source tools/dev/cpu_group.sh\n"
GROUP = r"^\d+:\S*\bcpu\b\S*:"


def bash(script: str) -> tuple[str, str]:
    """What it writes, and the number of its process."""
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", BEGIN + script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        out = shell.communicate(timeout=60)[0]
    assert shell.returncode == 0
    return out, str(shell.pid)


def group_of(cgroups: str) -> str:
    return re.search(rf"{GROUP}(\S+)$", cgroups, re.M)[1]


@pytest.mark.skipif(FOLDER is None, reason="no cgroup v1 of processors that may be written")
@pytest.mark.skipif(
    Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() != "1",
    reason="no autogroups, so a cgroup v1 of processors is not needed",
)
def test_sessions_below_it_share_one_group_that_ends_with_it():
    script = f"""
        echo $$ >{FOLDER}/cgroup.procs
        join_cpu_group
        setsid --wait cat /proc/self/cgroup
        join_cpu_group  # does nothing: a group holds it
        for command in "${{AT_EXIT[@]}}"; do eval "$command"; done
        echo "left"; cat /proc/self/cgroup
    """
    out, process = bash(script)
    inside, left = out.split("left")
    assert group_of(inside) == f"/regroup-dev-{process}"
    assert group_of(left) == "/"
    assert not (FOLDER / f"regroup-dev-{process}").exists()


def test_without_the_right_to_one_nothing_changes(tmp_path):
    out, _ = bash(f"CPU_GROUP_FOLDERS=({tmp_path}/none); join_cpu_group; cat /proc/self/cgroup")
    assert group_of(out) == group_of(Path("/proc/self/cgroup").read_text())
