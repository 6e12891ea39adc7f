"""The pages of docs/results are what tools/docs/result_pages.py makes of their JSON."""

import json
import sys

import common
import pytest

sys.path.insert(0, str(common.ROOT / "tools/docs"))

import result_pages as results  # noqa: E402

FOLDER = common.ROOT / "docs/results"
HEAD = {
    "bench": "output",
    "date": "2026-11-28",
    "commit": "abc",
    "machine": {"cores": 2, "model": "X", "load": 1},
}
OURS = {"min": 1.0, "p50": 2.0, "p99": 3.0, "samples": 1000}


def made_of(*lines: dict) -> dict[str, str]:
    return results.of_rows("output", "\n".join(map(json.dumps, lines)))


def test_the_committed_pages_are_current():
    for name, text in results.files(FOLDER).items():
        assert (FOLDER / name).read_text() == text, (
            f"{name}: run python3 tools/docs/result_pages.py"
        )


def test_every_page_is_generated():
    assert {path.name for path in FOLDER.glob("*.md")} <= set(results.files(FOLDER))


def test_each_bench_has_a_title():
    benches = [
        path
        for path in FOLDER.parents[1].glob("tests/bench/*.py")
        if "common.main(" in path.read_text()
    ]
    assert {path.stem for path in benches} - {"test_results_pages"} <= set(results.ABOUT)


def test_a_page_has_machine_target_ours_rivals_ratio_and_a_plot():
    row = {"case": "to a <pipe>", "unit": "GB/s", "target": ">= 1", "ours": OURS, "ratio": 4.0}
    files = made_of(HEAD, row | {"rivals": {"mpirun": {"p50": 0.5}}})
    page = files["output.md"]
    assert "2026-11-28, commit abc; 2 cores, X, load 1.0.\n" in page
    assert "| case | unit | target | ours | mpirun | ratio |\n" in page
    assert "| to a <pipe> | GB/s | >= 1 | 2 (min 1, p99 3, 1,000 samples) | 0.5 | 4.00 |\n" in page
    assert "](output.svg)" in page and "to a &lt;pipe&gt;" in files["output.svg"]


def test_rows_of_several_runs_name_each_with_its_machine():
    first = HEAD | {"case": "a", "unit": "s", "ours": OURS}
    other = first | {"case": "b", "commit": "def"}
    page = made_of(first, other, other | {"case": "c"})["output.md"]
    assert (
        "- a:\n  2026-11-28, commit abc; 2 cores, X, load 1.0.\n- b; c:\n  2026-11-28, commit def;"
        in page
    )
    assert "\n- a" not in made_of(first, first | {"case": "b"})["output.md"]


def test_columns_without_content_are_left_out():
    files = made_of(HEAD | {"recorded": "from paper"}, {"case": "a", "unit": "ms", "ours": OURS})
    assert "| case | unit | ours |\n" in files["output.md"] and set(files) == {"output.md"}
    assert "Recorded by hand from paper." in files["output.md"]


@pytest.mark.parametrize(("met", "verdict"), [(True, " met "), (False, " missed "), (None, "")])
def test_figures_that_were_asked_for_are_told(met, verdict):
    figure = {"figure": "start", "asked": "<= 2 s", "found": "1 s", "met": met}
    other = {"figure": "end", "asked": "", "found": "2 s", "met": True}
    page = made_of(HEAD, figure, other)["output.md"]
    assert f"| start | <= 2 s | 1 s |{verdict or '  '}|\n" in page


def test_what_a_bench_writes_becomes_a_page(tmp_path, capsys):
    file = tmp_path / "output.json"
    stats = common.summarize([1.0, 2.0, 3.0])
    common.report(
        [common.Row("output", "to a pipe", "GB/s", stats, {"mpirun": stats}, ["mpirun"])], str(file)
    )
    common.conclude([common.Figure("start", "<= 2 s", "1 s", True)], str(file))
    capsys.readouterr()
    page = results.files(tmp_path)["output.md"]
    assert (
        "| to a pipe | GB/s | 2 (min 1, p99 3, 3 samples) | 2 (min 1, p99 3, 3 samples) | 1.00 |\n"
        in page
    )
    assert "| start | <= 2 s | 1 s | met |\n" in page
