"""docs/design/fences.md says of each message what keeps a late or foreign one from being taken."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/fences.md"
WIRES = ("proto/wire.fbs", "launcher/agent/wire.fbs", "membership/catchup/transfer.fbs")


def bodies(schema: str) -> list[str]:
    """Of the one union of a schema."""
    ((text),) = re.findall(r"^union \w+ \{([^}]*)\}", (ROOT / schema).read_text(), re.MULTILINE)
    return [name.strip() for name in text.split(",")]


def rows(schema: str) -> list[list[str]]:
    """Of the table in the section about a schema, without its head."""
    section = PAGE.read_text().split(f"(`{schema}`)\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("schema", WIRES)
def test_each_body_has_its_row(schema: str):
    listed = [name.strip() for row in rows(schema) for name in row[0].split(",")]
    assert len(set(listed)) == len(listed)
    assert set(listed) == set(bodies(schema))
    assert all(cell for row in rows(schema) for cell in row)


def test_the_page_of_the_control_wire_counts_them():
    count = len(bodies("proto/wire.fbs"))
    text = (ROOT / "docs/reference/formats/wire.md").read_text()
    assert f"body: one of {count} tables (union Body)" in text
    assert f"the types are 1..{count} in the order" in text
