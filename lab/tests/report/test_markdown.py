"""The same blocks as Markdown, with plots as pictures."""

import io

import numpy as np
import pytest
from pfdl.report.heatmaps import Heatmap
from pfdl_lab.report.drawing import draw
from PIL import Image

from pfdl.report.blocks import Facts, Gallery, Heading, Listing, Section, SideBySide, Text, Thumbnail
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Missing, Number, Row, Table
from pfdl_lab.report.markdown import MARK, render, replace_tables

TABLE = Table(
    "Accuracy",
    "method",
    ["1:5", "5:1"],
    [
        Row("A | B", (Number(40.12, 0.34), Number(-1.0, 0.2, 2, signed=True, strong=True, remark="2 seeds"))),
        Row("in the paper", (Missing("not in the paper"), "37 to 38"), quiet=True),
    ],
    note="A remark.",
)
PLOT = Plot("Accuracy, with errors", "It rises.", "ratio", "%", [Series("A", ["1:5", "5:1"], [1.0, 2.0], [0.1, 0.2])])


def test_a_table_by_hand():
    assert render([Section("Title", [TABLE], "What was found.")], level=2).text == (
        "## Title\n\n**What was found.**\n\n**Accuracy**\n\n"
        "| method | 1:5 | 5:1 |\n| --- | --- | --- |\n"
        "| A \\| B | 40.1 ± 0.3 | **−1.00 ± 0.20**, 2 seeds |\n"
        "| *in the paper* | not in the paper | 37 to 38 |\n\nA remark.\n"
    )


def test_every_block_has_a_form():
    blocks = [
        Text("Words."),
        Text("Careful.", "warning"),
        Heading("Part"),
        Listing("Settings", "{}"),
        Facts("Versions", [("torch", "2.9")]),
        Heatmap("Correlations", "All of them.", np.eye(2), ["a", "b"]),
        SideBySide([Text("left"), Text("right")]),
        Gallery("Digits", [Thumbnail(b"png", "Some digits")]),
    ]
    shown = render([Section("Title", blocks)], prefix="page-")
    for words in (
        "\n\nWords.",
        "\n\n> Careful.",
        "\n\n## Part",
        "```\n{}\n```",
        "- torch: 2.9",
        "All of them.",
        "left\n\nright",
    ):
        assert words in shown.text
    assert "![Some digits](page-some-digits.png)" in shown.text
    assert shown.pictures == {"page-some-digits.png": b"png"}


def test_plots_become_pictures_with_names_of_their_own(tmp_path):
    shown = render([Section("One", [PLOT]), Section("Two", [SideBySide([PLOT])])], prefix="page-")
    assert list(shown.pictures) == ["page-accuracy.png", "page-accuracy-2.png"]
    assert "![Accuracy, with errors](page-accuracy-2.png)\n\n*Accuracy, with errors.* It rises." in shown.text
    written = shown.write(tmp_path / "page.md")
    assert {path.name for path in written} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "changes", [{}, {"grouped": True}, {"series": [Series("A", [1.0, 100.0], [1.0, float("nan")])]}]
)
@pytest.mark.parametrize("log_x", [False, True])
def test_a_drawing_shows_something_and_is_the_same_each_time(changes, log_x):
    plot = Plot(
        **{"title": "t", "summary": "s", "x": "x", "y": "y", "series": PLOT.series, **changes},
        log_x=log_x and "series" in changes,
    )
    png = draw(plot)
    assert png == draw(plot)
    with Image.open(io.BytesIO(png)) as image:
        assert len(image.convert("L").getcolors()) > 10


def test_what_stands_above_the_mark_is_kept():
    once = replace_tables("# Mine\n\nProse.\n", "tables\n", "pfdl report x")
    assert once == f"# Mine\n\nProse.\n\n{MARK} `pfdl report x` -->\n\ntables\n"
    assert replace_tables(once, "others\n", "pfdl report y") == once.replace("tables", "others").replace("x`", "y`")
