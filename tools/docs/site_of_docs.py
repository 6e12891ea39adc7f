"""Hooks of MkDocs (mkdocs.yml): the pages are written for GitHub, and this makes a site of them.

docs/index.md is the table of contents: its sections and links, in their order, become the
navigation. Pages at the top of the repository join the site; links to other files outside docs/
become their paths.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
JOINING = ("CONTRIBUTING.md", "CHANGELOG.md")
STYLE = "assets/regroup.css"  # mkdocs.yml names it
WIDER = ".md-grid { max-width: 76rem; }\n"  # tables are wide
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z][a-z+.-]*:)([^)\s#]*)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^[ ]*(?:```|~~~).*?^[ ]*(?:```|~~~)[^\n]*$)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^\s*(?:[-*+] |\d+\. |\|)")
NESTED = re.compile(r"^( {2,3})(?=(?:[-*+]|\d+\.) )")


def contents(index: str) -> list:
    """The navigation that MkDocs takes: [{"Guide": ["guide/elastic.md", ...]}, ...]."""
    sections: list = ["index.md", "glossary.md"]
    for section in index.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        pages = [
            target.removeprefix("../")
            for _, _, target, _ in LINK.findall(text)
            if target.endswith(".md")
        ]
        sections.append({title: pages})
    return sections


def for_python_markdown(text: str) -> str:
    """Python-Markdown wants an empty line before a list or table, and four columns for a list
    within one."""
    lines: list[str] = []
    for line in text.split("\n"):
        line = NESTED.sub("    ", line)
        before = lines[-1] if lines else ""
        if (
            BLOCK.match(line)
            and before.strip()
            and not BLOCK.match(before)
            and before[0] not in " #"
        ):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def link_of(page: str, match: re.Match) -> str:
    """A link of the page `page` of the site (docs/ itself for the pages of JOINING)."""
    picture, words, target, anchor = match.groups()
    if not target:
        return match[0]
    file = os.path.normpath(os.path.join(os.path.dirname(page), target))
    if page in JOINING:
        file = os.path.relpath(file, "docs")
    if not file.startswith(".."):
        target = os.path.relpath(file, os.path.dirname(page) or ".")
        return f"{picture}[{words}]({target}{anchor or ''})"
    outside = file.removeprefix("../")
    if outside in JOINING:
        return f"[{words}]({os.path.relpath(outside, os.path.dirname(page) or '.')}{anchor or ''})"
    return words if "`" in words or words == outside else f"{words} (`{outside}`)"


def page_of_site(page: str, text: str) -> str:
    parts = FENCED.split(text)  # every second part is fenced, and stays
    for number in range(0, len(parts), 2):
        parts[number] = LINK.sub(
            lambda match: link_of(page, match), for_python_markdown(parts[number])
        )
    return "".join(parts)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = contents((Path(config.docs_dir) / "index.md").read_text())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in JOINING:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    files.append(File.generated(config, STYLE, content=WIDER))
    return files


def on_page_markdown(markdown: str, page: Page, **_) -> str:
    return page_of_site(page.file.src_uri, markdown)
