"""docs/reference has the options and commands that this build of regroup prints."""

import sys

import pytest
from conftest import BIN, ROOT

sys.path.insert(0, str(ROOT / "tools/docs"))

import reference  # noqa: E402


@pytest.mark.parametrize("name", ["options.md", "commands.md"])
def test_the_committed_page_is_current(name):
    made = reference.files(str(BIN / "regroup"))[name]
    assert (reference.FOLDER / name).read_text() == made, "run python3 tools/docs/reference.py"
