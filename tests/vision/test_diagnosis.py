import numpy as np
import pytest
import torch

from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.diagnosis import diagnose_images, measure_leaning
from pfdl.vision.evaluation import evaluate
from tests.vision.tiny_images import TinySource, tiny_data

HOME = {"cow": "grass", "camel": "sand", "goat": "grass"}


def test_answers_that_follow_the_context_are_seen():
    labels = ["cow", "camel", "goat"] * 40
    contexts = ["grass"] * 60 + ["sand"] * 60
    follows = ["camel" if context == "sand" else label for label, context in zip(labels, contexts, strict=True)]
    leaning = measure_leaning(labels, contexts, follows, HOME)
    # Cows and goats on grass and camels on sand are at home, and all of them are right.
    assert leaning.at_home == 1
    assert leaning.elsewhere == pytest.approx(20 / 60)  # camels on grass
    assert (leaning.misled, leaning.misled_by_chance, leaning.wrong_answers) == (1, 0.5, 40)
    assert leaning.is_seen
    assert "leans on the context" in leaning.sentences()[0]
    assert "100 % of 40 wrong answers" in leaning.sentences()[1]


def test_answers_that_do_not_are_not_accused():
    generator = np.random.default_rng(0)
    labels = generator.choice(list(HOME), size=300)
    contexts = generator.choice(["grass", "sand", "snow"], size=300)
    wrong = generator.random(300) < 0.2
    answers = np.where(wrong, generator.permutation(labels), labels)
    leaning = measure_leaning(labels, contexts, answers, HOME)
    assert not leaning.is_seen
    assert "No leaning" in leaning.sentences()[0]
    assert abs(leaning.misled - leaning.misled_by_chance) < 0.3


def test_without_two_places_or_without_errors_there_is_less_to_say():
    assert measure_leaning(["cow"], ["grass"], ["cow"], HOME) is None
    assert measure_leaning(["cow"], ["sand"], ["cow"], HOME) is None
    perfect = measure_leaning(["cow", "cow"], ["grass", "sand"], ["cow", "cow"], HOME)
    assert np.isnan(perfect.misled)
    assert len(perfect.sentences()) == 1


def model_of(manifest, tmp_path, seed=0):
    torch.manual_seed(seed)
    classes = manifest.classes
    model = make_backbone("mlp", len(classes), image_size=8).eval()
    return TrainedModel(model, ModelConfig("mlp", classes, 8), tmp_path)


def test_features_are_those_of_the_test_images_in_their_order(tmp_path):
    source, manifest = tiny_data()
    trained = model_of(manifest, tmp_path)
    found = diagnose_images(trained, source, manifest, batch_size=7)
    assert [row.path for row in found.rows] == [row.path for row in manifest.rows_of("test")]
    assert len(found.found.correlated_part) == len(found.rows) == len(found.images)
    assert len(found.found.r2) == 256
    measured = evaluate(trained, source, manifest)
    assert found.found.accuracies.overall == pytest.approx(measured.overall)
    assert found.found.accuracies.by_context == pytest.approx(measured.by_context)
    assert found.found.accuracies.worst_group.accuracy == pytest.approx(measured.worst_group.accuracy)
    again = diagnose_images(trained, source, manifest, batch_size=100)
    np.testing.assert_allclose(again.found.r2, found.found.r2, atol=1e-4)
    assert found.verdict()[: len(found.leaning.sentences())] == found.leaning.sentences()
    assert not trained.model._modules["5"]._forward_pre_hooks


def test_images_without_contexts(tmp_path):
    from pfdl.data import make_split

    source = TinySource(contexts=("",))
    manifest = make_split(source, ratio="2:1")
    found = diagnose_images(model_of(manifest, tmp_path), source, manifest)
    assert found.leaning is None
    assert found.found.context_reading is None
    assert found.found.accuracies.by_context == {}
    assert " in " not in found.verdict()[-1].partition("lowest for ")[2].partition(",")[0]


def test_a_model_of_other_classes_is_refused(tmp_path):
    source, manifest = tiny_data()
    trained = model_of(manifest, tmp_path)._replace(config=ModelConfig("mlp", ("cat", "dog"), 8))
    with pytest.raises(ValueError, match="knows the classes cat, dog, but the images are of bright, dark"):
        diagnose_images(trained, source, manifest)
