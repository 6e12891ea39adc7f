"""Each option that the help of an installed launcher lists is known to ours: what a new version
adds is not missed. Open MPI 5 lists nothing; its manual page is not in the wheel."""

import re
import subprocess
import sys

import pytest
from conftest import BIN, DEADLINE_S, ROOT_MAY

LISTS = {
    "openmpi-4": ["/usr/bin/mpirun.openmpi", *ROOT_MAY, "--help", "all"],
    "hydra": ["/usr/bin/mpiexec.hydra", "-help"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--help"],
}
LEAST = {"openmpi-4": 80, "hydra": 40, "torchrun": 30}
# Of the program that is run, not of the launcher.
OTHERS = {"torchrun": {"local-rank"}}
NAME = r"-{1,2}([A-Za-z][\w-]*)"


def options_in(text: str) -> set[str]:
    """Names at the beginnings of lines: "-x|--x <arg0>", "-n/-np {value}", "-r, --redirects
    LIST"."""
    found = set()
    for line in text.splitlines():
        if line_begins := re.match(rf"\s{{1,6}}({NAME}\S*(?:[ ,|/]+{NAME}\S*)*)", line):
            found |= set(re.findall(rf"(?:^|[|/, ]){NAME}", line_begins[1]))
    return {name.replace("_", "-") for name in found}


@pytest.fixture(scope="module")
def ours() -> set[str]:
    words = [str(BIN / "regroup"), "--generate", "bash"]
    text = subprocess.run(
        words, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    ).stdout
    return set(re.findall(rf"(?<![\w-]){NAME}", text))


@pytest.mark.parametrize("launcher", LISTS)
def test_every_option_of_theirs_is_known(ours, launcher):
    done = subprocess.run(
        LISTS[launcher], capture_output=True, text=True, timeout=4 * DEADLINE_S, check=False
    )
    theirs = options_in(done.stdout + done.stderr)
    assert len(theirs) >= LEAST[launcher], done.stdout
    assert theirs - ours - OTHERS.get(launcher, set()) == set()
