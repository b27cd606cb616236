import json

from pfdl.report.plots import MAX_COLUMNS, Plot, Series
from pfdl.report.tables import Missing, Number


def make_plot(**changes):
    series = [Series("A", ["1:5", "5:1"], [1.0, 2.0], [0.1, 0.2]), Series("<b>B</b>", ["5:1"], [float("nan")])]
    return Plot(**{"title": "t", "summary": "s", "x": "ratio", "y": "%", "series": series, **changes})


def test_drawing_is_plain_json_without_colours():
    drawing = make_plot().drawing
    first, second = drawing["series"]
    assert first["error"] == [0.1, 0.2]
    assert second["name"] == "<b>B</b>"  # the page sets it as text
    assert second["y"] == [None]
    assert drawing["names"] == ["1:5", "5:1"]
    assert first["colour"] != second["colour"]  # a number, which also gives the dash and the marker
    json.dumps(drawing, allow_nan=False)


def test_the_table_of_figures_has_a_line_for_each_series():
    table = make_plot(digits=2).table
    assert table.columns == ["1:5", "5:1"]
    assert table.rows[0].cells == (Number(1.0, 0.1, 2), Number(2.0, 0.2, 2))
    assert table.rows[1].cells == (Missing(), Missing())


def test_too_many_figures_give_no_table():
    places = list(range(MAX_COLUMNS + 1))
    assert make_plot(series=[Series("A", places, [0.0] * len(places))]).table is None
    assert make_plot(with_table=False).table is None


def test_a_logarithmic_axis_has_ticks_at_the_figures():
    drawing = make_plot(series=[Series("A", [30.0, 1.0], [0.0, 0.0])], log_x=True).drawing
    assert (drawing["log"], drawing["ticks"]) == (True, [1.0, 30.0])


def test_figures_that_are_few_and_far_apart_have_a_tick_each():
    def ticks(places):
        return make_plot(series=[Series("A", places, [0.0] * len(places))]).ticks

    assert ticks([20.0, 80.0, 160.0]) == [20.0, 80.0, 160.0]
    assert ticks([1.0, 2.0, 80.0, 160.0]) == []  # the first two would be printed over each other
    assert ticks([float(place) for place in range(30)]) == []
    assert ticks([5.0]) == [5.0]
