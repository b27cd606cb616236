"""Tables as they come in files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pfdl.tabular.reading import read_table
from pfdl.tabular.validation import identifies_rows
from pfdl.tabular.visible import describe_edges


def test_reading_tells_what_it_left_out(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("row,a,name,b,y\n1,1,x,2,3\n2,2,y,,4\n3,3,z,inf,5\n4,9,z,1,6\n")
    X, y, notes = read_table(path, "y")
    assert (X.to_dict("list"), y.tolist()) == ({"a": [1, 9], "b": [2, 1]}, [3, 6])
    assert notes == [
        "not judged, as they are not numeric: 'name'.",
        "not judged, as they number or identify the rows: 'row'.",
        "left out, as a value is missing: 2 of 4 rows.",
    ]
    with_holes, _, fewer_notes = read_table(path, "y", complete=False)
    assert with_holes["b"].isna().sum() == 2
    assert fewer_notes == notes[:2]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_recognised(separator, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,y\n1.5,2,3\n2.5,7,4\n0.5,1,9".replace(",", separator))
    assert read_table(path, "y")[0].to_dict("list") == {"a": [1.5, 2.5, 0.5], "b": [2, 7, 1]}


def test_decimal_commas_are_read_with_semicolons(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("﻿a;b;y\n1,5;;2\n2,5;7;4\n0,5;5;1\n0,7;6;3\n", encoding="utf-8")
    # Without the empty cell
    assert read_table(path, "y")[0].to_dict("list") == {
        "a": [2.5, 0.5, 0.7],
        "b": [7, 5, 6],
    }


def test_parquet_is_read(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files are read by pyarrow")
    pd.DataFrame({"a": [1.0, 3.0, 2.0], "y": [2.0, 1.0, 5.0]}).to_parquet(
        tmp_path / "table.parquet"
    )
    assert read_table(tmp_path / "table.parquet", "y")[0]["a"].tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("rownames", [1, 2, 3, 4], True),
        ("rownames", [1, 2, 3], True),
        ("rownames", [1, 2], False),  # any two values are in even steps
        ("anything", [10, 20, 30, 40], True),
        ("patient_id", [7, 3, 12, 5], True),
        ("income", [7, 3, 12, 5], False),
        ("rownames", [1, 2, 2, 3], False),
        ("share", [0.1, 0.2, 0.3, 0.4], False),
        ("holes", [1, 2, np.nan, 4], False),
    ],
)
def test_identifiers_are_recognised(name, values, expected):
    assert identifies_rows(np.array(values), name) is expected


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not a table in UTF-8"),
        ("a,b\n1,2\n", "has no column 'y'; it has 'a', 'b'"),
        ("a,y\nword,2\n", "has no numeric columns to predict 'y' from"),
        ("a,b,y\n1,,2\n2,,3\n,1,3\n", "0 complete rows, too few: of 3, 2 have no 'b'"),
        ("a,y\n1,2\n2,2\n", "'y' has the same value in all complete rows"),
        (b"\xff\xfe\x00", "is not a table in UTF-8"),
        ('a,y\n"1,2\n', "is not a table in UTF-8"),
    ],
)
def test_a_table_that_cannot_be_judged(content, sentence, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=sentence):
        read_table(path, "y")


def test_rows_without_a_label_are_not_left_out_in_silence(tmp_path):
    """Heckman's case: who works, and so has a wage, depends on age."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(20, 60, 800), "noise": rng.standard_normal(800)})
    works = rng.random(800) < 1 / (1 + np.exp((table["age"] - 45) / 5))
    table["wage"] = np.where(works, rng.standard_normal(800), np.nan)
    table.to_csv(tmp_path / "table.csv", index=False)
    X, _, notes = read_table(tmp_path / "table.csv", "wage")
    assert len(X) == works.sum()
    note = next(note for note in notes if note.startswith("left out, as 'wage' is missing"))
    without = table["age"][~works].to_numpy()
    with_wage = table["age"][works].to_numpy()
    area = (without[:, None] > with_wage[None, :]).mean()
    assert f"{len(without)} of 800 rows" in note
    assert f"age {area:.2f} (AUC) predict it" in note
    assert "noise" not in note
    table["wage"] = np.where(rng.random(800) < 0.5, table["wage"].fillna(0.3), np.nan)
    table.to_csv(tmp_path / "table.csv", index=False)
    assert "No column predicts which." in " ".join(read_table(tmp_path / "table.csv", "wage")[2])


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (lambda z: z[z > 0.2], "ends sharply at its lowest value"),
        (lambda z: z[z < 0.2], "ends sharply at its highest value"),
        (lambda z: np.maximum(z, -0.5), "32 % of the rows have the lowest value of y"),
        (lambda z: z[np.abs(z) > 0.5], "y has no value between -0.5"),
    ],
    ids=["truncated below", "truncated above", "censored", "hole"],
)
def test_edges_and_holes_of_the_label_are_said(y, sentence):
    z = np.random.default_rng(0).standard_normal(4000)
    assert describe_edges(z, "y") == []
    assert len(found := describe_edges(y(z), "y")) == 1
    assert sentence.lower() in found[0].lower()
    assert describe_edges(np.round(y(z)), "y") == []


def test_where_values_become_rare_towards_an_end_nothing_is_cut_off():
    rising = np.sqrt(np.linspace(0.0, 1.0, 4001)[1:])  # three times as many in the second part
    assert [sentence.split(",")[0] for sentence in describe_edges(rising, "y")] == [
        "Y ends sharply at its highest value"
    ]
