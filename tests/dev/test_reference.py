"""The generated pages of docs/reference, and the list of environment variables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

import reference  # noqa: E402

HEADER = """// What a thing is for. It has
// two sentences.
#pragma once
#include <string>
namespace regroup {

// A thing. One a process.
class Thing {
 public:
  // Makes one: from text. Blocks.
  [[nodiscard]] static base::Result<Thing> make(const std::string& text);
  explicit Thing(int size) : size_(size) {}
  Thing(const Thing&) = delete;
  [[nodiscard]] int size() const { return size_; }  // of all parts
  // Overloaded.
  void set(int size);
  void set(const std::string& size);

 private:
  // Hidden.
  void hidden();
  int size_ = 0;
};

enum class Kind : std::uint8_t { kOne, kTwo };  // of a thing

struct Options {
  int least = 0;                            // no function
  std::function<void(int)> observer;        // neither
};

// Frees all things.
[[nodiscard]] base::Status free_things(const std::vector<Thing>& things,
                                       base::TimePoint deadline);
}  // namespace regroup
"""


def test_a_header_is_its_public_declarations_with_what_their_comments_say():
    found = reference.merged(reference.declarations(HEADER))
    assert found == [
        ("Thing", "A thing. One a process."),
        ("Thing::make", "Makes one: from text. Blocks."),
        ("Thing::size", "of all parts"),
        ("Thing::set", "Overloaded."),
        ("Kind", "of a thing"),
        ("Options", ""),
        ("free_things", "Frees all things."),
    ]
    assert reference.first_sentence("Makes one: from text. Blocks.") == "Makes one: from text."


def test_each_declaration_of_the_public_headers_has_a_contract():
    page = reference.cpp()
    assert len(re.findall(r"^\| `", page, re.M)) > 50
    assert not re.findall(r"^\| `([\w:]+)` \| *\|$", page, re.M)


def test_options_are_those_of_the_manual_page():
    entry = ".TP\n\\fB\\-\\-tag\\fR, \\fB\\-t\\fR \\fIA|B\\fR\nsay\nmore.\n"
    manual = f".SH NAME\nx\n.SH OPTIONS\n.SS Output\n{entry}.SH END\n"
    page = reference.options(manual)
    assert (
        "## Output\n| option | what it does |\n|---|---|\n| `--tag, -t A\\|B` | say more. |\n"
        in page
    )
    assert "END" not in page


def test_arguments_in_a_docstring_become_a_list():
    text = "Does it.\n\nfirst: one.  second: two\nthird: three."
    assert (
        reference.prose_of(text)
        == "Does it.\n\n- `first`: one.\n- `second`: two\n- `third`: three.\n\n"
    )
    assert reference.prose_of("Does it.\nfirst: x", lists=False) == "Does it.\nfirst: x\n\n"


@pytest.mark.parametrize("name", ["cpp.md", "python.md", "messages.md"])
def test_the_committed_pages_are_current(name):
    made = reference.files(program=None)[name]
    assert (reference.FOLDER / name).read_text() == made, "run python3 tools/docs/reference.py"


def test_each_public_header_exists_and_every_message_has_a_row():
    assert sorted(reference.HEADERS) == sorted(
        path.name for path in reference.INTERFACE.glob("*.h")
    )
    union = re.search(r"union Body \{([^}]*)\}", (ROOT / "proto/wire.fbs").read_text())[1]
    bodies = {name.strip() for name in re.sub(r"//[^\n]*", "", union).split(",") if name.strip()}
    assert bodies <= set(re.findall(r"^\| `(\w+)`", reference.messages(), re.M))


def test_each_environment_variable_of_ours_is_in_the_reference():
    listed = subprocess.run(
        ["git", "ls-files", "*.cc", "*.h", "*.py", ":!tests", ":!examples", ":!findings"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split()  # fmt: skip
    sources = [
        f
        for f in listed
        if f.endswith((".cc", ".h", ".py")) and not f.startswith(("tools/dev/", "tools/docs/"))
    ]
    quoted = re.compile(r"[\"'](REGROUP_[A-Z_]+)[\"'=]")
    used = {name for file in sources for name in quoted.findall((ROOT / file).read_text())}
    page = (ROOT / "docs/reference/environment.md").read_text()
    documented = set(re.findall(r"`(REGROUP_[A-Z_]+)`", page))
    assert used - documented == set(), "not in docs/reference/environment.md"
    assert documented - used == set(), (
        "docs/reference/environment.md names what no source reads or sets"
    )
