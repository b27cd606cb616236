"""The page on parameters, its data and the code agree."""

import csv
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("parameters")


def test_the_table_of_the_page_is_made_from_its_data(module):
    with (ROOT / "docs" / "results" / "parameters.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs" / "results" / "parameters.md").read_text(encoding="utf-8")
    assert module.markdown(rows) in page
    small = {row["method"]: row for row in rows if row["n"] == "1000"}
    for name, size_at in module.METHODS.items():
        size = size_at(1000)
        assert (str(size.parameters), str(size.bytes)) == (small[name]["parameters"], small[name]["bytes"])


def test_only_a_weight_per_sample_grows(module):
    grows = {name: size_at(1000) != size_at(2000) for name, size_at in module.METHODS.items()}
    assert [name for name, does in grows.items() if does] == ["DWR, all samples"]
