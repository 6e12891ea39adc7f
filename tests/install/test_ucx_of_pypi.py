"""The ucx backend over the newest UCX of PyPI. All other tests run over Debian's, which is nine
minor versions older."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"


def test_groups_and_failures(tmp_path):
    folder = Path(importlib.util.find_spec("libucx").origin).parent / "lib"
    env = os.environ | {
        "LD_LIBRARY_PATH": str(folder),
        "LD_DEBUG": "libs",
        "LD_DEBUG_OUTPUT": str(tmp_path / "loaded"),
    }
    command = ["ctest", "--test-dir", BUILD, "-j", "2", "--timeout", "120"]
    command += ["-R", "^UcxGroup|UcxApart/Failures|^UcxCycles"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"100% tests passed, 0 tests failed out of \d{2}", done.stdout), done.stdout
    loaded = set()
    for report in tmp_path.glob("loaded.*"):
        loaded |= set(re.findall(r"calling init: (\S+)/libucp\.so", report.read_text()))
    assert loaded == {str(folder)}
