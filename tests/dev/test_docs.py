"""The site of docs/ (./dev docs): links and lists of pages that are written for GitHub, and what
stops it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

import site_of_docs  # noqa: E402


def test_the_index_is_the_navigation():
    index = (
        "# Docs\n[glossary](glossary.md)\n\n## Guide\n- [A](guide/a.md): one,\n  "
        "[B](guide/b.md#c).\n## Dev\n"
    )
    index += "[x](../CONTRIBUTING.md) [y](../examples/demo.py)\n"
    pages = site_of_docs.contents(index)
    assert pages == [
        "index.md",
        "glossary.md",
        {"Guide": ["guide/a.md", "guide/b.md"]},
        {"Dev": ["CONTRIBUTING.md"]},
    ]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("guide/a.md", "[b](b.md#c)", "[b](b.md#c)"),
        ("guide/a.md", "![b](../results/b.png)", "![b](../results/b.png)"),
        ("guide/a.md", "[b](#c)", "[b](#c)"),
        ("guide/a.md", "[b](https://c.d/e.md)", "[b](https://c.d/e.md)"),
        ("guide/a.md", "[b](../../CONTRIBUTING.md#c)", "[b](../CONTRIBUTING.md#c)"),
        ("guide/a.md", "[the example](../../examples/b.py)", "the example (`examples/b.py`)"),
        ("guide/a.md", "[`examples/b.py`](../../examples/b.py)", "`examples/b.py`"),
        ("CONTRIBUTING.md", "[b](docs/guide/hosts.md#c)", "[b](guide/hosts.md#c)"),
        ("CONTRIBUTING.md", "[b](CHANGELOG.md)", "[b](CHANGELOG.md)"),
        ("CONTRIBUTING.md", "[licence](LICENSE)", "licence (`LICENSE`)"),
    ],
)
def test_links_lead_to_the_site(page, link, expected):
    assert (
        site_of_docs.page_of_site(page, f"x {link} y\n```\n{link}\n```\n")
        == f"x {expected} y\n```\n{link}\n```\n"
    )


def test_lists_and_tables_may_follow_a_sentence():
    text = "Text:\n- a\n  more\n- b\n  - c\n| d |\n|---|\n"
    assert (
        site_of_docs.page_of_site("a.md", text)
        == "Text:\n\n- a\n  more\n- b\n    - c\n| d |\n|---|\n"
    )
    assert site_of_docs.page_of_site("a.md", "Text:\n| d |\n|---|\n") == "Text:\n\n| d |\n|---|\n"
    assert site_of_docs.page_of_site("a.md", "# Head\n- a\n") == "# Head\n- a\n"


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[x](glossary.md#generation)", ""),
        ("[x](none.md)", "none.md"),
        ("[x](glossary.md#none)", "#none"),
    ],
)
def test_a_dead_link_stops_the_site(tmp_path, link, said):
    shutil.copytree(ROOT / "tools/docs", tmp_path / "tools/docs")
    for file in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / file).write_text((ROOT / file).read_text() if file == "mkdocs.yml" else "# X\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/glossary.md").write_text("# Glossary\n## Generation\n")
    index = f"# Docs\n{link}\n## Dev\n[c](../CONTRIBUTING.md) [d](../CHANGELOG.md)\n"
    (tmp_path / "docs/index.md").write_text(index)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path,
        env={"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode != 0) == bool(said), done.stderr
    assert said in done.stderr
    assert said or (tmp_path / "build-docs/index.html").exists()


def test_each_fuzz_target_is_in_the_list():
    page = (ROOT / "docs/dev/fuzzing.md").read_text()
    listed = re.findall(
        r"^\| (\w+) \|", page.partition("## Targets")[2].partition("\n## ")[0], re.M
    )
    sources = [
        path
        for path in (ROOT / "tests/fuzz").glob("[!_]*.cc")
        if "LLVMFuzzerTestOneInput" in path.read_text()
    ]
    assert sorted(set(listed) - {"target"}) == sorted(path.stem for path in sources)
