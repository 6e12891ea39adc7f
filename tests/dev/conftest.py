"""The tests of tools/dev import its programs as modules."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/dev"))

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def inner_pytest(tmp_path):
    """Runs pytest with the conftest.py of all tests, in a folder of its own, on tests/NAME: its
    output."""

    def run(name: str, text: str, *words: str, **environment: str) -> str:
        (tmp_path / "tests" / name).parent.mkdir(parents=True)
        (tmp_path / "tests" / name).write_text(text)
        (tmp_path / "tools").symlink_to(ROOT / "tools")
        for shared in ("conftest.py", "pytest_seconds.json"):
            shutil.copy(ROOT / "tests" / shared, tmp_path / "tests")
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, "tests"]
        return subprocess.run(
            command, cwd=tmp_path, env=env | environment, capture_output=True, text=True, timeout=60
        ).stdout

    return run


@pytest.fixture
def function_of_dev():
    """The text of a function of ./dev."""

    def text_of(name: str) -> str:
        text = (ROOT / "dev").read_text()
        start = text.index(f"{name}() {{")
        return text[start : text.index("\n}\n", start) + 3]

    return text_of
