"""The commands evaluate and predict, on a small data set with sets of its own."""

import csv
import json
import shutil

import pytest

from pfdl.data import read_manifest
from pfdl.vision.evaluation import read_evaluations
from tests.cli.typing_commands import FAST, draw_all, typed

FAST = FAST.replace("--epochs 1", "--epochs 2")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for seed, part in enumerate(("train", "test")):
        draw_all(root / part, seed=seed)
    return root


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "run"
    return output, typed(f"train {photos} {FAST} -o {output}")


def test_evaluate_gives_the_figures_of_the_end_of_training(trained, photos):
    output, result = trained
    kept = output / "evaluations" / "test.json"
    at_the_end = kept.read_text()
    again = typed(f"evaluate {output} {photos} --device cpu")
    assert kept.read_text() == at_the_end
    figures, path = again.output.strip().rsplit("\n", 1)
    assert figures in result.output
    assert path == str(kept)
    found = read_evaluations(output)
    assert list(found) == ["test"]
    assert (found["test"].images, found["test"].by_ratio, set(found["test"].by_label)) == (
        24,
        {},
        {"cat", "dog"},
    )


def test_other_data_is_tested_beside_it(trained, tmp_path):
    output, _ = trained
    other = draw_all(tmp_path / "winter", ("snow", "ice"), 5, seed=5)
    before = json.loads((output / "evaluations" / "test.json").read_text())
    result = typed(f"evaluate {output} {other} --device cpu")
    assert "Average over the 4 groups (a class in a context), each counted equally" in result.output
    found = read_evaluations(output)
    assert found["winter"].images == 20
    assert found["winter"].average_in_training_mixture is None
    assert json.loads((output / "evaluations" / "test.json").read_text()) == before
    typed(f"evaluate {output} {other} --device cpu --name test")
    assert (
        found.keys()
        < read_evaluations(output).keys()
        == {*found, f"test-{found['winter'].data_sha256[:8]}"}
    )


def test_predictions_are_a_table_without_formulas(trained, photos, tmp_path, monkeypatch):
    output = tmp_path / "predictions.csv"
    result = typed(f"predict {trained[0]} {photos / 'test'} -o {output} --device cpu")
    assert result.stdout.splitlines()[-1] == str(output)
    assert result.stderr == "Classifying on cpu …\n"  # one plain line, as there is no terminal
    rows = list(csv.DictReader(output.open()))
    assert len(rows) == 24
    right = sum(row["prediction"] in row["path"].split("/") for row in rows)
    assert right / 24 == read_evaluations(trained[0])["test"].overall
    monkeypatch.chdir(tmp_path)
    shutil.copy(rows[0]["path"], "=1+1.png")
    typed(f"predict {trained[0]} =1+1.png -o {output} --device cpu")
    assert [row["path"] for row in csv.DictReader(output.open())] == ["'=1+1.png"]
    (tmp_path / "note.txt").write_text("no image")
    line = f"predict {trained[0]} {tmp_path / 'note.txt'} -o {output}"
    assert "is not an image" in typed(line, fails=True).output
    assert "note.txt" in typed(f"{line} {photos} --set on_bad_image=skip").output
    assert len(list(csv.DictReader(output.open()))) == 48


def test_the_gap_between_validation_and_test_is_said_by_train_and_evaluate(
    trained, photos, tmp_path
):
    output, result = trained
    (own,) = [
        line
        for line in result.output.splitlines()
        if "validation" in line and "test images" in line
    ]
    assert own in typed(f"evaluate {output} {photos} --device cpu").output
    inverted = tmp_path / "inverted"
    draw_all(inverted / "test", count=30, seed=2, classes=("dog", "cat"))
    logged = csv.DictReader((output / "metrics.csv").read_text().splitlines())
    best = max(float(row["val_accuracy"]) for row in logged)
    shown = typed(f"evaluate {output} {inverted} --device cpu").output
    tested = read_evaluations(output)["inverted"].overall
    held_out = len(read_manifest(output / "manifest.csv").rows_of("validation"))
    assert (
        f"{100 * best:.1f} % of {held_out} validation images, {100 * tested:.1f} % of 60 test"
        " images." in shown
    )
    assert ("points below validation accuracy" in shown) == (best - tested > 0.5)
