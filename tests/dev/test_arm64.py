"""The lists of what is not tested on ARM64 name tests that exist, and all that is not built."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MACRO = re.compile(
    r"^(TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\(\s*(\w+),\s*(\w+)", re.MULTILINE
)
# of tests: tools/dev/arm64.sh
FOLDERS = ("base", "proto", "shmem", "collective", "checkpoint", "membership")


def rows(name: str) -> list[list[str]]:
    lines = (ROOT / "tests/arm64" / name).read_text().splitlines()
    return [line.split(maxsplit=2) for line in lines if not line.startswith("#")]


def macros(files) -> list[tuple[str, str, str]]:
    return [found for file in files for found in MACRO.findall(file.read_text())]


def test_what_is_skipped_exists_and_lacks_a_system_call():
    known = macros(file for folder in FOLDERS for file in (ROOT / "tests" / folder).rglob("*.cc"))
    suites = {suite for kind, suite, _ in known if kind != "INSTANTIATE_TEST_SUITE_P"}
    cases = {f"{suite}.{case}" for _, suite, case in known}
    for name, call, seen in rows("skipped.txt"):
        suite, _, case = re.sub(r"^\w+/", "", name).partition(".")
        case = case.partition("/")[0]
        assert suite in suites if case == "*" else f"{suite}.{case}" in cases, name
        assert re.fullmatch(r"[a-z_]+", call) and call != "none" and "ENOSYS" in seen, name


def test_what_is_not_built_is_listed():
    lists = (ROOT / "tests/collective/CMakeLists.txt").read_text()
    sources = re.search(r"set\(ucx_sources\n(.*?)\)", lists, re.DOTALL)[1].split()
    found = macros(ROOT / "tests/collective" / source for source in sources)
    own = {suite for kind, suite, _ in found if kind != "INSTANTIATE_TEST_SUITE_P"}
    shared = {f"{name}/{suite}" for kind, name, suite in found
              if kind == "INSTANTIATE_TEST_SUITE_P" and suite not in own}  # fmt: skip
    assert {suite for suite, _ in rows("not_built.txt")} == own | shared
    assert own and shared
