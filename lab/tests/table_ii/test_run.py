import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from pfdl._internal.runs import Run
from pfdl.cli.main import app
from pfdl.report.tables import Missing, Table
from pfdl_lab.table_ii import run as table
from pfdl_lab.table_ii import section
from pfdl_lab.table_ii.run import CHOSEN, LAST, TableConfig


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images") / "photos"
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        for number, context in enumerate(("sea", "snow")):
            place = root / label / context
            place.mkdir(parents=True)
            for index in range(40):
                pixels = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8) // 2 + 120 * number
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.png")
    return root


CONFIG = TableConfig(
    rows=("erm", "pfdl"), seeds=2, backbone="mlp", image_size=8, epochs=2, decay_every=1, batch_size=8, test_every=1
)


@pytest.fixture(scope="module")
def results(folder, tmp_path_factory):
    return table.run(CONFIG, folder, tmp_path_factory.mktemp("run") / "run")


def test_every_training_is_tested_along_the_way_at_its_end_and_where_validation_chooses(results):
    assert set(results["epoch"]) == {"1", "2", LAST, CHOSEN}
    last = results[results["epoch"] == LAST]
    assert len(last.groupby(["row", "seed"])) == 4
    assert {"1:5", "1:1", "5:1", "whole", "worst group"} <= set(last["test"])
    accuracies = last[last["test"].isin(section.TESTS)]["value"]
    assert accuracies.between(0, 100).all()
    by_test = last.pivot_table(index=["row", "seed"], columns="test", values="value")
    assert (by_test["worst group"] <= by_test["whole"]).all()


def test_the_last_tested_epoch_is_the_last_one(results):
    keys = ["row", "seed", "test"]
    at_two = results[(results["epoch"] == "2") & results["test"].isin(section.TESTS)].set_index(keys)["value"]
    at_end = results[(results["epoch"] == LAST) & results["test"].isin(section.TESTS)].set_index(keys)["value"]
    pd.testing.assert_series_equal(at_two.sort_index(), at_end.sort_index())


def test_the_chosen_epoch_has_the_best_validation_accuracy(results):
    for (_, _), part in results.groupby(["row", "seed"]):
        validation = part[part["test"] == "validation"].set_index("epoch")["value"]
        chosen = part[(part["epoch"] == CHOSEN) & (part["test"] == "epoch")]["value"].item()
        assert validation[CHOSEN] == validation.drop(CHOSEN).max()
        assert validation[str(int(chosen))] == validation[CHOSEN]


def test_only_the_penalty_is_probed(results):
    probed = results[results["test"] == "cosine_level_penalty"]
    assert set(probed["row"]) == {"pfdl"}
    assert probed["value"].between(-1, 1).all()


def test_a_second_start_trains_nothing_again(folder, tmp_path, monkeypatch):
    config = TableConfig(rows=("erm",), seeds=1, backbone="mlp", image_size=8, epochs=1, batch_size=8)
    first = table.run(config, folder, tmp_path / "run")
    monkeypatch.setattr(table, "train", None)
    pd.testing.assert_frame_equal(table.run(config, folder, tmp_path / "run"), first)


def test_an_unknown_row_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="the row is 'erm2'"):
        table.run(TableConfig(rows=("erm2",)), folder, tmp_path / "run")


def test_a_diverged_training_is_a_result(folder, tmp_path, monkeypatch):
    def diverge(*_, **__):
        raise table.DivergedError("no numbers.")

    monkeypatch.setattr(table, "train", diverge)
    results = table.run(TableConfig(rows=("erm",), seeds=1, backbone="mlp", image_size=8), folder, tmp_path / "run")
    assert results["test"].tolist() == ["diverged"]


def test_the_section_pairs_the_seeds(tmp_path):
    lines = [
        {"data": "photos", "backbone": "mlp", "row": row, "seed": seed, "epoch": LAST, "test": "1:5", "value": value}
        for row, values in {"erm": (50.0, 40.0), "pfdl": (53.0, 41.0)}.items()
        for seed, value in enumerate(values)
    ]
    pd.DataFrame(lines).to_csv(tmp_path / "results.csv", index=False)
    found = section.build(Run(tmp_path, "table-ii", {}, {}), [])
    assert "PFDL differs from ERM by +2.0 ± 1.0 points at 1:5" not in found.finding  # without 5:1 nothing is claimed
    lines += [{**line, "test": "5:1"} for line in lines]
    pd.DataFrame(lines).to_csv(tmp_path / "results.csv", index=False)
    found = section.build(Run(tmp_path, "table-ii", {}, {}), [])
    assert "PFDL differs from ERM by +2.0 ± 1.0 points at 1:5 and by +2.0 ± 1.0 at 5:1 (2 seeds)" in found.finding


@pytest.mark.parametrize(
    ("backbone", "title", "quoted"),
    [("resnet50", "Table II on the paper's backbone", 2), ("resnet18", "Table II with resnet18", 0)],
)
def test_the_papers_figures_stand_beside_its_own_backbone_alone(backbone, title, quoted, tmp_path):
    lines = [["photos", backbone, row, 1, LAST, "1:5", 50.0] for row in ("erm", "pfdl")]
    pd.DataFrame(lines, columns=list(table.COLUMNS)).to_csv(tmp_path / "results.csv", index=False)
    built = section.build(Run(tmp_path, "table-ii", {}, {}), [])
    accuracies = next(block for block in built.blocks if isinstance(block, Table))
    assert (built.title, sum(line.quiet for line in accuracies.rows)) == (title, quoted)


def test_the_command_writes_a_run_folder(folder, tmp_path):
    arguments = ["reproduce", "table-ii", str(folder), "--backbone", "mlp", "--image-size", "32", "--epochs", "1"]
    done = CliRunner().invoke(app, [*arguments, "--rows", "erm", "--seeds", "1", "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "config.json").read_text())["kind"] == "table-ii"
    assert set(pd.read_csv(tmp_path / "run" / "results.csv")["row"]) == {"erm"}


def test_a_weighting_that_did_nothing_is_said_to_have_done_nothing(tmp_path):
    lines = []
    for row, share in (("erm", 1.0), ("dwr", 0.99995), ("dwr-0.1", 0.7)):
        lines += [["data", "resnet50", row, 1, "last", test, 50.0] for test in section.TESTS]
        lines += [["data", "resnet50", row, 1, epoch, "effective_share", share] for epoch in ("1", "2")]
    pd.DataFrame(lines, columns=list(table.COLUMNS)).to_csv(tmp_path / "results.csv", index=False)
    built = section.build(Run(tmp_path, "table-ii", {}, {}), [])
    accuracies = next(block for block in built.blocks if isinstance(block, Table))
    found = {line.header: line.cells[1] for line in accuracies.rows if not line.quiet}
    assert found["DWR, as published"].remark == "did not act"
    assert found["DWR, learning rate 0.1"].remark == ""
    assert found["DWR, learning rate 0.1"].value == 0.7
    assert isinstance(found["ERM"], Missing)


def test_the_control_without_a_name_trains_and_logs_its_factor(folder, tmp_path):
    config = TableConfig(rows=("covariance",), seeds=1, backbone="mlp", image_size=8, epochs=1)
    results = table.run(config, folder, tmp_path / "run")
    assert {"matched_weight", "covariance_part", LAST} <= {*results["test"], *results["epoch"]}
    assert (results.loc[results["test"] == "matched_weight", "value"] > 0).all()
