from xml.etree import ElementTree

import pytest

from pfdl.report.page import PALETTE
from pfdl_lab.report.blocks import Missing, Number
from pfdl_lab.report.lines import MAX_COLUMNS, Series, plot_lines, ticks_at

LINES = [
    Series("A", ["1:5", "5:1"], [1.0, 2.0], [0.1, 0.2]),
    None,
    Series("<b>B</b>", ["5:1"], [float("nan")]),
]


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
    "options", [{}, {"is_grouped": True}, {"lines": [Series("A", [1], [1.0], style="level")]}]
)
def test_a_picture_is_an_svg_file_that_is_the_same_each_time(options):
    plot = draw(**options)
    assert plot.svg() == plot.svg()
    drawn = ElementTree.fromstring(plot.svg())
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 5
    assert {"ratio", "%"} <= set(words_of(plot))
    # The truth is black, no method is
    assert (f"stroke: {PALETTE['ink']}" in plot.svg()) is ("lines" in options)


@pytest.mark.parametrize(
    "name", ["<script>1</script>", "$a_b$", "$\\bad{$", "x & y", "\x1b[2J", "\ud800"]
)
def test_a_name_is_mere_text(name):
    (plot,) = plot_lines(
        "t", "s", name, "%", [Series(name, [name, "b"], [1.0, 2.0]), Series("C", ["b"], [1.0])]
    )
    shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert words_of(plot).count(shown) == 3  # legend, tick, axis


def test_the_table_of_figures_has_a_line_for_each_series():
    table = draw(digits=2).table
    assert table.columns == ["1:5", "5:1"]
    assert table.rows[0].cells == (Number(1.0, 0.1, 2), Number(2.0, 0.2, 2))
    assert table.rows[1].cells == (Missing(), Missing())


def test_too_many_figures_give_no_table_and_no_lines_no_plot():
    places = list(range(MAX_COLUMNS + 1))
    assert draw([Series("A", places, [0.0] * len(places))]).table is None
    assert draw(is_cloud=True).table is None
    assert plot_lines("t", "s", "x", "y", [None]) == []


@pytest.mark.parametrize(
    ("places", "ticks"),
    [
        ([20.0, 80.0, 160.0], [20.0, 80.0, 160.0]),
        ([1.0, 2.0, 80.0, 160.0], []),  # the first two would be printed over each other
        (list(range(30)), []),
        ([5.0], [5.0]),
    ],
)
def test_figures_that_are_few_and_far_apart_have_a_tick_each(places, ticks):
    assert ticks_at([Series("A", places, [0.0] * len(places))]) == ticks
