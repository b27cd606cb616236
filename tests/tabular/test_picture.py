import math

import numpy as np
import pandas as pd
import pytest

from pfdl.data import make_mmads
from pfdl.tabular import PFDLRegressor
from pfdl.tabular.picture import picture_table, read_table


def test_the_picture_is_what_the_estimator_explains():
    table = make_mmads(600, 10, 1.7, seed=0).frame()
    table["constant"] = 1.0
    picture = picture_table(table, "y", ratio_threshold=0.7)
    model = PFDLRegressor(ratio_threshold=0.7).fit(table.drop(columns="y"), table["y"])
    found = model.explain()
    assert picture.columns == tuple(found.index)
    np.testing.assert_array_equal(picture.m, found["m"])
    np.testing.assert_array_equal(picture.k, found["k"])
    assert picture.decisions == tuple(found["decision"])
    assert picture.decisions[-1] == "constant"
    assert math.isnan(picture.m[-1])
    assert (picture.verdict, picture.ratio_threshold, picture.rows) == (model.verdict_, 0.7, 600)


@pytest.mark.parametrize("classes", [["a", "b", "c"], [True, False, True]])
def test_a_target_of_classes(classes):
    generator = np.random.default_rng(0)
    label = generator.integers(3, size=200)
    table = pd.DataFrame(generator.normal(size=(200, 3)) + label[:, None], columns=list("xyz"))
    table["kind"] = np.array(classes)[label]
    picture = picture_table(table, "kind")
    assert picture.columns == ("x", "y", "z")
    assert all(np.isfinite(picture.m))


def test_reading_tells_what_it_left_out(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,name,b,y\n1,x,2,3\n2,y,,4\n3,z,inf,5\n4,z,1,6\n")
    table, notes = read_table(path, "y")
    assert table.to_dict("list") == {"a": [1, 4], "b": [2, 1], "y": [3, 6]}
    assert notes == [
        "left out, as they are not numeric: 'name'.",
        "left out, as a value is missing: 2 of 4 rows.",
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not a CSV file"),
        ("a,b\n1,2\n", "has no column 'y'; it has 'a', 'b'"),
        ("a,y\nword,2\n", "0 numeric columns"),
        ("a,y\n1,2\n2,2\n", "the target never changes"),
        (b"\xff\xfe\x00", "is not a CSV file in UTF-8"),
        ('a,y\n"1,2\n', "is not a CSV file"),
    ],
)
def test_a_table_that_cannot_be_judged(content, sentence, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=sentence):
        read_table(path, "y")


def test_there_is_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "nowhere.csv", "y")
