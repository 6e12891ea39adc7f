"""The verbs of ./dev that install nothing."""

import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def test_help_works_where_nothing_can_be_written(tmp_path):
    shutil.copy(ROOT / "dev", tmp_path)
    shutil.copytree(ROOT / "tools/dev", tmp_path / "tools/dev")
    (tmp_path / ".dev").write_text("a file where the folder of the logs would be made")
    done = subprocess.run([tmp_path / "dev", "help"], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ./dev VERB")


def test_only_benches_are_listed():
    done = subprocess.run([ROOT / "dev", "bench"], capture_output=True, text=True, timeout=20)
    names = done.stderr.partition("there are:")[2].split()
    assert done.returncode == 1 and {"collectives", "loop", "recovery"} <= set(names)
    for name in names:
        text = (ROOT / f"tests/bench/{name}.py").read_text()
        assert "common.main(" in text or "ArgumentParser" in text, name
