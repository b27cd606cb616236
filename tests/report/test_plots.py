from xml.etree import ElementTree

import pytest

from pfdl.report.plots import MAX_COLUMNS, Plot, Series
from pfdl.report.tables import Missing, Number


def make_plot(**changes):
    series = [Series("A", ["1:5", "5:1"], [1.0, 2.0], [0.1, 0.2]), Series("<b>B</b>", ["5:1"], [float("nan")])]
    return Plot(**{"title": "t", "summary": "s", "x": "ratio", "y": "%", "series": series, **changes})


def words_of(plot):
    return [element.text for element in ElementTree.fromstring(plot.svg()).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"grouped": True},
        {"series": [Series("A", [1.0, 100.0], [1.0, float("nan")])]},
        {"series": [], "draw": lambda axes: axes.plot([0, 1], [0, 1])},
        {"series": [Series("A", [0.0, 0.5, 1.0], [1.0, 2.0, 3.0], [0.1, 0.2, 0.3], band=True)]},
    ],
)
def test_a_picture_is_an_svg_file_that_is_the_same_each_time(changes):
    plot = make_plot(**changes)
    assert plot.svg() == plot.svg()
    drawn = ElementTree.fromstring(plot.svg())
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 5
    assert {"ratio", "%"} <= set(words_of(plot))


@pytest.mark.parametrize("name", ["<script>1</script>", "$a_b$", "$\\bad{$", "x & y", "\x1b[2J", "\ud800"])
def test_a_name_is_mere_text(name):
    plot = make_plot(series=[Series(name, [name, "b"], [1.0, 2.0]), Series("C", ["b"], [1.0])], x=name)
    shown = name.encode("unicode_escape").decode() if not name.isprintable() else name
    assert words_of(plot).count(shown) == 3  # legend, tick, axis


def test_the_table_of_figures_has_a_line_for_each_series():
    table = make_plot(digits=2).table
    assert table.columns == ["1:5", "5:1"]
    assert table.rows[0].cells == (Number(1.0, 0.1, 2), Number(2.0, 0.2, 2))
    assert table.rows[1].cells == (Missing(), Missing())


def test_too_many_figures_give_no_table():
    places = list(range(MAX_COLUMNS + 1))
    assert make_plot(series=[Series("A", places, [0.0] * len(places))]).table is None
    assert make_plot(with_table=False).table is None


def test_figures_that_are_few_and_far_apart_have_a_tick_each():
    def ticks(places):
        return make_plot(series=[Series("A", places, [0.0] * len(places))]).ticks

    assert ticks([20.0, 80.0, 160.0]) == [20.0, 80.0, 160.0]
    assert ticks([1.0, 2.0, 80.0, 160.0]) == []  # the first two would be printed over each other
    assert ticks([float(place) for place in range(30)]) == []
    assert ticks([5.0]) == [5.0]
