"""`./dev gpu-test --pack`: the Python module compiles from what is packed, elsewhere. No GPU."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import pack_module  # noqa: E402

PYTHON = Path(sysconfig.get_paths()["include"]).resolve()


def test_the_pack_holds_all_that_the_module_includes(tmp_path):
    """Preprocesses what is packed; a header of a Debian package that stayed behind is seen."""
    pack_module.pack_sources(ROOT / "build", tmp_path / "module")
    lines = [line.split() for line in (tmp_path / "module/sources").read_text().splitlines()]
    included = set()
    for unit in ("native", "nanobind"):
        sources = [Path(source) for kind, source in lines if kind == unit]
        words = [f"@{unit}.words", "-isystem", str(PYTHON)]
        included |= pack_module.headers(sources, words, cwd=tmp_path / "module")
    outside = {
        path
        for path in pack_module.without_compilers(included)
        if not path.is_relative_to(tmp_path.resolve()) and not path.is_relative_to(PYTHON)
    }
    assert len(included) > 300 and not outside


def test_the_pack_holds_all_that_the_module_links():
    options, archives = pack_module.link_words(ROOT / "build")
    assert "-static-libstdc++" in options
    assert len(archives) > 10 and all(path.exists() for path in archives)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('#error "as planned"\n', ["broken.cc", "as planned", "no module for Python"]),
        ("", ["what was compiled cannot be imported"]),
    ],
)
def test_a_module_that_does_not_compile_or_load_says_so(tmp_path, source, said):
    module = tmp_path / "pack/module"
    (module / "package/regroup").mkdir(parents=True)
    (module / "package/regroup/__init__.py").write_text("from regroup import _native\n")
    (module / "broken.cc").write_text(source)
    (module / "sources").write_text("native broken.cc\n")
    (module / "native.words").write_text("-fPIC\n")
    (module / "link.words").write_text("-Wl,-s\n")
    subprocess.run(["ar", "rc", "libregroup_native.a"], cwd=module, check=True)
    script = ROOT / "tests/gpu/build_module.sh"
    done = subprocess.run(
        ["bash", str(script), str(tmp_path / "pack"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHON": sys.executable},
    )
    assert done.returncode != 0
    assert all(word in done.stderr for word in said), done.stderr
