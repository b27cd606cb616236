"""The page on parameters, its data and the code agree."""

import csv
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def benchmark():
    spec = importlib.util.spec_from_file_location("parameters_benchmark", ROOT / "benchmarks" / "parameters.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_its_data():
    module = benchmark()
    with (ROOT / "docs" / "results" / "parameters.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs" / "results" / "parameters.md").read_text(encoding="utf-8")
    assert module.markdown(rows) == page
    small = {row["method"]: row for row in rows if row["n"] == "1000"}
    for name, size_at in module.METHODS.items():
        size = size_at(1000)
        assert (str(size.parameters), str(size.bytes)) == (small[name]["parameters"], small[name]["bytes"])


def test_only_a_weight_per_sample_grows():
    module = benchmark()
    grows = {name: size_at(1000) != size_at(2000) for name, size_at in module.METHODS.items()}
    assert [name for name, does in grows.items() if does] == ["DWR, all samples"]
