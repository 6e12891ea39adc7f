"""Refuses dead links and paths in pages, pages outside the shelves of docs/, long changelog
entries.

usage: docs_test.py ROOT | --self-test
Checks relative links and anchors of every .md file that git tracks, and that docs/index.md links
every page of docs/. An anchor is a heading as GitHub spells it. An entry of CHANGELOG.md has at
most 20 words. A page of docs/design says context, decision and consequences. Sources and their
names in inline code must exist.
"""

import os
import pathlib
import re
import subprocess
import tempfile

from command import main

SHELVES = ("design", "dev", "guide", "reference", "results")
# no decisions
EXPLAINING = ("docs/design/architecture.md", "docs/design/step.md", "docs/design/threads.md")
COLUMNS = 120  # of a line outside tables, code and addresses
WORDS = 20  # of an entry of the changelog
AT_THE_TOP = ("docs/index.md", "docs/glossary.md")
RECORDED = (
    "licenses/",
    "tests/bench/results/",
    "tests/full-results/",
    "tests/fuzz/corpus/",
    "tests/golden/",
)
TO_COME = ("launcher/scheduler/",)  # named by the architecture before it exists
SHOWN = re.compile(r"`([a-z_.]+/[\w./-]*)`")  # a path of the repository, as inline code
# Names of other software that pages of decisions show, and that stand in no source of ours.
OTHERS = {"exit_to_user_mode_loop", "ucp_ep_flush", "SigPnd", "BlockSizes"}
NAME = re.compile(r"\b(?:[A-Z][a-z0-9]+[A-Z]\w*|[a-z]+_[a-z_]+|k[A-Z]\w+)\b")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s+(\S+)|\bsrc=\"([^\"]+)\"", re.M
)
NAMED = re.compile(r"(?<![\w/.-])docs/[\w./-]*\.(?:md|json|svg|png|csv)\b")


def without_code(text: str) -> str:
    """The page without what is shown as it stands, its lines kept."""
    text = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


def anchors(text: str) -> set[str]:
    text = FENCE.sub("", text)
    found: dict[str, int] = {}
    names = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, re.M):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names


def links(text: str) -> list[tuple[int, str]]:
    """Line and target of each link that does not name a protocol."""
    text = without_code(text)
    return [
        (text.count("\n", 0, match.start()) + 1, next(filter(None, match.groups())))
        for match in LINK.finditer(text)
        if not re.match(r"[a-z][a-z+.-]*:", next(filter(None, match.groups())))
    ]


def dead_links(root: pathlib.Path, page: str, pages: dict[str, str]) -> list[str]:
    found = []
    for line, target in links(pages[page]):
        path, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not (root / file).exists():
            found.append(f"{page}:{line}: dead link {target}: no file {file}")
        elif anchor and file in pages and anchor not in anchors(pages[file]):
            found.append(
                f"{page}:{line}: dead link {target}: {file} has no heading with the anchor "
                f"#{anchor}"
            )
    return found


def off_the_shelves(files: list[str]) -> list[str]:
    folders = tuple(f"docs/{shelf}/" for shelf in SHELVES)
    return [
        f"{file}: lies on no shelf; expected docs/{{{','.join(SHELVES)}}}/"
        for file in files
        if file.startswith("docs/") and not file.startswith(folders) and file not in AT_THE_TOP
    ]


def not_in_the_index(files: list[str], pages: dict[str, str]) -> list[str]:
    if "docs/index.md" not in pages:
        return ["docs/index.md: missing; it links every page of docs/"]
    linked = {
        os.path.normpath(os.path.join("docs", target.partition("#")[0]))
        for _, target in links(pages["docs/index.md"])
    }
    return [
        f"{file}: docs/index.md does not link it"
        for file in files
        if file.startswith("docs/")
        and file.endswith(".md")
        and file not in {*linked, "docs/index.md"}
    ]


def dead_sources(page: str, text: str, files: set[str], folders: set[str]) -> list[str]:
    """Of paths in inline code that begin with a folder of the repository; capitals stand for other
    names."""
    text = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    return [
        f"{page}:{text.count(chr(10), 0, match.start()) + 1}: names {path}, which does not exist"
        for match in SHOWN.finditer(text)
        if (path := match.group(1)).split("/")[0] in folders
        and path not in TO_COME
        and not re.search(r"[A-Z]{3,}", path)
        and path.rstrip("/") not in folders
        and path not in files
    ]


def dead_names(page: str, text: str, words: set[str]) -> list[str]:
    """Of types, functions and constants in the inline code of pages about the sources."""
    if not page.startswith(("docs/design/", "docs/reference/formats/")):
        return []
    text = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    return [
        f"{page}:{text.count(chr(10), 0, code.start()) + 1}: names {name}, which no source has"
        for code in re.finditer(r"`[^`\n]+`", text)
        for name in NAME.findall(code.group())
        if name not in words
    ]


def not_a_decision(page: str, text: str) -> list[str]:
    if not page.startswith("docs/design/") or page in EXPLAINING:
        return []
    lacking = [
        word for word in ("**Context.**", "**Decision.**", "Consequences") if word not in text
    ]
    return [f"{page}: a page of a decision without {word}" for word in lacking]


