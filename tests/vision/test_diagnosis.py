import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pfdl.contexts import Trial
from pfdl.data import make_split, make_test_set
from pfdl.data.splits import name_contexts
from pfdl.vision.advice import advise
from pfdl.vision.backbones import make_backbone
from pfdl.vision.checkpoint import ModelConfig, TrainedModel
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import compare_diagnoses, diagnose_images
from pfdl.vision.evaluation import evaluate
from tests.vision.tiny_images import TinySource, tiny_data


def untrained(manifest, folder):
    torch.manual_seed(0)
    model = make_backbone("mlp", 2, image_size=8).eval()
    return TrainedModel(model, ModelConfig("mlp", manifest.classes, 8), folder)


def test_features_are_those_of_the_test_images_in_their_order(tmp_path):
    source, manifest = tiny_data()
    trained = untrained(manifest, tmp_path)
    found = diagnose_images(trained, source, manifest)
    assert [row.path for row in found.rows] == [row.path for row in manifest.rows_of("test")]
    assert len(found.predictions) == len(found.rows) == len(found.images)
    assert len(found.found.r2) == 256
    assert found.contexts_are == "known"
    assert found.usual_contexts == manifest.dominant
    assert not trained.model._modules["5"]._forward_pre_hooks


def test_accuracies_are_those_of_the_evaluation(tmp_path):
    source, manifest = tiny_data()
    trained = untrained(manifest, tmp_path)
    found = diagnose_images(trained, source, manifest).found
    measured = evaluate(trained, source, manifest)
    assert found.accuracies.overall == pytest.approx(measured.overall)
    assert found.accuracies.by_context == pytest.approx(measured.by_context)
    worst = measured.worst_group.accuracy
    assert found.accuracies.worst_group.accuracy == pytest.approx(worst)
    assert found.shift.accuracy[0] == pytest.approx(measured.average_in_training_mixture)


FAINT = 8


class Colours(TinySource):
    """Brightness shows the class faintly, the colour of the whole image the context clearly; with
    or without names.
    """

    def __init__(self, named, share=0.9, count=300, sets=("train", "test"), seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = {}
        self.samples = []
        for split in sets:
            for label, name in enumerate(("bright", "dark")):
                for number in range(count):
                    usual = number < (share if split == "train" else 0.5) * count
                    context = label if usual else 1 - label
                    image = torch.randint(0, 60, (3, 8, 8), generator=generator) + FAINT * (
                        1 - label
                    )
                    image[2 * context] += 120
                    where = ("red", "blue")[context] if named else ""
                    self.add(f"{split}/{name}/{number:03d}", image, name, where, split)
        self.samples = tuple(sorted(self.samples))


GREEN = (
    (29.5 + FAINT / 2) / 255 - 0.456
) / 0.224  # halfway between the classes, as a network sees it


class ByColour(nn.Module):
    """Calls red images bright, in a share of the images; the others by their brightness."""

    def __init__(self, share):
        super().__init__()
        self.share = share
        self.last = nn.Linear(4, 2)
        self.last.weight.data = torch.tensor([[1.0, -1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0]])
        self.last.bias.data.zero_()

    def forward(self, images):
        red, green, blue = images.mean(dim=(2, 3)).unbind(1)
        follows = (images[:, 1, 0, 0] * 1000 % 1) < self.share  # at random, but the same each time
        bright = torch.where(follows, red > blue, green > GREEN).float()
        return self.last(torch.stack([bright, 1 - bright, red, blue], 1))


def colour_model(share, tmp_path):
    return TrainedModel(ByColour(share).eval(), ModelConfig("mlp", ("bright", "dark"), 8), tmp_path)


def test_contexts_that_are_not_confirmed_give_pictures_and_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pfdl.contexts.judging.confirm",
        lambda method, stability, *_, **__: Trial(method, 2, stability, reason="they fail"),
    )
    source = Colours(named=False)
    manifest = make_split(source)
    for share in (0.8, 0.0):
        found = diagnose_images(colour_model(share, tmp_path), source, manifest)
        assert found.contexts_are == "inferred, not confirmed"
        assert found.answer == "cannot tell"
        assert found.found.shift is None
        words = " ".join(found.verdict())
        assert "were inferred, and not confirmed" in words
        assert "It errs most on these pictures: " in words
        assert "expect" not in words
        ((_, command),) = advise(found, "photos")
        assert "--columns context=NAME" in command


