from xml.etree import ElementTree

import pytest

from pfdl_lab.report.blocks import Missing, Number
from pfdl_lab.report.lines import MAX_COLUMNS, plot_lines

LINES = {
    "A": {"1:5": Number(1.0, 0.1), "5:1": Number(2.0, 0.2)},
    "none": {"1:5": Missing()},
    "<b>B</b>": {"5:1": Number(3.0)},
}


def draw(lines=LINES, **options):
    (plot,) = plot_lines("t", "s", "ratio", "%", lines, **options)
    return plot


def words_of(plot):
    return [
        element.text
        for element in ElementTree.fromstring(plot.svg()).iter()
        if element.tag.endswith("}text")
    ]


@pytest.mark.parametrize(
    "options", [{}, {"is_grouped": True}, {"lines": {"A": {1: Number(1.0), 2: Number(3.0)}}}]
)
def test_a_picture_is_an_svg_file_that_is_the_same_each_time(options):
    plot = draw(**options)
    assert plot.svg() == plot.svg()
    drawn = ElementTree.fromstring(plot.svg())
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 5
    assert {"ratio", "%"} <= set(words_of(plot))
    assert ("<b>B</b>" in words_of(plot)) is ("lines" not in options)
    assert "none" not in words_of(plot)  # nothing of it is drawn


@pytest.mark.parametrize(
    "name", ["<script>1</script>", "$a_b$", "$\\bad{$", "x & y", "\x1b[2J", "\ud800"]
)
def test_a_name_is_mere_text(name):
    lines = {name: {name: Number(1.0), "b": Number(2.0)}, "C": {"b": Number(1.0)}}
    (plot,) = plot_lines("t", "s", name, "%", lines)
    shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert words_of(plot).count(shown) == 3  # legend, tick, axis


def test_the_table_of_figures_has_a_line_for_each_name():
    table = draw().table
    assert table.columns == ["1:5", "5:1"]
    assert [row.header for row in table.rows] == list(LINES)
    assert table.rows[0].cells == (Number(1.0, 0.1), Number(2.0, 0.2))
    assert table.rows[1].cells == (Missing(), Missing())


def test_too_many_figures_give_no_table_and_no_figures_no_plot():
    assert draw({"A": dict.fromkeys(range(MAX_COLUMNS + 1), Number(0.0))}).table is None
    nothing = {"A": {1: Missing(), 2: Number(float("nan"))}}
    assert plot_lines("t", "s", "x", "y", nothing) == []


def test_epochs_are_whole_numbers():
    drawn = draw({"A": {5: Number(1.0), 6: Number(2.0)}})
    assert {"5", "6"} <= set(words_of(drawn))
    assert "5.5" not in words_of(drawn)
