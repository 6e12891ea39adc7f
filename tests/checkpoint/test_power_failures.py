"""Some of the crash images of tests/chaos/crash_images.py, and that without fsync they lose
something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).resolve().parents[1] / "chaos"


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="mounts: root and /dev/fuse"
)
def test_no_image_of_the_disk_lost_an_acknowledged_checkpoint():
    words = [sys.executable, str(CHAOS / "crash_images.py"), "--images", "12"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 lost" in done.stdout
