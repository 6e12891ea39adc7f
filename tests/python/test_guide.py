"""The pages of docs/guide for users of PyTorch: their scripts and commands, as they stand there."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import regroup.torch
import torch

GUIDE = Path(__file__).parents[2] / "docs/guide"
PAGES = [GUIDE.parents[1] / "README.md", *sorted(GUIDE.glob("*.md"))]


def page(name: str) -> str:
    return (GUIDE / name).read_text()


def scripts_of(text: str) -> dict[str, str]:
    """The blocks of Python that the page calls files."""
    return dict(
        re.findall(r'^```python title="([^"]+)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    )


class Reader:
    """Does in a folder what a page says: saves its scripts, and runs commands that stand in it."""

    def __init__(self, name: str, folder: Path):
        self.text, self.folder = page(name), folder
        self.scripts = scripts_of(self.text)
        for file, script in self.scripts.items():
            (folder / file).write_text(script)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path}
        for variable in ("REGROUP_SHARDS", "REGROUP_SEED"):
            self.environment.pop(variable, None)

    def run(self, command: str, epochs: int | None = None) -> str:
        """What the command prints; it must stand in the page, which may train for more epochs."""
        assert f"\n{command}\n" in self.text, f"the page does not have this command: {command}"
        words = shlex.split(re.sub(r" --epochs \d+$", "", command))
        words += [] if epochs is None else ["--epochs", str(epochs)]
        done = subprocess.run(
            ["env", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def launches_in(text: str) -> list[str]:
    """The command lines of code blocks that launch a job on this machine."""
    blocks = "".join(re.findall(r"^```[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    return re.findall(r"^(?:exec )?regroup ((?=-)(?!.*-H ).*?)(?: +#.*)?$", blocks, re.MULTILINE)


def bits_of(value) -> list[bytes]:
    """The bits of all tensors in a dictionary of dictionaries."""
    if isinstance(value, dict):
        return [bits for one in value.values() for bits in bits_of(one)]
    return [value.numpy().tobytes()] if isinstance(value, torch.Tensor) else []


def weights_in(output: str) -> str:
    return re.search(r"weights ([0-9a-f]{16})", output)[1]


def test_the_tutorial_goes_from_a_plain_script_to_a_job_that_goes_on(tmp_path):
    reader = Reader("tutorial.md", tmp_path)
    assert "test accuracy" in reader.run("python train_plain.py", epochs=1)
    training = (
        "--oversubscribe --checkpoint ck --checkpoint-interval 30 python train.py --epochs 300"
    )
    first = reader.run(f"regroup -np 2:4 --initial-size 3 {training}", epochs=2)
    assert "epoch  2" in first
    assert "step 60" in first
    assert len(reader.run("regroup checkpoint ls ck").splitlines()) == 2
    second = reader.run(f"regroup -np 2 {training}", epochs=3)
    assert "resumes after step 60" in second
    alone = reader.run("REGROUP_SHARDS=4 python train.py --epochs 1000", epochs=3)
    assert weights_in(second) == weights_in(alone)


def test_the_recipes_run_as_they_stand(tmp_path):
    reader = Reader("recipes.md", tmp_path)
    shared = (
        reader.scripts["shared_evaluation.py"]
        + "assert abs(accuracy - accuracy_of(model)) < 1e-6\n"
    )
    script = reader.scripts["recipes.py"].replace(
        "\nsession.finish()\n", f"\n{shared}session.finish()\n"
    )
    (tmp_path / "recipes.py").write_text(script)
    elastic = "regroup -np 2:4 --oversubscribe --checkpoint ck --checkpoint-interval 30 "
    elastic += "python recipes.py --epochs 20"
    assert "of the averaged weights" in reader.run(elastic, epochs=1)
    # schedulers, averages and counters, too
    assert "resumes after step 30" in reader.run(elastic, epochs=3)
    alone = tmp_path / "alone"
    alone.mkdir()
    words = [sys.executable, tmp_path / "recipes.py", "--epochs", "3"]
    environment = {**reader.environment, "REGROUP_SHARDS": "4"}
    subprocess.run(words, cwd=alone, env=environment, check=True, timeout=240)
    for file in ("end.pt", "best.pt"):
        saved, undisturbed = torch.load(tmp_path / file), torch.load(alone / file)
        assert bits_of(saved) == bits_of(undisturbed), file
    reader.run("regroup checkpoint export ck model.pt --to torch --model-only")
    script = reader.scripts["use_export.py"] + reader.scripts["read_checkpoint.py"]
    script += "assert torch.equal(saved['model']['0.bias'], model[0].bias)\n"
    script += "load = torch.tensor\n" + reader.scripts["parallel_loading.py"]
    script += "assert load_all([Names([5, 6, 7])[i] for i in (2, 0)]).tolist() == [7, 5]\n"
    (tmp_path / "use.py").write_text(script)
    subprocess.run([sys.executable, "use.py"], cwd=tmp_path, check=True, timeout=120)


def test_the_page_for_python_has_all_that_join_session_and_step_offer():
    text = page("python.md")
    listed = set(re.findall(r"[`.](\w+)", "".join(re.findall(r"^\|.*?\|", text, re.MULTILINE))))
    wanted = set(inspect.signature(regroup.torch.join).parameters)
    for one in (regroup.torch.Session, regroup.torch.Step):
        wanted |= {name for name in dir(one) if not name.startswith("_")} - {"region"}
    wanted |= set(re.findall(r"self\.([a-z]\w*)", inspect.getsource(regroup.torch.Step.__init__)))
    assert wanted - listed == set(), "the tables of the page lack these"


def test_the_command_lines_of_all_pages_have_known_options(tmp_path):
    launches = [(path.name, line) for path in PAGES for line in launches_in(path.read_text())]
    assert len(launches) > 20
    for name, line in launches:
        command = ["regroup", "--do-not-launch", "--oversubscribe", *shlex.split(line)]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        # A job file of the reader is missing here.
        err = re.sub(r"option --job \S+: No such file or directory", "", done.stderr)
        assert "option" not in err, f"{name}: regroup {line}: {done.stderr}"