def long_lines(page: str, text: str) -> list[str]:
    text = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    return [
        f"{page}:{number}: {len(line)} columns; at most {COLUMNS}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS and not line.lstrip().startswith(("|", "![")) and "://" not in line
    ]


def long_entries(changelog: str) -> list[str]:
    entries = re.finditer(r"^- (.*(?:\n(?![-#\n]).*)*)", changelog, re.M)
    return [
        f"CHANGELOG.md:{changelog.count(chr(10), 0, entry.start()) + 1}: {count} words; at most "
        f"{WORDS}"
        for entry in entries
        if (count := len(entry.group(1).split())) > WORDS
    ]


def violations(root: pathlib.Path) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    files = [file for file in listed.split("\0") if file and (root / file).is_file()]
    texts = {
        file: (root / file).read_bytes().decode(errors="replace")
        for file in files
        if not file.startswith(RECORDED) and not (root / file).is_symlink()
    }
    pages = {file: text for file, text in texts.items() if file.endswith(".md")}
    sources = [text for file, text in texts.items() if not file.startswith("docs/")]
    words = {word for text in sources for word in re.findall(r"\w+", text)} | OTHERS
    folders = {str(parent) for file in files for parent in pathlib.PurePath(file).parents} - {"."}
    found = off_the_shelves(files) + not_in_the_index(files, pages)
    found += long_entries(pages.get("CHANGELOG.md", ""))
    for page in pages:
        found += dead_links(root, page, pages) + long_lines(page, pages[page])
        found += not_a_decision(page, pages[page]) + dead_names(page, pages[page], words)
        if page.startswith("docs/") or "/" not in page:
            found += dead_sources(page, pages[page], set(files), folders)
    for file, text in texts.items():
        if not file.startswith("tests/lint/"):
            found += [
                f"{file}:{number}: names {path}, which does not exist"
                for number, line in enumerate(text.splitlines(), 1)
                for path in NAMED.findall(line)
                if not (root / path).exists() and "NAME" not in path
            ]
    return found


def self_test() -> None:
    index = "[glossary](glossary.md) [b](guide/b.md)\n"
    for file, text, refused in [
        ("docs/guide/b.md", "[x](../glossary.md) ![y](b.md) [z](https://a.b/c.md)\n", ""),
        ("docs/guide/b.md", "[x](../glossary.md#some-words-here) [y](#b-c)\n# B: `c`\n", ""),
        ("docs/guide/b.md", "# A\n# A\n[x](#a-1)\n", ""),
        ("docs/guide/b.md", "`[x](none.md)`\n```\n[x](none.md)\n```\n", ""),
        ("docs/guide/b.md", "\n[x](none.md)\n", "docs/guide/b.md:2: dead link none.md"),
        ("docs/guide/b.md", '<img src="none.svg">\n', "docs/guide/b.md:1: dead link none.svg"),
        ("docs/guide/b.md", "[x](../glossary.md#other)\n", "has no heading with the anchor #other"),
        ("docs/guide/b.md", "[x]\n\n[x]: none.md\n", "docs/guide/b.md:3: dead link none.md"),
        ("docs/guide/c.md", "", "docs/guide/c.md: docs/index.md does not link it"),
        ("docs/d.md", "", "docs/d.md: lies on no shelf"),
        ("docs/d.svg", "", "docs/d.svg: lies on no shelf"),
        ("core/a.h", "// See docs/glossary.md.\n", ""),
        ("core/a.h", "// See docs/none.md.\n", "core/a.h:1: names docs/none.md"),
        ("core/a.h", "// See prometheus.io/docs/none.md.\n", ""),
        (
            "docs/design/a.md",
            "**Context.** **Decision.**",
            "a page of a decision without Consequences",
        ),
        ("CHANGELOG.md", "# C\n- " + "word " * 19 + "\n  word\n- word\n", ""),
        ("CHANGELOG.md", "# C\n- " + "word " * 19 + "\n  word word\n", "CHANGELOG.md:2: 21 words"),
        ("docs/guide/b.md", "word " * 30, "docs/guide/b.md:1: 150 columns"),
        ("README.md", "# R\n" + "word " * 30, "README.md:2: 150 columns"),
        (
            "README.md",
            "| " + "word " * 30 + "|\n```\n" + "word " * 30 + "\n```\nhttps://a.b/" + "c" * 120,
            "",
        ),
        (
            "docs/guide/b.md",
            "`docs/guide/b.md` `docs/guide/` `guide/x` `docs/NAME.md` `none/x.h`",
            "",
        ),
        (
            "docs/guide/b.md",
            "\n`docs/guide/none.cc`",
            "docs/guide/b.md:2: names docs/guide/none.cc",
        ),
        (
            "docs/design/a.md",
            "\n`NoSuch::name`",
            "docs/design/a.md:2: names NoSuch, which no source has",
        ),
        ("README.md", "[x](docs/)\n[y](core/none.h)\n", "README.md:2: dead link core/none.h"),
    ]:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            subprocess.run(["git", "init", "-q"], cwd=root, check=True, timeout=60)
            tree = {
                "docs/index.md": index,
                "docs/glossary.md": "## Some words (here)\n",
                "docs/guide/b.md": "",
            }
            for path, content in (tree | {file: text}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            subprocess.run(["git", "add", "-A"], cwd=root, check=True, timeout=60)
            found = violations(root)
            if refused:
                assert any(refused in line for line in found), (file, text, found)
            else:
                assert not found, (file, text, found)


if __name__ == "__main__":
    main(__doc__, violations, self_test)
