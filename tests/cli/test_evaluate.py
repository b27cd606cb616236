"""The commands evaluate and predict, on a small data set with sets of its own."""

import csv
import json

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.data import read_manifest
from pfdl.vision.evaluation import read_evaluations

runner = CliRunner()
FAST = ["--backbone", "mlp", "--image-size", "8", "--epochs", "2", "--batch-size", "8", "--device", "cpu", "-O", "erm"]


def draw(root, sets, seed=0, contexts=("",), per_cell=12, classes=("cat", "dog")):
    """Classes that differ in brightness."""
    generator = torch.Generator().manual_seed(seed)
    for part in sets:
        for label, name in enumerate(classes):
            for context in contexts:
                folder = root / part / name / context
                folder.mkdir(parents=True, exist_ok=True)
                for number in range(per_cell):
                    pixels = torch.randint(0, 100, (8, 8, 3), generator=generator) + 120 * label
                    Image.fromarray(pixels.to(torch.uint8).numpy()).save(folder / f"{number}.png")
    return root


def invoke(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("photos"), ("train", "test"))


@pytest.fixture(scope="module")
def trained(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "run"
    return output, invoke("train", photos, *FAST, "--no-export", "-o", output)


def test_train_understands_the_sets_and_says_so_first(trained):
    output, result = trained
    assert result.exit_code == 0, result.output
    assert "Images: 48, of 2 classes (cat, dog), without contexts; folders read as class/image." in result.output
    assert "Sets, as the data has them: train 22, validation 2, test 24." in result.output
    found = read_evaluations(output)
    assert list(found) == ["test"]
    assert found["test"].images == 24
    assert set(found["test"].by_class) == {"cat", "dog"}
    assert found["test"].by_ratio == {}


def test_evaluate_gives_the_figures_of_the_end_of_training(trained, photos):
    output, result = trained
    kept = output / "evaluations" / "test.json"
    at_the_end = kept.read_text()
    again = invoke("evaluate", output, photos, "--device", "cpu")
    assert again.exit_code == 0, again.output
    assert kept.read_text() == at_the_end
    figures, path = again.output.strip().rsplit("\n", 1)
    assert figures in result.output
    assert path == str(kept)
    assert list(read_evaluations(output)) == ["test"]


def test_other_data_is_tested_beside_it(trained, tmp_path):
    output, _ = trained
    other = draw(tmp_path / "winter", ("",), seed=5, contexts=("snow", "ice"), per_cell=5)
    before = json.loads((output / "evaluations" / "test.json").read_text())
    result = invoke("evaluate", output, other, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert (
        "Images: 20, of 2 classes (cat, dog), in 2 contexts (ice, snow); folders read as class/context/image."
        in result.output
    )
    assert "Average over the 4 groups (a class in a context), each counted equally" in result.output
    found = read_evaluations(output)
    assert found["winter"].images == 20
    assert found["winter"].average_in_training_mixture is None
    assert json.loads((output / "evaluations" / "test.json").read_text()) == before
    named = invoke("evaluate", output, other, "--device", "cpu", "--name", "cold")
    assert named.exit_code == 0, named.output
    assert read_evaluations(output)["cold"].data_sha256 == found["winter"].data_sha256
    more = draw(tmp_path / "elsewhere", ("",), seed=6, per_cell=5)
    refused = invoke("evaluate", output, more, "--device", "cpu", "--name", "cold")
    assert refused.exit_code == 2
    assert "is about other images" in refused.output


def test_images_that_were_trained_on_are_not_tested(trained, photos, tmp_path):
    copy = tmp_path / "copy"
    draw(copy, ("",), seed=9, per_cell=3)
    for number, picture in enumerate(sorted((photos / "train" / "cat").iterdir())):
        (copy / "cat" / f"old{number}.png").write_bytes(picture.read_bytes())
    result = invoke("evaluate", trained[0], copy, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Left out: 12 of 18 images, which the model was trained on." in result.output
    assert read_evaluations(trained[0])["copy"].images == 6


def test_a_table_of_images_is_tested(trained, tmp_path):
    draw(tmp_path, ("",), seed=11, per_cell=4)
    lines = ["path,y", *(f"{path.relative_to(tmp_path)},{path.parent.name}" for path in tmp_path.rglob("*.png"))]
    (tmp_path / "birds.csv").write_text("\n".join(lines))
    result = invoke("evaluate", trained[0], tmp_path / "birds.csv", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert read_evaluations(trained[0])["birds"].images == 8


def test_other_classes_are_refused(trained, tmp_path):
    other = draw(tmp_path / "other", ("",), seed=20, classes=("cat", "cow"))
    result = invoke("evaluate", trained[0], other, "--device", "cpu")
    assert result.exit_code == 2
    assert "the model knows the classes cat, dog, but the images are of cat, cow" in result.output


def test_predictions_are_a_table(trained, photos, tmp_path):
    output = tmp_path / "predictions.csv"
    result = invoke("predict", trained[0], photos / "test", "-o", output, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == str(output)
    assert result.stderr == "Classifying on cpu …\n"  # one plain line, as there is no terminal
    rows = list(csv.DictReader(output.open()))
    assert len(rows) == 24
    right = sum(row["prediction"] in row["path"].split("/") for row in rows)
    assert right / 24 == read_evaluations(trained[0])["test"].overall
    (tmp_path / "note.txt").write_text("no image")
    refused = invoke("predict", trained[0], tmp_path / "note.txt", "-o", output)
    assert refused.exit_code == 2
    assert "is not an image" in refused.output
    skipped = invoke("predict", trained[0], tmp_path / "note.txt", photos, "-o", output, "--set", "on_bad_image=skip")
    assert skipped.exit_code == 0, skipped.output
    assert "note.txt" in skipped.output
    assert len(list(csv.DictReader(output.open()))) == 48


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_run_that_is_not_there_is_a_sentence(command):
    result = invoke(command, "nowhere", "shapes")
    assert result.exit_code == 2
    assert "there is no run nowhere" in result.output


def test_the_gap_between_validation_and_test_is_said_by_train_and_evaluate(trained, photos, tmp_path):
    output, result = trained
    (own,) = [line for line in result.output.splitlines() if "validation" in line and "test images" in line]
    assert own in invoke("evaluate", output, photos, "--device", "cpu").output
    inverted = draw(tmp_path / "inverted", ("test",), seed=1, classes=("dog", "cat"), per_cell=30)
    logged = csv.DictReader((output / "metrics.csv").read_text().splitlines())
    best = max(float(row["val_accuracy"]) for row in logged)
    shown = invoke("evaluate", output, inverted, "--device", "cpu").output
    tested = read_evaluations(output)["inverted"].overall
    held_out = len(read_manifest(output / "manifest.csv").rows_of("validation"))
    assert f"{100 * best:.1f} % of {held_out} validation images, {100 * tested:.1f} % of 60 test images." in shown
    assert ("points below validation accuracy" in shown) == (best - tested > 0.5)


def test_a_terminal_is_asked_before_a_training_without_contexts_and_a_script_goes_on(photos, tmp_path, monkeypatch):
    where = ["train", str(photos), *FAST, "--contexts", "inferred", "--sampler", "groups", "--no-export", "-o"]
    script = invoke(*where, tmp_path / "script")
    assert script.exit_code == 0, script.output
    assert "With one context there is nothing to balance" in script.output
    monkeypatch.setattr("pfdl.cli.images._is_interactive", lambda: True)
    stopped = runner.invoke(app, [*where, str(tmp_path / "asked")], input="n\n")
    assert stopped.exit_code == 1
    assert "Train without contexts?" in stopped.output
    assert not (tmp_path / "asked" / "model.safetensors").exists()
    assert runner.invoke(app, [*where, str(tmp_path / "asked")], input="y\n").exit_code == 0
