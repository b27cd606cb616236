"""The page of the experiment: ours beside the paper's, paired differences, oracles, chosen
epochs.
"""

from itertools import product

import pandas as pd
import pytest

from pfdl.runs import Run
from pfdl_lab.images import run, section
from pfdl_lab.images.rows import PAPER, RATIOS
from pfdl_lab.report.blocks import Missing, Table, Text
from pfdl_lab.report.markdown import render

VALUES = {
    "erm": (50.0, 52.0, 51.0),
    "balance": (53.0, 54.0, 55.0),
    "erm-batch-16": (40.0, 41.0, 42.0),
    "batch-16": (41.0, 42.0, 43.0),
}


def made_up(values=VALUES, test="1:5", epoch="last", data="pets", backbone="resnet18"):
    lines = []
    for row, series in values.items():
        told = (data, backbone, row)
        lines += [(*told, seed, epoch, test, value) for seed, value in enumerate(series)]
    return pd.DataFrame(lines, columns=list(run.COLUMNS))


@pytest.fixture
def built(tmp_path):
    def build(*parts, **settings):
        made_with = {"git_revision": "0c60a68"}
        return section.build(Run(tmp_path, run.KIND, settings, made_with), pd.concat(parts))

    return build


def text_of(built):
    return render([built]).text


def tables_of(built):
    return [block for block in built.blocks if isinstance(block, Table)]


def test_rows_are_compared_with_their_own_plain_training(built):
    text = text_of(built(made_up(), epochs=160, precision="bf16"))
    assert "| balance, inferred contexts | 3 | 54.0 ± 0.6 |" in text
    assert "| balance, inferred contexts − ERM | **+3.00 ± 0.58**, 3 of 3 |" in text
    assert "| PFDL, batches of 16 − ERM, batches of 16 | **+1.00 ± 0.00**, 3 of 3 |" in text
    assert "epochs: 160; precision: bf16; seeds: 0 to 2; revision: 0c60a68." in text
    assert "precision: 32;" in text_of(built(made_up(), precision="bf16", device="cpu"))


def test_the_papers_figures_stand_beside_its_own_networks_alone(built):
    rows = {"erm": (50.0,), "pfdl": (51.0,), "cn": (40.0,)}
    for backbone, quoted in (("resnet50", [37.17, 39.79, 41.31]), ("resnet18", [37.17])):
        parts = [made_up(rows, test=test, backbone=backbone) for test in ("1:5", "1:3", "whole")]
        table = tables_of(built(*parts, epochs=160, learning_rate=0.01))[0]
        lines = [line for line in table.rows if line.quiet]
        assert sorted(line.cells[1].value for line in lines) == quoted
        assert all(line.cells[3] == Missing("not in the paper") for line in lines)
        assert table.columns == ["seeds", "1:5", "1:3", "whole"]


def test_the_papers_figures_stand_beside_its_own_protocol_alone(built):
    rows = dict.fromkeys(PAPER, (50.0, 51.0))
    ours = [
        made_up(rows, test=test, epoch=epoch, backbone="resnet50")
        for test, epoch in product(RATIOS, ("last", "chosen"))
    ]
    first, *others = tables_of(built(*ours, epochs=160, learning_rate=0.01))
    assert first.caption == "Accuracy in percent at the last epoch, pets, resnet50"
    assert [line.header for line in first.rows].count("in the paper, on NICO") == 6
    # Also of the epoch that was chosen
    for table in others:
        assert not any(line.quiet for line in table.rows)
    for settings in (
        {"epochs": 20, "learning_rate": 0.01},
        {"epochs": 160, "learning_rate": 0.1},
        {},
    ):
        assert "in the paper" not in text_of(built(*ours, **settings))


def test_a_weighting_that_did_not_act_is_called_so(built):
    sizes = {row: (0.9995 if row == "balance" else 1.0,) * 3 for row in VALUES}
    idle = text_of(built(made_up(), made_up(sizes, test=run.ESS)))
    acting = text_of(built(made_up(), made_up({**sizes, "balance": (0.7,) * 3}, test=run.ESS)))
    assert "| balance, inferred contexts − ERM | +3.00 ± 0.58, 3 of 3, did not act |" in idle
    assert "| 0.9995, did not act |" in idle
    assert "| balance, inferred contexts − ERM | **+3.00 ± 0.58**, 3 of 3 |" in acting
    assert "| no weighting |" in acting  # ERM


def test_a_training_that_diverged_is_counted(built):
    text = text_of(built(made_up(), made_up({"balance": (1.0,)}, test=run.DIVERGED)))
    assert "3 of 3, 1 diverged |" in text


def test_a_single_seed_shows_its_difference_without_an_error(built):
    text = text_of(built(made_up({row: values[:1] for row, values in VALUES.items()})))
    assert "| balance, inferred contexts − ERM | +3.00, one seed |" in text
    assert "no pairs" not in text
    assert "Declared" not in text


def test_without_results_the_page_says_so(built, tmp_path):
    made = built(made_up({}))
    assert [block.text for block in made.blocks if isinstance(block, Text) and block.tone] == [
        "No finished results yet."
    ]