def test_contexts_that_data_names_later_serve_with_those_of_the_training_images_alone(tmp_path):
    manifest = make_split(Colours(named=False))
    table = Colours(named=True)
    own, note = name_contexts(manifest, table)
    assert "names those of 1200 of its images, 540 of which were trained on" in note
    found = diagnose_images(colour_model(0.8, tmp_path), table, own)
    assert (found.answer, found.usual_contexts) == ("yes", {"bright": "red", "dark": "blue"})
    tests_alone = Colours(named=True)
    tests_alone.samples = tuple(one for one in tests_alone.samples if one.split == "test")
    own, _ = name_contexts(manifest, tests_alone)
    found = diagnose_images(colour_model(0.8, tmp_path), table, own)
    assert (found.answer, found.contexts_are) == ("cannot tell", "known")
    assert "the images it was trained on, too" in advise(found, "photos")[0][0]


def test_contexts_of_the_split_are_kept_and_it_is_said_that_others_are_ignored():
    table = Colours(named=True)
    manifest = make_split(table)
    assert name_contexts(manifest, table) == (manifest, "")
    renamed = Colours(named=True)
    renamed.samples = tuple(one._replace(context="cloth") for one in renamed.samples)
    kept, note = name_contexts(manifest, renamed)
    assert kept is manifest
    assert "names for 1200 of its images are ignored" in note


def diagnosed(weight, folder):
    """The diagnosis of a model that looks at the colour with so much weight."""
    source = Colours(named=True)
    return diagnose_images(colour_model(weight, folder), source, make_split(source))


def test_a_model_that_looks_at_the_colour_is_found_out(found):
    assert found.contexts_are == "known"
    assert found.answer == "yes"
    assert found.verdict()[0].startswith("Yes, the model relies on the context: ")
    assert found.found.shift.accuracy[0] > found.found.shift.accuracy[-1] + 0.3
    # So that two runs with other sets may have the same images
    assert {row.sets for row in found.rows} == {()}


def test_a_model_that_does_not_look_at_the_colour_is_not_accused(found, tmp_path):
    honest = diagnosed(0.0, tmp_path)
    assert honest.answer == "no"
    (command,) = [command for _, command in advise(honest, "photos")]
    assert command.split()[1] == "evaluate"
    assert compare_diagnoses(found, honest).sentence("a", "b").startswith("a relies more")
    always = replace(honest, predictions=("dark",) * len(honest.rows)).verdict()
    assert "It answers dark to every image: it learnt nothing." in always


def test_the_examples_of_a_group_are_of_that_group_the_wrong_ones_first(found):
    worst = found.found.accuracies.worst_group
    examples = found.samples_of(worst.label, worst.context, 10)
    assert len(examples) == 10
    groups = {(found.rows[number].class_name, found.contexts[number]) for number in examples}
    assert groups == {(worst.label, worst.context)}
    right = [found.predictions[number] == worst.label for number in examples]
    assert right == sorted(right)


def test_the_examples_of_a_context_are_of_all_classes(found):
    context = found.found.accuracies.worst_group.context
    shown = {found.rows[number].class_name for number in found.samples_of(None, context, 8)}
    assert shown == {"bright", "dark"}


def test_the_gap_to_validation_is_said_and_what_the_contexts_explain_of_it(tmp_path):
    found = diagnosed(1.0, tmp_path)
    assert found.found.gap.validation == found.validation.overall == pytest.approx(0.9, abs=0.05)
    assert found.found.gap.test == pytest.approx(0.5)
    (tmp_path / "refit.json").touch()  # then the validation images are those that were refitted on
    assert diagnosed(1.0, tmp_path).validation is None
    words = " ".join(found.verdict())
    assert "points below validation accuracy" in words
    assert found.found.explains_gap
    assert "If the contexts shift, expect 90" in words
    missed = replace(
        found,
        found=replace(found.found, gap=replace(found.found.gap, test=0.2, in_training_mixture=1.0)),
    )
    assert not missed.found.explains_gap
    words = " ".join(missed.verdict())
    assert "The contexts explain only part of the gap" in words
    assert "If the contexts shift" not in words
    assert [command.split()[1] for _, command in advise(missed, "photos")] == ["train", "diagnose"]


