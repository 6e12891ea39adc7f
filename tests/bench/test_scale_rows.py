"""What the bench of simulated hosts says of the figure that was asked for, and what it draws."""

import json

import pytest
import scale


def row(change: str, seconds: float, agents: int = 10_000, radix: int = 64) -> dict:
    return {"change": change, "seconds": seconds, "agents": agents, "radix": radix}


def judge(*rows: dict) -> tuple[list[str], bool]:
    figures = scale.judge(rows)
    return [str(f).rpartition(", ")[2] for f in figures], any(f.met is False for f in figures)


def test_all_are_in_time():
    rows = [row(change, 0.25) for change in scale.GENERATIONS]
    assert judge(*rows) == (["measured 0.250 s: met"] * 3, False)


@pytest.mark.parametrize("late", scale.GENERATIONS)
def test_one_that_is_late_is_missed(late: str):
    rows = [row(change, 0.5 if change == late else 0.25) for change in scale.GENERATIONS]
    lines, missed = judge(*rows)
    assert missed and lines.count("measured 0.500 s: MISSED") == 1


def test_other_sizes_and_trees_are_no_answer():
    rows = [row("one member lost", 0.1, agents=1024), row("one member lost", 3.8, radix=0)]
    assert judge(*rows) == (["not measured"] * 3, False)


def test_what_makes_no_generation_is_not_judged():
    rows = [row(change, 0.25) for change in scale.GENERATIONS] + [row("fence", 0.9)]
    assert not judge(*rows)[1]


def test_every_panel_has_a_line_for_every_change_and_tree(tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    drawn = []
    monkeypatch.setattr(plt.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    rows = [json.loads(line) for line in (scale.DOCS / "scale.json").read_text().splitlines()]
    scale.draw(rows, tmp_path / "scale.svg")
    *axes, beside = drawn[0].axes
    assert [axis.get_title() for axis in axes] == list(scale.PANELS.values())
    changes = {row["change"] for row in rows}
    for axis, key in zip(axes, scale.PANELS, strict=True):
        lines = [line for line in axis.lines if len(line.get_xdata()) > 2]
        assert len(lines) == len(changes) * len(scale.RADICES)
        heights = sorted(height for line in lines for height in line.get_ydata())
        assert heights == sorted(row[key] for row in rows)
    assert {text.get_text() for text in beside.get_legend().get_texts()} == changes
