"""The numbers of tools/dev/structure.py, on small trees."""

import pytest
import structure


@pytest.mark.parametrize(
    ("arrows", "groups"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        (
            {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d"}},
            [["a", "b", "c"], ["d", "e"]],
        ),
    ],
)
def test_folders_that_include_each_other_are_a_cycle(arrows, groups):
    assert structure.cycles(arrows) == groups


def test_tables_code_and_addresses_may_be_long():
    long = "x" * 200
    free = f"| {long} |\n```\n{long}\n```\nhttps://{long}\n"
    assert structure.longest_line(free) == 0
    assert structure.longest_line(free + "y" * 80) == 80
    assert structure.longest_line(f"[{'y' * 78}]({long})") == 80


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("int run(const spec::Options& options);", False),
        ("int run(spec::Options& options);", True),
        ("int run(spec::Options options, int x);", True),
        ("Result<Plan> prepare(Options* options);", True),
        ("int run(const Options &options);", False),
        ("int run(const JobSpec& spec);", False),
        ("int run(JobSpec& spec);", True),
        ("  RoleJobOptions options;", False),
        ("RoleWorld(Options options, int x);", False),
    ],
)
def test_what_takes_options_to_change_them_is_a_writer(text, writes):
    assert bool(structure.WRITER.search(text)) == writes
