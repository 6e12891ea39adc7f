"""A fixed list of generated inputs; `./dev differential` goes on from there (CONTRIBUTING.md)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import host_lists
import hydra
import launchers
import processor_sets
import pytest
from command_lines import CommandLine, Generator
from comparison import shrink, unexplained
from differences import REASONS
from machines import NAMES, load, write_synthetic

COMMAND_LINES = 120
HOST_LISTS = 120
HYDRA = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("machines")
    write_synthetic(out)
    host_lists.write_configuration(out)
    return out


def all_of(items, check) -> list:
    with ThreadPoolExecutor(8) as pool:
        return [found for found in pool.map(check, items) if found]


def test_ranks_are_placed_as_under_open_mpi(folder):
    def check(seed: int):
        found = unexplained(Generator(seed).make(), folder)
        return f"seed {seed}: {found}" if found else None

    assert "\n".join(all_of(range(COMMAND_LINES), check)) == ""


def test_open_mpi_accepts_most_command_lines(folder):
    """Equal refusals would say little."""

    def check(seed: int):
        line = Generator(seed).make()
        return launchers.regroup(line, load(folder, line.machine)).accepted

    assert len(all_of(range(COMMAND_LINES), check)) > COMMAND_LINES / 3


def test_host_lists_are_those_of_scontrol(folder):
    def check(seed: int):
        found = host_lists.compare(host_lists.Generator(seed).make(), folder)
        return f"seed {seed}: {found[0]}" if found and not found[1] else None

    assert "\n".join(all_of(range(HOST_LISTS), check)) == ""


def test_ranks_of_hydras_command_lines_are_where_hydra_has_them(folder):
    """And end with its status."""

    def check(seed: int):
        found = hydra.compare(hydra.Generator(seed).make(), folder)
        return f"seed {seed}: {found[0]}" if found and not found[1] else None

    assert "\n".join(all_of(range(HYDRA), check)) == ""


def test_parts_of_machines_are_those_of_hwloc(folder):
    pairs = [(name, kind) for name in NAMES for kind in processor_sets.TYPES]
    found = all_of(pairs, lambda pair: processor_sets.compare(*pair, folder))
    assert "\n".join(found) == ""
    counted = all_of(NAMES, lambda name: processor_sets.count(name, "core", folder) > 0)
    assert len(counted) == len(NAMES)


def test_equal_seeds_give_equal_command_lines():
    lines = [Generator(seed).make() for seed in range(100)]
    assert lines == [Generator(seed).make() for seed in range(100)]
    assert len(set(lines)) > 90


def test_what_fails_becomes_small():
    """Of many options those that the failure needs are left."""
    seed = next(s for s in range(10_000) if len(Generator(s).make().programs) == 3)
    line = Generator(seed).make()
    extra = (("--map-by", "socket:PE=2"), ("--nolocal",))
    line = CommandLine(line.machine, ((*line.programs[0], *extra), *line.programs[1:]), line.files)

    def fails(candidate: CommandLine) -> bool:
        return any("PE=2" in word for word in candidate.words("regroup"))

    small = shrink(line, fails)
    assert small.words("regroup") == ["--map-by", "socket:PE=2", "true"]


def test_every_reason_has_a_source():
    assert all(reason.text and reason.source for reason in REASONS)
    assert len({reason.text for reason in REASONS}) == len(REASONS)
