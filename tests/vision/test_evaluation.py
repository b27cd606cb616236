import pytest
import torch
from torch import nn

from pfdl.data import make_split
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.evaluation import evaluate, expected_calibration_error
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


def test_accuracies_are_counts_over_the_sets_of_the_manifest(tmp_path):
    source, manifest = tiny_data()

    def is_right(row):  # wrong on every second image, and on all dark ones on red
        return int(row.path[-3:]) % 2 == 0 and (row.class_name, row.context) != ("dark", "red")

    answers = {}
    for row in manifest.rows:
        key = normalise(source.load(row.path, 8, row.sha256)).numpy().tobytes()
        label = manifest.classes.index(row.class_name)
        answers[key] = label if is_right(row) else 1 - label
    assert len(answers) == len(manifest.rows)
    trained = TrainedModel(Table(answers), ModelConfig("table", manifest.classes, 8), tmp_path)
    result = evaluate(trained, source, manifest, batch_size=5)

    def share(rows):
        rows = list(rows)
        return sum(map(is_right, rows)) / len(rows)

    test = manifest.rows_of("test")
    assert list(result.by_ratio) == ["1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1"]
    for ratio, accuracy in result.by_ratio.items():
        assert accuracy == share(manifest.rows_of(f"test-{ratio}"))
    assert result.overall == share(test)
    assert result.by_class["dark"] == share(row for row in test if row.class_name == "dark")
    assert result.by_context["red"] == share(row for row in test if row.context == "red")
    worst = [row for row in test if (row.class_name, row.context) == ("dark", "red")]
    assert (result.worst_group.class_name, result.worst_group.context) == ("dark", "red")
    assert (result.worst_group.accuracy, result.worst_group.images) == (0, len(worst))
    confidence = float(torch.tensor([2.0, 0.0]).softmax(0)[0])
    assert result.calibration_error == pytest.approx(abs(confidence - result.overall), abs=1e-6)
    assert result.to_dict()["worst_group"]["context"] == "red"


def test_without_contexts_there_are_no_ratios(tmp_path):
    source = TinySource(contexts=("",))
    manifest = make_split(source)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    result = evaluate(TrainedModel(model, ModelConfig("own", manifest.classes, 8), tmp_path), source, manifest)
    assert result.by_ratio == result.by_context == {}


def test_other_classes_than_the_models_are_refused(tmp_path):
    source, manifest = tiny_data()
    with pytest.raises(ValueError, match="the model knows the classes cat, dog"):
        evaluate(TrainedModel(nn.Flatten(), ModelConfig("own", ("cat", "dog"), 8), tmp_path), source, manifest)


def test_the_calibration_error_is_that_of_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(500, 4, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    labels = torch.randint(0, 4, (500,), generator=generator)
    error = 0.0
    for number in range(15):
        inside = [
            i for i in range(500) if number / 15 < probabilities[i].max() <= (number + 1) / 15
        ]  # as in Guo et al., open below
        if inside:
            accuracy = sum(int(probabilities[i].argmax() == labels[i]) for i in inside) / len(inside)
            confidence = sum(float(probabilities[i].max()) for i in inside) / len(inside)
            error += len(inside) / 500 * abs(accuracy - confidence)
    assert expected_calibration_error(probabilities, labels) == pytest.approx(error)