@pytest.fixture(scope="module")
def found():
    """The diagnosis of a model that relies on the colour."""
    return diagnosed(0.8, Path("run"))


def test_what_to_try_next_is_the_same_training_but_for_the_contexts(
    found,
):
    doubted = replace(
        found,
        contexts_are="inferred, not confirmed",
        found=replace(found.found, unanswered="they are not confirmed"),
    )
    ((_, label),) = advise(doubted, "my photos")
    assert label.endswith("TABLE.csv --columns context=NAME")
    _, train = advise(replace(found, contexts_are="inferred"), "my photos")[0]
    assert "--contexts inferred" in train
    assert "confirm" not in train
    found = replace(found, folder=Path("run-groups"))
    once = TrainingConfig("mlp", "pfdl", image_size=8, epochs=12, optimizer="adamw", seed=3)
    sentence, command = advise(
        replace(found, training=once), "data.csv", ["--columns", "context=my place"]
    )[0]
    assert "with plain erm instead of pfdl" in sentence
    assert (
        command
        == "pfdl train data.csv --columns 'context=my place' --set manifest=run-groups/manifest.csv"
        " --backbone mlp --contexts known --image-size 8 --epochs 12 --sampler groups --set"
        " optimizer=adamw --seed 3 -o run-groups"
    )
    tried = replace(once, objective="erm", contexts="known", sampler="groups")
    sentence, command = advise(replace(found, training=tried), "data.csv")[0]
    assert sentence.startswith("Train with an objective that looks at the worst group")
    assert "--objective groupdro --contexts known" in command
    assert "--sampler" not in command
    assert command.endswith("-o run-groupdro")
    both = replace(tried, objective="groupdro", sampler="shuffle")
    sentence, command = advise(replace(found, training=both), "data.csv")[0]
    assert sentence.startswith("Add training images of the affected classes")
    assert command.startswith("pfdl train MORE_DATA --backbone mlp --objective groupdro")


def test_other_data_than_that_of_the_training_is_judged_by_the_training_mixture(tmp_path):
    source = Colours(named=True)
    manifest = make_split(source)
    other = Colours(named=True, sets=("test",), seed=1)
    elsewhere = make_test_set(other, manifest)
    found = diagnose_images(colour_model(0.8, tmp_path), other, elsewhere, trained_on=manifest)
    assert found.answer == "yes"
    assert advise(found, "other")[0][1].startswith("pfdl train TRAINING_DATA --set manifest=")
    assert found.usual_contexts == {"bright": "red", "dark": "blue"}
    assert advise(replace(found, data_is="named"), "other")[0][1].startswith(
        "pfdl train other --backbone"
    )
    blind = diagnose_images(colour_model(0.8, tmp_path), other, elsewhere)
    # The test images are balanced, and nothing says what training was like
    assert blind.answer == "cannot tell"
    assert np.isnan(compare_diagnoses(found, blind).difference)


def test_images_in_which_no_contexts_are_found_get_no_answer(tmp_path):
    source = Colours(named=False)
    for path, image in source.pictures.items():
        generator = torch.Generator().manual_seed(zlib.crc32(path.encode()))
        source.pictures[path] = torch.randint(0, 255, image.shape, generator=generator).to(
            torch.uint8
        )
    manifest = make_split(source)
    found = diagnose_images(colour_model(0.5, tmp_path), source, manifest)
    assert (found.answer, found.contexts_are) == ("cannot tell", "unknown")
    assert "the images have no contexts, and none could be inferred from them" in found.verdict()[0]
    assert "--columns context=NAME" in advise(found, "photos")[0][1]
    assert found.found.accuracies.by_context == {}
