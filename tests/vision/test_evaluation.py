import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pfdl.data import make_split
from pfdl.vision import evaluation
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.evaluation import (
    describe_evaluation,
    evaluate,
    find_test_set,
    read_evaluations,
    save_evaluation,
)
from pfdl.vision.pixels import normalise
from tests.vision.tiny_images import TinySource, tiny_data


class Table(nn.Module):
    """A model that is right on chosen images only, told by their pixels."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def forward(self, images):
        keys = [image.numpy().tobytes() for image in images]
        return torch.tensor([[2.0, 0.0] if self.answers[key] == 0 else [0.0, 2.0] for key in keys])


def is_right(row):
    """Wrong on every second image, and on all dark ones on red."""
    return int(row.path[-3:]) % 2 == 0 and (row.class_name, row.context) != ("dark", "red")


def table_model(source, manifest, folder):
    answers = {}
    for row in manifest.rows:
        key = normalise(source.load(row.path, 8, row.sha256)).numpy().tobytes()
        label = manifest.classes.index(row.class_name)
        answers[key] = label if is_right(row) else 1 - label
    assert len(answers) == len(manifest.rows)
    return TrainedModel(Table(answers), ModelConfig("table", manifest.classes, 8), folder)


@pytest.fixture
def tested(tmp_path):
    source, manifest = tiny_data()
    trained = table_model(source, manifest, tmp_path)
    return trained, source, manifest, evaluate(trained, source, manifest)


@pytest.fixture
def result(tested):
    return tested[3]


@pytest.fixture
def tested_rows(tested):
    return tested[2].rows_of("test")


def share(rows):
    rows = list(rows)
    return sum(map(is_right, rows)) / len(rows)


def by_group(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row.class_name, row.context), []).append(row)
    return groups


def test_accuracies_are_counts_over_the_sets_of_the_manifest(tested):
    _, _, manifest, result = tested
    assert result.overall == share(manifest.rows_of("test"))
    assert list(result.by_ratio) == ["1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1"]
    for ratio, accuracy in result.by_ratio.items():
        assert accuracy == share(manifest.rows_of(f"test-{ratio}"))


def test_accuracies_of_a_class_and_a_context_are_counts_over_their_images(result, tested_rows):
    dark = share(row for row in tested_rows if row.class_name == "dark")
    assert result.by_label["dark"] == pytest.approx(dark)
    red = share(row for row in tested_rows if row.context == "red")
    assert result.by_context["red"] == pytest.approx(red)


def test_the_worst_group_is_the_one_with_no_right_answer(result, tested_rows):
    worst = result.worst_group
    assert (worst.label, worst.context, worst.accuracy) == ("dark", "red", 0)
    assert worst.samples == len(by_group(tested_rows)["dark", "red"])


def test_averages_weigh_groups_equally_or_as_in_training(tested, tested_rows):
    _, _, manifest, result = tested
    accuracy = {group: share(rows) for group, rows in by_group(tested_rows).items()}
    assert result.average_over_groups == pytest.approx(np.mean(list(accuracy.values())))
    expected = np.mean([accuracy[row.class_name, row.context] for row in manifest.rows_of("train")])
    assert result.average_in_training_mixture == pytest.approx(expected)


def test_the_calibration_error_of_equal_confidences_is_the_distance_to_the_accuracy(result):
    confidence = float(torch.tensor([2.0, 0.0]).softmax(0)[0])
    assert result.calibration_error == pytest.approx(abs(confidence - result.overall), abs=1e-6)


def test_the_balanced_accuracy_is_the_mean_over_classes(result):
    assert set(result.scores) == {"balanced_accuracy", "macro_f1", "auroc", "worst_group_precision"}
    mean = sum(result.by_label.values()) / len(result.by_label)
    assert result.scores["balanced_accuracy"] == pytest.approx(mean)


@pytest.mark.parametrize(
    "words",
    [
        "Accuracy on all",
        "Worst group: dark in red, 0.0 %",
        "counted equally",
        "training set's mixture",
    ],
)
def test_an_evaluation_is_described_in_words(result, words):
    assert words in " ".join(describe_evaluation(result))


def test_images_without_a_context_are_told_from_the_others(tested_rows):
    nameless = [row._replace(context=row.context.replace("red", "")) for row in tested_rows]
    assert set(evaluation.split_names(nameless)[1]) == {"blue", "no context"}


def test_without_contexts_there_are_no_ratios(tmp_path):
    source = TinySource(contexts=("",))
    manifest = make_split(source)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    result = evaluate(
        TrainedModel(model, ModelConfig("own", manifest.classes, 8), tmp_path), source, manifest
    )
    assert result.by_ratio == result.by_context == {}
    assert [group.label for group in result.groups] == ["bright", "dark"]
    assert result.average_in_training_mixture is not None
    # No averages: they are accuracies below
    said = [line.split(":")[0] for line in describe_evaluation(result)]
    assert said[1:3] + said[-1:] == [
        "Worst class",
        "Expected calibration error",
        "Worst class's precision",
    ]


def test_other_classes_than_the_models_are_refused_and_fewer_are_fine(tmp_path):
    source, manifest = tiny_data()
    three = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    fewer = TrainedModel(three, ModelConfig("own", ("black", "bright", "dark"), 8), tmp_path)
    result = evaluate(fewer, source, manifest)
    with torch.no_grad():
        rows = manifest.rows_of("test")
        images = torch.stack([source.load(row.path, 8, row.sha256) for row in rows])
        answers = three(normalise(images)).argmax(1).tolist()
    names = [fewer.config.classes[answer] for answer in answers]
    assert result.overall == np.mean(
        [name == row.class_name for name, row in zip(names, rows, strict=True)]
    )
    with pytest.raises(ValueError, match="the model knows the classes cat, dog"):
        evaluate(fewer._replace(config=ModelConfig("own", ("cat", "dog"), 8)), source, manifest)


def test_evaluations_are_kept_side_by_side_and_never_mixed(tested, tmp_path):
    trained, source, manifest, result = tested
    assert save_evaluation(tmp_path, result) == tmp_path / "evaluations" / "test.json"
    save_evaluation(tmp_path, result)  # the same images again
    other_source, other = tiny_data(seed=3)
    elsewhere = evaluate(
        table_model(other_source, other, tmp_path), other_source, other, name="other"
    )
    assert elsewhere.data_sha256 != result.data_sha256
    save_evaluation(tmp_path, elsewhere)
    assert read_evaluations(tmp_path) == {"test": result, "other": elsewhere}
    assert list(read_evaluations(tmp_path)) == ["test", "other"]
    again = save_evaluation(tmp_path, evaluate(trained, source, manifest, name="other"))
    assert again.stem == f"other-{result.data_sha256[:8]}"
    assert read_evaluations(tmp_path)["other"] == elsewhere
    for bad, name in {
        "../my photos/": "my-photos",
        ".hidden": "hidden",
        "a/b": "a-b",
        "": "data",
    }.items():
        path = save_evaluation(tmp_path, replace(result, name=bad))
        assert path == tmp_path / "evaluations" / f"{name}.json"


@pytest.mark.parametrize(
    "damage",
    [
        {"overall": float("nan")},
        {"by_label": {"dark": 2.0}},
        {"worst_group": {}},
        {"name": 3},
        {"colour": "red"},
    ],
)
def test_damaged_evaluations_are_named(tested, tmp_path, damage):
    path = save_evaluation(tmp_path, tested[-1])
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(ValueError, match=r"test.json is not an evaluation"):
        read_evaluations(tmp_path)
    problems = []
    assert read_evaluations(tmp_path, problems) == {}
    assert "test.json was left out" in problems[0]


def test_the_hash_depends_on_images_and_labels_not_on_names(tested):
    from pfdl.vision.evaluation import hash_images

    rows = tested[2].rows_of("test")
    renamed = [row._replace(path=f"x/{row.path}") for row in reversed(rows)]
    assert hash_images(renamed) == hash_images(rows)
    assert hash_images(rows[1:]) != hash_images(rows)
    assert hash_images([rows[0]._replace(class_name="light"), *rows[1:]]) != hash_images(rows)


def test_the_test_set_is_that_of_the_run_or_else_what_was_not_trained_on(tested):
    trained, source, manifest, _ = tested
    manifest.save(trained.folder / "manifest.csv")
    assert find_test_set(manifest, source) == manifest
    fewer = TinySource()
    fewer.samples = fewer.samples[::2]
    other = find_test_set(manifest, fewer)
    trained_on = {row.sha256 for row in manifest.rows if row.side == "train"}
    assert {row.sha256 for row in other.rows} == {s.sha256 for s in fewer.samples} - trained_on
    assert "which the model was trained on" in other.notes[0]
    assert (
        evaluate(trained, fewer, other, trained_on=manifest).average_in_training_mixture is not None
    )
