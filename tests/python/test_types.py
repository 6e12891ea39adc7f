"""The typed stubs say what the built module does, and a user's script passes `mypy --strict` with
them."""

import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
STUB = ROOT / "python/regroup/_native.pyi"
ALLOWED = "tests/python/stubtest_allowed.txt"
MYPY = ["-m", "mypy", "--config-file", "tests/python/mypy.ini", "--cache-dir", "build/mypy"]
VAGUE = ("object", "Annotated")  # what the module itself says of memory and of callables

SCRIPT = """\
import regroup
import regroup.torch
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
session = regroup.torch.join(model, optimizer, data, batch_size=4, epochs=1)
for step in session:
    for x, y in step:
        step.record(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
total: int = session.collective(lambda communicator: communicator.size) + session.rank
world: regroup.WorldInfo = session.world
session.finish()
"""


def described(function: ast.FunctionDef) -> dict[str, str]:
    """Name, default and type of each argument, and what is returned, as the source has them."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    pairs = [*zip(plain, defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    found = {"return": ast.unparse(function.returns), "keywords": str(len(arguments.kwonlyargs))}
    for argument, default in pairs:
        found[argument.arg] = ast.unparse(argument.annotation) if argument.annotation else ""
        found[f"{argument.arg} ="] = ast.unparse(default) if default else ""
    return found


def functions_of(text: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(text)
    found = {f.name: described(f) for f in tree.body if isinstance(f, ast.FunctionDef)}
    for one in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found |= {
            f"{one.name}.{f.name}": described(f) for f in one.body if isinstance(f, ast.FunctionDef)
        }
    return found


def test_the_stub_has_the_signatures_of_the_module(run_python, tmp_path):
    run_python("-m", "nanobind.stubgen", "-q", "-m", "regroup._native", "-O", str(tmp_path))
    built = functions_of((tmp_path / "_native.pyi").read_text())
    ours = functions_of(STUB.read_text())
    assert ours.keys() == built.keys()
    for name, signature in built.items():
        for part, text in signature.items():
            if not text.startswith(VAGUE):
                assert ours[name].get(part) == text, f"{name}: {part}"
        assert ours[name].keys() == signature.keys()


def test_the_stub_names_all_that_is_there_and_nothing_else(run_python):
    told = run_python("-m", "mypy.stubtest", "regroup._native", "--allowlist", ALLOWED, timeout=900)
    assert "no issues found" in told


def test_a_script_of_a_user_is_typed_strictly(run_python, tmp_path):
    script, wrong = tmp_path / "user.py", tmp_path / "wrong.py"
    script.write_text(SCRIPT)
    text = SCRIPT.replace("total: int", "total: str").replace("= session.world", "= session.wold")
    wrong.write_text(text.replace("join(model, optimizer", "join(optimizer, model"))
    run_python(str(script))  # it is no fiction
    words = [sys.executable, *MYPY, str(script), str(wrong)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
    told = done.stdout
    assert done.returncode == 1, told + done.stderr
    assert 'expression has type "int"' in told
    assert '"Session" has no attribute "wold"' in told
    # Torch's types are known.
    assert re.search(r'Argument 1 to "join" has incompatible type "SGD"; expected "?Module"?', told)
    assert "user.py" not in told and "4 errors in 1 file (checked 2 source files)" in told
