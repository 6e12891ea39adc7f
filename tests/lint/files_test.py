"""Holds what conventions say of each C++ file: it opens with its purpose.

usage: files_test.py ROOT | --self-test
"""

import pathlib
import tempfile

from command import main

SUFFIXES = (".h", ".cc")
SKIPPED = ("_generated.h",)  # made by flatc


def violations_in(path: str, text: str) -> list[str]:
    if text.startswith("//"):
        return []
    return [f"{path}: does not open with a comment that says its purpose"]


def violations(root: pathlib.Path) -> list[str]:
    found = []
    for top in sorted(
        p for p in root.iterdir() if p.is_dir() and not p.name.startswith((".", "build", "dist"))
    ):
        for path in sorted(
            p for p in top.rglob("*") if p.suffix in SUFFIXES and not p.name.endswith(SKIPPED)
        ):
            found += violations_in(path.relative_to(root).as_posix(), path.read_text())
    return found


def self_test() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "base").mkdir()
        for file, text, refused in [
            ("a.h", "// Purpose.\n" + "int x;\n" * 1000, 0),
            ("b.cc", "#include <string>\n", 1),
            ("wire_generated.h", "int x;\n" * 1000, 0),
        ]:
            (root / "base" / file).write_text(text)
            assert len(violations(root)) == refused, (file, refused, violations(root))
            (root / "base" / file).unlink()


if __name__ == "__main__":
    main(__doc__, violations, self_test)
