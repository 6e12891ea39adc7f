"""How two trees take turns, and what is refused."""

from pathlib import Path

import pytest
import versions
from common import BenchError
from versions import Version


def test_every_second_pair_begins_with_the_other_and_pairs_stay_pairs(monkeypatch):
    order = []

    def run(version: Version, number: int) -> dict[str, float]:
        order.append(version.name)
        values = {"both": number + (version.name == "other") / 2}
        if version.name == "other" and number == 1:
            values["rare"] = 1.0
        if version.name == "this tree":
            values["rare"] = 2.0
        return values

    monkeypatch.setitem(versions.PARTS, "launch", ("ms", run))
    trees = [Version("this tree", Path("a")), Version("other", Path("b"))]
    found = versions.measure("launch", trees, 3)
    assert order == ["this tree", "other", "other", "this tree", "this tree", "other"]
    assert found["both"] == {"this tree": [0, 1, 2], "other": [0.5, 1.5, 2.5]}
    assert found["rare"] == {"this tree": [2.0], "other": [1.0]}


def test_a_folder_without_a_release_build_is_refused_with_what_is_missing(tmp_path):
    with pytest.raises(BenchError, match=r"--other .*build-release/bin/regroup is missing"):
        versions.find_other(str(tmp_path))


def test_a_run_that_fails_names_its_tree_and_the_end_of_its_output():
    version = Version("other", Path("/none"))
    with pytest.raises(BenchError, match=r"versions: other: sh -c .*exit status 3.*: no such file"):
        version.run(["sh", "-c", "echo no such file >&2; exit 3"])
