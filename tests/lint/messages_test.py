"""Collects what users may read of the sources into tests/golden/messages.txt, and refuses one that
is stale.

usage: messages_test.py ROOT | ROOT --write | --self-test

A message is a string literal, adjacent ones joined, of two words or more, in the C++ and Python
sources that are installed. Comments, docstrings, includes and attributes are left out, and so are
files whose texts a command prints as a whole: help, manual page, completions (see `regroup --help
all`).
"""

import ast
import pathlib
import re
import subprocess
import sys
import tempfile

GOLDEN = "tests/golden/messages.txt"
HEAD = """\
# What users may read, file by file, in order of the source.
# Made by: python3 tests/lint/messages_test.py . --write
# Form: what happened, to what: expected X, got Y; what to do. {} stands for a value.
"""
FOLDERS = re.findall(
    r"\w+", "base proto shmem membership elastic collective checkpoint launcher python tools"
)
LEFT_OUT = (
    "launcher/cli/table_",
    "launcher/cli/help.cc",
    "launcher/cli/man.cc",
    "launcher/cli/completion.cc",
    "tools/dev/",
    "tools/docs/",
)
TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/
      | (?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<text>"(?:[^"\\\n]|\\.)*")
      | '(?:[^'\\\n]|\\.)+' (?!\w)
      | ^[ \t]*\#[ \t]*(?:include|error|pragma)[^\n]*
      | \[\[[^\]]*\]\]
      | (?P<space>\s+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
TWO_WORDS = re.compile(r"[A-Za-z]{2,}[^A-Za-z]* [^A-Za-z]*[A-Za-z]{2,}")
# Python, a shell, assembler
CODE = re.compile(r"^(?:import |def |#!|(?:lock|dmb|prfm|mrs|msr) )|\$\{")


def is_message(text: str) -> bool:
    return TWO_WORDS.search(text) is not None and CODE.search(text) is None


def of_cpp(source: str) -> list[str]:
    """Its literals in order; those that only white space or comments part are one."""
    found, current = [], None
    for token in TOKEN.finditer(source):
        if token["text"] is not None or token["raw"] is not None:
            if token["raw"] is not None:
                mark = len(token["mark"])
                text = token["raw"][mark + 3 : -mark - 2].replace("\n", "\\n")
            else:
                text = token["text"][1:-1]
            current = text if current is None else current + text
        elif token["other"] is not None or token.group().startswith(("'", "[[")):
            if current is not None:
                found.append(current)
            current = None
    return [text for text in found if is_message(text)]


class Texts(ast.NodeVisitor):
    """The texts of a Python source but docstrings; what an f-string puts in is {}."""

    def __init__(self):
        self.found: list[str] = []

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring is one
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.append(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.found.append(
            "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
        )
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)


def of_python(source: str) -> list[str]:
    texts = Texts()
    texts.visit(ast.parse(source))
    return [text.replace("\n", "\\n") for text in texts.found if is_message(text)]


def collected(root: pathlib.Path, files: list[str]) -> str:
    out = HEAD
    for file in sorted(files):
        if file.startswith(LEFT_OUT) or not file.startswith(
            tuple(f"{folder}/" for folder in FOLDERS)
        ):
            continue
        path = root / file
        if path.suffix in (".cc", ".h", ".c"):
            texts = of_cpp(path.read_text())
        elif path.suffix == ".py":
            texts = of_python(path.read_text())
        else:
            continue
        if texts:
            out += f"\n{file}\n" + "".join(f"  {text}\n" for text in dict.fromkeys(texts))
    return out


def tracked(root: pathlib.Path) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    )
    return [file for file in done.stdout.split("\0") if file and (root / file).exists()]


def self_test() -> None:
    cpp = r"""
#include "not one message"
// "nor a comment"
Status f() { return invalid_argument(fmt::format("no host {}: "  // why
    "expected a name", 'x')); }
const char* kRaw = R"(two
lines here)";
auto more = g("one", "word") + "more words" + std::string("to say");
"""
    assert of_cpp(cpp) == [
        r"no host {}: expected a name",
        r"two\nlines here",
        "more words",
        "to say",
    ]
    python = (
        'def f(x):\n    """Not one message."""\n    raise ValueError(f"no rank {x + 1} here" " or '
        'there")\n'
    )
    assert of_python(python) == ["no rank {} here or there"]
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "base").mkdir()
        (root / "base/a.cc").write_text('say("one message");')
        assert collected(root, ["base/a.cc"]) == HEAD + "\nbase/a.cc\n  one message\n"


def main(root: pathlib.Path, write: bool) -> None:
    text = collected(root, tracked(root))
    golden = root / GOLDEN
    if write:
        golden.write_text(text)
    elif not golden.exists() or golden.read_text() != text:
        sys.exit(
            f"{GOLDEN} is not what the sources say; run: python3 tests/lint/messages_test.py . "
            f"--write"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) in (2, 3) and sys.argv[2:] in ([], ["--write"]):
        main(pathlib.Path(sys.argv[1]), len(sys.argv) == 3)
    else:
        sys.exit(__doc__)
