"""Refuses the words of retired_words.txt, which the field has other words for (docs/glossary.md).

usage: words_test.py ROOT | --self-test
"""

import pathlib
import re
import subprocess
import sys
import tempfile

LIST = pathlib.Path(__file__).with_name("retired_words.txt")
FREE = ("docs/glossary.md", "tests/lint/", "CHANGELOG.md")  # these may name a retired word


class Row:
    """One line of the list: what it refuses, and in which files."""

    def __init__(self, line: str):
        kind, rest = line.split(None, 1)
        if kind == "A":  # extended regular expression, whole words, in every file
            self.folders, self.words = ("",), re.compile(rf"\b(?:{rest.strip()})\b", re.IGNORECASE)
        # identifiers, in a folder and in its tests; one that ends in _ begins others
        elif kind == "B":
            folder, *words = rest.split()
            self.folders = (f"{folder}/", f"tests/{folder}/")
            every = "|".join(
                re.escape(word) + (r"\w*" if word.endswith("_") else "") for word in words
            )
            self.words = re.compile(rf"\b(?:{every})\b")
        # words of CamelCase names, as Line in DeadLineIsKept, in a folder
        elif kind == "C":
            folder, *words = rest.split()
            self.folders = (f"{folder}/",)
            self.words = re.compile(rf"\b(?=\w*[a-z][A-Z])\w*(?:{'|'.join(words)})(?![a-z])\w*")
        else:
            raise ValueError(f"{LIST.name}: a line begins with {kind}; expected A, B or C: {line}")

    def found_in(self, file: str, text: str) -> list[str]:
        if not file.startswith(self.folders):
            return []
        return [
            f"{file}:{number}: retired word {match.group()}"
            for number, line in enumerate([file, *text.splitlines()])
            for match in self.words.finditer(line)
        ]


def rows(text: str) -> list[Row]:
    return [Row(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def violations(root: pathlib.Path, listed: str) -> list[str]:
    """Of all files that git tracks, names of files included (line 0)."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    found, refused = [], rows(listed)
    for file in names.split("\0"):
        if not file or file.startswith(FREE) or not (root / file).is_file():
            continue
        text = (root / file).read_bytes().decode(errors="replace")
        for row in refused:
            found += row.found_in(file, text)
    return found


def self_test() -> None:
    listed = "# a comment\nA moods?|letter_\\w+\nB core Line begin_\nC tests/core Line\n"
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True, timeout=60)
        for file, text, expected in [
            ("core/a.h", "int x;\nMoods y;\n", 1),
            ("docs/letter_key.md", "", 1),
            ("core/a.h", "int moody, letter, line, Lines, begin;\n", 0),
            ("core/a.h", "Line a; Line b;\n", 2),
            ("tests/core/a.cc", "Line a;\n", 1),
            ("tests/core/a.cc", "TEST(A, DeadLineIsKept) TEST(A, LinearTime)\n", 1),
            ("elastic/a.cc", "Line a;\n", 0),
            ("core/a.h", "begin_(); begin_it(); begin();\n", 2),
            ("CHANGELOG.md", "mood\n", 0),
            ("tests/lint/a.py", "mood\n", 0),
        ]:
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            subprocess.run(["git", "add", "-A"], cwd=root, check=True, timeout=60)
            found = violations(root, listed)
            assert len(found) == expected, (file, text, expected, found)
            path.unlink()
    assert violations_name("core/a.h", "int x;\nMoods y;\n", listed) == [
        "core/a.h:2: retired word Moods"
    ]


def violations_name(file: str, text: str, listed: str) -> list[str]:
    return [line for row in rows(listed) for line in row.found_in(file, text)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        self_test()
    elif refused := violations(pathlib.Path(sys.argv[1]), LIST.read_text()):
        sys.exit("\n".join(refused))
