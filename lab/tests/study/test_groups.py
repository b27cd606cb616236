"""Rows of the study that draw groups alike or refit the last layer, on the digits of SpuCoMNIST."""

import pytest
import torch

from pfdl.contexts import InferredContexts
from pfdl_lab import training
from pfdl_lab.study import data as study_data
from pfdl_lab.study import inferred
from pfdl_lab.study import run as study
from pfdl_lab.study.data import StudyData


def found(contexts):
    """Stand in for what find_contexts returns."""
    return InferredContexts(contexts.numpy(), "pooled", "Found.", ())


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
    monkeypatch.setattr(inferred, "find_contexts", lambda *_, **__: found(train.contexts))
    results = values("sampler")
    assert results["contexts found"] == 5
    assert results["agreement with true contexts"] == pytest.approx(1.0)
    assert results["worst group"] <= results["test"]


def test_contexts_are_inferred_once_for_all_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(study_data, "COLORED_DIGITS", 400)
    asked = []

    def note(features, labels, *, method, seed, confirmation=0.8):
        asked.append((method, seed))
        return found(labels.remainder(2))

    monkeypatch.setattr(inferred, "find_contexts", note)
    config = study.StudyConfig(("erm", "balance", "sampler", "jtt"), seeds=2, epochs=1)
    results = study.run(config, [StudyData("spuco-mnist-large-0.8")], tmp_path / "study")
    assert sorted(asked) == [("auto", 0), ("auto", 1), ("errors", 0), ("errors", 1)]
    assert (results[results["test"] == study.NUMBER]["value"] == 2).all()
    study.run(config, [StudyData("spuco-mnist-large-0.8")], tmp_path / "study")
    assert len(asked) == 4


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
    monkeypatch.setattr(inferred, "find_contexts", lambda features, labels, **_: found(torch.zeros_like(labels)))
    assert values("dfr")["test"] == plain["test"]


def test_jtt_has_two_contexts_right_and_wrong(values, monkeypatch):
    asked = []
    original = inferred.find_contexts

    def note(*arguments, **settings):
        asked.append(settings["method"])
        return original(*arguments, **settings)

    monkeypatch.setattr(inferred, "find_contexts", note)
    assert values("jtt")["contexts found"] == 2
    assert asked == ["errors"]


def test_contexts_that_judge_epochs_are_inferred_for_all_rows_but_oracles():
    def needed(*rows, judging):
        return [task["contexts"] for task in inferred.inference_tasks(StudyData("shapes"), rows, 3, judging=judging)]

    assert needed("erm", "balance-known", judging=False) == []
    assert needed("erm", "balance-known", judging=True) == ["inferred"]
    assert needed("balance-known", judging=True) == []
    assert needed("balance", "sampler", "jtt", judging=False) == ["inferred", "errors"]
