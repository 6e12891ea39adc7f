"""What tools/dev/tidy takes for clean, and when it looks again."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# In place of clang-tidy, which `./dev test` does not install: notes each source, finds "bad" in the
# header.
CHECKER = """#!/bin/bash
[[ $1 != --version ]] || { cat "$HOME/version"; exit; }
echo "${@: -1}" >>"$HOME/calls"
! grep -H bad a.h
"""


def clone(folder: Path) -> Path:
    (folder / "tools/dev").mkdir(parents=True)
    shutil.copy(ROOT / "tools/dev/tidy", folder / "tools/dev/tidy")
    (folder / "a.cc").write_text('#include "a.h"\n')
    (folder / "a.h").write_text("inline int one() { return 1; }\n")
    (folder / ".clang-tidy").write_text("Checks: x\n")
    set_flags(folder, "-DX=1")
    return folder


def set_flags(folder: Path, flags: str) -> None:
    command = f"g++ {flags} -I{folder} -o a.o -c {folder}/a.cc"
    entry = {
        "directory": str(folder / "build-lint"),
        "file": str(folder / "a.cc"),
        "command": command,
    }
    (folder / "build-lint").mkdir(exist_ok=True)
    (folder / "build-lint/compile_commands.json").write_text(json.dumps([entry]))


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "version").write_text("14\n")
    (home / "bin/clang-tidy").write_text(CHECKER)
    (home / "bin/clang-tidy").chmod(0o755)
    return home


def tidy(home: Path, folder: Path) -> tuple[int, int, str]:
    """Its status, how often the checker ran, and what was printed."""
    (home / "calls").write_text("")
    env = {**os.environ, "HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}
    env.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        [folder / "tools/dev/tidy", "a.cc"], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.returncode, len((home / "calls").read_text().split()), done.stdout


def test_what_was_clean_is_not_read_again_in_any_clone(home, tmp_path):
    first, second = clone(tmp_path / "first"), clone(tmp_path / "second")
    assert tidy(home, first) == (0, 1, "")
    assert tidy(home, first) == (0, 0, "")
    assert tidy(home, second) == (0, 0, "")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder, home: (folder / "a.h").write_text("inline int one() { return 2; }\n"),
        lambda folder, home: (folder / "a.cc").write_text('#include "a.h"\n// NOLINT\n'),
        lambda folder, home: (folder / ".clang-tidy").write_text("Checks: y\n"),
        lambda folder, home: (home / "version").write_text("15\n"),
        lambda folder, home: set_flags(folder, "-DX=2"),
    ],
    ids=["header", "source", "checks", "version", "flags"],
)
def test_it_looks_again_after_a_change(home, tmp_path, change):
    folder = clone(tmp_path / "clone")
    assert tidy(home, folder)[:2] == (0, 1)
    change(folder, home)
    assert tidy(home, folder)[:2] == (0, 1)


def test_what_was_not_clean_is_read_each_time(home, tmp_path):
    folder = clone(tmp_path / "clone")
    (folder / "a.h").write_text("// bad\n")
    for _ in range(2):
        status, calls, said = tidy(home, folder)
        assert (status, calls) == (1, 1)
        assert said.startswith("a.cc: clang-tidy (exit 1)\na.h:// bad\n")


def test_a_source_that_does_not_compile_is_read_each_time(home, tmp_path):
    folder = clone(tmp_path / "clone")
    (folder / "a.cc").write_text('#include "missing.h"\n')
    assert [tidy(home, folder)[1] for _ in range(2)] == [1, 1]
