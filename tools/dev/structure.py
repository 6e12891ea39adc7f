"""Numbers about how a tree of this project is built up, to compare two commits.

usage: structure.py [ROOT] [--words LIST] [--json FILE]

ROOT is a clone of any commit (default: this one). Prints, for its tracked files:
  retired words      uses of words that LIST refuses (default:
                     tests/lint/retired_words.txt of this tree)
  include cycles     groups of folders of sources that include each other, tests left out
  installed headers  what `cmake --install` puts below include/; configures the
                     tree in a temporary folder
  longest line       of pages below docs/, outside tables, code, addresses
  writers of options sources outside the parser that take the options of a job as something they may
  change
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE / "tests/lint"))
import words_test  # noqa: E402

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# `Options options`, a class's own options by value, is none.
WRITER = re.compile(
    r"(?<!const )(?<![\w:])"
    r"(?:(?:\w+::)*(?:Options|JobSpec)(?:[&*] ?| [&*])|(?:\w+::)+(?:Options|JobSpec) |JobSpec )"
    r"(?:options|spec)\b(?!\s*[({=])"
)
ADDRESS = re.compile(r"(?<=\])\([^)]*\)|\S*://\S*")
PARSERS = (
    "launcher/options/",
    "launcher/cli/",
    "tools/",
    "tests/",
    "collective/",
    "elastic/",
    "python/",
)


def tracked(root: Path, *patterns: str) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-z", *patterns],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def cycles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected groups of more than one folder, each sorted."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        open_ = [start]
        while open_:
            for to in arrows.get(open_.pop(), ()):
                if to not in found:
                    found.add(to)
                    open_.append(to)
        return found

    reach = {folder: reached(folder) for folder in arrows}
    groups = {
        tuple(sorted(other for other in there if folder in reach.get(other, ())))
        for folder, there in reach.items()
    }
    return sorted(list(group) for group in groups if len(group) > 1)


def folder_arrows(root: Path) -> dict[str, set[str]]:
    """For each folder of sources, the others whose headers it includes."""
    files = [f for f in tracked(root, "*.h", "*.cc") if not f.startswith(("tests/", "findings/"))]
    known = {Path(f).parent.as_posix() for f in files}
    out: dict[str, set[str]] = {folder: set() for folder in known}
    for file in files:
        mine = Path(file).parent.as_posix()
        for name in INCLUDE.findall((root / file).read_text(errors="replace")):
            theirs = Path(name).parent.as_posix()
            if theirs in known and theirs != mine:
                out[mine].add(theirs)
    return out


def installed_headers(root: Path) -> list[str]:
    """Paths below include/ that the install scripts of a configured tree name."""
    python = f"-DPython_EXECUTABLE={HERE}/.venv/bin/python"
    with tempfile.TemporaryDirectory() as build:
        subprocess.run(
            ["cmake", "-S", root, "-B", build, "--preset", "dev", python],
            cwd=root, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        scripts = Path(build).rglob("cmake_install.cmake")
        return sorted(
            {h for s in scripts for h in re.findall(r'"[^"]*/([^"/]+/[^"/]+\.h)"', s.read_text())}
        )


def longest_line(text: str) -> int:
    """In characters, outside tables and code blocks, addresses not counted."""
    longest, code = 0, False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith("|"):
            longest = max(longest, len(ADDRESS.sub("", line)))
    return longest


def writers(root: Path) -> list[str]:
    return [
        file
        for file in tracked(root, "launcher/**")
        if file.endswith((".h", ".cc"))
        and not file.startswith(PARSERS)
        and WRITER.search((root / file).read_text(errors="replace"))
    ]


def numbers(root: Path, words: str) -> dict[str, object]:
    found = words_test.violations(root, words)
    pages = {
        file: longest_line((root / file).read_text())
        for file in tracked(root, "docs/*.md", "docs/**/*.md")
    }
    page = max(pages, key=lambda file: pages[file], default="")
    return {
        "retired words": len(found),
        "include cycles": cycles(folder_arrows(root)),
        "installed headers": len(installed_headers(root)),
        "longest line": [pages.get(page, 0), page],
        "writers of options": writers(root),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=HERE)
    parser.add_argument("--words", type=Path, default=HERE / "tests/lint/retired_words.txt")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    out = numbers(arguments.root.resolve(), arguments.words.read_text())
    for name, value in out.items():
        if isinstance(value, list) and name != "longest line":
            print(
                f"{name:20} {len(value)}"
                + "".join(f"\n  {v if isinstance(v, str) else ' '.join(v)}" for v in value)
            )
        else:
            print(
                f"{name:20} {value if not isinstance(value, list) else ' '.join(map(str, value))}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(out, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
