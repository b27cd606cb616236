"""Rows of the study that draw groups alike or refit the last layer, on the digits of SpuCoMNIST."""

import pytest
import torch

from pfdl.experiments import training
from pfdl.experiments.study import data as study_data
from pfdl.experiments.study import run as study
from pfdl.experiments.study.data import StudyData


@pytest.fixture
def values(monkeypatch):
    monkeypatch.setattr(study_data, "COLORED_DIGITS", 400)

    def run(row, data="spuco-mnist-large-0.8"):
        lines = study.run_task(row, 0, device="cpu", images={}, epochs=2, learning_rate=0.05, **StudyData(data).task)
        return {line["test"]: line["value"] for line in lines}

    return run


def test_the_name_says_size_and_strength_of_the_colour():
    assert StudyData("spuco-mnist").is_generated
    assert StudyData("spuco-mnist-medium").name == "spuco-mnist-medium"
    assert not StudyData("spuco-mnist-huge").is_generated
    split = StudyData("spuco-mnist-small-0.5").split(0)
    share = float((split.train.labels == split.train.contexts).float().mean())
    assert share == pytest.approx(0.5, abs=0.02)
    assert split.make_model(None)(split.train.inputs[:3]).shape == (3, 5)
    assert split.make_model(7)[-1][0].out_features == 7
    assert len(split.context_features()) == len(split.train.labels)


def test_the_worst_group_and_the_agreement_of_contexts_are_reported(values, monkeypatch):
    train = StudyData("spuco-mnist-large-0.8").split(0).train
    monkeypatch.setattr(study, "infer_contexts", lambda *_, **__: train.contexts.numpy())  # as if they were found
    found = values("sampler")
    assert found["contexts found"] == 5
    assert found["agreement with true contexts"] == pytest.approx(1.0)
    assert found["worst group"] <= found["test"]


def test_known_groups_are_drawn_alike(values, monkeypatch):
    drawn = []
    original = training._order

    def note(settings, epoch, samples, grouped):
        drawn.append(original(settings, epoch, samples, grouped))
        return drawn[-1]

    monkeypatch.setattr(training, "_order", note)
    values("sampler-known")
    values("erm")
    train = StudyData("spuco-mnist-large-0.8").split(0).train
    groups = 5 * train.labels + train.contexts
    counts = [torch.bincount(groups[order], minlength=25) for order in drawn]
    assert len(drawn) == 4
    assert all(int(count.max() - count.min()) <= 2 for count in counts[:2])
    assert not torch.equal(drawn[0], drawn[1])
    assert all(torch.equal(count, torch.bincount(groups, minlength=25)) for count in counts[2:])


def test_dfr_changes_the_last_layer_of_plain_training_only_where_there_are_contexts(values, monkeypatch):
    plain, refitted = values("erm"), values("dfr-known")
    assert refitted["test"] != plain["test"]
    monkeypatch.setattr(study, "infer_contexts", lambda features, labels, **_: torch.zeros(len(labels)).long().numpy())
    assert values("dfr")["test"] == plain["test"]


def test_jtt_has_two_contexts_right_and_wrong(values, monkeypatch):
    asked = []
    original = study.infer_contexts

    def note(*arguments, **settings):
        asked.append(settings["method"])
        return original(*arguments, **settings)

    monkeypatch.setattr(study, "infer_contexts", note)
    assert values("jtt")["contexts found"] in (1, 2)
    assert asked == ["errors"]
